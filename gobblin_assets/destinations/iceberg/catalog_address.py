"""The catalog of a connection, from the environment: a database of Postgres, and a directory or a bucket of tables."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

import psycopg

from gobblin_assets.db.jdbc_url import read_postgres_url
from gobblin_assets.destinations.postgres.database_address import DatabaseAddress, Session
from gobblin_assets.errors import GobblinError, RejectedError
from gobblin_assets.fs.s3.s3_settings import PREFIX, S3Settings, read_s3_settings

_BUCKET: Final = re.compile(r"[A-Za-z0-9._-]{3,255}")

# Off and local lose a COMMIT that was answered; a stronger setting of the server stays.
_DURABLE: Final = """
    SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') IN ('off', 'local')
"""


@dataclass(frozen=True, slots=True)
class CatalogAddress(DatabaseAddress):
    """The address of a catalog.

    ``catalog``: its name in the database. ``warehouse``: the URI of what new tables stand in.

    ``store``: how a bucket is reached; None: the warehouse is a directory.
    """

    catalog: str = field(kw_only=True)
    warehouse: str = field(kw_only=True)
    store: S3Settings | None = field(kw_only=True)

    def variable(self, part: str) -> str:
        return catalog_variable(self.name, part)

    def open_catalog_session(self) -> Session:
        """A session in the schema where the server's settings, or the URL, say that the catalog is."""
        session = self.open_session()
        try:
            session.execute("RESET search_path")
            session.execute(_DURABLE)
        except psycopg.Error as error:
            raise self.judge(error) from None
        session.autocommit = False
        return session

    def judge(self, error: psycopg.Error) -> GobblinError:
        if error.sqlstate == "42501":
            return RejectedError(
                f"the database refused: {error.diag.message_primary}",
                field=self.variable("USER"),
                hint="Grant the user SELECT, INSERT and UPDATE on the catalog's tables iceberg_tables and "
                "iceberg_namespace_properties; or CREATE on their schema, if they are to be made.",
            )
        # Not by super(): a slotted dataclass is another class than the one that the compiler knows.
        return DatabaseAddress.judge(self, error)


def read_catalog_address(name: str, environment: Mapping[str, str] | None = None) -> CatalogAddress:
    """RejectedError names the variable that is missing or wrong, and never shows a value of it."""
    found = os.environ if environment is None else environment
    url, warehouse = _read_url(name, found), _read_warehouse(name, found)
    return CatalogAddress(
        name,
        url,
        found.get(catalog_variable(name, "USER")) or None,
        found.get(catalog_variable(name, "PASSWORD")) or None,
        catalog=found.get(catalog_variable(name, "CATALOG")) or name,
        warehouse=warehouse,
        store=_read_store(found) if warehouse.startswith("s3:") else None,
    )


def _read_url(name: str, found: Mapping[str, str]) -> str:
    """As DatabaseAddress has it."""
    variable = catalog_variable(name, "URL")
    given = found.get(variable, "")
    if not given:
        raise RejectedError(
            f"expected the URL of the catalog {name!r} in the environment, found none",
            field=variable,
            hint="Set it to postgresql://host:5432/database, and beside it …_USER, …_PASSWORD and …_WAREHOUSE.",
        )
    beside = f"{catalog_variable(name, 'USER')} and {catalog_variable(name, 'PASSWORD')}"
    read = read_postgres_url(given, field=variable, beside=beside)
    if read is None:
        raise RejectedError(
            "expected a catalog in a database of Postgres, found another URL",
            field=variable,
            hint="Write it like postgresql://host:5432/database. Other catalogs (REST, Glue, Hive, SQLite) are not "
            "loaded: it was not proved that a commit there is refused when somebody else came first.",
        )
    return read


def _read_warehouse(name: str, found: Mapping[str, str]) -> str:
    variable = catalog_variable(name, "WAREHOUSE")
    given = urlsplit(found.get(variable, ""))
    path = given.path.rstrip("/")
    if given.scheme == "s3" and _BUCKET.fullmatch(given.netloc):
        return f"s3://{given.netloc}{path}"
    if given.scheme not in {"", "file"} or given.netloc or not path.startswith("/"):
        raise RejectedError(
            "expected the directory or the bucket of the tables",
            field=variable,
            hint="Set it to a directory that all workers see, like file:///data/warehouse; or to s3://bucket/prefix.",
        )
    return f"file://{path}"


def _read_store(found: Mapping[str, str]) -> S3Settings:
    settings = read_s3_settings(found)
    if settings.ca_file is not None:
        raise RejectedError(
            "files of Iceberg are written by a client that trusts the machine's certificates only",
            field=f"{PREFIX}CA_FILE",
            hint="Add the certificate to the machine's, and leave the variable out.",
        )
    return settings


def catalog_variable(name: str, part: str) -> str:
    """The name of the variable of a part of a catalog's connection."""
    return f"GOBBLIN_ICEBERG_{name.upper()}_{part}"
