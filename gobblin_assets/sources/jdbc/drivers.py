"""The databases that are known by name: their drivers, and how connections to them are opened."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from gobblin_assets.db.jdbc_url import CONNECT_TIMEOUT_S

_TIMEOUT_MS: Final = str(CONNECT_TIMEOUT_S * 1000)


@dataclass(frozen=True, slots=True)
class JdbcDriver:
    """``properties`` are given to the driver unless the connection gives others. ``capability`` names its jar among
    those that Spark resolves (``spark.settings.COORDINATES``); None: Spark has it.
    """

    driver_class: str
    capability: str | None
    properties: Mapping[str, str]


DRIVERS: Final[Mapping[str, JdbcDriver]] = MappingProxyType(
    {
        "postgresql": JdbcDriver(
            "org.postgresql.Driver", "postgres", {"connectTimeout": str(CONNECT_TIMEOUT_S), "tcpKeepAlive": "true"}
        ),
        "mariadb": JdbcDriver("org.mariadb.jdbc.Driver", "mariadb", {"connectTimeout": _TIMEOUT_MS}),
        "mysql": JdbcDriver("com.mysql.cj.jdbc.Driver", "mysql", {"connectTimeout": _TIMEOUT_MS}),
        # Read-only, so that a wrong name creates no file. SQLite's flag is that of sqlite3_open_v2.
        "sqlite": JdbcDriver("org.sqlite.JDBC", "sqlite", {"open_mode": "1", "busy_timeout": _TIMEOUT_MS}),
        "duckdb": JdbcDriver("org.duckdb.DuckDBDriver", "duckdb", {"duckdb.read_only": "true"}),
        "derby": JdbcDriver("org.apache.derby.iapi.jdbc.AutoloadedDriver", None, {}),
        "sqlserver": JdbcDriver(
            "com.microsoft.sqlserver.jdbc.SQLServerDriver", "sqlserver", {"loginTimeout": str(CONNECT_TIMEOUT_S)}
        ),
        "oracle": JdbcDriver("oracle.jdbc.OracleDriver", "oracle", {"oracle.net.CONNECT_TIMEOUT": _TIMEOUT_MS}),
    }
)
"""By the subprotocol of a JDBC URL."""


def find_driver(subprotocol: str) -> JdbcDriver | None:
    return DRIVERS.get(subprotocol)
