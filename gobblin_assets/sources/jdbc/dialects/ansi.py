"""An unknown database: standard SQL, and only values that it surely returns unchanged.

Numbers, texts, truth values and bytes are read as the driver declares them; a decimal travels as text, and a value
with more digits than its declared type fails the read. Times are read only if a probe shows that the database writes
its times as ISO texts, and takes and compares fractions of seconds. Texts are not positions: their order is unknown.
"""

import datetime as dt
import re
from typing import Final

from gobblin_assets.model.watermark import Scalar, WatermarkType
from gobblin_assets.sources.jdbc.dialect import ColumnReading, DescribedColumn, write_moment, write_table
from gobblin_assets.sources.jdbc.names import TableName

LONG_DIGITS_MAX: Final = 18
"""Integers of up to this many digits are positions of 64 bits."""

DECIMAL_DIGITS_MAX: Final = 38
"""The most digits that Spark's decimals can have."""

_LONG_DECIMALS: Final = frozenset(f"DECIMAL({digits},0)" for digits in range(1, LONG_DIGITS_MAX + 1))

TIMES: Final = frozenset({WatermarkType.DATE, WatermarkType.TIMESTAMP, WatermarkType.LOCAL_TIMESTAMP})

_TIME_OF_DAY: Final = re.compile(r"(?i)time(\(\d+\))?( with(out)? time zone)?")
_TEXT_TYPE: Final = re.compile(r"(?i)(n?var)?char|(long ?)?(n?text|clob)|character|string")
_CHAR: Final = re.compile(r"char\((\d+)\)")
_CHAR_METADATA: Final = "__CHAR_VARCHAR_TYPE_STRING"
_PROBED_MOMENT: Final = dt.datetime(2020, 6, 15, 12, 34, 56, 123456)  # noqa: DTZ001  a wall clock's
_PROBED_DATE: Final = dt.date(2020, 6, 15)


class AnsiDialect:
    """Standard SQL with ``information_schema``, and JDBC's own escapes for times, which every driver rewrites."""

    title = "a database that is not known"
    is_experimental = False
    has_binary_text = False  # an unknown collation: texts as positions are refused
    row_address: str | None = None
    instant_form = "TIMESTAMP '{}+00:00'"
    moment_form = "{{ts '{}'}}"
    date_form = "{{d '{}'}}"
    binary_text_query: str | None = None
    session_statement: str | None = None
    clock_is_utc = False
    clock_query = "SELECT CAST(CURRENT_TIMESTAMP AS VARCHAR(64)) AS clock"
    schema_query = "SELECT CURRENT_SCHEMA AS table_schema"
    tables_query = (
        "SELECT table_schema AS table_schema, table_name AS table_name FROM information_schema.tables"
        " WHERE LOWER(table_schema) NOT IN ('information_schema', 'sys', 'mysql', 'performance_schema', 'pg_catalog')"
    )

    def __init__(self, *, has_dates: bool = False, has_times: bool = False) -> None:
        """``has_dates``, ``has_times``: whether dates and times survive, as is known or as a probe showed."""
        self.has_dates = has_dates
        self.has_times = has_times

    def quote(self, identifier: str) -> str:
        return '"' + identifier.replace('"', '""') + '"'

    def literal(self, kind: WatermarkType, value: Scalar) -> str:
        match value:
            case dt.datetime():
                form = self.instant_form if kind is WatermarkType.TIMESTAMP else self.moment_form
                return form.format(write_moment(value))
            case dt.date():
                return self.date_form.format(value.isoformat())
            case int():
                return str(value)
            case str():
                return self.text_literal(value)

    def text_literal(self, text: str) -> str:
        return "'" + text.replace("'", "''") + "'"

    def in_order(self, expression: str, _kind: WatermarkType) -> str:
        return expression

    def hide(self, expression: str, _kind: WatermarkType, _type_text: str) -> str:
        return expression

    def show(self, expression: str, kind: WatermarkType) -> str:
        return self.as_text(expression) if kind in TIMES else expression

    def as_text(self, expression: str) -> str:
        """A time as text."""
        return f"CAST({expression} AS VARCHAR(64))"

    def find_misplaced(self, _column: str, _kind: WatermarkType, _type_text: str) -> str | None:
        return None

    def equals_key(self, column: str, text: str, type_text: str) -> str | None:
        # An unknown collation may treat different texts as equal.
        return None if _TEXT_TYPE.match(type_text) else f"{column} = CAST({self.text_literal(text)} AS {type_text})"

    def columns_query(self, name: TableName) -> str:
        return (
            "SELECT column_name AS column_name, ordinal_position AS position, data_type AS type_text,"
            " is_nullable AS nullable FROM information_schema.columns"
            f" WHERE table_schema = {self.text_literal(name.schema or '')}"
            f" AND table_name = {self.text_literal(name.table)}"
        )

    def probe_query(self, table: TableName) -> str | None:
        """One row, whatever the table holds and whether or not the database wants a FROM."""
        later = self.literal(WatermarkType.LOCAL_TIMESTAMP, _PROBED_MOMENT + dt.timedelta(microseconds=1))
        moment = self.literal(WatermarkType.LOCAL_TIMESTAMP, _PROBED_MOMENT)
        day = self.literal(WatermarkType.DATE, _PROBED_DATE)
        shown = (
            f"CASE WHEN COUNT(*) >= 0 THEN {self.as_text(day)} END AS {self.quote('p0')}",
            f"CASE WHEN COUNT(*) >= 0 THEN {self.as_text(moment)} END AS {self.quote('p1')}",
            f"CASE WHEN COUNT(*) >= 0 AND {moment} < {later} THEN 'ordered' ELSE 'equal' END AS {self.quote('p2')}",
        )
        return f"SELECT {', '.join(shown)} FROM {write_table(self, table)}"

    def judge_probe(self, answer: tuple[str | None, ...] | None) -> "AnsiDialect":
        day, moment, order = answer or (None, None, None)
        has_dates = day == _PROBED_DATE.isoformat()
        has_times = has_dates and (moment, order) == (write_moment(_PROBED_MOMENT), "ordered")
        return AnsiDialect(has_dates=has_dates, has_times=has_times)

    def read_declared(self, _column: str, _type_text: str) -> ColumnReading | None:
        return None

    def read_described(self, expression: str, found: DescribedColumn | None, type_text: str) -> ColumnReading:
        cast = self.cast_to_text(expression)
        if found is None:
            return ColumnReading(expression, problem="Spark can't read it", cast=cast)
        if _TIME_OF_DAY.fullmatch(type_text.strip()):
            return ColumnReading(expression, problem="Spark has no type for a time of day", cast=cast)
        name = found.spark_type.upper()
        match found.spark_type.partition("(")[0]:
            case "tinyint" | "smallint" | "int" | "bigint":
                return ColumnReading(expression, name, order=WatermarkType.LONG)
            case "decimal":
                is_long = name in _LONG_DECIMALS
                return ColumnReading(expression, "STRING", name, order=WatermarkType.LONG if is_long else None)
            case "boolean" if type_text and not re.match(r"(?i)bool|bit( ?\(1\))?$", type_text.strip()):
                return ColumnReading(expression, problem="its driver turns numbers into truth values", cast=cast)
            case "float" | "double" | "boolean" | "binary":
                return ColumnReading(expression, name)
            case "string":
                return ColumnReading(self._unpadded(expression, found), "STRING", order=WatermarkType.STRING)
            case "date" | "timestamp_ntz" | "timestamp" as kind:
                return self._read_time(expression, kind)
            case _:
                return ColumnReading(expression, problem="Spark has no type that holds it unchanged", cast=cast)

    def cast_to_text(self, column: str) -> str:
        return f"CAST({column} AS VARCHAR(1000))"

    def read_options(self, _driver_class: str, fetch_size_rows: int) -> dict[str, str]:
        return {"fetchsize": str(fetch_size_rows)}

    def _read_time(self, expression: str, kind: str) -> ColumnReading:
        if kind == "timestamp":
            return ColumnReading(
                expression,
                problem=f"how {self.title} writes times with a zone is not known",
                cast=f"CAST({expression} AT TIME ZONE 'UTC' AS TIMESTAMP(6))",
            )
        is_date = kind == "date"
        if not (self.has_dates if is_date else self.has_times):
            return ColumnReading(
                expression,
                problem=f"a probe of {self.title} did not show that its {'dates' if is_date else 'times'} survive",
                cast=f"CAST({expression} AS VARCHAR(64))",
            )
        order = WatermarkType.DATE if is_date else WatermarkType.LOCAL_TIMESTAMP
        return ColumnReading(self.as_text(expression), "STRING", "DATE" if is_date else "TIMESTAMP_NTZ", order=order)

    def _unpadded(self, expression: str, found: DescribedColumn) -> str:
        """The expression as VARCHAR, because Spark pads what a driver calls CHAR even if the database does not."""
        declared = _CHAR.fullmatch(str(found.metadata.get(_CHAR_METADATA, "")))
        return expression if declared is None else f"CAST({expression} AS VARCHAR({declared[1]}))"


class KnownDialect(AnsiDialect):
    """The dialect of a known database, whose times need no probe."""

    clock_is_utc = True

    def __init__(self) -> None:
        super().__init__(has_dates=True, has_times=True)

    def probe_query(self, _table: TableName) -> str | None:
        return None
