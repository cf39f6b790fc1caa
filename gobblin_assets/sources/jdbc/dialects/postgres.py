"""Postgres. ``PostgresCatalog`` decides how columns are read, so this dialect only writes conditions."""

from typing import Final

from gobblin_assets.db.jdbc_url import CONNECT_TIMEOUT_S
from gobblin_assets.model.watermark import WatermarkType
from gobblin_assets.sources.jdbc.dialect import JdbcDatabase
from gobblin_assets.sources.jdbc.dialects.ansi import AnsiDialect


class PostgresDialect(AnsiDialect):
    """Postgres' SQL. Texts compare by ``COLLATE "C"``, which is the order of their UTF-8 bytes."""

    has_binary_text = True
    row_address = "ctid"
    instant_form = "TIMESTAMPTZ '{}+00'"
    moment_form = "TIMESTAMP '{}'"
    date_form = "DATE '{}'"

    def text_literal(self, text: str) -> str:
        doubled = text.replace("'", "''")
        # E'' means the same whatever standard_conforming_strings says.
        return "E'" + doubled.replace("\\", "\\\\") + "'" if "\\" in text else f"'{doubled}'"

    def in_order(self, expression: str, kind: WatermarkType) -> str:
        return f'{expression} COLLATE "C"' if kind is WatermarkType.STRING else expression

    def show(self, expression: str, _kind: WatermarkType) -> str:
        return expression

    def equals_key(self, column: str, text: str, type_text: str) -> str | None:
        return f"{column} = CAST({self.text_literal(text)} AS {type_text})"


POSTGRES: Final = JdbcDatabase(
    dialect=AnsiDialect,  # for Spark's catalogue, by which Postgres is not read
    driver_class="org.postgresql.Driver",
    capability="postgres",
    properties={"connectTimeout": str(CONNECT_TIMEOUT_S), "tcpKeepAlive": "true"},
)
