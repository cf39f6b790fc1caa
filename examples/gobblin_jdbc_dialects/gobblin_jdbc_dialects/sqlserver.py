"""SQL Server, written from its documentation alone and never tried against a server.

Types and styles of CONVERT: https://learn.microsoft.com/sql/t-sql/functions/cast-and-convert-transact-sql.
"""

import datetime as dt
import re
from typing import Final

from gobblin_assets.db.jdbc_url import CONNECT_TIMEOUT_S
from gobblin_assets.model.watermark import Scalar, WatermarkType
from gobblin_assets.sources.jdbc.dialect import ColumnReading, JdbcDatabase, write_moment
from gobblin_assets.sources.jdbc.dialects.ansi import LONG_DIGITS_MAX, KnownDialect
from gobblin_assets.sources.jdbc.names import TableName

_INTEGERS: Final = {"tinyint": "SMALLINT", "smallint": "SMALLINT", "int": "INT", "bigint": "BIGINT"}
_TEXTS: Final = frozenset({"varchar", "nvarchar", "char", "nchar", "text", "ntext", "sysname"})
_PLAIN: Final = {
    **dict.fromkeys(("varchar", "nvarchar", "text", "ntext", "sysname"), "STRING"),
    **dict.fromkeys(("binary", "varbinary", "image", "timestamp", "rowversion"), "BINARY"),
    "bit": "BOOLEAN",
    "real": "FLOAT",
    "float": "DOUBLE",
}
_CLOCKS: Final = frozenset({"datetime", "smalldatetime", "datetime2", "datetimeoffset"})
_MONEY: Final = {"money": "DECIMAL(19,4)", "smallmoney": "DECIMAL(10,4)"}
_FRACTION_MAX: Final = 6
_TYPE: Final = re.compile(r"(\w+)(?:\(([^)]*)\))?")


class SqlServerDialect(KnownDialect):
    """SQL Server's SQL. Texts are not positions, because a collation does not order them by their bytes."""

    title = "SQL Server"
    is_experimental = True
    clock_query = "SELECT CONVERT(varchar(27), SYSUTCDATETIME(), 121) AS clock"
    schema_query = "SELECT SCHEMA_NAME() AS table_schema"
    tables_query = (
        "SELECT table_schema AS table_schema, table_name AS table_name FROM information_schema.tables"
        " WHERE table_schema NOT IN ('sys', 'INFORMATION_SCHEMA')"
    )

    def literal(self, kind: WatermarkType, value: Scalar) -> str:
        match value:
            case dt.datetime() if kind is WatermarkType.TIMESTAMP:
                return f"CAST('{_iso(value)}+00:00' AS datetimeoffset(6))"
            case dt.datetime():
                return f"CAST('{_iso(value)}' AS datetime2(6))"
            case dt.date():
                return f"CAST('{value.isoformat()}' AS date)"
            case int() | str():
                return super().literal(kind, value)

    def text_literal(self, text: str) -> str:
        return "N" + super().text_literal(text)

    def in_order(self, expression: str, kind: WatermarkType) -> str:
        # A datetime counts in 1/300 s, which the server compares exactly and shows as three digits.
        return f"CAST({expression} AS datetime2(6))" if kind is WatermarkType.LOCAL_TIMESTAMP else expression

    def show(self, expression: str, kind: WatermarkType) -> str:
        return _in_utc(expression) if kind is WatermarkType.TIMESTAMP else super().show(expression, kind)

    def as_text(self, expression: str) -> str:
        return f"CONVERT(varchar(27), {expression}, 121)"

    def cast_to_text(self, column: str) -> str:
        return f"CONVERT(nvarchar(max), {column})"

    def equals_key(self, column: str, text: str, type_text: str) -> str | None:
        name, _ = _split(type_text)
        if name in _TEXTS:
            wide, value = f"CAST({column} AS nvarchar(4000))", self.text_literal(text)
            return f"{column} = {value} AND CAST({wide} AS varbinary(8000)) = CAST({value} AS varbinary(8000))"
        return f"{column} = CAST({self.text_literal(text)} AS {type_text})"

    def columns_query(self, name: TableName) -> str:
        full = ".".join(self.quote(part) for part in (name.schema or "", name.table))
        size = (
            "CASE WHEN t.name IN ('decimal', 'numeric') THEN CONCAT('(', c.precision, ',', c.scale, ')')"
            " WHEN t.name IN ('datetime2', 'datetimeoffset', 'time') THEN CONCAT('(', c.scale, ')') ELSE '' END"
        )
        return (
            f"SELECT c.name AS column_name, c.column_id AS position, CONCAT(t.name, {size}) AS type_text,"
            " CASE c.is_nullable WHEN 1 THEN 'YES' ELSE 'NO' END AS nullable FROM sys.columns c"
            " JOIN sys.types t ON t.user_type_id = CASE WHEN c.system_type_id = 240 THEN c.user_type_id"
            f" ELSE c.system_type_id END WHERE c.object_id = OBJECT_ID({self.text_literal(full)})"
        )

    def read_declared(self, column: str, type_text: str) -> ColumnReading | None:
        name, arguments = _split(type_text)
        if name in _INTEGERS:
            return ColumnReading(column, _INTEGERS[name], order=WatermarkType.LONG)
        if name in _MONEY:
            return ColumnReading(f"CAST({column} AS {_MONEY[name].lower()})", _MONEY[name])
        if name in {"char", "nchar"}:
            # As an expression of another type, because Spark pads what drivers call CHAR by its own count.
            return ColumnReading(f"CAST({column} AS nvarchar(4000))", "STRING")
        if name in _PLAIN:
            return ColumnReading(column, _PLAIN[name])
        if name in _CLOCKS:
            return self._read_clock(column, name, int(arguments or "0"))
        match name:
            case "decimal" | "numeric":
                digits, places = arguments.split(",")
                is_long = int(digits) <= LONG_DIGITS_MAX and places == "0"
                return ColumnReading(
                    column, f"DECIMAL({digits},{places})", order=WatermarkType.LONG if is_long else None
                )
            case "uniqueidentifier":
                return ColumnReading(f"CONVERT(varchar(36), {column})", "STRING")
            case "date":
                return ColumnReading(f"CONVERT(varchar(10), {column}, 23)", "STRING", "DATE", order=WatermarkType.DATE)
            case _:
                why = "Spark has no type that holds it unchanged"
                return ColumnReading(column, problem=why, cast=self.cast_to_text(column))

    def _read_clock(self, column: str, name: str, fraction: int) -> ColumnReading:
        if fraction > _FRACTION_MAX:
            why = "Spark's times have six digits behind the point"
            return ColumnReading(column, problem=why, cast=f"CAST({column} AS {name}(6))")
        if name == "datetimeoffset":
            return ColumnReading(_in_utc(column), "STRING", "TIMESTAMP", order=WatermarkType.TIMESTAMP)
        text = self.as_text(f"CAST({column} AS datetime2(6))")
        return ColumnReading(text, "STRING", "TIMESTAMP_NTZ", order=WatermarkType.LOCAL_TIMESTAMP)


def _split(type_text: str) -> tuple[str, str]:
    found = _TYPE.match(type_text)
    return ("", "") if found is None else (found[1].lower(), found[2] or "")


def _iso(moment: dt.datetime) -> str:
    """With a T, which the server reads the same under every DATEFORMAT of the session."""
    return write_moment(moment).replace(" ", "T")


def _in_utc(expression: str) -> str:
    return f"CONVERT(varchar(27), CAST(SWITCHOFFSET({expression}, '+00:00') AS datetime2(6)), 121)"


SQL_SERVER: Final = JdbcDatabase(
    dialect=SqlServerDialect,
    driver_class="com.microsoft.sqlserver.jdbc.SQLServerDriver",
    capability="com.microsoft.sqlserver:mssql-jdbc:13.6.2.jre11",
    properties={"loginTimeout": str(CONNECT_TIMEOUT_S)},
)
