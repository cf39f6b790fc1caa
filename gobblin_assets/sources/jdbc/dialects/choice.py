"""The dialect for a JDBC URL."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from gobblin_assets.sources.jdbc.dialect import SparkDialect
from gobblin_assets.sources.jdbc.dialects.ansi import AnsiDialect
from gobblin_assets.sources.jdbc.dialects.derby import DerbyDialect
from gobblin_assets.sources.jdbc.dialects.duckdb import DuckDbDialect
from gobblin_assets.sources.jdbc.dialects.mysql import MySqlDialect
from gobblin_assets.sources.jdbc.dialects.oracle import OracleDialect
from gobblin_assets.sources.jdbc.dialects.sqlite import SqliteDialect
from gobblin_assets.sources.jdbc.dialects.sqlserver import SqlServerDialect

_DIALECTS: Final[Mapping[str, type[AnsiDialect]]] = MappingProxyType(
    {
        "derby": DerbyDialect,
        "duckdb": DuckDbDialect,
        "mariadb": MySqlDialect,
        "mysql": MySqlDialect,
        "oracle": OracleDialect,
        "sqlite": SqliteDialect,
        "sqlserver": SqlServerDialect,
    }
)


def dialect_of(subprotocol: str) -> SparkDialect:
    """The dialect of a JDBC subprotocol that is reached through Spark; ``AnsiDialect`` for an unknown database."""
    return _DIALECTS.get(subprotocol, AnsiDialect)()
