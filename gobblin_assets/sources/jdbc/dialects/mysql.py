"""MariaDB and MySQL, with the driver of either.

Sessions are in UTC: a TIMESTAMP is an instant, a DATETIME a wall clock. Nothing depends on ``sql_mode``: names stand
in backticks, and texts with a backslash are written as bytes. Each reader sees the database at its own moment, because
sessions can't share a snapshot.
"""

import datetime as dt
import re
from typing import Final

from gobblin_assets.db.jdbc_url import CONNECT_TIMEOUT_S
from gobblin_assets.model.watermark import Scalar, WatermarkType
from gobblin_assets.sources.jdbc.dialect import ColumnReading, JdbcDatabase
from gobblin_assets.sources.jdbc.dialects.ansi import DECIMAL_DIGITS_MAX, LONG_DIGITS_MAX, KnownDialect
from gobblin_assets.sources.jdbc.names import TableName

_TYPE: Final = re.compile(r"(?i)\s*([a-z0-9]+)\s*(?:\(([^)]*)\))?")
_INTEGERS: Final = {"tinyint": "TINYINT", "smallint": "SMALLINT", "mediumint": "INT", "int": "INT", "bigint": "BIGINT"}
_WIDER: Final = {"TINYINT": "SMALLINT", "SMALLINT": "INT", "INT": "BIGINT"}
# Types that drivers call CHAR: as expressions they are VARCHAR, which Spark does not pad.
_PADDED: Final = frozenset({"char", "enum", "set"})
_TEXTS: Final = frozenset({"varchar", "tinytext", "text", "mediumtext", "longtext"})
_AS_TEXT: Final = frozenset({"json", "uuid", "inet4", "inet6"})
_BYTES: Final = frozenset({"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"})
_GEOMETRIES: Final = frozenset({
    "geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon",
    "geometrycollection", "geomcollection",
})  # fmt: skip
_CLOCKS: Final = {"datetime": WatermarkType.LOCAL_TIMESTAMP, "timestamp": WatermarkType.TIMESTAMP}
_LONG_MAX: Final = 2**63 - 1
_BITS_MAX: Final = 63


class MySqlDialect(KnownDialect):
    """The SQL that MariaDB and MySQL both take."""

    title = "MariaDB and MySQL"
    has_binary_text = True
    # JDBC's escapes are avoided: drivers cut the fraction off if they take the server for an old one.
    instant_form = moment_form = "TIMESTAMP'{}'"
    date_form = "DATE'{}'"
    clock_query = "SELECT CAST(UTC_TIMESTAMP(6) AS CHAR) AS clock"
    schema_query = "SELECT DATABASE() AS table_schema"
    session_statement: str | None = "SET time_zone = '+00:00', net_write_timeout = 3600"

    def quote(self, identifier: str) -> str:
        return "`" + identifier.replace("`", "``") + "`"

    def literal(self, kind: WatermarkType, value: Scalar) -> str:
        return f"X'{value.encode().hex()}'" if isinstance(value, str) else super().literal(kind, value)

    def text_literal(self, text: str) -> str:
        if "\\" in text:
            return f"_utf8mb4 X'{text.encode().hex()}'"
        return super().text_literal(text)

    def in_order(self, expression: str, kind: WatermarkType) -> str:
        return f"CAST(CONVERT({expression} USING utf8mb4) AS BINARY)" if kind is WatermarkType.STRING else expression

    def show(self, expression: str, kind: WatermarkType) -> str:
        if kind is WatermarkType.STRING:
            return f"CONVERT({expression} USING utf8mb4)"
        return super().show(expression, kind)

    def as_text(self, expression: str) -> str:
        return f"CAST({expression} AS CHAR)"

    def find_misplaced(self, column: str, kind: WatermarkType, type_text: str) -> str | None:
        is_unsigned = kind is WatermarkType.LONG and type_text.lower().startswith("bigint") and "unsigned" in type_text
        return f"{column} > {_LONG_MAX}" if is_unsigned else None

    def equals_key(self, column: str, text: str, type_text: str) -> str | None:
        name, _ = _split(type_text)
        if name in _PADDED | _TEXTS:
            # Collations treat some different texts as equal: the first condition uses the index, the second decides.
            exact = f"{self.in_order(column, WatermarkType.STRING)} = {self.literal(WatermarkType.STRING, text)}"
            return f"{column} = {self.text_literal(text)} AND {exact}"
        try:
            if name in _INTEGERS or name in {"decimal", "year"}:
                return f"{column} = {text}" if re.fullmatch(r"-?\d+(\.\d+)?", text) else None
            if name == "date":
                return f"{column} = {self.literal(WatermarkType.DATE, dt.date.fromisoformat(text))}"
            if name in _CLOCKS:
                moment = dt.datetime.fromisoformat(text)
                return f"{column} = {self.literal(_CLOCKS[name], moment)}" if moment.tzinfo is None else None
        except ValueError:
            return None
        shown = self.in_order(self.as_text(column), WatermarkType.STRING)
        return f"{shown} = {self.literal(WatermarkType.STRING, text)}"

    def columns_query(self, name: TableName) -> str:
        # Compared as bytes: information_schema's own collation would find two tables that differ by case.
        return (
            "SELECT column_name AS column_name, ordinal_position AS position, column_type AS type_text,"
            " is_nullable AS nullable, CASE column_key WHEN 'PRI' THEN ordinal_position END AS key_place,"
            " column_comment AS column_comment, (SELECT t.table_comment FROM information_schema.tables t"
            " WHERE t.table_schema = c.table_schema AND t.table_name = c.table_name AND t.table_type <> 'VIEW')"
            " AS table_comment FROM information_schema.columns c"
            f" WHERE table_schema = {self.text_literal(name.schema or '')}"
            f" AND table_name = {self.text_literal(name.table)}"
            f" AND {self.in_order('table_schema', WatermarkType.STRING)}"
            f" = {self.literal(WatermarkType.STRING, name.schema or '')}"
            f" AND {self.in_order('table_name', WatermarkType.STRING)}"
            f" = {self.literal(WatermarkType.STRING, name.table)}"
        )

    def read_declared(self, column: str, type_text: str) -> ColumnReading | None:
        name, arguments = _split(type_text)
        unsigned = "unsigned" in type_text.lower()
        as_text = f"CAST({column} AS CHAR)"
        if name in _INTEGERS:
            return _read_integer(column, _INTEGERS[name], unsigned=unsigned)
        if name in _CLOCKS:
            spark_type = "TIMESTAMP" if name == "timestamp" else "TIMESTAMP_NTZ"
            return ColumnReading(as_text, "STRING", spark_type, order=_CLOCKS[name])
        match name:
            case "decimal":
                return _read_decimal(column, arguments)
            case "float" | "double":
                # An expression gives the number itself; a column of floats gives six digits.
                return ColumnReading(f"({column} + 0e0)", "DOUBLE", name.upper())
            case "date":
                return ColumnReading(as_text, "STRING", "DATE", order=WatermarkType.DATE)
            case "year":
                return ColumnReading(f"CAST({column} AS SIGNED)", "INT")
            case "bit":
                return _read_bits(column, int(arguments or "1"))
            case _:
                return _read_texts(column, name)

    def cast_to_text(self, column: str) -> str:
        return self.as_text(column)

    def read_options(self, driver_class: str, fetch_size_rows: int) -> dict[str, str]:
        # MySQL's own driver fetches all rows at once, unless the fetch size is exactly this number.
        streams = driver_class.startswith("com.mysql.")
        return {"fetchsize": str(-(2**31) if streams else fetch_size_rows)}


def _split(type_text: str) -> tuple[str, str]:
    """The type's name in lower case, and what stands in its parentheses."""
    found = _TYPE.match(type_text)
    return ("", "") if found is None else (found[1].lower(), found[2] or "")


def _read_texts(column: str, name: str) -> ColumnReading:
    as_text = f"CAST({column} AS CHAR)"
    if name in _PADDED:
        # Enumerations sort by their numbers in the declaration, not as texts.
        return ColumnReading(f"CONCAT({column}, '')", "STRING", order=WatermarkType.STRING if name == "char" else None)
    if name in _TEXTS:
        return ColumnReading(column, "STRING", order=WatermarkType.STRING)
    if name in _AS_TEXT:
        return ColumnReading(as_text, "STRING")
    if name in _BYTES:
        return ColumnReading(column, "BINARY")
    cast = f"ST_AsText({column})" if name in _GEOMETRIES else as_text
    why = "Spark has no type for a time of day" if name == "time" else "Spark has no type that holds it unchanged"
    return ColumnReading(column, problem=why, cast=cast)


def _read_integer(column: str, spark_type: str, *, unsigned: bool) -> ColumnReading:
    if unsigned and spark_type == "BIGINT":
        return ColumnReading(column, "DECIMAL(20,0)", order=WatermarkType.LONG)
    held = _WIDER[spark_type] if unsigned else spark_type
    # As an expression, because drivers turn a column of tinyint(1) into truth values.
    return ColumnReading(f"({column} + 0)", "BIGINT", held, order=WatermarkType.LONG)


def _read_decimal(column: str, arguments: str) -> ColumnReading:
    precision, _, scale = arguments.partition(",")
    digits, places = int(precision or "10"), int(scale or "0")
    if digits > DECIMAL_DIGITS_MAX:
        return ColumnReading(
            column,
            problem=f"it has {digits} digits, and Spark's decimals have at most {DECIMAL_DIGITS_MAX}",
            cast=f"CAST({column} AS CHAR)",
        )
    is_long = places == 0 and digits <= LONG_DIGITS_MAX
    return ColumnReading(column, f"DECIMAL({digits},{places})", order=WatermarkType.LONG if is_long else None)


def _read_bits(column: str, count: int) -> ColumnReading:
    number = f"CAST({column} AS UNSIGNED)"
    if count == 1:
        return ColumnReading(number, "BIGINT", "BOOLEAN")
    return ColumnReading(number, "BIGINT" if count <= _BITS_MAX else "DECIMAL(20,0)")


_TIMEOUT: Final = {"connectTimeout": str(CONNECT_TIMEOUT_S * 1000)}

MARIADB: Final = JdbcDatabase(
    dialect=MySqlDialect, driver_class="org.mariadb.jdbc.Driver", capability="mariadb", properties=_TIMEOUT
)

MYSQL: Final = JdbcDatabase(
    dialect=MySqlDialect, driver_class="com.mysql.cj.jdbc.Driver", capability="mysql", properties=_TIMEOUT
)
