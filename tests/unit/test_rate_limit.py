"""The rate limit: when attempts begin, by a clock that moves only while something waits."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobblin_assets.errors import FencedError
from gobblin_assets.model.clock import SystemClock
from gobblin_assets.run.task import RateLimit


@dataclass
class WaitingClock(SystemClock):
    """A clock that moves only by sleeping and waiting."""

    now_s: float = 0.0
    waits: list[float] = field(default_factory=list)
    is_stopping: bool = False

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def wait(self, seconds: float) -> bool:
        self.waits.append(seconds)
        self.now_s += seconds
        return self.is_stopping


def test_an_attempt_waits_for_the_rows_of_those_before_it() -> None:
    clock = WaitingClock()
    limit = RateLimit(clock, 100.0, clock.wait)

    for _ in range(3):
        limit.acquire(500)

    assert clock.waits == [5.0, 5.0]


def test_time_that_passed_is_not_waited_for_again_nor_saved_up() -> None:
    clock = WaitingClock()
    limit = RateLimit(clock, 100.0, clock.wait)
    limit.acquire(500)
    clock.sleep(60.0)

    limit.acquire(500)
    limit.acquire(1)

    assert clock.waits == [5.0]


@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=30), st.floats(1.0, 10_000.0))
def test_rows_that_have_begun_never_come_faster_than_allowed(rows: list[int], rate: float) -> None:
    clock = WaitingClock()
    limit = RateLimit(clock, rate, clock.wait)
    begun = 0

    for count in rows:
        limit.acquire(count)
        assert begun <= rate * clock.now_s * (1 + 1e-9) + 1e-6
        begun += count


def test_without_a_limit_nothing_waits() -> None:
    clock = WaitingClock()

    RateLimit(clock, None, clock.wait).acquire(1 << 40)

    assert clock.waits == []


def test_a_run_that_stops_begins_no_attempt() -> None:
    clock = WaitingClock(is_stopping=True)
    limit = RateLimit(clock, 1.0, clock.wait)
    limit.acquire(10)

    with pytest.raises(FencedError, match="stopping"):
        limit.acquire(10)
