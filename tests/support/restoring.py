"""A log that is put back to an earlier moment while the storage goes on: a copy of the database is the backup."""

import dataclasses
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from psycopg import sql
from sqlalchemy import make_url

from gobblin_assets.db.embedded import EmbeddedServer
from tests.support.lake import Lake, World
from tests.support.postgres import maintenance

Backup = Callable[[World], World]
"""Gives the world as it will be after a restore: the same storage and source, under the log of this moment."""


@contextmanager
def backups(server: EmbeddedServer) -> Iterator[Backup]:
    with ExitStack() as stack:

        def take(world: World) -> World:
            # CREATE DATABASE … TEMPLATE refuses while anybody is connected to the source.
            world.engine.dispose()
            url = stack.enter_context(_copied(server, world.lake))
            restored = World(dataclasses.replace(world.lake, database_url=url))
            stack.callback(restored.close)
            return restored

        yield take


@contextmanager
def _copied(server: EmbeddedServer, lake: Lake) -> Iterator[str]:
    source, name = make_url(lake.database_url).database, f"test_{uuid.uuid4().hex}"
    assert source is not None
    with maintenance(server) as connection:
        connection.execute(
            sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(name), sql.Identifier(source))
        )
    try:
        yield server.url(name)
    finally:
        with maintenance(server) as connection:
            connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))
