"""A line for whoever waits comes while something does not answer, and not where it does."""

import threading

from gobblin_assets.run.progress import said_if_slow


def test_what_does_not_answer_is_said_once_while_it_is_waited_for() -> None:
    lines: list[str] = []
    is_said = threading.Event()

    def say(line: str) -> None:
        lines.append(line)
        is_said.set()

    with said_if_slow(say, "no answer yet", after_s=0.0):
        assert is_said.wait(60)
    assert lines == ["no answer yet"]


def test_an_answer_in_time_says_nothing() -> None:
    lines: list[str] = []
    with said_if_slow(lines.append, "no answer yet", after_s=3600.0):
        pass
    assert lines == []
