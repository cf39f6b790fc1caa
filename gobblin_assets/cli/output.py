"""Output of commands: data on stdout, as a table or as JSON; progress and errors on stderr; exit codes."""

import atexit
import dataclasses
import datetime as dt
import json
import os
import re
import shutil
import sys
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, Final, TypeVar

import click
from rich.console import Console
from rich.text import Text

from gobblin_assets.cli.table_layout import ShownColumn, draw_table, find_width
from gobblin_assets.errors import GobblinError
from gobblin_assets.model.interval import Interval
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.model.watermark import Watermark
from gobblin_assets.model.wording import CONTROLS, PassingLine, show_moment

_Command = TypeVar("_Command", bound=Callable[..., Any])

# A pipe has no width; grep could not use the folded lines of a table.
_WIDTH_WITHOUT_TERMINAL: Final = 220

_LINE_ENDS: Final = "\n"
_CLEARED: Final = "\r\x1b[2K"
"""Moves a terminal's cursor to the begin of its line, and clears the line."""

_OF_MESSAGES: Final = frozenset({"", "error", "note"})
"""Columns whose texts may have several lines."""

json_option: Final[Callable[[_Command], _Command]] = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON instead of tables."
)

EXIT_FAILED: Final = 1
EXIT_REFUSED: Final = 2
"""The input was refused, and nothing was begun; click uses the same code."""
EXIT_SKIPPED: Final = 3
"""Nothing failed, but a dataset was left out because another process works on it."""
EXIT_INTERRUPTED: Final = 130
"""Interrupted: the code that a shell gives for SIGINT."""


class _PassingLines:
    """The last line of a terminal, while it is one that the next line takes the place of."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_shown = False

    def say(self, line: str) -> None:
        text = escape_controls(line, keeps=_LINE_ENDS)
        with self._lock:
            self._clear()
            if isinstance(line, PassingLine) and _is_terminal():
                # A line that is folded could not be taken back.
                click.echo(text[: shutil.get_terminal_size().columns - 1], err=True, nl=False)
                self._is_shown = True
            else:
                click.echo(text, err=True)

    def clear(self) -> None:
        with self._lock:
            self._clear()

    def _clear(self) -> None:
        if self._is_shown:
            click.echo(_CLEARED, err=True, nl=False)
            self._is_shown = False


_passing: Final = _PassingLines()
atexit.register(_passing.clear)


def _is_terminal() -> bool:
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


def say(line: str) -> None:
    """A line of progress, or several. On a terminal, the next line takes the place of a ``PassingLine``."""
    _passing.say(line)


def exit_for(failures: Mapping[DatasetUrn, GobblinError]) -> None:
    """Say each failure by what has failed, and end the command as failed; return without failures."""
    for name, error in failures.items():
        say(f"{name}: {error}")
    if failures:
        click.get_current_context().exit(EXIT_FAILED)


def escape_controls(text: str, *, keeps: str = "") -> str:
    """The text without the characters that a terminal obeys, which names may have; ``keeps``: all but these."""

    def escape(found: re.Match[str]) -> str:
        code = ord(found[0])
        return found[0] if found[0] in keeps else f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"

    return CONTROLS.sub(escape, text)


def print_json(data: object) -> None:
    """Print data as JSON: moments as ISO texts in UTC, ids as texts, positions as they are stored."""
    _passing.clear()
    click.echo(json.dumps(to_plain(data), indent=2, ensure_ascii=False))


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print one line for each row, numbers aligned right; cards where a terminal is too narrow.

    Without rows, print the title alone, with a note. Control characters of names are escaped.
    """
    _passing.clear()
    title = escape_controls(title)
    is_read = sys.stdout.isatty()
    console = Console(file=sys.stdout, width=None if is_read else _WIDTH_WITHOUT_TERMINAL, highlight=False)
    if not rows:
        console.print(Text(f"{title}: none"))
        return
    shown = [_read_column(name, [row[number] for row in rows]) for number, name in enumerate(columns)]
    if not is_read:
        console.width = max(console.width, find_width(shown))
    for part in draw_table(title, shown, console.width):
        console.print(part)


def _read_column(name: str, values: Sequence[object]) -> ShownColumn:
    keeps = _LINE_ENDS if name in _OF_MESSAGES else ""
    return ShownColumn(
        name,
        tuple(escape_controls(to_text(each), keeps=keeps) for each in values),
        is_number=all(isinstance(each, int | float | None) for each in values),
        is_message=name in _OF_MESSAGES,
    )


def to_text(value: object) -> str:
    """The text of a cell of a table."""
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:,.1f}"
        case dt.datetime():
            return show_moment(value)
        case Enum():
            return str(value.value)
        case Watermark():
            return str(value).replace(".000000", "")
        case Interval(low=low, high=high):
            return f"[{'start' if low is None else to_text(low)}, {to_text(high)})"
        case _:
            return str(value)


def to_plain(value: object) -> Any:
    """The value as JSON can hold it."""
    match value:
        case None | bool() | int() | float() | str() if not isinstance(value, Enum):
            return value
        case Enum():
            return value.value
        case dt.datetime():
            return value.astimezone(dt.UTC).isoformat().replace("+00:00", "Z")
        case uuid.UUID():
            return str(value)
        case Watermark():
            return value.to_json()
        case Mapping():
            return {str(key): to_plain(each) for key, each in value.items()}
        case _ if dataclasses.is_dataclass(value):
            return {each.name: to_plain(getattr(value, each.name)) for each in dataclasses.fields(value)}
        case list() | tuple():
            return [to_plain(each) for each in value]
        case _:
            return str(value)
