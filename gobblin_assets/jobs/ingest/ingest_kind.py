"""Ingestion as a job kind: a source plans; Spark, or Arrow in this process, reads and writes."""

import datetime as dt
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from gobblin_assets.errors import RejectedError
from gobblin_assets.jobs.ingest.arrow_worker import find_spark_need
from gobblin_assets.jobs.ingest.quality import QualityJudge
from gobblin_assets.model.partition import AssetPartition
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.run.job_kind import PlanRequest, Rewriter, Session, Sharing, Staged, UnitPlan, Worker, WorkOrder
from gobblin_assets.sources.source_port import PlanSession, ReadPlan, Source, SourceRequest, read_plan_of
from gobblin_assets.spark.errors import session_failure, spark_raises
from gobblin_assets.spec.job_spec import DatasetSpec
from gobblin_assets.spec.partition_keys import open_partition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_IN_THIS_PROCESS: Final = "in this process"
_ARROW: Final = "arrow"
_SPARK: Final = "spark"
# In their order, so that they can be given as they are declared: a plan has as many requests as partitions.
_FIELDS_OF_REQUEST: Final = attrgetter(*(each.name for each in fields(PlanRequest)))


class IngestWorker:
    """``Worker`` over two: a plan with an Arrow reader is done in this process, every other plan on Spark.

    Each is opened when the first plan needs it.
    """

    def __init__(self, open_spark: Callable[[], Worker], open_arrow: Callable[[], Worker]) -> None:
        self._spark = _Lazy(open_spark)
        self._arrow = _Lazy(open_arrow)

    def describe_interruption(self, tag: str, plans: Sequence[UnitPlan]) -> Mapping[str, object] | None:
        needs_spark = any(read_plan_of(plan).arrow is None for plan in plans)
        return (self._spark if needs_spark else self._arrow).get().describe_interruption(tag, plans)

    def do(self, order: WorkOrder) -> Staged:
        return self._of(order.plan).do(order)

    def do_together(self, orders: Sequence[WorkOrder]) -> Sequence[Staged]:
        return self._of(orders[0].plan).do_together(orders)

    def cancel(self, tag: str) -> None:
        for each in (self._spark, self._arrow):
            if (worker := each.opened) is not None:
                worker.cancel(tag)

    def _of(self, plan: UnitPlan) -> Worker:
        return (self._spark if read_plan_of(plan).arrow is None else self._arrow).get()


class _Lazy:
    def __init__(self, open_worker: Callable[[], Worker]) -> None:
        self._open = open_worker
        self._lock = threading.Lock()
        self.opened: Worker | None = None

    def get(self) -> Worker:
        with self._lock:
            if self.opened is None:
                self.opened = self._open()
            return self.opened


@dataclass(frozen=True, slots=True)
class IngestKind:
    """``JobKind`` of one job: ``datasets`` has the specification of each of its datasets, defaults applied.

    ``spark`` gives the session and may be called from any thread; a source that needs no session never calls it.
    ``open_extractor`` makes Spark's worker, ``make_rewriter`` the rewriter; None: nothing is compacted.
    ``open_arrow`` makes the worker for plans that need no Spark; None: Spark does all plans. ``count_slots``: how many
    tasks a cluster runs at once; it gives None, or is None, where that is not known.
    """

    datasets: Mapping[DatasetUrn, DatasetSpec]
    source: Source
    spark: "Callable[[], SparkSession]"
    open_extractor: Callable[[], Worker]
    make_rewriter: Callable[[], Rewriter] | None = None
    open_arrow: Callable[[], Worker] | None = None
    count_slots: Callable[[], int | None] | None = None

    @property
    def urns(self) -> Collection[DatasetUrn]:
        return self.datasets.keys()

    @contextmanager
    def open(self, say: Callable[[str], None], requests: Sequence[PlanRequest]) -> Iterator[Session]:
        slots = None if self.count_slots is None else self.count_slots()
        wanted = [_with_spec(each, self.datasets[each.urn], slots) for each in requests]
        with _losing_sessions(), self.source.open_plan(self.spark, say, wanted) as session:
            yield _IngestSession(self.datasets, session, say, self.open_extractor, self.open_arrow, slots)

    def prepare(self) -> None:
        self.spark()

    def current_partition(self, urn: DatasetUrn, now: dt.datetime) -> AssetPartition:
        return open_partition(self.datasets[urn], now)

    @property
    def can_rewrite(self) -> bool:
        return self.make_rewriter is not None

    def open_rewriter(self) -> Rewriter:
        if self.make_rewriter is None:
            raise AssertionError("can_rewrite was not asked")
        return self.make_rewriter()


@dataclass(frozen=True, slots=True)
class _IngestSession:
    datasets: Mapping[DatasetUrn, DatasetSpec]
    session: PlanSession
    say: Callable[[str], None]
    open_extractor: Callable[[], Worker]
    open_arrow: Callable[[], Worker] | None
    slots: int | None
    reader_counts: Counter[str] = field(default_factory=Counter)

    def plan(self, request: PlanRequest) -> UnitPlan:
        spec = self.datasets[request.urn]
        with _losing_sessions():
            plan = self.session.plan(_with_spec(request, spec, self.slots))
        if request.only_moves and any(not unit.is_empty for unit in plan.work_units):
            raise RejectedError(
                f"{plan.urn} can't be moved without reading it: its source does not say where to go on by itself",
                field="source.type",
                hint="Of the sources of this package, topics do.",
            )
        found = self._choose_reader(plan)
        sharing = plan.sharing
        if found.arrow is not None and plan.work_units:
            # Many small tables are one task, whose attempts are registered, staged and sealed together.
            sharing = Sharing(_IN_THIS_PROCESS, str(plan.work_units[0].id))
        judge = QualityJudge(spec, found.comments, found.constraints, may_fail_rows=found.may_fail_rows)
        reader = _SPARK if found.arrow is None else _ARROW
        if any(not unit.is_empty for unit in plan.work_units):
            self.reader_counts[reader] += 1
        lag_max = spec.quality.lag_max
        return replace(
            plan, payload=found, judge=judge, split=spec.split, lag_max=lag_max, reader=reader, sharing=sharing
        )

    def open_worker(self) -> Worker:
        if count := self.reader_counts[_ARROW]:
            self.say(f"Arrow reads {count} of {self.reader_counts.total()} dataset partitions in this process")
        if self.open_arrow is not None:
            return IngestWorker(self._open_spark, self.open_arrow)
        return self._open_spark()

    def _open_spark(self) -> Worker:
        with _losing_sessions():
            return self.open_extractor()

    def _choose_reader(self, plan: UnitPlan) -> ReadPlan:
        """The read plan; a plan that needs Spark loses its Arrow reader. RejectedError if the job allows only Arrow."""
        found = read_plan_of(plan)
        need = find_spark_need(plan)
        if found.needs_arrow and need is not None:
            raise RejectedError(
                f"{plan.urn} has {need}, which needs Spark",
                field="source.reader",
                hint=f"Write reader: auto, or leave {need} out.",
            )
        return found if need is None and self.open_arrow is not None else replace(found, arrow=None)


def _with_spec(request: PlanRequest, spec: DatasetSpec, slots: int | None) -> SourceRequest:
    return SourceRequest(*_FIELDS_OF_REQUEST(request), spec=spec, slots=slots)


@contextmanager
def _losing_sessions() -> Iterator[None]:
    """Turn Spark's errors into SessionLostError."""
    try:
        yield
    except spark_raises() as error:
        raise session_failure(error) from error
