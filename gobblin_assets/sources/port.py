"""The port of a source: it plans WorkUnits from previous states, and gives a DataFrame for some of them.

``open_plan`` gives one planning session for a run. While it is open, a source that can pins what its
readers see (Postgres: an exported snapshot); so a run keeps it open until its last task has ended. A plan carries its
``ReadPlan``: how its WorkUnits are read.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession

from gobblin_assets.errors import CorruptionError
from gobblin_assets.model.source_comments import SourceComments
from gobblin_assets.model.work_unit import WorkUnit
from gobblin_assets.run.job_kind import PlanRequest, UnitPlan
from gobblin_assets.sources.arrow_port import ArrowReader
from gobblin_assets.spec.job_spec import DatasetSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRequest(PlanRequest):
    """A ``PlanRequest`` with what the job says of the dataset, defaults applied."""

    spec: DatasetSpec


@dataclass(frozen=True, slots=True)
class SharedRows:
    """``frame`` is lazy; every row has the name of its plan's ``sharing`` in ``row_quality.SHARE_COLUMN``.

    ``row_counts`` are the rows of each name, as the source gave them; a name without rows may be left out.
    """

    frame: DataFrame
    row_counts: Mapping[str, int]


class Reader(Protocol):
    """Reads what one plan planned. Called from several threads at once."""

    def read(self, spark: SparkSession, units: Sequence[WorkUnit]) -> DataFrame:
        """A lazy DataFrame of exactly the rows of ``units``, which all belong to the plan."""
        ...

    def read_together(self, spark: SparkSession, parts: Sequence[tuple["ReadPlan", Sequence[WorkUnit]]]) -> SharedRows:
        """The rows of plans that share, this one first, each with its WorkUnits. Only where plans have ``sharing``.

        What the datasets' specifications say of rows and files is equal as well, and mixes no rows.
        """
        ...

    def learn(self, error: Exception) -> None:
        """Look at what a try raised, before ``explain``: the next try may read in another way."""
        ...

    def explain(self, error: Exception) -> Exception:
        """What Spark or the driver raised, as one of the families, naming table and column if it can. Pure."""
        ...


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """The payload of a source's plans: how they are read.

    ``late_key``: the columns that, with the watermark column, tell a late row from one that was published; set when
    some WorkUnit has ``reread_from``. ``may_fail_rows``: what is read may turn out to be no row, and is a dead letter
    then. ``arrow``: how they are read without Spark, where that can be; ``needs_arrow``: the job wants no other way.
    ``comments`` are what people wrote at the source about the table and its columns, by the source's names.
    """

    spec: DatasetSpec
    reader: Reader
    watermark_column: str | None = None
    late_key: tuple[str, ...] = ()
    may_fail_rows: bool = False
    comments: SourceComments = field(default_factory=SourceComments)
    arrow: ArrowReader | None = None
    needs_arrow: bool = False


def read_plan_of(plan: UnitPlan) -> ReadPlan:
    """CorruptionError for a plan that no source made."""
    if not isinstance(plan.payload, ReadPlan):
        raise CorruptionError(f"{plan.urn}: its plan says not how it is read")
    return plan.payload


class PlanSession(Protocol):
    """One run's view of the source."""

    def plan(self, request: SourceRequest) -> UnitPlan:
        """Ask the source for bounds and schema, and cut WorkUnits. RejectedError names table and column."""
        ...


class Source(Protocol):
    """A kind of source, with its connection."""

    def open_plan(
        self,
        spark: Callable[[], SparkSession],
        say: Callable[[str], None],
        requests: Sequence[SourceRequest] = (),
    ) -> AbstractContextManager[PlanSession]:
        """``requests``: what will be planned, for sources that ask about all of it at once, or share a bound.

        What can't be done for one of them is raised when that one is planned.
        """
        ...

    def discover(self, spark: Callable[[], SparkSession]) -> Sequence[str]:
        """The names of all tables of the connection, sorted; patterns are applied by the caller."""
        ...
