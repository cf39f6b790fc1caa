"""Writers below a rate, by a clock that only their waits move."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobblin_assets.jobs.copy.transfer.pacing import BURST_S, SLICE_S, PacedSink, ThreadPace, TokenBucket
from gobblin_assets.jobs.copy.transfer.transfer_port import Rate
from gobblin_assets.jobs.copy.transfer.writing import ResultRow

ROW: ResultRow = (0, 0, (1, 1, 1, None), None)


class StoppedError(Exception):
    pass


@dataclass
class Heard:
    """A sink with a clock. ``stop_at_s``: when it raises, as the sink of a writer that was stopped."""

    now_s: float = 0.0
    stop_at_s: float | None = None
    moved_bytes: int = 0
    rows: list[ResultRow] = field(default_factory=list)

    def moved(self, count: int) -> None:
        if self.stop_at_s is not None and self.now_s >= self.stop_at_s:
            raise StoppedError
        self.moved_bytes += count

    def ended(self, row: ResultRow) -> None:
        self.rows.append(row)

    def clock(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        assert 0 < seconds <= SLICE_S
        self.now_s += seconds


def paced(heard: Heard, bytes_per_s: float | None = None, files_per_s: float | None = None) -> PacedSink:
    return PacedSink(heard, bytes_per_s, files_per_s, clock=heard.clock, sleep=heard.sleep)


def test_bytes_take_the_time_that_their_rate_gives_them() -> None:
    heard = Heard()
    sink = paced(heard, bytes_per_s=100)
    for _ in range(10):
        sink.moved(50)
    assert heard.moved_bytes == 500
    assert heard.now_s == pytest.approx(5)


def test_files_take_the_time_that_their_rate_gives_them() -> None:
    heard = Heard()
    sink = paced(heard, files_per_s=4)
    for _ in range(10):
        sink.moved(1_000_000)
        sink.ended(ROW)
    assert len(heard.rows) == 10
    assert heard.now_s == pytest.approx(2.5)


def test_the_stricter_of_both_rates_counts() -> None:
    heard = Heard()
    sink = paced(heard, bytes_per_s=1_000, files_per_s=1)
    for _ in range(5):
        sink.moved(10)
        sink.ended(ROW)
    assert heard.now_s == pytest.approx(5, rel=0.02)


def test_a_writer_that_waits_hears_that_it_was_stopped() -> None:
    heard = Heard(stop_at_s=1.0)
    with pytest.raises(StoppedError):
        paced(heard, bytes_per_s=1).moved(1_000_000)
    assert heard.now_s == pytest.approx(1.0, abs=SLICE_S)


@given(st.lists(st.tuples(st.integers(1, 1_000), st.floats(0, 3)), max_size=30))
def test_no_stretch_of_time_has_more_than_its_rate_a_burst_and_one_step(steps: list[tuple[int, float]]) -> None:
    """Each step moves so many bytes after a pause. ``came``: when, and how many until then."""
    per_s, now_s, moved = 100.0, 0.0, 0
    bucket = TokenBucket(per_s, now_s)
    came = [(0.0, 0)]
    for count, pause_s in steps:
        now_s += pause_s
        moved += count
        came.append((now_s, moved))
        now_s += bucket.take(count, now_s)
    for begin_s, before in came:
        for end_s, after in came:
            largest = max((count for count, _pause_s in steps), default=0)
            assert after - before <= per_s * (max(0.0, end_s - begin_s) + BURST_S) + 2 * largest + 1e-6


def thread_pace(heard: Heard, rate: Rate) -> ThreadPace:
    def is_stopped() -> bool:
        return heard.stop_at_s is not None and heard.now_s >= heard.stop_at_s

    return ThreadPace(rate, is_stopped, clock=heard.clock, sleep=heard.sleep)


@pytest.mark.parametrize("rate", [Rate(100, None), Rate(None, 2), Rate(100, 1_000), Rate(10_000, 2)])
def test_threads_pay_together_for_bytes_and_files(rate: Rate) -> None:
    heard = Heard()
    pace = thread_pace(heard, rate)
    for _ in range(10):
        pace.spend(50, 1)
    assert heard.now_s == pytest.approx(5)


def test_a_thread_that_is_stopped_waits_no_longer() -> None:
    heard = Heard(stop_at_s=1.0)
    thread_pace(heard, Rate(1, None)).spend(1_000, 1)
    assert heard.now_s == pytest.approx(1.0)
