"""The publisher of a round seals, publishes and reports slices whose tasks have ended.

Each slice is decided by itself, and is a sequence of its own. Sequences of different datasets go through the log
together, in one transaction for all of them, so a thousand small topics cost little more than their files.

Rows may go into a table, a topic or the like. A task stages files, and knows neither the other tasks of its sequence
nor the version that the sequence makes. So one more attempt of the sequence has the step that loads the files of all
attempts that are published. A mark of a lane answers by the sequence whether its rows are there: of two steps of one
sequence, the second would be skipped.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from gobblin_assets.commit.batches import TOGETHER_MAX, do_together
from gobblin_assets.commit.driver import Driver
from gobblin_assets.commit.segment import Segment, encode_segments
from gobblin_assets.commit.sequence import NewAttempt, Publication, SealOrder, StagedAttempt
from gobblin_assets.commit.store import SequenceBuilder
from gobblin_assets.errors import (
    ConflictError,
    CorruptionError,
    FencedError,
    GobblinError,
    OutcomeUnknownError,
    family_of,
)
from gobblin_assets.failpoints import Failpoint, reach
from gobblin_assets.model.clock import Clock
from gobblin_assets.model.defects import explain_exception
from gobblin_assets.model.state import AttemptId, DatasetId
from gobblin_assets.model.urn import DatasetUrn, JobName, Role
from gobblin_assets.run.announcements import announce, report_of
from gobblin_assets.run.destination import Destination, Target
from gobblin_assets.run.progress import StepProgress
from gobblin_assets.run.run_values import DatasetReport, RunPorts, RunRequest
from gobblin_assets.run.seal_decision import (
    SealForgottenError,
    check_failure,
    decide_slice,
    explain_unpublished,
    sum_segments,
)
from gobblin_assets.run.slices import Slice, StagedTask, failure_of, partition_text

_NUMBER: Final = 1_000_000
"""In place of a MultiWorkUnit's number: no run has as many."""

PAYLOAD_BYTES_MAX: Final = 32 * 1024 * 1024
"""The compressed steps of one wave."""

Keep = Callable[[Sequence[tuple[DatasetId, DatasetReport]]], None]
Remember = Callable[[Slice, Publication], None]


@dataclass(frozen=True, slots=True)
class RowLoad:
    """The attempt of a sequence that loads its rows, and the seal that has it among the winners."""

    slice: Slice
    order: SealOrder
    attempt_id: AttemptId
    segment: Segment


@dataclass(frozen=True, slots=True)
class RowLoads:
    """The loads of a run's slices. The destination is one that ``loads_rows``."""

    destination: Destination
    store: SequenceBuilder
    clock: Clock

    def plan(self, slice_: Slice, order: SealOrder) -> RowLoad | None:
        """The load of what a seal would publish; None: there is nothing to load. It may connect to the destination."""
        winners = [task for task in slice_.staged if task.attempt_id in order.winners]
        target = Target(
            slice_.urn,
            partition_text(slice_.partition),
            slice_.sequence_id,
            _NUMBER,
            version=order.base_version + 1,
            # A partition that was published before is refused, and one that was not replaces nothing.
            replaces=slice_.plan.replaces and slice_.partition.key is None,
        )
        outputs = [each for task in winners for each in task.extracted.outputs if each.role is Role.DATA]
        steps = list(self.destination.steps_for(outputs, target))
        if not steps:
            return None
        segments = encode_segments(steps, role=Role.DATA, partition=target.partition, file_schema=_find_schema(winners))
        if len(steps) != 1 or len(segments) != 1:
            raise CorruptionError(f"{slice_.label}: {len(steps)} steps would load one sequence, and one is skipped")
        return RowLoad(slice_, order, AttemptId(self.clock.new_id()), segments[0])

    def stage(self, loads: Sequence[RowLoad]) -> None:
        """Register and stage the attempts. Repeating it is harmless."""
        new = [
            NewAttempt(
                attempt_id=load.attempt_id,
                sequence_id=load.slice.sequence_id,
                dataset_id=load.slice.state.dataset_id,
                fence=load.slice.lease.fence,
                multi_work_unit=_NUMBER,
                try_number=1,
                staging_path=self.destination.stage(load.attempt_id),
            )
            for load in loads
        ]
        staged = [
            StagedAttempt(
                attempt_id=load.attempt_id,
                sequence_id=load.slice.sequence_id,
                fence=load.slice.lease.fence,
                segments=(load.segment,),
                # The attempt has one segment, so that a second call names the same one.
                segment_ids=(load.attempt_id,),
            )
            for load in loads
        ]
        self.store.register_attempt(*new)
        self.store.stage(*staged)

    def seal_of(self, load: RowLoad) -> SealOrder:
        """The seal with the load."""
        tasks = [task for task in load.slice.staged if task.attempt_id in load.order.winners]
        segments = [*(segment for task in tasks for segment in task.segments), load.segment]
        return replace(
            load.order,
            winners=(*load.order.winners, load.attempt_id),
            **sum_segments(segments),
        )


def _find_schema(winners: Sequence[StagedTask]) -> object:
    """Of the rows of data, as the last task has it that wrote some."""
    found = [task.extracted.file_schemas.get(Role.DATA) for task in winners]
    return next((schema for schema in reversed(found) if schema is not None), None)


class Publisher:
    """The publisher of one round. ``versions``: the versions on which slices were planned; the publisher updates them.

    ``behind``: datasets whose log is older than their storage, which must not be cleaned. ``remember`` is called with
    each published slice.
    """

    def __init__(
        self,
        request: RunRequest,
        ports: RunPorts,
        job: JobName,
        driver: Driver,
        keep: Keep,
        behind: set[DatasetUrn],
        remember: Remember,
    ) -> None:
        self._request = request
        self._ports = ports
        self._job = job
        self._driver = driver
        self._store = ports.stores.commits
        self._keep = keep
        self._behind = behind
        self._remember = remember
        self._loads = RowLoads(ports.destination, self._store, ports.clock)
        self.versions: dict[DatasetId, int] = {}
        self._expected = 0
        self._progress: StepProgress | None = None

    def expect(self, count: int) -> None:
        """From now on, ``publish`` will get so many slices, in one call or in several."""
        self._expected, self._progress = count, None

    def publish(self, slices: Sequence[Slice], started_at_s: float) -> None:
        """Publish what the policy allows of each slice; ``started_at_s``: the round's start on the monotonic clock."""
        if not slices:
            return
        # Its rate would be too low if it began before there is something to publish.
        progress = self._progress = self._progress or StepProgress(
            self._ports.clock, self._ports.say, "partitions published", self._expected
        )
        for wave in _in_waves(slices):
            rows = self._publish_wave(wave, self._ports.clock.monotonic() - started_at_s)
            progress.add(len(wave), rows=rows)

    def _publish_wave(self, slices: Sequence[Slice], duration_s: float) -> int:
        """The number of rows that were published."""
        decided = [(slice_, order) for slice_ in slices if (order := self._decide(slice_, duration_s)) is not None]
        if self._ports.destination.loads_rows:
            decided = self._stage_loads(decided)
        sealed = []
        for (slice_, _order), error in zip(decided, do_together(decided, self._seal, _planned_rows), strict=True):
            if error is None:
                sealed.append(slice_)
            else:
                self._fail(slice_, error)
        outcomes = self._driver.publish_all([(slice_.sequence_id, slice_.lease) for slice_ in sealed])
        ended = list(zip(sealed, outcomes, strict=True))
        published = [(slice_, outcome) for slice_, outcome in ended if not isinstance(outcome, GobblinError)]
        self._report(published)
        for slice_, outcome in ended:
            if isinstance(outcome, GobblinError):
                self._fail(slice_, self._explain(slice_, outcome))
        return sum(publication.row_count for _slice, publication in published)

    def _stage_loads(self, decided: Sequence[tuple[Slice, SealOrder]]) -> list[tuple[Slice, SealOrder]]:
        """What can be sealed, with the steps that load its rows. What can't be loaded has failed."""
        sealable: list[tuple[Slice, SealOrder]] = []
        planned: list[RowLoad] = []
        for slice_, order in decided:
            try:
                load = self._loads.plan(slice_, order)
            except Exception as error:  # noqa: BLE001  the failure of this slice; others go on
                self._fail(slice_, explain_exception(slice_.label, error, self._ports.say))
                continue
            if load is None:
                sealable.append((slice_, order))
            else:
                planned.append(load)
        for load, failure in zip(planned, do_together(planned, self._loads.stage), strict=True):
            if failure is None:
                sealable.append((load.slice, self._loads.seal_of(load)))
            else:
                self._fail(load.slice, failure)
        return sealable

    def _decide(self, slice_: Slice, duration_s: float) -> SealOrder | None:
        """The decision on a slice. None: the slice has failed, and its failure is recorded."""
        if isinstance(slice_.error, FencedError):
            # The new owner aborts the sequence.
            self._keep([(slice_.state.dataset_id, failure_of(slice_.urn, slice_.partition, slice_.error))])
            return None
        try:
            order = decide_slice(
                slice_,
                policy=self._request.job.commit_policy,
                base_version=self.versions[slice_.state.dataset_id],
                uri=self._ports.destination.uri_of(slice_.urn, Role.DATA),
                duration_s=duration_s,
            )
            if order is None:
                refused = CorruptionError(f"{slice_.label} was refused although every task succeeded")
                self._fail(slice_, slice_.error or refused)
                return None
            reach(Failpoint.STAGED_BEFORE_SEAL)
            self._driver.require(slice_.lease)
        except Exception as error:  # noqa: BLE001  the failure of this slice; others go on
            self._fail(slice_, explain_exception(slice_.label, error, self._ports.say))
            return None
        return order

    def _seal(self, decided: Sequence[tuple[Slice, SealOrder]]) -> None:
        self._store.seal(*(order for _part, order in decided))

    def _explain(self, slice_: Slice, error: GobblinError) -> GobblinError:
        try:
            return explain_unpublished(slice_, error, self._store)
        except Exception:  # noqa: BLE001  the log can't be asked any more
            return error

    def _fail(self, slice_: Slice, error: GobblinError) -> None:
        self._abort(slice_, error)
        failed = replace(failure_of(slice_.urn, slice_.partition, error), checks=check_failure(slice_, error))
        self._keep([(slice_.state.dataset_id, failed)])

    def _abort(self, slice_: Slice, error: GobblinError) -> None:
        """Abort the sequence if it was not sealed. A sealed sequence stays open, and the next owner completes it."""
        if isinstance(error, FencedError | OutcomeUnknownError):
            return
        if isinstance(error, SealForgottenError):
            # Its staging may hold the only copies of files whose siblings are visible, so cleanup must not run either.
            self._behind.add(slice_.urn)
            return
        try:
            self._store.abort(slice_.sequence_id, fence=slice_.lease.fence, error=str(error))
        except ConflictError:
            # It was sealed: the publication failed, was counted, and will be tried again.
            return
        except Exception as second:  # noqa: BLE001  the next run does it
            self._ports.say(f"{slice_.label}: could not be aborted; the next run does it: {second}")

    def _report(self, published: Sequence[tuple[Slice, Publication]]) -> None:
        reports = []
        for slice_, publication in published:
            self.versions[slice_.state.dataset_id] = publication.lane_version
            self._remember(slice_, publication)
            report = report_of(publication, slice_.partition)
            if slice_.error is not None:
                report = replace(report, error=str(slice_.error), error_family=family_of(slice_.error))
            reports.append((slice_.state.dataset_id, report))
        published_now = [report for _id, report in reports]
        announce(self._store, published_now, self._ports.on_publication, marks=self._request.announces)
        if reports:
            self._keep(reports)


def _in_waves(slices: Sequence[Slice]) -> Iterator[list[Slice]]:
    """Slices in order, in waves without two slices of a dataset: a sequence is planned on the version before it.

    The staged steps of a wave are in memory together while they are published, so their size is bounded too.
    """
    wave: dict[DatasetId, Slice] = {}
    held_bytes = 0
    for slice_ in slices:
        payload_bytes = sum(len(segment.payload) for task in slice_.staged for segment in task.segments)
        is_full = len(wave) == TOGETHER_MAX or held_bytes + payload_bytes > PAYLOAD_BYTES_MAX
        if wave and (is_full or slice_.state.dataset_id in wave):
            yield list(wave.values())
            wave, held_bytes = {}, 0
        wave[slice_.state.dataset_id] = slice_
        held_bytes += payload_bytes
    if wave:
        yield list(wave.values())


def _planned_rows(decided: tuple[Slice, SealOrder]) -> int:
    return decided[1].planned_rows
