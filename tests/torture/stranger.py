"""Somebody who has rights at a database that is followed, and asks nobody: what becomes of its tables and publication.

Each act takes changes away from the log of a table that workers follow: rows of another table, or changes while nothing
was published. docs/CHANGES.md promises that the table stops and says so. ``Sayings`` is told what has to be said.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

import psycopg

from tests.torture.cdc_source import Source
from tests.torture.disturber import Strike
from tests.torture.person import Person, Sayings
from tests.torture.schedule import Injection

_PATIENCE: Final = "SET LOCAL lock_timeout = '2s'"
_TRIES_MAX: Final = 20
_AGAIN_S: Final = 0.5
LONGER: Final = 4.0
"""So many times as long as other disturbances, locks and rewriting last: up to a quarter of a minute."""

_WHOLE: Final = "ALTER PUBLICATION lake SET (publish = 'insert, update, delete, truncate')"
_IS_WHOLE: Final = "SELECT pubinsert AND pubupdate AND pubdelete AND pubtruncate FROM pg_publication"
_PUBLISHED: Final = "SELECT count(*) FROM pg_publication_tables WHERE pubname = 'lake' AND tablename = %s"


class TableStranger:
    """Acts on one of ``tables`` after the other, or on all of them. One thread acts at a time."""

    def __init__(self, source: Source, tables: Sequence[str], person: Person, sayings: Sayings) -> None:
        self._source = source
        self._tables = tables
        self._person = person
        self._sayings = sayings
        self._acts = 0

    def strikes(self) -> Mapping[Injection, Strike]:
        return {
            Injection.TABLE_SWAPPED: lambda _lasts_s: self._replace(Injection.TABLE_SWAPPED, _swap),
            Injection.TABLE_REMADE: lambda _lasts_s: self._replace(Injection.TABLE_REMADE, _remake),
            Injection.TABLE_UNPUBLISHED: self._unpublish,
            Injection.PUBLICATION_ALTERED: self._alter,
            Injection.TABLE_LOCKED: lambda lasts_s: self._source.lock_table(self._choose(), LONGER * lasts_s),
        }

    def leave(self) -> None:
        """All tables are published again, with all kinds of changes."""
        for _try in range(_TRIES_MAX):
            with suppress(psycopg.Error), self._source.connect() as connection:
                for table in self._tables:
                    if connection.execute(_PUBLISHED, [table]).fetchall() == [(0,)]:
                        connection.execute(f"ALTER PUBLICATION lake ADD TABLE {table}".encode())
                if connection.execute(_IS_WHOLE).fetchall() == [(False,)]:
                    connection.execute(_WHOLE)
                return
            time.sleep(_AGAIN_S)
        raise RuntimeError("the stranger could not put the publication right")

    def _replace(self, act: Injection, describe: Callable[[str], Sequence[str]]) -> bool:
        table = self._choose()
        with self._person.looking_away():
            followed = self._person.find_followed(table)
            if not self._do(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE", *describe(table)):
                return False
            self._sayings.expect(act, followed)
        return True

    def _unpublish(self, lasts_s: float) -> bool:
        table = self._choose()
        unseen = (
            f"DELETE FROM {table} WHERE id IN (SELECT id FROM {table} ORDER BY id LIMIT 2)",
            f"INSERT INTO {table} (id) SELECT max(id) + 1 FROM {table} HAVING max(id) < 500000",
        )
        with self._person.looking_away():
            followed = self._person.find_followed(table)
            if not self._do(f"ALTER PUBLICATION lake DROP TABLE {table}"):
                return False
            self._sayings.expect(Injection.TABLE_UNPUBLISHED, followed)
        self._do(*unseen)
        time.sleep(lasts_s)
        self.leave()
        return True

    def _alter(self, lasts_s: float) -> bool:
        with self._person.looking_away():
            followed = self._person.find_followed(*self._tables)
            if not self._do("ALTER PUBLICATION lake SET (publish = 'insert')"):
                return False
            self._sayings.expect(Injection.PUBLICATION_ALTERED, followed)
        time.sleep(lasts_s / 2)
        self.leave()
        return True

    def _choose(self) -> str:
        self._acts += 1
        return self._tables[self._acts % len(self._tables)]

    def _do(self, *statements: str) -> bool:
        """In one transaction; whether it was committed for sure. Writers keep locks, and the server may be away."""
        try:
            with self._source.connect() as connection, connection.transaction():
                connection.execute(_PATIENCE)
                for statement in statements:
                    connection.execute(statement.encode())
        except psycopg.Error:
            return False
        return True


def _swap(table: str) -> Sequence[str]:
    """As tools do that build a table beside the old one. Some rows are not in the new one."""
    return (
        f"CREATE TABLE {table}_new (LIKE {table} INCLUDING ALL)",
        f"INSERT INTO {table}_new SELECT * FROM {table} WHERE id % 5 <> 0",
        f"ALTER TABLE {table} RENAME TO {table}_old",
        f"ALTER TABLE {table}_new RENAME TO {table}",
        f"ALTER PUBLICATION lake ADD TABLE {table}",
        f"DROP TABLE {table}_old",
    )


def _remake(table: str) -> Sequence[str]:
    """With the same columns, and a few of the old rows."""
    return (
        f"CREATE TEMP TABLE kept ON COMMIT DROP AS SELECT * FROM {table} ORDER BY id LIMIT 50",
        f"CREATE TEMP TABLE described (LIKE {table} INCLUDING ALL) ON COMMIT DROP",
        f"DROP TABLE {table}",
        f"CREATE TABLE {table} (LIKE described INCLUDING ALL)",
        f"ALTER PUBLICATION lake ADD TABLE {table}",
        f"INSERT INTO {table} SELECT * FROM kept",
    )
