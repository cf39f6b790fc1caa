"""Oracle, written from its documentation alone and never tried against a server.

Format models: https://docs.oracle.com/en/database/oracle/oracle-database/23/sqlrf/Format-Models.html. A DATE of
Oracle is a wall clock of whole seconds; an empty text is NULL.
"""

import datetime as dt
import re
from typing import Final

from gobblin_assets.db.jdbc_url import CONNECT_TIMEOUT_S
from gobblin_assets.model.watermark import Scalar, WatermarkType
from gobblin_assets.sources.jdbc.dialect import ColumnReading, JdbcDatabase, write_moment
from gobblin_assets.sources.jdbc.dialects.ansi import DECIMAL_DIGITS_MAX, LONG_DIGITS_MAX, KnownDialect
from gobblin_assets.sources.jdbc.names import TableName

# SYYYY shows years before Christ with a sign, so that they are refused, and other years with a space.
_SECONDS: Final = "SYYYY-MM-DD HH24:MI:SS"
_TEXTS: Final = re.compile(r"N?VARCHAR2?|N?CHAR|N?CLOB|LONG|ROWID|UROWID")
_CLOCK: Final = re.compile(r"TIMESTAMP\((\d)\)( WITH (?:LOCAL )?TIME ZONE)?")
_NUMBER: Final = re.compile(r"NUMBER\((\d+),(-?\d+)\)")
_FRACTION_MAX: Final = 6


class OracleDialect(KnownDialect):
    """Oracle's SQL. Texts are not positions, because a setting decides how sessions sort them."""

    title = "Oracle"
    is_experimental = True
    session_statement: str | None = "ALTER SESSION SET TIME_ZONE = '+00:00'"
    clock_query = f"SELECT LTRIM(TO_CHAR(SYS_EXTRACT_UTC(SYSTIMESTAMP), '{_SECONDS}.FF6')) AS \"clock\" FROM DUAL"
    schema_query = "SELECT SYS_CONTEXT('USERENV', 'CURRENT_SCHEMA') AS \"table_schema\" FROM DUAL"
    tables_query = (
        'SELECT owner AS "table_schema", object_name AS "table_name" FROM all_objects'
        " WHERE object_type IN ('TABLE', 'VIEW')"
        " AND owner NOT IN (SELECT username FROM all_users WHERE oracle_maintained = 'Y')"
    )

    def literal(self, kind: WatermarkType, value: Scalar) -> str:
        match value:
            case dt.datetime() if kind is WatermarkType.TIMESTAMP:
                return f"TIMESTAMP '{write_moment(value)} +00:00'"
            case dt.datetime():
                return f"TIMESTAMP '{write_moment(value)}'"
            case dt.date():
                return f"DATE '{value.isoformat()}'"
            case int() | str():
                return super().literal(kind, value)

    def in_order(self, expression: str, kind: WatermarkType) -> str:
        # A DATE keeps its time of day.
        return f"CAST({expression} AS TIMESTAMP(6))" if kind is WatermarkType.LOCAL_TIMESTAMP else expression

    def show(self, expression: str, kind: WatermarkType) -> str:
        return _in_utc(expression) if kind is WatermarkType.TIMESTAMP else super().show(expression, kind)

    def as_text(self, expression: str) -> str:
        return f"LTRIM(TO_CHAR({expression}, '{_SECONDS}.FF6'))"

    def cast_to_text(self, column: str) -> str:
        return f"TO_CHAR({column})"

    def equals_key(self, column: str, text: str, type_text: str) -> str | None:
        if type_text.startswith(("NUMBER", "FLOAT", "BINARY_")):
            return f"{column} = {text}" if re.fullmatch(r"-?\d+(\.\d+)?", text) else None
        if _TEXTS.match(type_text):
            return f"{column} = {self.text_literal(text)}"
        return None

    def columns_query(self, name: TableName) -> str:
        size = "data_type || CASE WHEN data_type = 'NUMBER' AND data_scale IS NOT NULL THEN"
        size += " '(' || NVL(data_precision, 38) || ',' || data_scale || ')' END"
        return (
            f'SELECT column_name AS "column_name", column_id AS "position", {size} AS "type_text",'
            " CASE nullable WHEN 'N' THEN 'NO' ELSE 'YES' END AS \"nullable\","
            " (SELECT m.comments FROM all_col_comments m WHERE m.owner = c.owner AND m.table_name = c.table_name"
            ' AND m.column_name = c.column_name) AS "column_comment", (SELECT m.comments FROM all_tab_comments m'
            ' WHERE m.owner = c.owner AND m.table_name = c.table_name) AS "table_comment" FROM all_tab_columns c'
            f" WHERE owner = {self.text_literal(name.schema or '')}"
            f" AND table_name = {self.text_literal(name.table)}"
        )

    def read_declared(self, column: str, type_text: str) -> ColumnReading | None:
        clock, number = _CLOCK.fullmatch(type_text), _NUMBER.fullmatch(type_text)
        as_text = f"TO_CHAR({column})"
        if number is not None:
            return _read_number(column, int(number[1]), int(number[2]))
        if clock is not None:
            return self._read_clock(column, int(clock[1]), zoned=clock[2] is not None)
        if _TEXTS.fullmatch(type_text):
            # Spark pads what drivers call CHAR; the database has done so already.
            return ColumnReading(f"{column} || ''" if "CHAR" in type_text else column, "STRING")
        match type_text:
            case "DATE":
                text = f"LTRIM(TO_CHAR({column}, '{_SECONDS}'))"
                return ColumnReading(text, "STRING", "TIMESTAMP_NTZ", order=WatermarkType.LOCAL_TIMESTAMP)
            case "BINARY_FLOAT":
                return ColumnReading(column, "FLOAT")
            case "BINARY_DOUBLE":
                return ColumnReading(column, "DOUBLE")
            case "RAW" | "LONG RAW" | "BLOB":
                return ColumnReading(column, "BINARY")
            case "NUMBER" | "FLOAT":
                why = "without a precision it may hold more digits than Spark's 38"
                return ColumnReading(column, problem=why, cast=f"CAST({column} AS NUMBER(38, 10))")
            case _:
                return ColumnReading(column, problem="Spark has no type that holds it unchanged", cast=as_text)

    def _read_clock(self, column: str, fraction: int, *, zoned: bool) -> ColumnReading:
        if fraction > _FRACTION_MAX:
            kind = f"TIMESTAMP(6){' WITH TIME ZONE' if zoned else ''}"
            why = "Spark's times have six digits behind the point"
            return ColumnReading(column, problem=why, cast=f"CAST({column} AS {kind})")
        if zoned:
            return ColumnReading(_in_utc(column), "STRING", "TIMESTAMP", order=WatermarkType.TIMESTAMP)
        return ColumnReading(self.as_text(column), "STRING", "TIMESTAMP_NTZ", order=WatermarkType.LOCAL_TIMESTAMP)


def _read_number(column: str, digits: int, places: int) -> ColumnReading:
    if not 0 <= places <= digits <= DECIMAL_DIGITS_MAX:
        why = f"a scale of {places} with {digits} digits is none that Spark's decimals have"
        return ColumnReading(column, problem=why, cast=f"CAST({column} AS NUMBER(38, 10))")
    is_long = places == 0 and digits <= LONG_DIGITS_MAX
    return ColumnReading(column, f"DECIMAL({digits},{places})", order=WatermarkType.LONG if is_long else None)


def _in_utc(expression: str) -> str:
    return f"LTRIM(TO_CHAR(SYS_EXTRACT_UTC({expression}), '{_SECONDS}.FF6'))"


ORACLE: Final = JdbcDatabase(
    dialect=OracleDialect,
    driver_class="oracle.jdbc.OracleDriver",
    capability="com.oracle.database.jdbc:ojdbc11:23.26.4.0.0",
    properties={"oracle.net.CONNECT_TIMEOUT": str(CONNECT_TIMEOUT_S * 1000)},
    # jdbc:oracle:thin:scott/tiger@//host:1521/service
    password_form=re.compile(r"^jdbc:oracle:[a-z]+:[^/@:]+/[^@]*@"),
)
