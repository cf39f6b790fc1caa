"""SQLite, whose columns may hold values of any type: a value whose type is not the declared one is refused.

Times are texts, ``2020-01-31 10:00:00`` with up to six digits behind the point, and dates ``2020-01-31``; other forms
(``T`` in the middle, numbers, Julian days) are refused. The clock is that of the machine that reads.
Files are opened for reading only; each reader sees the file as it is when its statement starts.
"""

import re
from typing import Final

from gobblin_assets.db.jdbc_url import CONNECT_TIMEOUT_S
from gobblin_assets.model.watermark import WatermarkType
from gobblin_assets.sources.jdbc.dialect import ColumnReading, JdbcDatabase
from gobblin_assets.sources.jdbc.dialects.ansi import KnownDialect
from gobblin_assets.sources.jdbc.names import TableName

_DAY: Final = "[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]"
_SECOND: Final = f"{_DAY} [0-9][0-9]:[0-9][0-9]:[0-9][0-9]"
_CLOCK_NAMES: Final = frozenset({"datetime", "timestamp"})


class SqliteDialect(KnownDialect):
    """SQLite's SQL. Types follow its affinities (https://sqlite.org/datatype3.html) and the usual names of times."""

    title = "SQLite"
    has_binary_text = True
    instant_form = moment_form = date_form = "'{}'"
    # Texts compare by the bytes of the file's own encoding.
    binary_text_query: str | None = "SELECT encoding = 'UTF-8' AS \"is_binary\" FROM pragma_encoding"
    clock_query = "SELECT strftime('%Y-%m-%d %H:%M:%f', 'now') AS \"clock\""
    schema_query = "SELECT 'main' AS \"table_schema\""
    tables_query = (
        'SELECT \'main\' AS "table_schema", name AS "table_name" FROM main.sqlite_master'
        " WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite^_%' ESCAPE '^'"
    )

    def in_order(self, expression: str, kind: WatermarkType) -> str:
        match kind:
            case WatermarkType.LOCAL_TIMESTAMP:
                # As texts, 10:00:00.5 and 10:00:00.500 differ: all digits are written out.
                whole = f"CASE length({expression}) WHEN 19 THEN {expression} || '.' ELSE {expression} END"
                return f"substr({whole} || '000000', 1, 26)"
            case WatermarkType.STRING | WatermarkType.DATE:
                return f"({expression} COLLATE BINARY)"
            case _:
                return expression

    def as_text(self, expression: str) -> str:
        return f"CAST({expression} AS TEXT)"

    def find_misplaced(self, column: str, kind: WatermarkType, _type_text: str) -> str | None:
        match kind:
            case WatermarkType.LONG:
                return f"typeof({column}) NOT IN ('integer', 'null')"
            case WatermarkType.DATE:
                return f"typeof({column}) <> 'null' AND NOT ({column} GLOB '{_DAY}' AND typeof({column}) = 'text')"
            case WatermarkType.LOCAL_TIMESTAMP:
                fraction = (
                    f"{column} GLOB '{_SECOND}.[0-9]*' AND length({column}) <= 26"
                    f" AND substr({column}, 21) NOT GLOB '*[^0-9]*'"
                )
                fits = f"({column} GLOB '{_SECOND}' OR {fraction}) AND typeof({column}) = 'text'"
                return f"typeof({column}) <> 'null' AND NOT ({fits})"
            case _:
                return f"typeof({column}) NOT IN ('text', 'null')"

    def equals_key(self, column: str, text: str, type_text: str) -> str | None:
        if find_affinity(type_text) == "INTEGER":
            return f"{column} = {text}" if re.fullmatch(r"-?\d+", text) else None
        return f"CAST({column} AS TEXT) COLLATE BINARY = {self.text_literal(text)}"

    def columns_query(self, name: TableName) -> str:
        # The pragma takes names in any case; sqlite_master is asked for the exact name.
        table = self.text_literal(name.table)
        key = "c.pk > 0 AND upper(c.type) = 'INTEGER' AND (SELECT max(k.pk) FROM pragma_table_xinfo({0}) k) = 1"
        return (
            'SELECT c.name AS "column_name", c.cid AS "position", c.type AS "type_text",'
            f" CASE WHEN c.\"notnull\" OR ({key.format(table)}) THEN 'NO' ELSE 'YES' END AS \"nullable\","
            ' nullif(c.pk, 0) AS "key_place"'
            f" FROM pragma_table_xinfo({table}) c WHERE c.hidden <> 1"
            f" AND {self.text_literal(name.schema or '')} = 'main'"
            f" AND EXISTS (SELECT 1 FROM main.sqlite_master m WHERE m.name = {table} AND m.type IN ('table', 'view'))"
        )

    def read_declared(self, column: str, type_text: str) -> ColumnReading | None:
        name = re.sub(r"\(.*", "", type_text).strip().lower()
        if name in _CLOCK_NAMES:
            return self._read(column, "text", "STRING", "TIMESTAMP_NTZ", WatermarkType.LOCAL_TIMESTAMP)
        if name == "date":
            return self._read(column, "text", "STRING", "DATE", WatermarkType.DATE)
        if name in {"boolean", "bool"}:
            fits = f"typeof({column}) = 'null' OR (typeof({column}) = 'integer' AND {column} IN (0, 1))"
            return ColumnReading(column, "BIGINT", "BOOLEAN", _write_guard(column, fits))
        match find_affinity(type_text):
            case "INTEGER":
                return self._read(column, "integer", "BIGINT", "", WatermarkType.LONG)
            case "TEXT":
                return self._read(column, "text", "STRING", "", WatermarkType.STRING)
            case "REAL":
                return self._read(column, "real", "DOUBLE", "", None)
            case "BLOB" if name == "blob":
                return self._read(column, "blob", "BINARY", "", None)
            case _:
                return ColumnReading(
                    column, problem="SQLite keeps any value in a column of this type", cast=self.cast_to_text(column)
                )

    def read_described(self, expression: str, _found: object, _type_text: str) -> ColumnReading:
        """A cast gives the type that it ends in, else text. A value of another type is refused."""
        ends = re.search(r"(?i)\bAS\s+(\w+)\s*\)[\s)]*$", expression)
        affinity = "TEXT" if ends is None else find_affinity(ends[1])
        kinds = {"INTEGER": ("integer", "BIGINT"), "REAL": ("real", "DOUBLE"), "BLOB": ("blob", "BINARY")}
        stored, wire = kinds.get(affinity, ("text", "STRING"))
        return self._read(expression, stored, wire, "", None)

    def cast_to_text(self, column: str) -> str:
        return f"CAST({column} AS TEXT)"

    def _read(self, column: str, stored: str, wire: str, spark_type: str, order: WatermarkType | None) -> ColumnReading:
        guard = _write_guard(column, f"typeof({column}) IN ('{stored}', 'null')")
        return ColumnReading(column, wire, spark_type, guard, order)


def find_affinity(type_text: str) -> str:
    """What SQLite makes of a declared type: INTEGER, TEXT, BLOB, REAL or NUMERIC."""
    declared = type_text.upper()
    if "INT" in declared:
        return "INTEGER"
    if any(part in declared for part in ("CHAR", "CLOB", "TEXT")):
        return "TEXT"
    if not declared or "BLOB" in declared:
        return "BLOB"
    return "REAL" if any(part in declared for part in ("REAL", "FLOA", "DOUB")) else "NUMERIC"


def _write_guard(column: str, fits: str) -> str:
    shown = f"typeof({column}) || ' ' || substr(CAST({column} AS TEXT), 1, 80)"
    return f"CASE WHEN {fits} THEN NULL ELSE {shown} END"


SQLITE: Final = JdbcDatabase(
    dialect=SqliteDialect,
    driver_class="org.sqlite.JDBC",
    capability="sqlite",
    # Read-only, so that a wrong name creates no file: a flag of sqlite3_open_v2.
    properties={"open_mode": "1", "busy_timeout": str(CONNECT_TIMEOUT_S * 1000)},
)
