"""The plan of numbered rows behind the port of a source, for worlds that run ingestion without Spark."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, SparkSession

from gobblin_assets.model.work_unit import WorkUnit
from gobblin_assets.run.job_kind import UnitPlan
from gobblin_assets.sources.source_port import PlanSession, ReadPlan, SharedRows, SourceRequest
from tests.support.numbered_rows import NumberedRows


@dataclass(frozen=True)
class NumberedSource:
    """``Source`` and plan session in one. ``columns`` are the source's: name to type text."""

    rows: NumberedRows
    columns: Mapping[str, str]

    @contextmanager
    def open_plan(
        self, spark: Callable[[], SparkSession], say: Callable[[str], None], requests: Sequence[SourceRequest] = ()
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
