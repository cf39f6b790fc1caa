"""The port of a source: it plans WorkUnits from previous states, and gives a DataFrame for a part of them.

``open_plan`` gives one planning session for a run. While the session is open, a source that can pins what its readers
see (Postgres: an exported snapshot); so a run keeps it open until its last task has ended. A plan carries its
``ReadPlan``, which says how its WorkUnits are read.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from gobblin_assets.errors import CorruptionError
from gobblin_assets.model.source_declarations import SourceComments, SourceConstraints
from gobblin_assets.model.work_unit import WorkUnit
from gobblin_assets.run.job_kind import PlanRequest, UnitPlan
from gobblin_assets.sources.arrow_port import ArrowReader
from gobblin_assets.spec.job_spec import DatasetSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRequest(PlanRequest):
    """A ``PlanRequest`` with the job's options of the dataset, defaults applied.

    ``slots``: how many tasks run at once where Spark reads on a cluster; None: it reads on this machine, or nobody
    knows.
    """

    spec: DatasetSpec
    slots: int | None = None


@dataclass(frozen=True, slots=True)
class SharedRows:
    """The rows of several plans, read at once.

    ``frame`` is lazy; every row has the name of its plan's ``sharing`` in ``hidden_columns.SHARE_COLUMN``.

    ``row_counts`` are the rows of each name, as the source gave them; a name without rows may be left out. None: the
    source has not counted, and rows are counted while they are written.
    """

    frame: "DataFrame"
    row_counts: Mapping[str, int] | None


class Reader(Protocol):
    """A reader of what one plan planned. Called from several threads at once."""

    def read(self, spark: "SparkSession", units: Sequence[WorkUnit]) -> "DataFrame":
        """A lazy DataFrame of exactly the rows of ``units``, which all belong to the plan."""
        ...

    def read_together(
        self, spark: "SparkSession", parts: Sequence[tuple["ReadPlan", Sequence[WorkUnit]]]
    ) -> SharedRows:
        """The rows of plans that share, this one first, each with its WorkUnits. Only where plans have ``sharing``.

        The datasets' options for rows and files are equal as well, and none of them mixes rows.
        """
        ...

    def learn(self, error: Exception) -> None:
        """Note what a try raised, before ``explain``: the next try may then read in another way."""
        ...

    def explain(self, error: Exception) -> Exception:
        """An error of Spark or the driver as one of the families, naming table and column if it can. Pure."""
        ...


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """The payload of a source's plans: how they are read.

    ``late_key``: the columns that, with the watermark column, tell a late row from a published one; set when
    some WorkUnit has ``reread_from``. ``may_fail_rows``: a record that is read may turn out to be a dead letter.
    ``arrow``: how the WorkUnits are read without Spark, where this is possible; ``needs_arrow``: the job wants no other
    way. ``comments`` are people's comments at the source on the table and its columns, by the source's names;
    ``constraints``: what the source declares of the columns, by the same names.
    ``rows_held``: how many rows a task of the reader holds in memory at once; None: nobody knows.
    """

    spec: DatasetSpec
    reader: Reader
    watermark_column: str | None = None
    late_key: tuple[str, ...] = ()
    may_fail_rows: bool = False
    comments: SourceComments = field(default_factory=SourceComments)
    constraints: SourceConstraints = field(default_factory=SourceConstraints)
    arrow: ArrowReader | None = None
    needs_arrow: bool = False
    rows_held: int | None = None


def read_plan_of(plan: UnitPlan) -> ReadPlan:
    """CorruptionError for a plan that no source made."""
    if not isinstance(plan.payload, ReadPlan):
        raise CorruptionError(f"{plan.urn}: its plan does not say how it is read")
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
        spark: "Callable[[], SparkSession]",
        say: Callable[[str], None],
        requests: Sequence[SourceRequest] = (),
    ) -> AbstractContextManager[PlanSession]:
        """``requests``: all requests to plan, for sources that ask about all at once, or share a limit.

        An error of one request is raised when that request is planned.
        """
        ...

    def discover(self, spark: "Callable[[], SparkSession]") -> Sequence[str]:
        """The names of all tables of the connection, sorted; patterns are applied by the caller."""
        ...
