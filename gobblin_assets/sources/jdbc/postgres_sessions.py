"""Sessions at a Postgres source, and the settings that all of them have: one value has one text, whoever reads it.

Planning, readers by Arrow and by Spark, copies of change logs and the sessions that send changes take ``SETTINGS`` from
here, in place of those of the role, the database and the server. Left as they are: ``search_path``, by which names of
the job are found, and ``lc_monetary``, which is part of what a value of the type money means (it says how many digits
stand behind the point).
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import psycopg

from gobblin_assets.db.jdbc_url import plan_libpq
from gobblin_assets.sources.jdbc.connection import JdbcConnection

SourceSession = psycopg.Connection[tuple[Any, ...]]

SETTINGS: Final[Mapping[str, str]] = MappingProxyType(
    {
        # How values are written.
        "client_encoding": "UTF8",
        "DateStyle": "ISO, MDY",
        "TimeZone": "UTC",
        "IntervalStyle": "postgres",
        # All digits of a number; servers before 12 need 3 for them.
        "extra_float_digits": "3",
        "bytea_output": "hex",
        "quote_all_identifiers": "off",
        # What conditions and casts of a job mean.
        "standard_conforming_strings": "on",
        "transform_null_equals": "off",
        "array_nulls": "on",
        # Of an index it gives a part of the rows, at random.
        "gin_fuzzy_search_limit": "0",
        # A query fails whose rows a policy would leave out without a word.
        "row_security": "off",
    }
)
"""By name, as ``set_config`` takes them."""


def plan_conninfo(connection: JdbcConnection) -> dict[str, Any]:
    """The parameters of libpq for the connection."""
    return plan_libpq(connection.url, connection.user, connection.password, connection.properties)


def open_source_session(connection: JdbcConnection) -> SourceSession:
    """A session in autocommit, with ``SETTINGS``. Errors are psycopg's."""
    session: SourceSession = psycopg.connect(**plan_conninfo(connection), autocommit=True)
    try:
        session.execute(write_set_config(SETTINGS, is_local=False).encode())
    except psycopg.Error:
        session.close()
        raise
    return session


def write_set_config(settings: Mapping[str, str], *, is_local: bool) -> str:
    """One statement for all of them. ``is_local``: until the transaction ends."""
    each = (f"set_config('{name}', '{value}', {str(is_local).lower()})" for name, value in settings.items())
    return f"SELECT {', '.join(each)}"


def write_options(settings: Mapping[str, str]) -> str:
    """As libpq's parameter ``options`` has them, for sessions that take no statement before their work."""
    return " ".join(f"-c {name}={value.replace(' ', chr(92) + ' ')}" for name, value in settings.items())
