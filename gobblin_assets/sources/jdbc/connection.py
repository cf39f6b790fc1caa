"""A JDBC connection as a value whose secrets never show.

The subprotocol of its URL names the database: one of ours, or one of an installed package.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final
from urllib.parse import quote, quote_plus

from gobblin_assets.db.jdbc_url import holds_password
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


_SUBPROTOCOL: Final = re.compile(r"jdbc:([A-Za-z0-9]+):")
_MARIADB_DRIVER: Final = "org.mariadb.jdbc.Driver"
_SECRET_NAME: Final = re.compile(r"(?i)password|passwd|pwd|secret|token|credential")
# Spark's own options: as properties they would change what is read, and not how the driver connects.
_RESERVED: Final = frozenset({
    "url", "dbtable", "query", "user", "password", "driver", "partitioncolumn", "lowerbound", "upperbound",
    "numpartitions", "sessioninitstatement", "customschema", "prefertimestampntz", "fetchsize", "querytimeout",
    "preparequery", "pushdownpredicate",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class JdbcConnection:
    """A connection to one database. ``properties`` go to the driver as they are; none of them may name Spark's options.

    Raises RejectedError for a URL that is not JDBC's or that holds a password, for a database whose package is not
    installed, and for an unknown driver.
    """

    url: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    driver: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    name: str = "jdbc"

    def __post_init__(self) -> None:
        # These errors never show the URL, because it may hold a secret.
        where = f"connections[{self.name}]"
        known = self.database
        own_form = None if known is None else known.password_form
        if holds_password(self.url) or (own_form is not None and own_form.search(self.url)):
            raise RejectedError(
                "the URL holds a password",
                field=f"{where}.url",
                hint="Take it out and give it as `password`, from an environment variable: URLs end up in logs.",
            )
        if self.driver is None and known is None:
            raise RejectedError(
                f"no driver class is known for jdbc:{self.subprotocol}",
                field=f"{where}.driver",
                hint=f"Known by name: {', '.join(JDBC_DATABASES.list_names())}. For another database give the driver's "
                "class, and its jar by the job's source.packages or source.jars; or install a package with its dialect "
                f"(entry point of the group {JDBC_DATABASES.group}).",
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
        return find_subprotocol(self.url, name=self.name)

    @property
    def database(self) -> JdbcDatabase | None:
        """What is known of the URL's database by its name."""
        return find_jdbc_database(self.subprotocol, name=self.name)

    @property
    def driver_class(self) -> str:
        return self.driver or ("" if self.database is None else self.database.driver_class)

    @property
    def spark_url(self) -> str:
        """The URL under which Spark quotes names as the database does.

        Spark does not know ``jdbc:mariadb`` and quotes names as the standard says; the server takes ``"id"`` as a text.
        """
        if self.subprotocol != "mariadb" or self.driver_class != _MARIADB_DRIVER:
            return self.url
        rest = self.url[len("jdbc:mariadb:") :]
        return f"jdbc:mysql:{rest}{'&' if '?' in rest else '?'}permitMysqlScheme"

    def spark_properties(self) -> dict[str, str]:
        """What Spark's JDBC reader needs to connect, secrets included: pass it on, never print it."""
        given = {"user": self.user, "password": self.password, "driver": self.driver_class}
        return {
            **({} if self.database is None else self.database.properties),
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


def find_subprotocol(url: str, *, name: str) -> str:
    """Such as ``postgresql``. RejectedError, without the URL, if the URL is not one of JDBC."""
    found = _SUBPROTOCOL.match(url)
    if found is None:
        raise RejectedError(
            "expected a JDBC URL, found something else",
            field=f"connections[{name}].url",
            hint="Write it like jdbc:postgresql://host:5432/database, with user and password beside it.",
        )
    return found[1].lower()
