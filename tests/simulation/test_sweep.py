"""A sweep over open sequences when there are many, when some can't be ended, and when time runs out."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from gobblin_assets.commit.recovery import UNBOUNDED, DatasetBusyError, Recovered, Sweep, SweepBounds, SweepReport
from gobblin_assets.commit.sequence import SequenceRecord
from gobblin_assets.errors import FencedError, RetryableError
from gobblin_assets.model.clock import SystemClock
from gobblin_assets.model.state import RunId
from gobblin_assets.state.leases import Holder, Lease
from tests.simulation.database import SimDatabase
from tests.support.commit_log import TTL_S, LogWorld, open_simulated

OWNER = Holder("the sweep", RunId(SystemClock().new_id()))


class SteppingClock(SystemClock):
    """Each dataset takes a second: monotonic time moves when a sequence is tried."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def monotonic(self) -> float:
        return self.now_s


@dataclass
class Outage:
    """Datasets with an open sequence each; recovery finishes them, except those whose storage is out of reach."""

    log: LogWorld
    clock: SteppingClock = field(default_factory=SteppingClock)
    unreachable: set[str] = field(default_factory=set)
    deadly: set[str] = field(default_factory=set)
    tried: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    def sweep(self, bounds: SweepBounds = UNBOUNDED) -> SweepReport:
        sweep = Sweep(self.log.commits, self.clock, self.lines.append, self.recover, lambda _publication: None)
        return sweep.run(None, bounds)

    def recover(self, sequence: SequenceRecord) -> Recovered:
        self.tried.append(str(sequence.urn))
        self.clock.now_s += 1
        with self.hold(sequence) as lease:
            if sequence.urn in self.deadly:
                raise KeyboardInterrupt
            if sequence.urn in self.unreachable:
                error = RetryableError("storage is away")
                self.log.commits.defer(sequence.sequence_id, fence=lease.fence, error=str(error), retry_in_s=60.0)
                raise error
            self.log.commits.finish(sequence.sequence_id, fence=lease.fence)
            return Recovered((self.log.commits.load_publications(sequence.sequence_id)[0],))

    @contextmanager
    def hold(self, sequence: SequenceRecord) -> Iterator[Lease]:
        taken = self.log.leases.take([sequence.dataset_id], OWNER, ttl_s=TTL_S)
        if not taken:
            raise DatasetBusyError("somebody else works on it")
        try:
            yield taken[0]
        except KeyboardInterrupt:
            # The process is gone, so nothing gives the lease back.
            raise
        except RetryableError:
            self.log.leases.release(taken)
            raise
        self.log.leases.release(taken)


def make_outage(urns: Sequence[str], **options: set[str]) -> Outage:
    log = open_simulated(SimDatabase())
    for urn in urns:
        built = log.prepare(log.take(log.register(urn)))
        log.leases.release([built.lease])
        log.advance(1)
    return Outage(log, **options)


NAMES = [f"d{number:02d}" for number in range(25)]


def test_all_that_is_open_is_ended_page_by_page_the_oldest_first() -> None:
    outage = make_outage(NAMES)

    report = outage.sweep(SweepBounds(page=4))

    assert outage.tried == NAMES
    assert (report.published, report.failures, report.is_cut_short) == (25, (), False)
    assert outage.log.commits.count_recoverable(jobs=None) == {}


def test_what_can_not_be_ended_holds_up_nothing() -> None:
    # More of them than fit a page, and before all others.
    outage = make_outage(NAMES, unreachable=set(NAMES[:10]))

    report = outage.sweep(SweepBounds(page=4))

    assert outage.tried == NAMES
    assert report.published == 15
    assert [failure.sequence.urn for failure in report.failures] == NAMES[:10]


def test_what_failed_comes_after_the_others_in_the_next_sweep() -> None:
    outage = make_outage(NAMES[:6], unreachable=set(NAMES[:2]))
    outage.sweep(SweepBounds(sequences_max=3))
    assert outage.tried == NAMES[:3]
    outage.log.advance(61)
    outage.tried.clear()

    outage.sweep(SweepBounds(sequences_max=4))

    assert outage.tried == [*NAMES[3:6], NAMES[0]]


def test_what_a_sweep_died_of_does_not_keep_the_next_one_from_the_rest() -> None:
    outage = make_outage(NAMES[:5], deadly={NAMES[0]})
    with pytest.raises(KeyboardInterrupt):
        outage.sweep()
    outage.log.advance(TTL_S + 1)
    outage.tried.clear()

    with pytest.raises(KeyboardInterrupt):
        outage.sweep()

    assert outage.tried == [*NAMES[1:5], NAMES[0]]


def test_many_failures_end_a_sweep_and_the_next_one_begins_behind_them() -> None:
    outage = make_outage(NAMES, unreachable=set(NAMES[:10]))

    report = outage.sweep(SweepBounds(failures_max=5))

    assert report.is_cut_short
    assert len(report.failures) == 5
    outage.tried.clear()
    assert outage.sweep(SweepBounds(failures_max=6)).published == 15
    assert outage.tried == NAMES[5:]


def test_a_sweep_ends_when_its_time_is_over_and_says_what_is_left() -> None:
    outage = make_outage(NAMES)

    report = outage.sweep(SweepBounds(work_s_max=10.0))

    assert (report.published, report.is_cut_short) == (10, True)
    assert outage.lines[-1] == "15 open sequences are left for the next recovery"
    assert outage.sweep().published == 15


def test_a_long_sweep_says_how_far_it_is_at_most_every_five_seconds() -> None:
    outage = make_outage(NAMES, unreachable={NAMES[1]})

    outage.sweep()

    progress = [line for line in outage.lines if "of 25 open sequences" in line]
    assert len(progress) == 5
    assert progress[1] == (
        "10 of 25 open sequences: 9 completed, 0 aborted, 1 failed, 0 busy; 1/s, 10 s, about 15 s left"
    )


def test_a_short_sweep_names_each() -> None:
    outage = make_outage(NAMES[:2])

    outage.sweep()

    assert [line.partition(", sequence")[0] for line in outage.lines] == [
        "1 of 2: completed d00",
        "2 of 2: completed d01",
    ]


def test_a_dataset_that_was_taken_since_it_was_listed_is_left_to_its_holder() -> None:
    outage = make_outage(NAMES[:3])
    whole = outage.recover

    def others_come(sequence: SequenceRecord) -> Recovered:
        if sequence.urn == NAMES[1]:
            outage.log.take(sequence.dataset_id)
        return whole(sequence)

    report = _sweep_with(outage, others_come)

    assert (report.published, report.busy, report.failures) == (2, 1, ())


def test_one_that_was_taken_over_meanwhile_is_a_failure_of_this_sweep_only() -> None:
    outage = make_outage(NAMES[:3])
    whole = outage.recover

    def lose(sequence: SequenceRecord) -> Recovered:
        if sequence.urn == NAMES[1]:
            raise FencedError("the lease of this dataset was lost")
        return whole(sequence)

    report = _sweep_with(outage, lose)

    assert (report.published, len(report.failures)) == (2, 1)
    assert outage.sweep().published == 1


def _sweep_with(outage: Outage, recover: Callable[[SequenceRecord], Recovered]) -> SweepReport:
    sweep = Sweep(outage.log.commits, outage.clock, outage.lines.append, recover, lambda _publication: None)
    return sweep.run(None, UNBOUNDED)
