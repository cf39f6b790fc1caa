"""On a terminal, a line of progress takes the place of the one before; a pipe gets each in a line of its own."""

import os
import pty
import subprocess
import sys
from contextlib import suppress

PROGRAM = """
from gobblin_assets.cli.output import print_table, say
from gobblin_assets.model.wording import PassingLine
say("begun")
say(PassingLine("waiting for the first of 4 tasks, 5 s"))
say(PassingLine("1 of 4 tasks, " + "9" * 400))
say("a note")
say(PassingLine("2 of 4 tasks"))
print_table("run", ("dataset",), [("orders",)])
say(PassingLine("the last"))
"""


def run_on_terminal(**variables: str) -> str:
    """What the program writes to a terminal of 80 columns."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": "80", "TERM": "xterm", **variables}
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=theirs, stdout=theirs, stderr=theirs, env=environment
    )
    os.close(theirs)
    pieces = []
    # The end of a terminal is an error.
    with suppress(OSError):
        while piece := os.read(ours, 1 << 16):
            pieces.append(piece)
    assert process.wait() == 0
    os.close(ours)
    return b"".join(pieces).decode()


def show(written: str) -> list[str]:
    """What a person sees in the end."""
    lines = [line.rpartition("\x1b[2K")[2].rstrip() for line in written.replace("\r\n", "\n").split("\n")]
    return [line for line in lines if line]


def test_a_terminal_shows_the_last_of_them_until_something_else_is_said() -> None:
    written = run_on_terminal()
    assert "waiting for the first of 4 tasks, 5 s" in written
    shown = show(written)
    assert shown[:2] == ["begun", "a note"]
    assert not [line for line in shown if "tasks" in line or "the last" in line], shown
    long = written.partition("1 of 4 tasks, ")[2].partition("\r")[0]
    assert len("1 of 4 tasks, ") + len(long) < 80, "a folded line can't be taken back"


def test_a_terminal_that_can_t_go_back_gets_lines() -> None:
    assert "\x1b[2K" not in run_on_terminal(TERM="dumb")


def test_a_pipe_gets_lines() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert [line[:14] for line in done.stderr.splitlines()] == [
        "begun",
        "waiting for th",
        "1 of 4 tasks, ",
        "a note",
        "2 of 4 tasks",
        "the last",
    ]
