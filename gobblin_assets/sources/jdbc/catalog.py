"""The inner port: what planning asks of a database, whichever way it is reached."""

import datetime as dt
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from gobblin_assets.model.watermark import Scalar, Watermark, WatermarkType
from gobblin_assets.sources.jdbc.dialect import Dialect
from gobblin_assets.sources.jdbc.names import TableName


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column as the source declares it. ``watermark_type`` None: its values have no usable order."""

    name: str
    type_text: str
    nullable: bool
    watermark_type: WatermarkType | None
    comment: str | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """A table or view that was found, under its full name."""

    name: TableName
    columns: tuple[TableColumn, ...]
    primary_key: tuple[str, ...]
    comment: str | None = None

    def find_column(self, name: str) -> TableColumn | None:
        return next((column for column in self.columns if column.name == name), None)


@dataclass(frozen=True, slots=True)
class Selected:
    """One column of the read: ``expression`` is the source's SQL. ``dialect.ColumnReading`` explains most fields.

    ``held_as``: the type in the dataset, as Spark writes types, if the catalogue knows it without asking Spark.
    """

    name: str
    expression: str
    type_text: str
    problem: str | None = None
    cast: str = ""
    wire: str = ""
    spark_type: str = ""
    guard: str = ""
    held_as: str = ""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Rows and bytes per row that a read will give; None: the source does not know."""

    row_count: int | None
    row_bytes: int | None


@dataclass(frozen=True, slots=True)
class RowQuestion:
    """The single row of a query whose columns have these types. ``repeats``: every partition of a table asks it."""

    sql: str
    # The text tells questions apart; hashing the rest of many of them takes as long as planning some of them.
    types: tuple[WatermarkType, ...] = field(hash=False)
    repeats: bool = field(default=False, hash=False)


@dataclass(frozen=True, slots=True)
class EstimateQuestion:
    """The question how many rows of the table a condition gives."""

    # Questions about many partitions are kept by their conditions; a table with many columns would be hashed for each.
    table: Table = field(hash=False)
    condition: str


Question = RowQuestion | EstimateQuestion
Answer = tuple[Scalar | None, ...] | Estimate


class Catalog(Protocol):
    """A live view of one database. All methods raise the families of ``errors``, without secrets."""

    @property
    def dialect(self) -> Dialect: ...

    @property
    def shares_snapshot(self) -> bool:
        """Whether planning and all readers see the source at one moment."""
        ...

    def now(self) -> dt.datetime:
        """The source's clock, in UTC, not later than the rows that the queries after it see.

        RejectedError if the zone of the source's clock is unknown.
        """
        ...

    def list_tables(self) -> Sequence[TableName]:
        """All tables and views that are not the system's own, sorted."""
        ...

    def look_up(self, names: Sequence[TableName]) -> None:
        """Announce the tables that ``find_table`` will be asked for, to a database that answers for many at once."""
        ...

    def find_table(self, name: TableName) -> Table | None: ...

    def select(
        self, table: Table, columns: Sequence[str], casts: Mapping[str, str], *, key: Collection[str] = ()
    ) -> tuple[Selected, ...]:
        """How to read these columns, in order; ``casts`` replaces a column by an expression.

        ``key``: columns that tell rows apart. A cast of one that changes a value is refused, by the read itself at the
        latest.
        """
        ...

    def find_spark_types(self, table: Table, selected: Sequence[Selected]) -> Mapping[str, str]:
        """The type of each selected column in the dataset, as Spark writes types. No column has a ``problem``."""
        ...

    def fetch_row(self, sql: str, types: Sequence[WatermarkType]) -> tuple[Scalar | None, ...]:
        """The single row of a query whose columns have these types."""
        ...

    def estimate(self, table: Table, condition: str) -> Estimate: ...

    def answer_together(self, questions: Sequence[Question]) -> Sequence[Answer | Exception]:
        """The answer of each, or the error that it raised. Where reads share a snapshot, in few round trips."""
        ...

    def find_quantiles(self, table: Table, column: TableColumn, last: Scalar) -> Sequence[Watermark]:
        """Ascending positions with about equally many rows between them; empty if unknown.

        ``last`` is about the greatest of the column: what the source knows may be older than its newest rows.
        """
        ...

    def cut_rows(self, table: Table, count: int) -> Sequence[str]:
        """Conditions on ``ROW_ADDRESS`` that divide the table's rows into about ``count`` equal pieces, or none."""
        ...

    def read_properties(self, fetch_size_rows: int) -> Mapping[str, str]:
        """What readers need beside the connection: timeouts, rows per round trip, a shared snapshot."""
        ...
