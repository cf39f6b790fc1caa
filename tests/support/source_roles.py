"""Roles of a source's server that a test makes for itself."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from gobblin_assets.sources.jdbc.connection import JdbcConnection
from tests.support.postgres import Database


@contextmanager
def source_role(database: Database, options: str = "") -> Iterator[Database]:
    """The database, by a role with these options. It owns nothing, and is dropped behind the block."""
    name = f"reader_{secrets.token_hex(6)}"
    with database.connect() as session:
        session.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'secret-enough' {options}".encode())
        try:
            yield replace(database, user=name, password="secret-enough")  # the test's own
        finally:
            session.execute(f"DROP OWNED BY {name}".encode())
            session.execute(f"DROP ROLE {name}".encode())


def connection_of(database: Database) -> JdbcConnection:
    return JdbcConnection(url=database.jdbc_url, user=database.user, password=database.password, name="c")
