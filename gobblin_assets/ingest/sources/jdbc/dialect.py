"""What differs between databases in the SQL that planning and reading write.

Identifiers and values come from people: all of them pass through ``quote`` and ``literal``.
"""

import datetime as dt
import re
from typing import Protocol

from gobblin_assets.ingest.sources.jdbc.names import TableName
from gobblin_assets.model.watermark import Scalar, WatermarkType

ROW_ADDRESS = "row_address"
"""Stands in a unit's properties for the hidden address of a row, where the database has one."""


class Dialect(Protocol):
    """Pure: text in, text out."""

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

    def text_literal(self, text: str) -> str: ...

    def in_order(self, expression: str, kind: WatermarkType) -> str:
        """The expression so that it compares as watermarks of ``kind`` do."""
        ...

    def cast_literal(self, text: str, type_text: str) -> str:
        """The value of a type that ``text`` spells."""
        ...


class SparkDialect(Dialect, Protocol):
    """The queries that a catalogue reached through Spark needs besides."""

    @property
    def binary_text_query(self) -> str | None:
        """Gives 1 where this very database compares texts byte by byte, else 0; None: it needn't be asked."""
        ...

    @property
    def clock_query(self) -> str:
        """Gives the current instant as a column ``clock``."""
        ...

    @property
    def tables_query(self) -> str:
        """Gives ``table_schema`` and ``table_name`` of all tables and views that people made."""
        ...

    @property
    def schema_query(self) -> str:
        """Gives the schema where unqualified names are looked up, as ``table_schema``."""
        ...

    def columns_query(self, name: TableName) -> str:
        """Gives ``column_name``, ``position``, ``type_text`` and ``nullable`` (YES or NO)."""
        ...


def write_table(dialect: Dialect, name: TableName) -> str:
    """The table's name in SQL."""
    return ".".join(dialect.quote(part) for part in (name.schema, name.table) if part is not None)


class AnsiDialect:
    """Standard SQL with ``information_schema``, and JDBC's own escapes for times, which every driver rewrites."""

    has_binary_text = False  # an unknown collation: texts as positions are refused
    row_address: str | None = None
    binary_text_query: str | None = None
    clock_query = "SELECT CURRENT_TIMESTAMP AS clock"
    schema_query = "SELECT CURRENT_SCHEMA AS table_schema"
    tables_query = (
        "SELECT table_schema AS table_schema, table_name AS table_name FROM information_schema.tables"
        " WHERE LOWER(table_schema) NOT IN ('information_schema', 'sys', 'mysql', 'performance_schema', 'pg_catalog')"
    )

    def quote(self, identifier: str) -> str:
        return '"' + identifier.replace('"', '""') + '"'

    def literal(self, kind: WatermarkType, value: Scalar) -> str:
        match value:
            case dt.datetime() if kind is WatermarkType.TIMESTAMP:
                return f"TIMESTAMP '{_write_moment(value)}+00:00'"
            case dt.datetime():
                return f"{{ts '{_write_moment(value)}'}}"
            case dt.date():
                return f"{{d '{value.isoformat()}'}}"
            case int():
                return str(value)
            case str():
                return self.text_literal(value)

    def text_literal(self, text: str) -> str:
        return "'" + text.replace("'", "''") + "'"

    def in_order(self, expression: str, _kind: WatermarkType) -> str:
        return expression

    def cast_literal(self, text: str, type_text: str) -> str:
        if re.match(r"(?i)(n?var)?char|(long ?)?(n?text|clob)|character|string", type_text):
            return self.text_literal(text)
        return f"CAST({self.text_literal(text)} AS {type_text})"

    def columns_query(self, name: TableName) -> str:
        return (
            "SELECT column_name AS column_name, ordinal_position AS position, data_type AS type_text,"
            " is_nullable AS nullable FROM information_schema.columns"
            f" WHERE table_schema = {self.text_literal(name.schema or '')}"
            f" AND table_name = {self.text_literal(name.table)}"
        )


class DerbyDialect(AnsiDialect):
    """Apache Derby. Its default collation, UCS_BASIC, compares code points; a territory's does not."""

    has_binary_text = True
    binary_text_query: str | None = (
        "SELECT CASE WHEN SYSCS_UTIL.SYSCS_GET_DATABASE_PROPERTY('derby.database.collation') = 'TERRITORY_BASED'"
        ' THEN 0 ELSE 1 END AS "is_binary" FROM SYSIBM.SYSDUMMY1'
    )
    clock_query = 'SELECT CURRENT_TIMESTAMP AS "clock" FROM SYSIBM.SYSDUMMY1'
    schema_query = 'SELECT CURRENT SCHEMA AS "table_schema" FROM SYSIBM.SYSDUMMY1'
    tables_query = (
        'SELECT s.SCHEMANAME AS "table_schema", t.TABLENAME AS "table_name" FROM SYS.SYSTABLES t'
        " JOIN SYS.SYSSCHEMAS s ON s.SCHEMAID = t.SCHEMAID WHERE t.TABLETYPE IN ('T', 'V')"
    )

    def columns_query(self, name: TableName) -> str:
        # COLUMNDATATYPE is a Java object whose text form ends in NOT NULL when the column refuses NULLs.
        text = "CAST(c.COLUMNDATATYPE AS VARCHAR(200))"
        return (
            f'SELECT c.COLUMNNAME AS "column_name", c.COLUMNNUMBER AS "position", {text} AS "type_text",'
            f" CASE WHEN {text} LIKE '% NOT NULL' THEN 'NO' ELSE 'YES' END AS \"nullable\""
            " FROM SYS.SYSCOLUMNS c JOIN SYS.SYSTABLES t ON t.TABLEID = c.REFERENCEID"
            " JOIN SYS.SYSSCHEMAS s ON s.SCHEMAID = t.SCHEMAID"
            f" WHERE s.SCHEMANAME = {self.text_literal(name.schema or '')}"
            f" AND t.TABLENAME = {self.text_literal(name.table)}"
        )


class MySqlDialect(AnsiDialect):
    """MySQL and MariaDB: backticks, and backslashes that escape."""

    clock_query = "SELECT UTC_TIMESTAMP(6) AS clock"
    schema_query = "SELECT DATABASE() AS table_schema"

    def quote(self, identifier: str) -> str:
        return "`" + identifier.replace("`", "``") + "`"

    def text_literal(self, text: str) -> str:
        return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"

    def columns_query(self, name: TableName) -> str:
        return super().columns_query(name).replace("data_type AS", "column_type AS", 1)


class SqlServerDialect(AnsiDialect):
    clock_query = "SELECT SYSDATETIMEOFFSET() AS clock"
    schema_query = "SELECT SCHEMA_NAME() AS table_schema"

    def literal(self, kind: WatermarkType, value: Scalar) -> str:
        if kind is WatermarkType.TIMESTAMP and isinstance(value, dt.datetime):
            return f"CAST('{_write_moment(value)} +00:00' AS DATETIMEOFFSET(6))"
        return super().literal(kind, value)


class OracleDialect(AnsiDialect):
    clock_query = 'SELECT SYSTIMESTAMP AS "clock" FROM DUAL'
    schema_query = "SELECT SYS_CONTEXT('USERENV', 'CURRENT_SCHEMA') AS \"table_schema\" FROM DUAL"
    tables_query = (
        'SELECT owner AS "table_schema", table_name AS "table_name" FROM all_tables'
        " WHERE owner NOT IN (SELECT username FROM all_users WHERE oracle_maintained = 'Y')"
    )

    def columns_query(self, name: TableName) -> str:
        return (
            'SELECT column_name AS "column_name", column_id AS "position", data_type AS "type_text",'
            " CASE nullable WHEN 'N' THEN 'NO' ELSE 'YES' END AS \"nullable\" FROM all_tab_columns"
            f" WHERE owner = {self.text_literal(name.schema or '')}"
            f" AND table_name = {self.text_literal(name.table)}"
        )


def dialect_of(subprotocol: str) -> SparkDialect:
    """The dialect of a JDBC subprotocol that is reached through Spark; standard SQL where none is known."""
    known: dict[str, type[AnsiDialect]] = {
        "derby": DerbyDialect,
        "mysql": MySqlDialect,
        "mariadb": MySqlDialect,
        "sqlserver": SqlServerDialect,
        "oracle": OracleDialect,
    }
    return known.get(subprotocol, AnsiDialect)()


def _write_moment(moment: dt.datetime) -> str:
    return moment.replace(tzinfo=None).isoformat(sep=" ", timespec="microseconds")
