"""Many short steps are told of every few seconds, and not one by one."""

from gobblin_assets.model.clock import SystemClock
from gobblin_assets.run.progress import LINE_EVERY_S, Progress, StepProgress


class TurnedClock(SystemClock):
    now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s


def test_a_line_every_few_seconds_says_how_many_are_done_and_none_when_all_are() -> None:
    clock, said = TurnedClock(), list[str]()
    progress = StepProgress(clock, said.append, "partitions planned", 2_000)
    for _step in range(20):
        clock.now_s += LINE_EVERY_S / 5
        progress.add(100)
    assert said == [
        f"{done:,} of 2,000 partitions planned, 100.0 a second, {done / 100:.0f} s, about {20 - done / 100:.0f} s left"
        for done in (500, 1_000, 1_500)
    ]


def test_lines_are_seldom_while_no_task_ends() -> None:
    clock, said = TurnedClock(), list[str]()
    progress = Progress(clock, said.append, task_count=2, estimated_rows=400)
    for _second in range(200):
        clock.now_s += 1
        progress.tick()
    assert said == [f"waiting for the first of 2 tasks, {second} s" for second in (5, 15, 35, 75, 135, 195)]
    said.clear()
    progress.add(rows=100, file_bytes=1 << 20)
    for _second in range(20):
        clock.now_s += 1
        progress.tick()
    assert said == [
        "1 of 2 tasks, 100 rows, 1.0 MiB, 0 rows/s, 200 s, about 600 s left",
        "1 of 2 tasks, 100 rows, 1.0 MiB, 0 rows/s, 210 s, about 630 s left",
    ]


def test_rows_are_said_with_the_steps_that_they_came_with() -> None:
    clock, said = TurnedClock(), list[str]()
    progress = StepProgress(clock, said.append, "partitions published", 3_000)
    for _part in range(6):
        clock.now_s += 1
        progress.add(200, rows=700)
    assert said == ["1,000 of 3,000 partitions published, 3,500 rows, 200.0 a second, 5 s, about 10 s left"]
