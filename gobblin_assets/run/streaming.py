"""A stream: a run that repeats its rounds until it is asked to stop, and publishes new records as one sequence each.

A stream's sequences are ordinary sequences; recovery treats them the same. New records are read every
``stream.publish_every_s``, or as soon as there are ``stream.records_max``; a dataset without new records gets no
sequence. A stop takes effect between two publications, never within one.

If the publication of a dataset fails, the stream gives its lease back and takes it again later, with a new fence, and
recovers the dataset first, as another run would. A dataset that only a person can help leaves the stream; the others go
on.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from gobblin_assets.commit.sequence import Publication
from gobblin_assets.errors import ErrorFamily, FencedError, GobblinError, OutcomeUnknownError, RetryableError
from gobblin_assets.model.defects import explain_exception
from gobblin_assets.model.partition import AssetPartition
from gobblin_assets.model.state import DatasetId
from gobblin_assets.model.urn import DatasetUrn, JobName
from gobblin_assets.model.work_unit import sum_rows
from gobblin_assets.run.announcements import announce_left_over
from gobblin_assets.run.job_kind import SessionLostError
from gobblin_assets.run.progress import MIB
from gobblin_assets.run.publisher import Keep
from gobblin_assets.run.round import Round
from gobblin_assets.run.run_values import DatasetReport, RunPorts, RunRequest
from gobblin_assets.run.slices import Slice
from gobblin_assets.state.leases import Holder, Lease, LeaseKeeper

LOOKS_PER_PUBLICATION: Final = 10
"""How often, between two publications, the stream checks whether a batch is already full."""

LOOK_S_MIN: Final = 0.5
COMPACT_S_MIN: Final = 60.0
SAME_LINE_S: Final = 600.0
PROGRESS_S: Final = 5.0
_LINES_REMEMBERED_MAX: Final = 1_000

_MENDED_BY_TIME: Final = frozenset({ErrorFamily.RETRYABLE, ErrorFamily.OUTCOME_UNKNOWN, ErrorFamily.FENCED})

WaitForStop = Callable[[float], bool]
"""Waits for this many seconds, or until the stream must stop; True if it must stop."""


@dataclass(slots=True)
class _Follower:
    """The stream's state of one dataset. Without a lease, the dataset is taken when ``not_before_s`` has come."""

    urn: DatasetUrn
    dataset_id: DatasetId
    lease: Lease | None = None
    not_before_s: float = 0.0
    failures: int = 0
    was_held: bool = False
    has_left: bool = False


@dataclass(slots=True)
class SeldomAgain:
    """A line that is repeated only after a while, since every look finds the same again."""

    say: Callable[[str], None]
    monotonic: Callable[[], float]
    said_at: dict[str, float] = field(default_factory=dict)

    def __call__(self, line: str) -> None:
        now = self.monotonic()
        if now - self.said_at.get(line, float("-inf")) < SAME_LINE_S:
            return
        if len(self.said_at) >= _LINES_REMEMBERED_MAX:
            self.said_at.clear()
        self.said_at[line] = now
        self.say(line)


@dataclass(slots=True)
class _Tally:
    """The count of publications since the last progress line, which is printed every few seconds at most."""

    say: Callable[[str], None]
    said_at_s: float
    idle_until_s: float
    rows: int = 0
    file_bytes: int = 0
    sequences: int = 0
    rows_in_all: int = 0
    sequences_in_all: int = 0

    def add(self, publication: Publication) -> None:
        self.rows += publication.row_count
        self.rows_in_all += publication.row_count
        self.file_bytes += publication.file_bytes
        self.sequences += 1
        self.sequences_in_all += 1

    def say_if_due(self, now_s: float) -> None:
        if not self.sequences:
            # Hours without records do not count in a rate.
            self.idle_until_s = now_s
            return
        if now_s - self.said_at_s < PROGRESS_S:
            return
        passed_s = now_s - self.idle_until_s
        rate = f", {self.rows / passed_s:,.0f} rows/s" if passed_s > 0 else ""
        self.say(
            f"{_count(self.rows, self.sequences)}, {self.file_bytes / MIB:,.1f} MiB{rate}; "
            f"{self.rows_in_all:,} rows so far"
        )
        self.rows = self.file_bytes = self.sequences = 0
        self.said_at_s = self.idle_until_s = now_s

    def describe_all(self) -> str:
        return _count(self.rows_in_all, self.sequences_in_all)


def _count(rows: int, sequences: int) -> str:
    return f"{rows:,} rows in {sequences:,} publication{'' if sequences == 1 else 's'}"


class Stream:
    """Runs once, by ``run``, under leases of ``keeper``, whose heart beats already."""

    def __init__(
        self,
        request: RunRequest,
        ports: RunPorts,
        job: JobName,
        holder: Holder,
        keeper: LeaseKeeper,
        keep: Keep,
        wait_for_stop: WaitForStop,
        ids: Mapping[DatasetUrn, DatasetId],
    ) -> None:
        self._ports = ports
        self._clock = ports.clock
        self._job = job
        self._holder = holder
        self._keeper = keeper
        self._keep_for_run = keep
        self._pace = request.job.stream
        self._compaction = request.job.compaction
        self._compact_at_s = ports.clock.monotonic()
        self._wait_for_stop = wait_for_stop
        self._retry = request.job.retry
        self._announces = request.announces
        self._say = SeldomAgain(ports.say, ports.clock.monotonic)
        now = ports.clock.monotonic()
        self._tally = _Tally(ports.say, said_at_s=now, idle_until_s=now)
        self._followers = {urn: _Follower(urn, dataset_id) for urn, dataset_id in sorted(ids.items())}
        reporting = replace(ports, say=self._say, on_publication=self._report)
        self._round = Round(request, reporting, job, holder.run_id, keeper, self._keep, self._select)
        self._publish_at_s = ports.clock.monotonic()
        self._chosen: set[DatasetUrn] = set()
        self._failed_before = False
        self._report_again_at_s = math.inf

    def run(self) -> list[DatasetReport]:
        """Run the stream. Returns the publications of earlier owners that it completed."""
        self._say(
            f"following {len(self._followers)} datasets of {self._job}; what comes is published every "
            f"{self._pace.publish_every_s:g} s, or when {self._pace.records_max:,} records wait"
        )
        recovered: list[DatasetReport] = []
        is_stopping = False
        while not is_stopping and any(not each.has_left for each in self._followers.values()):
            recovered += self._take_what_is_due()
            self._report_again()
            self._look()
            self._compact_what_rests()
            self._tally.say_if_due(self._clock.monotonic())
            is_stopping = self._wait_for_stop(self._decide_wait_s())
        end = "stopped at a published boundary" if is_stopping else "no dataset is left to follow"
        self._say(f"{end}; {self._tally.describe_all()} in all")
        return recovered

    def _select(self, urn: DatasetUrn) -> tuple[AssetPartition, ...]:
        """The window that is open now; it changes with time."""
        return (self._ports.kind.current_partition(urn, self._clock.now()),)

    def list_never_held(self) -> Iterator[tuple[DatasetUrn, DatasetId]]:
        """The datasets that another process held during the whole stream."""
        return ((each.urn, each.dataset_id) for each in self._followers.values() if not each.was_held)

    def _decide_wait_s(self) -> float:
        every_s = self._pace.publish_every_s
        look_s = min(every_s, max(LOOK_S_MIN, every_s / LOOKS_PER_PUBLICATION))
        if all(each.lease is None for each in self._followers.values()):
            return look_s
        return min(look_s, max(0.0, self._publish_at_s - self._clock.monotonic()))

    # Leases ---------------------------------------------------------------------------------------------

    def _take_what_is_due(self) -> list[DatasetReport]:
        """Take the leases of free datasets that are due, and complete their open sequences."""
        now = self._clock.monotonic()
        wanted = {
            each.dataset_id: each
            for each in self._followers.values()
            if each.lease is None and not each.has_left and each.not_before_s <= now
        }
        if not wanted:
            return []
        try:
            leases = {lease.dataset_id: lease for lease in self._keeper.take(list(wanted), self._holder)}
            for dataset_id, each in wanted.items():
                each.lease = leases.get(dataset_id)
                each.was_held = each.was_held or each.lease is not None
                each.not_before_s = now + self._pace.publish_every_s
            reports = self._announce_left_over()
            recovered, ready = self._round.recover({each.urn: each.lease for each in wanted.values() if each.lease})
            completed = [*reports, *recovered]
            urns = {each.urn for each in completed}
            if urns:
                self._round.clean({urn: lease for urn, lease in ready.items() if urn in urns})
            return [each for each in completed if not self._is_last_word(each)]
        except Exception as error:  # noqa: BLE001  it concerns all datasets
            self._rest_all(error)
            return []

    def _is_last_word(self, completed: DatasetReport) -> bool:
        """Whether the publication completes one that had failed in this stream, and so is the dataset's outcome."""
        follower = self._followers.get(completed.urn)
        if follower is None or not follower.failures:
            return False
        self._keep([(follower.dataset_id, completed)])
        return True

    def _announce_left_over(self) -> list[DatasetReport]:
        """Send the events that could not be sent before. At the start, the run itself has done that."""
        if not (self._failed_before and self._announces):
            return []
        self._failed_before = False
        return list(announce_left_over(self._ports.stores.commits, self._job, self._ports.on_publication))

    def _report(self, report: DatasetReport) -> None:
        """Send an event. What can't be sent now is sent after a while: no further run of a stream begins for long."""
        try:
            self._ports.on_publication(report)
        except Exception:
            self._report_again_at_s = self._clock.monotonic() + self._retry.back_off_s
            raise

    def _report_again(self) -> None:
        if self._clock.monotonic() < self._report_again_at_s:
            return
        self._report_again_at_s = math.inf
        try:
            announce_left_over(self._ports.stores.commits, self._job, self._report)
        except Exception as error:  # noqa: BLE001  the log is asked again
            self._report_again_at_s = self._clock.monotonic() + self._retry.back_off_s
            self._say(f"{explain_exception('events that were not sent', error, self._say)}")

    def _rest_all(self, error: Exception) -> None:
        """Let all datasets rest after an error that concerns all; raise it again if waiting does not help.

        What nobody expected ends no stream: it may not come again.
        """
        passes = isinstance(error, RetryableError | OutcomeUnknownError | FencedError)
        if isinstance(error, GobblinError) and not passes:
            raise error
        self._say(f"{explain_exception('the stream', error, self._say)}")
        for each in self._followers.values():
            if not each.has_left:
                self._rest(each)

    def _rest(self, follower: _Follower) -> None:
        self._failed_before = True
        follower.failures += 1
        wait_s = self._retry.back_off_s * 2.0 ** min(follower.failures - 1, 30)
        follower.not_before_s = self._clock.monotonic() + min(wait_s, self._retry.back_off_max_s)
        self._give_back(follower)

    def _give_back(self, follower: _Follower) -> None:
        if follower.lease is None:
            return
        try:
            self._keeper.release([follower.lease])
        except Exception as error:  # noqa: BLE001  it runs out
            self._say(f"{follower.urn}: the lease could not be given back and will run out: {error}")
        follower.lease = None

    # Publications ---------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Look for new records; publish them if it is time, or if there are enough."""
        ready = {each.urn: each.lease for each in self._followers.values() if each.lease is not None}
        self._chosen = set()
        try:
            self._round.publish_new(ready, self._choose)
        except SessionLostError:
            # A session whose server or process died never comes back.
            raise
        except Exception as error:  # noqa: BLE001  it concerns all datasets
            self._rest_all(error)
            return
        held = {each.urn: each.lease for each in self._followers.values() if each.lease is not None}
        if self._chosen:
            self._round.clean({urn: lease for urn, lease in held.items() if urn in self._chosen})
            self._ports.events.deliver()

    def _compact_what_rests(self) -> None:
        """Compact past windows while the open one is followed, as often as a partition can come to rest."""
        spec, now = self._compaction, self._clock.monotonic()
        if spec is None or now < self._compact_at_s:
            return
        self._compact_at_s = now + max(spec.quiet_s, COMPACT_S_MIN)
        self._round.compact({each.urn: each.lease for each in self._followers.values() if each.lease is not None})

    def _choose(self, slices: list[Slice]) -> list[Slice]:
        now = self._clock.monotonic()
        waiting = sum(sum_rows(slice_.plan.work_units) for slice_ in slices)
        if now < self._publish_at_s and waiting < self._pace.records_max:
            return []
        self._publish_at_s = now + self._pace.publish_every_s
        chosen = [slice_ for slice_ in slices if slice_.has_news()]
        self._chosen = {slice_.urn for slice_ in chosen}
        if slices and not chosen:
            self._say("nothing new; waiting for records")
        return chosen

    def _keep(self, reports: Sequence[tuple[DatasetId, DatasetReport]]) -> None:
        """Take a slice's report: the run keeps it, and the stream decides how to go on with its dataset."""
        self._keep_for_run(reports)
        for _dataset_id, report in reports:
            self._follow(report)

    def _follow(self, report: DatasetReport) -> None:
        follower = self._followers[report.urn]
        if report.error is None:
            follower.failures = 0
        elif report.error_family in _MENDED_BY_TIME:
            self._rest(follower)
            wait_s = max(0.0, follower.not_before_s - self._clock.monotonic())
            self._say(f"{report.urn}: will be tried again in {wait_s:.0f} s")
        else:
            follower.has_left = True
            self._give_back(follower)
            self._say(f"{report.urn} leaves the stream: {report.error}")
        if report.publication is not None:
            self._tally.add(report.publication)
