"""Postgres. ``PostgresCatalog`` decides how columns are read, so this dialect only writes conditions."""

import datetime as dt
from typing import Final

from gobblin_assets.db.jdbc_url import CONNECT_TIMEOUT_S
from gobblin_assets.model.watermark import Scalar, WatermarkType
from gobblin_assets.sources.jdbc.dialect import JdbcDatabase, write_moment
from gobblin_assets.sources.jdbc.dialects.ansi import AnsiDialect


class PostgresDialect:
    """Postgres' SQL. Texts compare by ``COLLATE "C"``, which is the order of their UTF-8 bytes."""

    has_binary_text = True
    row_address: str | None = "ctid"

    def quote(self, identifier: str) -> str:
        return '"' + identifier.replace('"', '""') + '"'

    def literal(self, kind: WatermarkType, value: Scalar) -> str:
        match value:
            case dt.datetime() if kind is WatermarkType.TIMESTAMP:
                return f"TIMESTAMPTZ '{write_moment(value)}+00'"
            case dt.datetime():
                return f"TIMESTAMP '{write_moment(value)}'"
            case dt.date():
                return f"DATE '{value.isoformat()}'"
            case int():
                return str(value)
            case str():
                return self.text_literal(value)

    def text_literal(self, text: str) -> str:
        doubled = text.replace("'", "''")
        # E'' means the same whatever standard_conforming_strings says.
        return "E'" + doubled.replace("\\", "\\\\") + "'" if "\\" in text else f"'{doubled}'"

    def in_order(self, expression: str, kind: WatermarkType) -> str:
        return f'{expression} COLLATE "C"' if kind is WatermarkType.STRING else expression

    def hide(self, expression: str, _kind: WatermarkType, _type_text: str) -> str:
        return expression

    def show(self, expression: str, _kind: WatermarkType) -> str:
        return expression

    def find_misplaced(self, _column: str, _kind: WatermarkType, _type_text: str) -> str | None:
        return None

    def equals_key(self, column: str, text: str, type_text: str) -> str | None:
        return f"{column} = CAST({self.text_literal(text)} AS {type_text})"


POSTGRES: Final = JdbcDatabase(
    dialect=AnsiDialect,  # for Spark's catalogue, by which Postgres is not read
    driver_class="org.postgresql.Driver",
    capability="postgres",
    properties={"connectTimeout": str(CONNECT_TIMEOUT_S), "tcpKeepAlive": "true"},
)
