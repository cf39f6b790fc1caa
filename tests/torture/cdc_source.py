"""The tortured database that is followed: a server of its own, and clients that write to it all the time."""

import itertools
import random
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import psycopg

from gobblin_assets.db import embedded
from tests.support.changed_tables import ShopWriting
from tests.support.log_lake import TABLES
from tests.support.logical_postgres import start_logical_server
from tests.support.postgres import Database, describe_database
from tests.torture.feeder import Feeder
from tests.torture.server import DATABASE, Victim
from tests.torture.tally import Tally

_SLOT_READERS: Final = """
    SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active_pid IS NOT NULL"""
_LARGE: Final = 60_000
_LARGE_FROM: Final = 1_000_000_000
_FEED_EVERY_S: Final = 2.5


class Source(Victim):
    """The server that is followed. It is killed as the one of the commit log is."""

    def __init__(self, home: Path, seed: str) -> None:
        self.home = home
        self._dice = random.Random(f"{seed}/source")
        self._lock = threading.Lock()
        self.server = start_logical_server(home)
        embedded.create_database(self.server, DATABASE)
        with self.connect() as connection:
            for statement in TABLES:
                connection.execute(statement.encode())

    @property
    def database(self) -> Database:
        return describe_database(self.server, DATABASE)

    def end_walsenders(self) -> bool:
        """Whether there were any."""
        try:
            with self.connect() as connection:
                return bool(connection.execute(_SLOT_READERS).fetchall())
        except psycopg.Error:
            return False


class ShopOddities(Feeder):
    """Beside plain writers: what a database does now and then."""

    def __init__(self, source: Source, seed: str, tally: Tally) -> None:
        super().__init__(_FEED_EVERY_S)
        self._source = source
        self._tally = tally
        self._dice = random.Random(f"{seed}/oddities")
        self._numbers = itertools.count()
        self._writing = ShopWriting(source.database, seed=self._dice.randrange(1 << 20), is_patient=True)
        self._added: list[str] = []

    def start(self) -> None:
        self._writing.__enter__()
        super().start()

    def stop(self) -> None:
        super().stop()
        self._writing.stop()

    def add_some(self) -> None:
        deeds: Sequence[tuple[str, Callable[[], Sequence[str]]]] = (
            ("large transactions", self._write_much),
            ("large transactions rolled back", lambda: [*self._write_much(), "ROLLBACK"]),
            ("truncates", lambda: ["TRUNCATE notes"]),
            ("columns added", self._add_column),
            ("columns dropped", self._drop_column),
            ("large deletions", lambda: [f"DELETE FROM orders WHERE id >= {_LARGE_FROM}"]),
            ("subtransactions", self._nest),
        )
        name, write = self._dice.choice(deeds)
        try:
            with self._source.connect() as connection, connection.transaction():
                connection.execute("SET LOCAL lock_timeout = '2s'")
                for statement in write():
                    if statement == "ROLLBACK":
                        raise psycopg.Rollback
                    connection.execute(statement.encode())
            self._tally.add(name)
        except psycopg.Error:
            # The server is away, or a lock was not given. What is in the table in the end is what counts.
            return

    def _write_much(self) -> Sequence[str]:
        first = _LARGE_FROM + next(self._numbers) * _LARGE
        return [
            f"INSERT INTO orders (id, customer) SELECT n, 'large' FROM generate_series({first}, {first + _LARGE}) n"
        ]

    def _add_column(self) -> Sequence[str]:
        name = f"more_{next(self._numbers)}"
        self._added.append(name)
        return [f"ALTER TABLE orders ADD COLUMN {name} text", f"UPDATE orders SET {name} = 'x' WHERE id % 7 = 0"]

    def _drop_column(self) -> Sequence[str]:
        return [f"ALTER TABLE orders DROP COLUMN {self._added.pop(0)}"] if len(self._added) > 1 else []

    def _nest(self) -> Sequence[str]:
        number = 500_000 + next(self._numbers) * 10
        statements = []
        for each in range(number, number + 6):
            statements += [f"SAVEPOINT s{each}", f"INSERT INTO notes VALUES ({each}, 'nested', 0)"]
            statements += [f"ROLLBACK TO SAVEPOINT s{each}"] if each % 3 == 0 else []
        return statements
