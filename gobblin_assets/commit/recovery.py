"""Recovery: ends the sequences that an earlier owner of a dataset left unfinished. Runs, sensors and people call this.

The caller holds the dataset's lease. The decision depends on the sequence's state alone; the driver verifies each
step to find out whether it has happened.

A sweep goes over all sequences that wait for recovery: fair, within bounds, and with reports of progress. After an
outage a hundred thousand datasets may each have an open sequence. A sweep takes the sequences a page at a time, longest
waiting first, and ends when nothing is due, when its time is over, or when too many failed. A failed sequence is put
off in the log, so that neither the rest of this sweep nor the next sweep starts with it. A sequence whose recovering
process died had a lease that ran out later than the others', so it comes after them as well. Only one dataset is held
at a time, so that runs which need another dataset do not wait.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, assert_never

from gobblin_assets.commit.abandonment import Abandonment
from gobblin_assets.commit.driver import Driver
from gobblin_assets.commit.sequence import Publication, SequenceRecord
from gobblin_assets.commit.store import CommitLogReader
from gobblin_assets.errors import ConflictError, GobblinError
from gobblin_assets.failpoints import Failpoint, reach
from gobblin_assets.model.clock import Clock
from gobblin_assets.model.defects import explain_exception, find_family
from gobblin_assets.model.sequence_state import SequenceState
from gobblin_assets.model.state import LaneId, SequenceId
from gobblin_assets.model.urn import JobName
from gobblin_assets.model.wording import PassingLine
from gobblin_assets.state.leases import Lease

LEFT_UNSEALED: Final = "left unsealed by its run"


class RecoveryAction(StrEnum):
    ABORT = "abort"
    ROLL_FORWARD = "roll_forward"
    WAIT_FOR_A_PERSON = "wait_for_a_person"
    GO_ON_ABANDONING = "go_on_abandoning"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Recovered:
    """The sequences that a recovery ended. ``blocked`` is set when the dataset must be left alone until a person has
    looked.
    """

    published: tuple[Publication, ...] = ()
    aborted: int = 0
    blocked: SequenceRecord | None = None


def decide_recovery(state: SequenceState) -> RecoveryAction:
    """What to do with a sequence that an earlier owner left in ``state``."""
    match state:
        case SequenceState.BUILDING:
            # Not sealed: none of its files was ever visible, and its source will be read again.
            return RecoveryAction.ABORT
        case SequenceState.PREPARED:
            return RecoveryAction.ROLL_FORWARD
        case SequenceState.BLOCKED:
            return RecoveryAction.WAIT_FOR_A_PERSON
        case SequenceState.ABANDONING:
            return RecoveryAction.GO_ON_ABANDONING
        case SequenceState.DONE | SequenceState.ABORTED:
            return RecoveryAction.NOTHING
        case _:
            assert_never(state)


def recover_dataset(driver: Driver, abandonment: Abandonment, lease: Lease) -> Recovered:
    """End every unfinished sequence of lane 0 of a dataset that is leased as a whole, oldest first.

    Raises the families of ``Driver.publish``; sequences that were ended before stay ended, and the next call goes on.
    ConflictError if another lane has an open sequence: that lane's next holder completes it.
    """
    unfinished = driver.store.find_unfinished(lease.dataset_id)
    for each in unfinished:
        if each.lane_id != lease.lane_id and each.state.is_open:
            raise ConflictError(
                f"lane {each.lane_number} of {each.urn} has an open publication, sequence {each.sequence_id}",
                hint="Complete it first: `gobblin-assets commit recover`, or run its sink.",
                sequence_id=str(each.sequence_id),
            )
    return _recover(driver, abandonment, lease, unfinished)


def recover_lane(driver: Driver, abandonment: Abandonment, lease: Lease) -> Recovered:
    """The same for a single lane, whatever the others have open."""
    return _recover(driver, abandonment, lease, driver.store.find_unfinished(lease.dataset_id))


def recover_lanes(driver: Driver, abandonment: Abandonment, leases: Sequence[Lease]) -> list[Recovered | GobblinError]:
    """The same for several lanes: the result or error of ``recover_lane`` for each, in their order.

    What they have sealed is published together.
    """
    unfinished: dict[LaneId, list[SequenceRecord]] = defaultdict(list)
    for each in driver.store.find_unfinished(*dict.fromkeys(lease.dataset_id for lease in leases)):
        unfinished[each.lane_id].append(each)
    found: dict[LaneId, Recovered | GobblinError] = {}
    prepared: list[tuple[SequenceId, Lease]] = []
    for lease in leases:
        mine = unfinished[lease.lane_id]
        sealed = [each for each in mine if decide_recovery(each.state) is RecoveryAction.ROLL_FORWARD]
        if mine:
            reach(Failpoint.RECOVERY_STARTED)
        try:
            found[lease.lane_id] = _end_all(driver, abandonment, lease, [each for each in mine if each not in sealed])
        except Exception as error:  # noqa: BLE001  the failure of this lane; others go on
            found[lease.lane_id] = find_family("its recovery", error)
            continue
        prepared += [(each.sequence_id, lease) for each in sealed]
    outcomes = driver.publish_all(prepared) if prepared else []
    for (_sequence_id, lease), outcome in zip(prepared, outcomes, strict=True):
        before = found[lease.lane_id]
        if isinstance(outcome, GobblinError):
            found[lease.lane_id] = outcome
        elif isinstance(before, Recovered):
            found[lease.lane_id] = replace(before, published=(*before.published, outcome))
    return [found[lease.lane_id] for lease in leases]


def _recover(driver: Driver, abandonment: Abandonment, lease: Lease, of_dataset: Sequence[SequenceRecord]) -> Recovered:
    unfinished = [each for each in of_dataset if each.lane_id == lease.lane_id]
    if not unfinished:
        return Recovered()
    reach(Failpoint.RECOVERY_STARTED)
    return _end_all(driver, abandonment, lease, unfinished)


def _end_all(driver: Driver, abandonment: Abandonment, lease: Lease, unfinished: Sequence[SequenceRecord]) -> Recovered:
    published: list[Publication] = []
    aborted = 0
    for sequence in unfinished:
        match decide_recovery(sequence.state):
            case RecoveryAction.ABORT:
                # Also a sequence of this same lease: recovery comes before anything is begun, so the sequence is one
                # that an earlier round of a stream could not abandon while the log was away.
                driver.store.abort(sequence.sequence_id, fence=lease.fence, error=LEFT_UNSEALED)
                aborted += 1
            case RecoveryAction.ROLL_FORWARD:
                published.append(driver.publish(sequence.sequence_id, lease))
            case RecoveryAction.WAIT_FOR_A_PERSON:
                return Recovered(tuple(published), aborted, sequence)
            case RecoveryAction.GO_ON_ABANDONING:
                abandonment.carry_out(sequence, lease)
                aborted += 1
            case RecoveryAction.NOTHING:
                pass
    return Recovered(tuple(published), aborted)


PAGE: Final = 500
"""Sequences in one page. Listing a page sorts all due sequences: 0.2 s for a hundred thousand."""

FAILURES_MAX: Final = 100
"""This many failures have one cause, which more tries don't remove."""

NAMED_MAX: Final = 20
"""Up to this many are named one by one; of more only the number is reported."""

LINE_EVERY_S: Final = 5.0


class DatasetBusyError(ConflictError):
    """Another process holds the dataset's lease, and does the same work."""


@dataclass(frozen=True, slots=True)
class SweepBounds:
    """The bounds of a sweep; None: no bound.

    A sweep finishes the dataset that it has begun, so it may take longer by one dataset.
    """

    sequences_max: int | None = None
    work_s_max: float | None = None
    failures_max: int = FAILURES_MAX
    page: int = PAGE


UNBOUNDED: Final = SweepBounds()


@dataclass(frozen=True, slots=True)
class Failure:
    """A sequence whose recovery failed."""

    sequence: SequenceRecord
    error: GobblinError


@dataclass(frozen=True, slots=True)
class SweepReport:
    """The results of one sweep. ``is_cut_short``: more sequences were due when it ended."""

    published: int
    aborted: int
    failures: tuple[Failure, ...]
    busy: int
    is_cut_short: bool


class Sweep:
    """A sweep, which runs once, by ``run``. ``recover`` ends the open sequences of one sequence's dataset."""

    def __init__(
        self,
        store: CommitLogReader,
        clock: Clock,
        say: Callable[[str], None],
        recover: Callable[[SequenceRecord], Recovered],
        on_publication: Callable[[Publication], None],
    ) -> None:
        self._store = store
        self._clock = clock
        self._say = say
        self._recover = recover
        self._on_publication = on_publication
        self._failures: list[Failure] = []
        self._published = self._aborted = self._busy = self._tried = self._due = 0
        self._started_at = self._said_at = clock.monotonic()

    def run(self, jobs: Sequence[JobName] | None, bounds: SweepBounds) -> SweepReport:
        """Sweep until nothing is due or a bound is reached. An unknown family of error ends it at once."""
        left: set[SequenceId] = set()
        while True:
            # Sequences that this sweep could not end may be due again: they must not hide those behind them.
            asked = bounds.page + len(left)
            page = self._store.list_recoverable(jobs=jobs, limit=asked)
            due = [sequence for sequence in page if sequence.sequence_id not in left]
            if self._due == 0:
                self._due = len(page) if len(page) < asked else sum(self._store.count_recoverable(jobs=jobs).values())
            for sequence in due:
                if self._is_over(bounds):
                    return self._end(is_cut_short=True)
                if not self._try(sequence):
                    left.add(sequence.sequence_id)
                self._say_if_due()
            if len(page) < asked or not due:
                return self._end(is_cut_short=False)

    def _is_over(self, bounds: SweepBounds) -> bool:
        return (
            len(self._failures) >= bounds.failures_max
            or (bounds.sequences_max is not None and self._tried >= bounds.sequences_max)
            or (bounds.work_s_max is not None and self._clock.monotonic() - self._started_at >= bounds.work_s_max)
        )

    def _try(self, sequence: SequenceRecord) -> bool:
        """Try one sequence; True if nothing of it is left to do."""
        self._tried += 1
        try:
            done = self._recover(sequence)
        except DatasetBusyError:
            self._busy += 1
            return False
        except Exception as error:  # noqa: BLE001  the failure of this sequence; others go on
            failure = explain_exception(f"the recovery of {sequence.urn}", error, self._say)
            self._say(f"{sequence.urn}: recovery failed: {failure}")
            self._failures.append(Failure(sequence, failure))
            return False
        self._aborted += done.aborted
        for publication in done.published:
            self._published += 1
            if self._due <= NAMED_MAX:
                self._say(f"{self._tried} of {self._due}: completed {sequence.urn}, sequence {publication.sequence_id}")
            self._on_publication(publication)
        return done.blocked is None

    def _say_if_due(self) -> None:
        now = self._clock.monotonic()
        if now - self._said_at < LINE_EVERY_S:
            return
        self._said_at = now
        elapsed_s = now - self._started_at
        rate = self._tried / elapsed_s
        # More may have become due meanwhile.
        left_s = max(0, self._due - self._tried) / rate
        ended = f"{self._published:,} completed, {self._aborted:,} aborted, {len(self._failures):,} failed"
        pace = f"{rate:,.0f}/s, {elapsed_s:.0f} s, about {left_s:.0f} s left"
        self._say(PassingLine(f"{self._tried:,} of {self._due:,} open sequences: {ended}, {self._busy:,} busy; {pace}"))

    def _end(self, *, is_cut_short: bool) -> SweepReport:
        if is_cut_short:
            self._say(f"{max(0, self._due - self._tried):,} open sequences are left for the next recovery")
        return SweepReport(self._published, self._aborted, tuple(self._failures), self._busy, is_cut_short)
