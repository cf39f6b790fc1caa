"""Spark makes the rows of cuts whose records were only counted: it reads their positions again.

One job reads all lanes of a dataset that are cut at a barrier, unless a converter mixes rows: then each lane has its
own. If a shared job fails, it is tried again in halves, so that one lane can't keep the others from being published. If
more halves fail than one lane can explain, the rest is not tried. Each try writes into new attempts of the lanes'
sequences, which are registered before their first byte.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from pyspark.sql import SparkSession

from gobblin_assets.commit.batches import in_bounds
from gobblin_assets.errors import CorruptionError, GobblinError, RetryableError
from gobblin_assets.jobs.sink.cut_publishing import new_attempt
from gobblin_assets.jobs.sink.dataset_sink import DatasetSink, HeldLane, LaneAttempt, LaneCut, RereadRows
from gobblin_assets.jobs.sink.sink_ports import SinkPorts, SinkSpark
from gobblin_assets.model.defects import explain_exception
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.interval import Interval
from gobblin_assets.model.partition import AssetPartition
from gobblin_assets.model.state import AttemptId, LaneId
from gobblin_assets.model.urn import JobName
from gobblin_assets.model.watermark import long_watermark
from gobblin_assets.model.work_unit import WorkUnit, WorkUnitId
from gobblin_assets.run.job_kind import SessionLostError, Sharing, UnitPlan, Worker, WorkOrder
from gobblin_assets.run.task import task_tag
from gobblin_assets.sources.log_port import SpanPlan
from gobblin_assets.spark.errors import family_of_spark, session_failure, spark_raises
from gobblin_assets.state.leases import Lease

TRIES_MAX: Final = 2
"""Of one lane by itself: a read that met a schema, or a time, that nobody knew of succeeds at the next try.

If it fails again, its lane backs off.
"""

_ERROR_TEXT_MAX: Final = 4_000


@dataclass(slots=True)
class _Reading:
    """The reading of a dataset's cuts. ``schemas``: of the dataset's active files. ``failures``: of its jobs so far."""

    sink: DatasetSink
    plan: SpanPlan
    units: Mapping[LaneId, tuple[WorkUnit, ...]]
    schemas: tuple[object, ...]
    failures: list[GobblinError] = field(default_factory=list)

    @property
    def is_hopeless(self) -> bool:
        """Whether more jobs failed than it takes to find one lane by halves, and to try that one again."""
        return len(self.failures) > (len(self.units) - 1).bit_length() + TRIES_MAX


@dataclass(slots=True)
class CutRereading:
    """Spark's part of a worker, which opens nothing of Spark before the first cut that needs it.

    ``require`` raises FencedError for a lease that is lost.
    """

    ports: SinkPorts
    require: Callable[[Lease], None]
    _worker: Worker | None = None
    _lost: SessionLostError | None = field(default=None, init=False)

    def require_session(self) -> None:
        """SessionLostError once Spark's session is gone, which never comes back in this process."""
        if self._lost is not None:
            raise self._lost

    def reread(self, cuts: Sequence[LaneCut]) -> Mapping[LaneId, RereadRows | GobblinError]:
        """The rows of each cut, complete and not yet durable, in its lane's attempt; or why there are none."""
        of_sink: dict[DatasetSink, list[LaneCut]] = {}
        for each in cuts:
            of_sink.setdefault(each.lane.sink, []).append(each)
        found: dict[LaneId, RereadRows | GobblinError] = {}
        for sink, some in of_sink.items():
            found |= self._reread_dataset(sink, some)
        return found

    def _reread_dataset(self, sink: DatasetSink, cuts: Sequence[LaneCut]) -> Mapping[LaneId, RereadRows | GobblinError]:
        try:
            reading = self._plan(sink, cuts)
        except Exception as error:  # noqa: BLE001  Spark's errors have no family
            failure = self._explain(sink.urn, error)
            return {each.lane.lane_id: failure for each in cuts}
        found: dict[LaneId, RereadRows | GobblinError] = {}
        for some in [cuts] if reading.plan.can_share else [[each] for each in cuts]:
            found |= self._read(reading, some)
        return found

    def _plan(self, sink: DatasetSink, cuts: Sequence[LaneCut]) -> _Reading:
        if sink.spans is None:
            raise CorruptionError(f"{sink.urn}: its rows are made in this process, and are read again")
        stores, job = self.ports.stores, JobName(self.ports.job.job)
        units = {each.lane.lane_id: self._cut_units(each) for each in cuts}
        shares = {_share_of(each.lane): units[each.lane.lane_id] for each in cuts}
        state = stores.datasets.load(job, [sink.urn])[sink.urn]
        plan = sink.spans.plan_spans(self._get_session, shares, state)
        if plan.is_inferred:
            # Another worker may have inferred others meanwhile.
            settled = stores.datasets.settle_columns(sink.dataset_id, plan.columns)
            plan = sink.spans.plan_spans(self._get_session, shares, replace(state, source_columns=settled))
        active = stores.published.find_active_schemas(job, [sink.urn]).get(sink.urn, ())
        return _Reading(sink, plan, units, tuple(each.file_schema for each in active))

    def _cut_units(self, each: LaneCut) -> tuple[WorkUnit, ...]:
        return tuple(
            WorkUnit(
                id=WorkUnitId(self.ports.clock.new_id()),
                dataset=each.lane.urn,
                partition=_partition_of(each.lane),
                key=vnode,
                number=0,
                interval=Interval(long_watermark(span.start), long_watermark(span.end)),
            )
            for vnode, span in each.cut.spans.items()
        )

    def _read(self, reading: _Reading, cuts: Sequence[LaneCut]) -> Mapping[LaneId, RereadRows | GobblinError]:
        if self._lost is not None or reading.is_hopeless:
            return {each.lane.lane_id: self._lost or reading.failures[-1] for each in cuts}
        if len(cuts) == 1:
            return {cuts[0].lane.lane_id: self._read_alone(reading, cuts[0])}
        try:
            return self._try(reading, cuts)
        except GobblinError as error:
            half = len(cuts) // 2
            self.ports.say(f"{reading.sink.urn}: {len(cuts)} lanes are read again in two halves: {error}")
            return {**self._read(reading, cuts[:half]), **self._read(reading, cuts[half:])}

    def _read_alone(self, reading: _Reading, each: LaneCut) -> RereadRows | GobblinError:
        for try_number in range(1, TRIES_MAX + 1):
            try:
                return self._try(reading, [each], try_number)[each.lane.lane_id]
            except RetryableError as error:
                if try_number == TRIES_MAX or self._lost is not None or reading.is_hopeless:
                    return error
                self.ports.say(f"{each.lane.label}: is read by Spark once more: {error}")
            except GobblinError as error:
                return error
        raise AssertionError("unreachable: the last try returns")

    def _try(self, reading: _Reading, cuts: Sequence[LaneCut], try_number: int = 1) -> Mapping[LaneId, RereadRows]:
        """One job. An error is that of all cuts."""
        ids: list[AttemptId] = []
        try:
            orders = self._register(reading, cuts, try_number, ids)
            worker = self._open_worker()
            staged = [worker.do(orders[0])] if len(orders) == 1 else worker.do_together(orders)
        except Exception as error:
            failure = self._explain(reading.sink.urn, error)
            self._record_failure(ids, failure)
            reading.failures.append(failure)
            raise failure from error
        columns = reading.plan.columns
        return {each.lane.lane_id: RereadRows(found, columns) for each, found in zip(cuts, staged, strict=True)}

    def _register(
        self, reading: _Reading, cuts: Sequence[LaneCut], try_number: int, ids: list[AttemptId]
    ) -> list[WorkOrder]:
        """New attempts of the lanes' sequences, in the log before their first byte. ``ids`` gets those it has."""
        ports = self.ports
        ports.destination.require()
        for each in cuts:
            self.require(each.lane.lease)
        pairs = [(each, self._renew(each.lane.require_attempt())) for each in cuts]
        tag = task_tag(pairs[0][1].attempt_id)
        plans = [_plan_of(reading, each.lane) for each in cuts]
        interruption = self._open_worker().describe_interruption(tag, plans)
        rows = [
            new_attempt(each.lane, attempt, tag=tag, try_number=try_number, interruption=interruption)
            for each, attempt in pairs
        ]
        for some in in_bounds(rows):
            ports.stores.commits.register_attempt(*some)
            ids += [row.attempt_id for row in some]
        for each, attempt in pairs:
            each.lane.build(attempt)
        started_at = ports.clock.now()
        return [
            WorkOrder(
                job=JobName(ports.job.job),
                dataset_id=each.lane.dataset_id,
                plan=plan,
                units=plan.work_units,
                attempt_id=attempt.attempt_id,
                directory=attempt.staging,
                started_at=started_at,
                tag=tag,
                schemas_beside=reading.schemas,
                names=attempt.names,
            )
            for (each, attempt), plan in zip(pairs, plans, strict=True)
        ]

    def _renew(self, attempt: LaneAttempt) -> LaneAttempt:
        """Each try has a directory of its own, which no other ever gets."""
        attempt_id = AttemptId(self.ports.clock.new_id())
        return replace(
            attempt, attempt_id=attempt_id, staging=self.ports.destination.stage(attempt_id), is_registered=True
        )

    def _record_failure(self, ids: Sequence[AttemptId], error: GobblinError) -> None:
        if not ids:
            return
        try:
            text = f"{type(error).__name__}: {error}"[:_ERROR_TEXT_MAX]
            self.ports.stores.commits.fail_attempt(*ids, error=text, cancelled=False)
        except GobblinError as second:
            # The lanes' next holders abort their sequences all the same.
            self.ports.say(f"the failure of an attempt could not be recorded: {second}")

    def _explain(self, label: str, error: Exception) -> GobblinError:
        """The error's family. Also finds out whether the session is gone."""
        if not isinstance(error, GobblinError) or isinstance(error, RetryableError):
            try:
                _ = self._get_session().version
            except spark_raises() as gone:
                self._lost = session_failure(gone)
        if isinstance(error, spark_raises()):
            return self._lost or family_of_spark(error, action=f"read {label} again")
        return explain_exception(label, error, self.ports.say)

    def _get_session(self) -> SparkSession:
        return self._spark.get_session(self.ports.job)

    def _open_worker(self) -> Worker:
        if self._worker is None:
            self._worker = self._spark.open_extractor(self.ports.job, self.ports.stores)
        return self._worker

    @property
    def _spark(self) -> SinkSpark:
        if self.ports.spark is None:
            raise CorruptionError("a dataset needs Spark, and the worker has none")
        return self.ports.spark


def _plan_of(reading: _Reading, lane: HeldLane) -> UnitPlan:
    return UnitPlan(
        urn=lane.urn,
        partition=_partition_of(lane),
        mode=Mode.APPEND,
        replaces=False,
        is_snapshot=False,
        work_units=reading.units[lane.lane_id],
        payload=reading.plan.read,
        columns=reading.plan.columns,
        sharing=Sharing(reading.sink.urn, _share_of(lane)) if reading.plan.can_share else None,
        keys_are_shared=True,
    )


def _share_of(lane: HeldLane) -> str:
    return f"lane-{lane.number}"


def _partition_of(lane: HeldLane) -> AssetPartition:
    return AssetPartition(lane.require_attempt().partition or None)
