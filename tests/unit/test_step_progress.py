"""Many short steps are told of every few seconds, and not one by one."""

from gobblin_assets.model.clock import SystemClock
from gobblin_assets.run.progress import LINE_EVERY_S, StepProgress


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
    assert said == [f"{done:,} of 2,000 partitions planned, {done / 100:.0f} s" for done in (500, 1_000, 1_500)]
