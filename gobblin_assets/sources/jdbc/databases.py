"""The databases that are known by the subprotocol of their URLs: ours, and those of installed packages."""

from types import MappingProxyType
from typing import Final

from gobblin_assets.errors import RejectedError
from gobblin_assets.extensions import Extensions
from gobblin_assets.sources.jdbc.dialect import JdbcDatabase, SparkDialect
from gobblin_assets.sources.jdbc.dialects.ansi import AnsiDialect

JDBC_DATABASES: Final = Extensions[JdbcDatabase](
    group="gobblin_assets.jdbc_databases",
    noun="JDBC database",
    option="connections.url",
    accepts=lambda found: isinstance(found, JdbcDatabase),
    built_in={
        "derby": "gobblin_assets.sources.jdbc.dialects.derby:DERBY",
        "duckdb": "gobblin_assets.sources.jdbc.dialects.duckdb:DUCKDB",
        "mariadb": "gobblin_assets.sources.jdbc.dialects.mysql:MARIADB",
        "mysql": "gobblin_assets.sources.jdbc.dialects.mysql:MYSQL",
        "postgresql": "gobblin_assets.sources.jdbc.dialects.postgres:POSTGRES",
        "sqlite": "gobblin_assets.sources.jdbc.dialects.sqlite:SQLITE",
    },
)

_OFFERED_BY: Final = MappingProxyType(dict.fromkeys(("oracle", "sqlserver"), "gobblin_jdbc_dialects"))
"""Packages of ``examples/``, by what they offer. These databases are not read by standard SQL alone."""


def find_jdbc_database(subprotocol: str, *, name: str = "jdbc") -> JdbcDatabase | None:
    """The database of a URL; None: it is not known. ``name``: the connection, for errors.

    RejectedError for a database whose package is not installed, or is broken.
    """
    if JDBC_DATABASES.has(subprotocol):
        return JDBC_DATABASES.get(subprotocol)
    if package := _OFFERED_BY.get(subprotocol):
        raise RejectedError(
            f"the dialect of jdbc:{subprotocol} is in the package {package}, which is not installed",
            field=f"connections[{name}].url",
            hint=f"Install it from the sources of this release: pip install ./examples/{package}",
        )
    return None


def dialect_of(subprotocol: str) -> SparkDialect:
    """The dialect of a database that is reached through Spark; ``AnsiDialect`` for an unknown one."""
    known = find_jdbc_database(subprotocol)
    return AnsiDialect() if known is None else known.dialect()
