"""A JDBC connection as a value whose secrets never show."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final
from urllib.parse import quote, quote_plus

from gobblin_assets.errors import RejectedError

CONNECT_TIMEOUT_S: Final = 10
"""How long a server may take to accept a connection before the run says that it can't be reached."""

_SUBPROTOCOL: Final = re.compile(r"jdbc:([A-Za-z0-9]+):")
_DRIVERS: Final = MappingProxyType(
    {
        "postgresql": "org.postgresql.Driver",
        "derby": "org.apache.derby.iapi.jdbc.AutoloadedDriver",
        "mysql": "com.mysql.cj.jdbc.Driver",
        "mariadb": "org.mariadb.jdbc.Driver",
        "sqlserver": "com.microsoft.sqlserver.jdbc.SQLServerDriver",
        "oracle": "oracle.jdbc.OracleDriver",
        "h2": "org.h2.Driver",
    }
)
_TIMEOUTS: Final = MappingProxyType(
    {
        "postgresql": {"connectTimeout": str(CONNECT_TIMEOUT_S), "tcpKeepAlive": "true"},
        "mysql": {"connectTimeout": str(CONNECT_TIMEOUT_S * 1000)},
        "mariadb": {"connectTimeout": str(CONNECT_TIMEOUT_S * 1000)},
        "sqlserver": {"loginTimeout": str(CONNECT_TIMEOUT_S)},
        "oracle": {"oracle.net.CONNECT_TIMEOUT": str(CONNECT_TIMEOUT_S * 1000)},
    }
)
_SECRET_PARAMETER: Final = re.compile(r"(?i)(?:^|[?&;,(\s])[\w.-]*(?:password|passwd|pwd|secret|token)\s*=")
_SECRET_AUTHORITY: Final = re.compile(r"//[^/@?;]*:(?!\d+(?:[/?;,]|$))[^?;]*@|^jdbc:oracle:[a-z]+:[^/@:]+/[^@]*@")
_SECRET_NAME: Final = re.compile(r"(?i)password|passwd|pwd|secret|token|credential")
# Spark's own options: as properties they would change what is read, and not how the driver connects.
_RESERVED: Final = frozenset({
    "url", "dbtable", "query", "user", "password", "driver", "partitioncolumn", "lowerbound", "upperbound",
    "numpartitions", "sessioninitstatement", "customschema", "prefertimestampntz", "fetchsize", "querytimeout",
    "preparequery", "pushdownpredicate",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class JdbcConnection:
    """How to reach one database. ``properties`` go to the driver as they are; none of them may name Spark's options.

    Raises RejectedError for a URL that is not JDBC's or that holds a password, and for an unknown driver.
    """

    url: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    driver: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    name: str = "jdbc"

    def __post_init__(self) -> None:
        # The URL itself is never shown by these: what is wrong with it may be that it holds a secret.
        where = f"connections[{self.name}]"
        if not _SUBPROTOCOL.match(self.url):
            raise RejectedError(
                "expected a JDBC URL, found something else",
                field=f"{where}.url",
                hint="Write it like jdbc:postgresql://host:5432/database, with user and password beside it.",
            )
        if _SECRET_PARAMETER.search(self.url) or _SECRET_AUTHORITY.search(self.url):
            raise RejectedError(
                "the URL holds a password",
                field=f"{where}.url",
                hint="Take it out and give it as `password`, from an environment variable: URLs end up in logs.",
            )
        if self.driver is None and self.subprotocol not in _DRIVERS:
            raise RejectedError(
                f"no driver class is known for jdbc:{self.subprotocol}",
                field=f"{where}.driver",
                hint="Give the driver's class, and its jar by spark.jars.packages.",
            )
        reserved = sorted(key for key in self.properties if key.lower() in _RESERVED)
        if reserved:
            raise RejectedError(
                f"{', '.join(reserved)} can't be set here",
                field=f"{where}.properties",
                hint="Only the driver's own properties belong here; user, password and driver have their fields.",
            )

    @property
    def subprotocol(self) -> str:
        """Such as ``postgresql``."""
        found = _SUBPROTOCOL.match(self.url)
        return found[1].lower() if found else ""

    @property
    def driver_class(self) -> str:
        return self.driver or _DRIVERS[self.subprotocol]

    def spark_properties(self) -> dict[str, str]:
        """What Spark's JDBC reader needs to connect, secrets included: pass it on, never print it."""
        given = {"user": self.user, "password": self.password, "driver": self.driver_class}
        return {
            **_TIMEOUTS.get(self.subprotocol, {}),
            **self.properties,
            **{key: value for key, value in given.items() if value is not None},
        }

    def scrub(self, text: str) -> str:
        """``text`` without any secret of this connection, as drivers put them in their messages."""
        secrets = [self.password, *(v for k, v in self.properties.items() if _SECRET_NAME.search(k))]
        spellings = {form for s in secrets if s for form in (s, quote(s, safe=""), quote_plus(s))}
        for spelling in sorted(spellings, key=len, reverse=True):
            text = text.replace(spelling, "***")
        return text
