"""A job kind whose positions are the numbers of its rows: what the worlds without Spark run.

``NumberedRows`` plans, and is the whole kind together with a worker; ``NumberedSource`` is the same plan behind the
port of a source, for worlds that run ingestion without Spark.
"""

import datetime as dt
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise

from pyspark.sql import DataFrame, SparkSession

from gobblin_assets.model.extract import Mode
from gobblin_assets.model.interval import Interval
from gobblin_assets.model.partition import WHOLE, AssetPartition
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.model.watermark import long_watermark
from gobblin_assets.model.work_unit import WorkUnit, WorkUnitId
from gobblin_assets.run.job_kind import (
    DefaultSplit,
    PlanRequest,
    Rewriter,
    Session,
    Sharing,
    UnitPlan,
    Worker,
)
from gobblin_assets.sources.port import PlanSession, ReadPlan, SharedRows, SourceRequest


@dataclass(frozen=True)
class NumberedRows:
    """``count_rows`` says how many rows the requested partition has now. Job kind and session in one."""

    key: str
    count_rows: Callable[[PlanRequest], int]
    list_names: Callable[[], Sequence[str]]
    new_id: Callable[[], uuid.UUID]
    make_worker: Callable[[], Worker]
    units: int = 1
    refreshes_published: bool = False
    """By hand, and in the mode auto, a partition that is published is read again."""
    shares: bool = False
    """All datasets are read together, as far as they are packed so."""
    make_rewriter: Callable[[], Rewriter] | None = None
    tell_partition: Callable[[], AssetPartition] = lambda: WHOLE

    @property
    def urns(self) -> Collection[DatasetUrn]:
        return [DatasetUrn(name) for name in self.list_names()]

    @contextmanager
    def open(self, report: Callable[[str], None], requests: Sequence[PlanRequest]) -> Iterator[Session]:
        yield self

    def prepare(self) -> None:
        pass

    def current_partition(self, urn: DatasetUrn, now: dt.datetime) -> AssetPartition:
        return self.tell_partition()

    @property
    def can_rewrite(self) -> bool:
        return self.make_rewriter is not None

    def open_rewriter(self) -> Rewriter:
        assert self.make_rewriter is not None
        return self.make_rewriter()

    def open_worker(self) -> Worker:
        return self.make_worker()

    def plan(self, request: PlanRequest) -> UnitPlan:
        partition = request.partition.key or ""
        refresh = request.mode is Mode.REFRESH or (
            self.refreshes_published
            and request.mode is Mode.AUTO
            and request.by_hand
            and partition in request.state.published
        )
        before = request.state.find_watermark(self.key, partition)
        low = 0 if refresh or before is None else int(str(before))
        high = max(low, self.count_rows(request))
        cuts = [low + (high - low) * i // self.units for i in range(self.units + 1)]
        units = tuple(
            WorkUnit(
                id=WorkUnitId(self.new_id()),
                dataset=request.urn,
                partition=request.partition,
                key=self.key,
                number=number,
                interval=Interval(long_watermark(start), long_watermark(end)),
                # One to a MultiWorkUnit: a run then has as many attempts for each dataset.
                estimated_bytes=0 if self.shares else 1 << 40,
            )
            for number, (start, end) in enumerate(pairwise(cuts))
        )
        return UnitPlan(
            urn=request.urn,
            partition=request.partition,
            mode=Mode.REFRESH if refresh else Mode.APPEND,
            replaces=refresh,
            is_snapshot=False,
            work_units=units,
            split=DefaultSplit(max_multi_work_units=1 if self.shares else 8, task_rows_min=1),
            sharing=Sharing("all", request.urn) if self.shares else None,
        )


@dataclass(frozen=True)
class NumberedSource:
    """``Source`` and plan session in one. ``columns`` are the source's, name to type text."""

    rows: NumberedRows
    columns: Mapping[str, str]

    @contextmanager
    def open_plan(
        self, spark: Callable[[], SparkSession], report: Callable[[str], None], requests: Sequence[SourceRequest] = ()
    ) -> Iterator[PlanSession]:
        yield self

    def discover(self, spark: Callable[[], SparkSession]) -> Sequence[str]:
        return sorted(self.rows.list_names())

    def plan(self, request: SourceRequest) -> UnitPlan:
        return replace(self.rows.plan(request), payload=ReadPlan(request.spec, _Unread()), columns=self.columns)


class _Unread:
    def read(self, spark: SparkSession, units: Sequence[WorkUnit]) -> DataFrame:
        raise AssertionError("these worlds read without Spark")

    def read_together(self, spark: SparkSession, parts: Sequence[tuple[ReadPlan, Sequence[WorkUnit]]]) -> SharedRows:
        raise AssertionError("these worlds read without Spark")

    def learn(self, error: Exception) -> None:
        pass

    def explain(self, error: Exception) -> Exception:
        return error
