"""The port of a source: it plans WorkUnits from previous states, and gives a DataFrame for a part of them.

``open_plan`` gives one planning session for a run. While the session is open, a source that can pins what its readers
see (Postgres: an exported snapshot); so a run keeps it open until its last task has ended. A plan carries its
``ReadPlan``, which says how its WorkUnits are read.

An ``ArrowReader`` needs no Spark: it gives this process the rows of a WorkUnit as Arrow batches.

A ``DescribedSource`` describes a table to the author of a job before it is read.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import pyarrow as pa

from gobblin_assets.errors import CorruptionError, GobblinError, RejectedError
from gobblin_assets.model.source_declarations import SourceComments, SourceConstraints
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.model.watermark import Watermark, WatermarkType
from gobblin_assets.model.work_unit import WorkUnit
from gobblin_assets.run.job_kind import PlanRequest, UnitPlan
from gobblin_assets.spec.job_spec import DatasetSpec


@dataclass(frozen=True, slots=True)
class ArrowRows:
    """Rows of WorkUnits on their way to this process.

    ``batches`` have the columns of the reader, in its order and of its types; each batch is small.

    ``interrupt`` ends the reading from another thread: the batches then end in an error. ``interrupt`` may be called at
    any time before the reading is closed, and raises nothing.
    """

    batches: Iterator[pa.RecordBatch]
    interrupt: Callable[[], None]


def find_asked_of_spark(spec: DatasetSpec, *, rereads: bool) -> str | None:
    """The first field of a dataset that only Spark does; None: none. ``rereads``: its late window is read again."""
    asked = {
        "converters": spec.converters,
        "quality.rows": spec.quality.rows,
        "writer.partition_by": spec.writer.partition_by,
        "writer.time_column": spec.writer.time_column,
        "writer.event_time": spec.writer.event_time,
        "watermark.late_window": rereads,
    }
    return next((name for name, is_asked in asked.items() if is_asked), None)


class ArrowReader(Protocol):
    """A reader of what one plan planned. Called from several threads at once."""

    @property
    def columns(self) -> Sequence[tuple[str, str]]:
        """Name and type of each column of the dataset, as Spark writes types."""
        ...

    def open(self, unit: WorkUnit) -> AbstractContextManager[ArrowRows]:
        """Exactly the rows of ``unit``, which belongs to the plan. Opening and reading may raise anything."""
        ...

    def explain(self, error: Exception) -> GobblinError:
        """The family for an error of opening or reading that has none. It names table and column if it can. Pure."""
        ...


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


def compare_columns(request: SourceRequest, now: Mapping[str, str], name: str, at_source: Collection[str]) -> list[str]:
    """Notes on what changed since the schema was last accepted; RejectedError for what the dataset does not allow.

    ``now``: the columns that are read, name to type text. ``name``: of the table, for sentences. A column that is still
    ``at_source`` is left out by the dataset itself, which is only noted. A changed type is only noted too: the write
    compares Spark's types, and refuses values that don't fit the published files.
    """
    before = request.state.source_columns
    if before is None:
        return []
    notes = [f"{name} has a new column {column} ({now[column]})" for column in now if column not in before]
    for column, type_text in before.items():
        if column in now:
            if now[column] != type_text:
                notes.append(f"{name}.{column} was {type_text} and is {now[column]} now")
        elif column in at_source:
            notes.append(f"{name}.{column} is no longer read")
        elif request.spec.schema_change.allow_dropped:
            notes.append(f"{name}.{column} ({type_text}) is gone")
        else:
            raise RejectedError(
                f"{name}.{column} ({type_text}) is gone",
                field=f"datasets[{request.urn}].schema_change",
                hint="Write schema_change: {allow_dropped: true} to go on without it.",
                table=name,
                column=column,
            )
    return notes


@dataclass(frozen=True, slots=True)
class ColumnDescription:
    """A column as the source has it and as the dataset would.

    ``spark_type``: Spark's type in the dataset, before converters; None where Spark can't hold the column.

    Then ``problem`` says why, and ``cast`` is the text to write under ``casts``. ``key_place``: the place in the
    primary key, from 1, or None. ``watermark_type``: how the values compare as positions; None: they can't be used so.
    """

    name: str
    source_type: str
    nullable: bool
    spark_type: str | None
    key_place: int | None = None
    watermark_type: WatermarkType | None = None
    problem: str | None = None
    cast: str | None = None
    comment: str | None = None


@dataclass(frozen=True, slots=True)
class TableDescription:
    """A table, topic or folder as the author of a job needs to know it.

    ``table``: its full name at the source. ``watermark``: a column that may be one, judged by type and name alone.

    ``error``: why the source could not describe the table, which then has no columns here.
    """

    urn: DatasetUrn
    table: str
    columns: tuple[ColumnDescription, ...] = ()
    watermark: str | None = None
    comment: str | None = None
    error: str | None = None

    @property
    def primary_key(self) -> tuple[str, ...]:
        keys = [(column.key_place, column.name) for column in self.columns if column.key_place is not None]
        return tuple(name for _place, name in sorted(keys))

    @property
    def casts(self) -> dict[str, str]:
        """The entries to add to the dataset's ``casts``."""
        return {column.name: column.cast for column in self.columns if column.cast is not None}


@runtime_checkable
class DescribedSource(Protocol):
    """A source that can list the columns of its datasets before they are read."""

    def describe(
        self, spark: "Callable[[], SparkSession]", datasets: Mapping[DatasetUrn, DatasetSpec]
    ) -> Sequence[TableDescription]:
        """The source's description of each dataset's table. Costs some questions each, so ask for few tables."""
        ...


@runtime_checkable
class OrderedSource(Protocol):
    """A source that can tell where the values of a column begin."""

    def find_first(self, spark: "Callable[[], SparkSession]", table: str, column: str) -> Watermark | None:
        """The least value of the column; None: there is none, or the source does not tell it within its timeout."""
        ...
