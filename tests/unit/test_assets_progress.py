"""Progress in a run's log: prompt lines, few of them, and none lost at the end."""

import pytest

from gobblin_assets.dagster.progress import ProgressLog


class Hand:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_lines_come_at_once_after_a_quiet_time_and_else_together() -> None:
    written: list[str] = []
    clock = Hand()
    log = ProgressLog(written.append, interval_s=5, monotonic=clock)
    for moment, line in [(0, "a"), (1, "b"), (4.9, "c"), (5, "d"), (6, "e"), (20, "f")]:
        clock.now = moment
        log(line)
    assert written == ["a", "b\nc\nd", "e\nf"]


def test_what_waits_at_the_end_is_written_and_what_was_too_much_is_counted() -> None:
    written: list[str] = []
    log = ProgressLog(written.append, interval_s=5, monotonic=Hand())
    for number in range(152):
        log(str(number))
    log.close()
    log.close()
    assert written[0] == "0"
    assert written[1].splitlines()[:2] == ["(51 earlier lines left out)", "52"]
    assert len(written) == 2


def test_lines_that_the_run_s_log_does_not_take_go_to_stderr_and_nobody_fails(
    capsys: pytest.CaptureFixture[str],
) -> None:
    written: list[str] = []
    is_away = True

    def write(text: str) -> None:
        if is_away:
            raise OSError("Dagster's storage does not answer")
        written.append(text)

    clock = Hand()
    log = ProgressLog(write, interval_s=5, monotonic=clock)
    log("heartbeat failed, will try again")
    clock.now, is_away = 5, False
    log("all is well")
    assert "heartbeat failed, will try again" in capsys.readouterr().err
    assert written == ["all is well"]
