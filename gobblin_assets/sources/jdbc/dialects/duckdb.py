"""DuckDB. Files are opened for reading only; a process that writes to one keeps all others out of it.

Each reader sees the file as it is when its statement starts. The clock is that of the machine that reads.
"""

import re
from typing import Final

from gobblin_assets.model.watermark import Scalar, WatermarkType
from gobblin_assets.sources.jdbc.dialect import ColumnReading, JdbcDatabase
from gobblin_assets.sources.jdbc.dialects.ansi import LONG_DIGITS_MAX, KnownDialect
from gobblin_assets.sources.jdbc.names import TableName

_INTEGERS: Final = {
    "TINYINT": "TINYINT", "SMALLINT": "SMALLINT", "INTEGER": "INT", "BIGINT": "BIGINT",
    "UTINYINT": "SMALLINT", "USMALLINT": "INT", "UINTEGER": "BIGINT",
}  # fmt: skip
_DECIMAL: Final = re.compile(r"DECIMAL\((\d+),(\d+)\)")
_PLAIN: Final = {"BOOLEAN": "BOOLEAN", "VARCHAR": "STRING", "BLOB": "BINARY"}
_CLOCKS: Final = frozenset({"TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS"})
_LONG_MAX: Final = 2**63 - 1


class DuckDbDialect(KnownDialect):
    """DuckDB's SQL. Texts compare by their bytes; instants are compared and read as microseconds, in any zone."""

    title = "DuckDB"
    has_binary_text = True
    instant_form = moment_form = "TIMESTAMP '{}'"
    date_form = "DATE '{}'"
    # For the job's own conditions and casts; this dialect's SQL holds in any zone.
    session_statement: str | None = "SET TimeZone = 'UTC'"
    clock_query = 'SELECT CAST(make_timestamp(epoch_us(now())) AS VARCHAR) AS "clock"'
    schema_query = 'SELECT current_schema() AS "table_schema"'
    tables_query = (
        'SELECT table_schema AS "table_schema", table_name AS "table_name" FROM information_schema.tables'
        " WHERE table_catalog = current_catalog() AND table_schema NOT IN ('information_schema', 'pg_catalog')"
    )

    def literal(self, kind: WatermarkType, value: Scalar) -> str:
        found = super().literal(kind, value)
        return f"encode({found})" if isinstance(value, str) else found

    def in_order(self, expression: str, kind: WatermarkType) -> str:
        match kind:
            case WatermarkType.TIMESTAMP:
                return _instant(expression)
            case WatermarkType.STRING:
                # Bytes compare without the collation of the column or the database.
                return f"encode({expression}::VARCHAR)"
            case _:
                return expression

    def hide(self, expression: str, kind: WatermarkType, type_text: str) -> str:
        # Spark does not know the driver's types for instants and for the widest unsigned numbers.
        if type_text == "UBIGINT":
            return f"CAST({expression} AS DECIMAL(20,0))"
        return _instant(expression) if kind is WatermarkType.TIMESTAMP else expression

    def show(self, expression: str, kind: WatermarkType) -> str:
        # Numbers are fetched as text too, because Spark does not know the driver's type for UBIGINT.
        return f"decode({expression})" if kind is WatermarkType.STRING else self.as_text(expression)

    def as_text(self, expression: str) -> str:
        return f"CAST({expression} AS VARCHAR)"

    def cast_to_text(self, column: str) -> str:
        return self.as_text(column)

    def find_misplaced(self, column: str, kind: WatermarkType, type_text: str) -> str | None:
        return f"{column} > {_LONG_MAX}" if kind is WatermarkType.LONG and type_text == "UBIGINT" else None

    def equals_key(self, column: str, text: str, type_text: str) -> str | None:
        if type_text == "VARCHAR":
            exact = self.literal(WatermarkType.STRING, text)
            return f"{self.in_order(column, WatermarkType.STRING)} = {exact}"
        return f"{column} = CAST({self.text_literal(text)} AS {type_text})"

    def columns_query(self, name: TableName) -> str:
        place = f"database_name = current_catalog() AND schema_name = {self.text_literal(name.schema or '')}"
        place += f" AND {{}}_name = {self.text_literal(name.table)}"
        table = place.format("table")
        return (
            "SELECT column_name AS column_name, ordinal_position AS position, data_type AS type_text,"
            " is_nullable AS nullable, (SELECT list_position(any_value(constraint_column_names), c.column_name)"
            f" FROM duckdb_constraints() WHERE {table} AND constraint_type = 'PRIMARY KEY') AS key_place,"
            f" (SELECT d.comment FROM duckdb_columns() d WHERE {table} AND d.column_name = c.column_name)"
            f" AS column_comment, coalesce((SELECT comment FROM duckdb_tables() WHERE {table}),"
            f" (SELECT comment FROM duckdb_views() WHERE {place.format('view')})) AS table_comment"
            f" FROM information_schema.columns c WHERE table_schema = {self.text_literal(name.schema or '')}"
            f" AND table_name = {self.text_literal(name.table)} AND table_catalog = current_catalog()"
        )

    def read_declared(self, column: str, type_text: str) -> ColumnReading | None:
        as_text = self.as_text(column)
        decimal = _DECIMAL.fullmatch(type_text)
        if decimal is not None:
            is_long = int(decimal[1]) <= LONG_DIGITS_MAX and decimal[2] == "0"
            return ColumnReading(column, type_text, order=WatermarkType.LONG if is_long else None)
        if type_text in _INTEGERS:
            return ColumnReading(f"CAST({column} AS BIGINT)", "BIGINT", _INTEGERS[type_text], order=WatermarkType.LONG)
        if type_text in _PLAIN:
            return ColumnReading(
                column, _PLAIN[type_text], order=WatermarkType.STRING if type_text == "VARCHAR" else None
            )
        if type_text in _CLOCKS:
            text = self.as_text(f"CAST({column} AS TIMESTAMP)")
            return ColumnReading(text, "STRING", "TIMESTAMP_NTZ", order=WatermarkType.LOCAL_TIMESTAMP)
        if type_text in {"UUID", "JSON"} or type_text.startswith("ENUM("):
            return ColumnReading(as_text, "STRING")
        match type_text:
            case "UBIGINT":
                return ColumnReading(f"CAST({column} AS DECIMAL(20,0))", "DECIMAL(20,0)", order=WatermarkType.LONG)
            case "FLOAT" | "DOUBLE":
                return ColumnReading(f"CAST({column} AS DOUBLE)", "DOUBLE", type_text)
            case "DATE":
                return ColumnReading(as_text, "STRING", "DATE", order=WatermarkType.DATE)
            case "TIMESTAMP WITH TIME ZONE":
                text = self.as_text(_instant(column))
                return ColumnReading(text, "STRING", "TIMESTAMP", order=WatermarkType.TIMESTAMP)
            case "TIMESTAMP_NS":
                return ColumnReading(column, problem="Spark's times have six digits behind the point", cast=as_text)
            case _:
                return ColumnReading(column, problem="Spark has no type that holds it unchanged", cast=as_text)


def _instant(expression: str) -> str:
    """An instant as a wall clock in UTC; a wall clock in UTC stays the same."""
    return f"make_timestamp(epoch_us({expression}))"


DUCKDB: Final = JdbcDatabase(
    dialect=DuckDbDialect,
    driver_class="org.duckdb.DuckDBDriver",
    capability="duckdb",
    properties={"duckdb.read_only": "true"},  # so that a wrong name creates no file
)
