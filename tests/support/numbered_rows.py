"""The plan of a source whose positions are the numbers of its rows: what the worlds without Spark read from."""

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise

from pyspark.sql import DataFrame, SparkSession

from gobblin_assets.model.extract import Mode
from gobblin_assets.model.interval import Interval
from gobblin_assets.model.watermark import long_watermark
from gobblin_assets.model.work_unit import WorkUnit, WorkUnitId
from gobblin_assets.sources.port import PartitionPlan, PlanRequest, PlanSession, SharedRows, Sharing
from gobblin_assets.spec.job_spec import DatasetSpec


@dataclass(frozen=True)
class NumberedRows:
    """Source and plan session in one. ``count_rows`` says how many rows the requested partition has now."""

    key: str
    columns: Mapping[str, str]
    count_rows: Callable[[PlanRequest], int]
    list_names: Callable[[], Sequence[str]]
    new_id: Callable[[], uuid.UUID]
    units: int = 1
    refreshes_published: bool = False
    """By hand, and in the mode auto, a partition that is published is read again."""
    shares: bool = False
    """All datasets are read together, as far as they are packed so."""

    @contextmanager
    def open_plan(
        self, spark: Callable[[], SparkSession], report: Callable[[str], None], requests: Sequence[PlanRequest] = ()
    ) -> Iterator[PlanSession]:
        yield self

    def discover(self, spark: Callable[[], SparkSession]) -> Sequence[str]:
        return sorted(self.list_names())

    def plan(self, request: PlanRequest) -> PartitionPlan:
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
        return PartitionPlan(
            urn=request.urn,
            partition=request.partition,
            mode=Mode.REFRESH if refresh else Mode.APPEND,
            replaces=refresh,
            is_snapshot=False,
            work_units=units,
            columns=self.columns,
            watermark_column="number",
            late_key=(),
            sharing=Sharing("all", request.urn, _read_nothing) if self.shares else None,
        )

    def read(self, spark: SparkSession, plan: PartitionPlan, spec: DatasetSpec, units: Sequence[WorkUnit]) -> DataFrame:
        raise AssertionError("these worlds read without Spark")

    def explain_failure(self, plan: PartitionPlan, spec: DatasetSpec, error: Exception) -> Exception:
        return error


def _read_nothing(spark: SparkSession, parts: Sequence[tuple[PartitionPlan, Sequence[WorkUnit]]]) -> SharedRows:
    raise AssertionError("these worlds read without Spark")
