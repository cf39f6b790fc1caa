"""A sweep over sequences that wait for recovery: fair, within bounds, and with reports of progress.

After an outage a hundred thousand datasets may each have an open sequence. A sweep takes the sequences a page at a
time, longest waiting first, and ends when nothing is due, when its time is over, or when too many failed. A failed
sequence is put off in the log, so that neither the rest of this sweep nor the next sweep starts with it. A sequence
whose recovering process died had a lease that ran out later than the others', so it comes after them as well. Only one
dataset is held at a time, so that runs which need another dataset do not wait.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from gobblin_assets.commit.recovery import Recovered
from gobblin_assets.commit.sequence import Publication, SequenceRecord
from gobblin_assets.commit.store import CommitLogReader
from gobblin_assets.errors import ConflictError, GobblinError
from gobblin_assets.model.clock import Clock
from gobblin_assets.model.defects import explain_exception
from gobblin_assets.model.state import SequenceId
from gobblin_assets.model.urn import JobName
from gobblin_assets.model.wording import PassingLine

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
