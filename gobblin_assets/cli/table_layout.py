"""Tables that keep words whole, whatever the width of the terminal: as a table, with fewer columns, or as cards.

A column is as wide as its longest cell; messages alone are folded, between words. A table that does not fit loses the
columns without a value, then those that are read least, which a line names. If it does not fit then, it becomes a card
for each row, with a line for each value.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Final

from rich import box
from rich.cells import cell_len
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

MESSAGE_WIDTH_MIN: Final = 24
"""A column of messages gets at least so many characters, unless all of them are shorter."""

# Between two columns, and beside the outermost ones, as rich draws SIMPLE_HEAD.
_BETWEEN: Final = 3
_BESIDE: Final = 2

_EXPENDABLE: Final = ("version", "MiB", "watermark before", "mode", "owner", "ended at")
"""Columns that a narrow terminal does without, the first one first."""

_GOOD: Final = "green"
_BAD: Final = "bold red"
_UNSURE: Final = "yellow"
_STYLES: Final = MappingProxyType(
    {
        **dict.fromkeys(("COMMITTED", "SUCCESSFUL", "DONE", "passed"), _GOOD),
        **dict.fromkeys(("FAILED", "BLOCKED", "CANCELLED", "failed"), _BAD),
        **dict.fromkeys(("PARTIAL", "SKIPPED", "FENCED", "ABORTED"), _UNSURE),
    }
)


@dataclass(frozen=True)
class ShownColumn:
    """A column of texts. ``is_message``: its texts may be folded, and may have several lines."""

    name: str
    texts: tuple[str, ...]
    is_number: bool = False
    is_message: bool = False

    @cached_property
    def width(self) -> int:
        """That of the longest line, in characters. Looked for once: a plan has tens of thousands of rows."""
        return max(cell_len(line) for text in (self.name, *self.texts) for line in text.split("\n"))

    @property
    def width_min(self) -> int:
        return min(self.width, MESSAGE_WIDTH_MIN) if self.is_message else self.width

    @property
    def is_empty(self) -> bool:
        return not any(self.texts)


def draw_table(title: str, columns: Sequence[ShownColumn], width: int) -> Iterator[RenderableType]:
    """What to print, top down. ``width``: of the terminal, in characters; of ``find_width``: no line is folded."""
    shown = _choose(columns, width)
    if _find_width_min(shown) > width:
        yield Text(title, style="bold")
        yield from _make_cards(columns)
        return
    table = Table(title=Text(title, style="bold"), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for each in shown:
        table.add_column(
            Text(each.name),
            justify="right" if each.is_number else "left",
            overflow="fold",
            no_wrap=not each.is_message,
            min_width=each.width_min,
        )
    if find_width(shown) > width or any("\n" in text for each in shown for text in each.texts):
        for cells in zip(*(each.texts for each in shown), strict=True):
            table.add_row(*map(_style, cells))
    else:
        # One row whose cells have all lines shows the same: rich takes long for each cell, not for each line.
        table.add_row(*(_join(each.texts) for each in shown))
    yield table
    if left_out := [each.name for each in columns if each not in shown and not each.is_empty]:
        yield Text(f" Too wide for this terminal: {', '.join(left_out)}", style="dim")


def find_width(columns: Sequence[ShownColumn]) -> int:
    """How wide a line must be so that no cell is folded."""
    return _add_up([each.width for each in columns])


def _find_width_min(columns: Sequence[ShownColumn]) -> int:
    return _add_up([each.width_min for each in columns])


def _add_up(widths: Sequence[int]) -> int:
    return sum(widths) + _BETWEEN * (len(widths) - 1) + _BESIDE


def _choose(columns: Sequence[ShownColumn], width: int) -> list[ShownColumn]:
    shown = list(columns)
    if _find_width_min(shown) <= width:
        return shown
    shown = [each for each in shown if not each.is_empty]
    for name in _EXPENDABLE:
        if _find_width_min(shown) > width:
            shown = [each for each in shown if each.name != name]
    return shown


def _make_cards(columns: Sequence[ShownColumn]) -> Iterator[RenderableType]:
    for cells in zip(*(each.texts for each in columns), strict=True):
        card = Table.grid(padding=(0, 2, 0, 0))
        card.add_column(no_wrap=True, style="dim")
        card.add_column(overflow="fold")
        for column, cell in zip(columns, cells, strict=True):
            if cell:
                card.add_row(Text(f"  {column.name}"), _style(cell))
        yield Text("")
        yield card


def _join(texts: Sequence[str]) -> Text:
    if _STYLES.keys().isdisjoint(texts):
        return Text("\n".join(texts))
    return Text("\n").join(map(_style, texts))


def _style(cell: str) -> Text:
    # Text, not str: rich would read a name with square brackets as markup.
    return Text(cell, style=_STYLES.get(cell, ""))
