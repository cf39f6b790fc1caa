"""What a worker of a sink says while records come, while none comes, and while nobody knows."""

from gobblin_assets.jobs.sink.sink_progress import IDLE_LINE_EVERY_S, LINE_EVERY_S, SinkProgress
from tests.simulation.world import SimClock


def talk(*rounds: tuple[float, int, int | None]) -> list[str]:
    """The lines of a worker that waits, reads so many records, and is so far behind, round by round."""
    lines: list[str] = []
    clock = SimClock(1, now_s=0.0)
    progress = SinkProgress(clock, lines.append, "records")
    progress.tick(lambda: 0)
    for wait_s, records, behind in rounds:
        clock.sleep(wait_s)
        progress.read(records)
        progress.tick(lambda behind=behind: behind)
    return lines


def test_a_rate_is_said_while_records_come() -> None:
    (line,) = talk((LINE_EVERY_S, 50, 7))
    assert line.startswith("50 records, 0 rows")
    assert line.endswith("5 records/s, 7 records behind")


def test_an_idle_worker_says_so_once_and_then_seldom_and_that_records_come_again() -> None:
    idle = [(LINE_EVERY_S, 0, 0)] * round(IDLE_LINE_EVERY_S / LINE_EVERY_S)
    lines = talk((LINE_EVERY_S, 50, 0), *idle, (LINE_EVERY_S, 0, 0), (LINE_EVERY_S, 3, 0))
    assert ["no record has come" in line for line in lines] == [False, True, True, False]
    assert "no record has come for 10 s, 0 records behind" in lines[1]


def test_a_lag_that_nobody_knows_is_no_zero() -> None:
    (line,) = talk((LINE_EVERY_S, 0, None))
    assert line.endswith("no record has come for 10 s, how far it is behind is not known")
