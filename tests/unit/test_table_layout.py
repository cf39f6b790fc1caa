"""Tables on terminals of several widths: no word is broken, and nothing is left out without a line that says so."""

import io

import pytest
from rich.console import Console

from gobblin_assets.cli.table_layout import ShownColumn, draw_table, find_width

RUN = [
    ShownColumn("dataset", ("public.orders", "public.customers")),
    ShownColumn("partition", ("2026-01-01", "")),
    ShownColumn("mode", ("append", "refresh")),
    ShownColumn("outcome", ("COMMITTED", "FAILED")),
    ShownColumn("rows", ("200,000", ""), is_number=True),
    ShownColumn("files", ("12", ""), is_number=True),
    ShownColumn("watermark before", ("", "")),
    ShownColumn("after", ("2026-01-16T21:20:00.000001", "")),
    ShownColumn("note", ("", "the source has no such table; name another one in the job"), is_message=True),
]
WORDS = [word for column in RUN for text in column.texts for word in text.split()]


def show(columns: list[ShownColumn], width: int | None, *, is_terminal: bool = False) -> str:
    out = io.StringIO()
    shown = find_width(columns) if width is None else width
    wide = Console(file=out, width=shown, force_terminal=is_terminal or None)
    for part in draw_table("run 1: PARTIAL", columns, shown):
        wide.print(part)
    return out.getvalue()


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 160, None])
def test_no_word_is_broken(width: int | None) -> None:
    shown = show(RUN, width)
    assert width is None or all(len(line) <= width for line in shown.splitlines())
    missing = [word for word in WORDS if word not in shown]
    assert missing in ([], ["append", "refresh"])
    assert not missing or "Too wide for this terminal: mode" in shown


def test_a_wide_terminal_has_a_table_and_a_narrow_one_a_card_for_each_row() -> None:
    assert "watermark before" in show(RUN, 220)
    header = ["dataset", "partition", "outcome", "rows", "files", "after", "note"]
    assert header in [line.split() for line in show(RUN, 120).splitlines()]
    cards = show(RUN, 60)
    assert [line.split()[0] for line in cards.splitlines() if line.strip()][:3] == ["run", "dataset", "partition"]
    assert cards.count("dataset") == 2
    assert "mode" in cards


def test_a_line_that_no_terminal_reads_is_never_folded() -> None:
    lines = show(RUN, None).splitlines()
    assert sum("the source has no such table; name another one in the job" in line for line in lines) == 1


def test_outcomes_have_colours_unless_nobody_wants_them(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b[32mCOMMITTED" in show(RUN, 120, is_terminal=True)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[32m" not in show(RUN, 120, is_terminal=True)
