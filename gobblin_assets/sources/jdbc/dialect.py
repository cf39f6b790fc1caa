"""The differences between databases in the SQL that planning and reading write, and in how values travel.

Identifiers and values come from people: all of them pass through ``quote`` and ``literal``. Values that a driver or
Spark would change on the way (times, above all) travel as the database's own text, and become values in Spark.
"""

import datetime as dt
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from gobblin_assets.model.watermark import Scalar, WatermarkType
from gobblin_assets.sources.jdbc.names import TableName

ROW_ADDRESS = "row_address"
"""Stands in a unit's properties for the hidden address of a row, where the database has one."""


@dataclass(frozen=True, slots=True)
class ColumnReading:
    """The reading of one column: ``expression`` in the source's SQL.

    ``wire`` is the Spark type in which the driver returns the expression (empty: Spark chooses it), and
    ``spark_type`` the type in the dataset (empty: the same). ``guard`` is SQL that gives the text of a value which the
    type can't hold, else NULL. ``order``: how positions of the column compare. ``problem`` says why Spark can't hold
    the type, and ``cast`` what to write under ``casts``.
    """

    expression: str
    wire: str = ""
    spark_type: str = ""
    guard: str = ""
    order: WatermarkType | None = None
    problem: str | None = None
    cast: str = ""


@dataclass(frozen=True, slots=True)
class DescribedColumn:
    """An expression as Spark describes it: its type as Spark writes it, and the metadata of the column."""

    spark_type: str
    metadata: Mapping[str, object]


class Dialect(Protocol):
    """The SQL of one database, for conditions and values. Pure: text in, text out."""

    @property
    def has_binary_text(self) -> bool:
        """Whether texts can be compared byte by byte, as watermarks are."""
        ...

    @property
    def row_address(self) -> str | None:
        """The expression of a row's address, or None."""
        ...

    def quote(self, identifier: str) -> str: ...

    def literal(self, kind: WatermarkType, value: Scalar) -> str: ...

    def in_order(self, expression: str, kind: WatermarkType) -> str:
        """The expression in a form that compares as watermarks of ``kind`` do."""
        ...

    def hide(self, expression: str, kind: WatermarkType, type_text: str) -> str:
        """A column of positions in a type that Spark knows. Conditions use this column; it is not fetched."""
        ...

    def show(self, expression: str, kind: WatermarkType) -> str:
        """A position as it is fetched: values that a driver might change as text, the others as they are."""
        ...

    def find_misplaced(self, column: str, kind: WatermarkType, type_text: str) -> str | None:
        """SQL that holds for values that are not positions of ``kind``; None: the type has no such values."""
        ...

    def equals_key(self, column: str, text: str, type_text: str) -> str | None:
        """SQL that holds for exactly the rows whose value is ``text``; None: the two can't be compared exactly."""
        ...


class SparkDialect(Dialect, Protocol):
    """The additional queries of a catalogue that is reached through Spark. Their columns may have any case."""

    @property
    def title(self) -> str:
        """What people call the database."""
        ...

    @property
    def is_experimental(self) -> bool:
        """Whether the dialect was written from documentation alone and never ran against a server."""
        ...

    @property
    def binary_text_query(self) -> str | None:
        """Gives 1 if this database compares texts byte by byte, else 0; None: no need to ask."""
        ...

    @property
    def clock_query(self) -> str:
        """Gives the current instant as text, as a column ``clock``."""
        ...

    @property
    def clock_is_utc(self) -> bool:
        """Whether a clock without an offset shows UTC; otherwise its zone is unknown."""
        ...

    @property
    def tables_query(self) -> str:
        """Gives ``table_schema`` and ``table_name`` of all tables and views that people made."""
        ...

    @property
    def schema_query(self) -> str:
        """Gives the schema where unqualified names are looked up, as ``table_schema``."""
        ...

    @property
    def session_statement(self) -> str | None:
        """What each session starts with, so that its times are in UTC."""
        ...

    def columns_query(self, name: TableName) -> str:
        """Gives ``column_name``, ``position``, ``type_text``, ``nullable`` (YES or NO).

        If the database has them, also ``key_place``, ``column_comment``, and ``table_comment`` on each row.
        """
        ...

    def probe_query(self, table: TableName) -> str | None:
        """Gives the answer for ``judge_probe``, as ``p0``, ``p1`` …; None: how times behave is known."""
        ...

    def judge_probe(self, answer: tuple[str | None, ...] | None) -> "SparkDialect":
        """The dialect with what the answer shows; ``answer`` None: the database refused the query."""
        ...

    def read_declared(self, column: str, type_text: str) -> ColumnReading | None:
        """How to read a column, by its declared type; None: Spark has to ask the driver for the type."""
        ...

    def read_described(self, expression: str, found: DescribedColumn | None, type_text: str) -> ColumnReading:
        """How to read a column, by the type that Spark found; None: it found none. A cast has no ``type_text``."""
        ...

    def cast_to_text(self, column: str) -> str:
        """What to write under ``casts`` where a column of a type that is read holds a value that is none of it."""
        ...

    def read_options(self, driver_class: str, fetch_size_rows: int) -> dict[str, str]:
        """Options of Spark's reader that make the driver fetch rows piece by piece."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class JdbcDatabase:
    """A database that is known by the subprotocol of its URLs: its SQL and its driver.

    A package offers it by an entry point of the group ``gobblin_assets.jdbc_databases``, whose name is the subprotocol.
    ``dialect`` makes its dialect. ``capability`` is what Spark needs for the driver: a name of
    ``spark.spark_settings.COORDINATES``, or Maven coordinates with commas between several; None: Spark has it.
    ``properties`` are given to the driver unless the connection gives others. ``password_form``: how a password can
    stand in its URLs besides the ways that are refused for every database.
    """

    dialect: Callable[[], SparkDialect]
    driver_class: str
    capability: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    password_form: re.Pattern[str] | None = None


def write_table(dialect: Dialect, name: TableName) -> str:
    """The table's name in SQL."""
    table = dialect.quote(name.table)
    return table if name.schema is None else f"{dialect.quote(name.schema)}.{table}"


def write_moment(moment: dt.datetime) -> str:
    """``2020-01-31 10:00:00.000000``, without a zone."""
    shown = moment if moment.tzinfo is None else moment.replace(tzinfo=None)
    return shown.isoformat(" ", "microseconds")
