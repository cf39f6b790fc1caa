"""Any database that Spark's JDBC reads: metadata through the same driver, one short query at a time.

There is no snapshot to share: each reader sees the table as it is when its statement starts. The pinned
bounds keep WorkUnits apart all the same; what commits meanwhile is for the commit lag and the late window.
"""

import datetime as dt
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (pyspark's own name for it)
from pyspark.sql import types as T  # noqa: N812  (the same)

from gobblin_assets.errors import GobblinError, RejectedError, RetryableError
from gobblin_assets.ingest.sources.jdbc.catalog import Estimate, Selected, Table, TableColumn
from gobblin_assets.ingest.sources.jdbc.connection import JdbcConnection
from gobblin_assets.ingest.sources.jdbc.dialect import SparkDialect, write_table
from gobblin_assets.ingest.sources.jdbc.failures import judge_driver
from gobblin_assets.ingest.sources.jdbc.names import TableName
from gobblin_assets.model.watermark import Scalar, Watermark, WatermarkType, from_micros

_NOT_NULL: Final = re.compile(r"\s+NOT NULL$")
_LONG_DIGITS_MAX: Final = 18
# A time of day comes out of Spark as a moment of 1970-01-01.
_TIME_OF_DAY: Final = re.compile(r"(?i)time(\(\d+\))?( with(out)? time zone)?$")
_SCALARS: Final = (
    T.BooleanType, T.ByteType, T.ShortType, T.IntegerType, T.LongType, T.FloatType, T.DoubleType, T.DecimalType,
    T.StringType, T.BinaryType, T.DateType, T.TimestampType, T.TimestampNTZType,
)  # fmt: skip


class SparkCatalog:
    """Asks one question per connection that the driver opens."""

    def __init__(
        self,
        spark: Callable[[], SparkSession],
        connection: JdbcConnection,
        dialect: SparkDialect,
        read_timeout_s: int,
    ) -> None:
        self._spark = spark
        self._connection = connection
        self._read_timeout_s = read_timeout_s
        self.dialect: SparkDialect = dialect
        self._text_is_binary: bool | None = None

    def now(self) -> dt.datetime:
        # Not as a wall-clock type: the driver then reads a time without a zone in the JVM's, which is UTC.
        frame = self._load(self.dialect.clock_query, {"preferTimestampNTZ": "false"})
        found = self._collect(frame.select(F.unix_micros(frame.columns[0]).alias("c0")))[0][0]
        return from_micros(found)

    def list_tables(self) -> Sequence[TableName]:
        return sorted(TableName(schema, table) for schema, table in self._rows(self.dialect.tables_query))

    def find_table(self, name: TableName) -> Table | None:
        schema = name.schema
        if schema is None:
            schema = str(self._rows(self.dialect.schema_query)[0][0])
        full = TableName(schema, name.table)
        declared = sorted(self._rows(self.dialect.columns_query(full)), key=lambda row: int(row[1]))
        if not declared:
            return None
        texts = {str(row[0]): _NOT_NULL.sub("", str(row[2])) for row in declared}
        types = self._describe(full, {column: self.dialect.quote(column) for column in texts}, {})
        columns = tuple(
            TableColumn(str(row[0]), texts[str(row[0])], row[3] != "NO", self._find_order(types[str(row[0])]))
            for row in declared
        )
        return Table(full, columns, ())

    def select(self, table: Table, columns: Sequence[str], casts: Mapping[str, str]) -> tuple[Selected, ...]:
        expressions = {name: f"({casts[name]})" if name in casts else self.dialect.quote(name) for name in columns}
        types = self._describe(table.name, expressions, casts)
        texts = {column.name: column.type_text for column in table.columns}
        chosen = []
        for name, expression in expressions.items():
            found = types[name]
            text = texts[name] if name not in casts else "" if found is None else found.simpleString()
            cast = f"CAST({self.dialect.quote(name)} AS VARCHAR(1000))"
            chosen.append(Selected(name, expression, text, _find_problem(found, text), cast))
        return tuple(chosen)

    def fetch_row(self, sql: str, types: Sequence[WatermarkType]) -> tuple[Scalar | None, ...]:
        frame = self._load(sql)
        # Times travel as microseconds: what collect() makes of them depends on the zone of this process.
        shown = [
            _as_micros(frame, column) if kind in {WatermarkType.TIMESTAMP, WatermarkType.LOCAL_TIMESTAMP} else column
            for column, kind in zip(frame.columns, types, strict=True)
        ]
        row = self._collect(frame.select(*shown))[0]
        return tuple(_to_scalar(value, kind) for value, kind in zip(row, types, strict=True))

    def estimate(self, table: Table, condition: str) -> Estimate:
        sql = f"SELECT COUNT(*) AS {self.dialect.quote('c0')} FROM {write_table(self.dialect, table.name)}{condition}"
        return Estimate(int(self._rows(sql)[0][0]), None)

    def find_quantiles(self, _table: Table, _column: TableColumn) -> Sequence[Watermark]:
        return []

    def cut_rows(self, _table: Table, _count: int) -> Sequence[str]:
        return []

    def read_properties(self) -> Mapping[str, str]:
        return {"queryTimeout": str(self._read_timeout_s)}

    def _describe(
        self, table: TableName, expressions: Mapping[str, str], casts: Mapping[str, str]
    ) -> dict[str, T.DataType | None]:
        """Spark's type for each; None where it has none. A cast that the database refuses raises what it said."""
        try:
            return dict(self._types_of(table, expressions))
        except GobblinError:
            # One column spoils the whole; asked one by one, the others still tell theirs.
            found: dict[str, T.DataType | None] = {}
            for name, expression in expressions.items():
                try:
                    found |= self._types_of(table, {name: expression})
                except GobblinError as error:
                    if name in casts or not isinstance(error, RejectedError):
                        raise
                    found[name] = None
            if all(kind is None for kind in found.values()):
                raise
            return found

    def _types_of(self, table: TableName, expressions: Mapping[str, str]) -> dict[str, T.DataType]:
        shown = ", ".join(f"{e} AS {self.dialect.quote(f'c{n}')}" for n, e in enumerate(expressions.values()))
        schema = self._load(f"SELECT {shown} FROM {write_table(self.dialect, table)}").schema
        return {name: field.dataType for name, field in zip(expressions, schema.fields, strict=True)}

    def _find_order(self, found: T.DataType | None) -> WatermarkType | None:
        match found:
            case T.ByteType() | T.ShortType() | T.IntegerType() | T.LongType():
                return WatermarkType.LONG
            case T.DecimalType() if found.scale == 0 and found.precision <= _LONG_DIGITS_MAX:
                return WatermarkType.LONG
            case T.DateType():
                return WatermarkType.DATE
            case T.TimestampType():
                return WatermarkType.TIMESTAMP
            case T.TimestampNTZType():
                return WatermarkType.LOCAL_TIMESTAMP
            case T.StringType() if self._has_binary_text():
                return WatermarkType.STRING
            case _:
                return None

    def _has_binary_text(self) -> bool:
        if self._text_is_binary is None:
            query = self.dialect.binary_text_query
            asked = query is None or int(self._rows(query)[0][0]) == 1
            self._text_is_binary = self.dialect.has_binary_text and asked
        return self._text_is_binary

    def _rows(self, sql: str) -> list[Any]:
        return self._collect(self._load(sql))

    def _load(self, sql: str, more: Mapping[str, str] | None = None) -> DataFrame:
        properties = {
            **self._connection.spark_properties(),
            **self.read_properties(),
            "preferTimestampNTZ": "true",
            **(more or {}),
        }
        try:
            frame = self._spark().read.jdbc(self._connection.url, f"({sql}) q", properties=properties)
            _ = frame.schema  # on Connect the driver is only asked when the schema is
        except Exception as error:  # noqa: BLE001  (py4j raises its own errors, which no family of pyspark's covers)
            raise judge_driver(error, self._connection) from None
        return frame

    def _collect(self, frame: DataFrame) -> list[Any]:
        try:
            rows: list[Any] = frame.collect()
        except PySparkException as error:
            raise judge_driver(error, self._connection) from None
        if not rows and frame.columns == ["c0"]:
            raise RetryableError("the source gave no row where one was due")
        return rows


def _as_micros(frame: DataFrame, column: str) -> Any:
    # Through UTC, whatever the session's zone: a wall-clock time counts as if its zone were UTC.
    local = isinstance(frame.schema[column].dataType, T.TimestampNTZType)
    if not local:
        return F.unix_micros(column).alias(column)
    return F.unix_micros(F.convert_timezone(F.current_timezone(), F.lit("UTC"), F.col(column)).cast("timestamp")).alias(
        column
    )


def _to_scalar(value: Any, kind: WatermarkType) -> Scalar | None:
    if value is None:
        return None
    match kind:
        case WatermarkType.LONG:
            return int(value)
        case WatermarkType.TIMESTAMP | WatermarkType.LOCAL_TIMESTAMP:
            return from_micros(int(value), local=kind is WatermarkType.LOCAL_TIMESTAMP)
        case WatermarkType.DATE:
            return dt.date.fromisoformat(str(value))
        case _:
            return str(value)


def _find_problem(found: T.DataType | None, type_text: str) -> str | None:
    if found is None:
        return "Spark can't read it"
    if _TIME_OF_DAY.fullmatch(type_text.strip()):
        return "Spark makes a moment of the year 1970 of a time of day"
    return None if isinstance(found, _SCALARS) else "Spark has no type that holds it unchanged"
