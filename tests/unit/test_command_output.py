"""What commands print of names with control characters."""

import pytest

from gobblin_assets.cli.output import print_table, say

NAMES = ("\x1b[31m", "new\nline", "\ttab", "\x7f\x9b1m", "caf\udce9", "día [x]")
SHOWN = (r"\x1b[31m", r"new\x0aline", r"\x09tab", r"\x7f\x9b1m", r"caf\udce9", "día [x]")


def test_a_table_shows_names_escaped_and_messages_by_lines(capsys: pytest.CaptureFixture[str]) -> None:
    print_table("of \x1b[1m", ("path", "bytes", "note"), [(name, 1, f"{name}\nmore") for name in NAMES])
    out = capsys.readouterr().out
    lines = [line.split("  ") for line in out.splitlines()]
    for shown in SHOWN:
        assert any(line[0].strip() == shown for line in lines)
    assert out.count("more") == len(NAMES)
    assert not {"\x1b", "\t", "\x7f", "\x9b", "\udce9"} & set(out)
    assert out.startswith(r"of \x1b[1m")
    assert "\\x0amore" not in out


def test_rows_with_and_without_long_texts_are_shown_alike(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [("a", None, 1), ("", "", None), ("ü [b]", " two  words ", 20_000), (None, None, None)]
    columns = ("name", "text", "count")
    print_table("rows", columns, rows)
    short = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert short[4:8] == [" a                           1", "", " ü [b]    two  words    20,000", ""]
    # A text that is too long for a line: each row is a row of its own then.
    print_table("rows", columns, [*rows, ("long", "y" * 300, 3)])
    long = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert [line.split() for line in long[4:8]] == [line.split() for line in short[4:8]]
    assert sum(line.count("y") for line in long) == 300


def test_progress_keeps_its_lines_and_nothing_else_that_a_terminal_obeys(capsys: pytest.CaptureFixture[str]) -> None:
    say("\n".join(NAMES))
    err = capsys.readouterr().err
    assert err == "\n".join((*SHOWN[:1], "new\nline", *SHOWN[2:])) + "\n"
