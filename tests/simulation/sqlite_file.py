"""A simulated file of SQLite, into which the example's place of rows loads, unchanged.

SQLite itself carries the statements out. What is committed is a value, so that worlds with such a file are cheap to
copy. Each statement that begins, writes or commits is a call of the process, so that faults, kills and pauses fall
between them. A statement that only reads is none: nobody else changes anything in a transaction, so that a fault there
is one behind the call before.
"""

import os
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Final
from unittest import mock

from tests.simulation.process import Process
from tests.support.sqlite_rows import CONNECTION, example

_READS: Final = ("pragma", "select")
_WAITS: Final = 12
"""Calls for which a process waits for another one's transaction: what is a number of seconds elsewhere."""

_connect: Final = sqlite3.connect
_thread: Final = threading.local()


@dataclass
class SimFile:
    """``content``: what is committed, another object after each change. ``holder``: the connection that may write."""

    content: bytes = b""
    holder: "SimConnection | None" = field(default=None, compare=False, repr=False)

    def copy(self) -> "SimFile":
        """What is committed. The transaction of a process of this world stays here."""
        return SimFile(self.content)

    def list_rows(self, table: str, columns: str) -> list[tuple[Any, ...]]:
        """As nobody's call; none if there is no such table."""
        with closing(self.open()) as sql:
            known = sql.execute("SELECT count(*) FROM sqlite_master WHERE name = ?", (table,)).fetchone() != (0,)
            return sql.execute(f'SELECT {columns} FROM "{table}"').fetchall() if known else []

    def fingerprint(self) -> object:
        with closing(self.open()) as sql:
            return tuple(sql.iterdump())

    def open(self) -> sqlite3.Connection:
        """What is committed now, to look at or to change."""
        sql = _connect(":memory:", isolation_level=None)
        if self.content:
            sql.deserialize(self.content)
        return sql


class SimConnection:
    """As much of a connection as the example uses. Whoever closes it, or dies, rolls back."""

    def __init__(self, file: SimFile, process: Process) -> None:
        self._file = file
        self._process = process
        self._sql: sqlite3.Connection | None = None

    def execute(self, statement: str, values: Iterable[Any] = ()) -> Any:
        word = statement.split(maxsplit=1)[0].lower()
        match word:
            case "begin":
                return self._wait(statement)
            case "commit":
                return self._call(word, lambda: self._commit(statement))
        if word in _READS:
            # Before it begins, a connection is told how to write.
            return self._sql.execute(statement, values) if self._sql is not None else None
        return self._call(word, lambda: self._open().execute(statement, values))

    def executemany(self, statement: str, values: Iterable[Any]) -> Any:
        given = list(values)
        return self._call(statement.split(maxsplit=1)[0].lower(), lambda: self._open().executemany(statement, given))

    def close(self) -> None:
        if self._sql is not None:
            self._sql.close()
        self._sql = None
        if self._file.holder is self:
            self._file.holder = None

    def _wait(self, statement: str) -> None:
        for _wait in range(_WAITS):
            if self._call("begin", lambda: self._begin(statement)):
                return
        error = sqlite3.OperationalError("database is locked")
        error.sqlite_errorcode = sqlite3.SQLITE_BUSY
        raise error

    def _begin(self, statement: str) -> bool:
        if self._file.holder is not None:
            return False
        self._file.holder, self._sql = self, self._file.open()
        self._sql.execute(statement)
        return True

    def _commit(self, statement: str) -> None:
        sql = self._open()
        sql.execute(statement)
        content = sql.serialize()
        if content != self._file.content:
            self._file.content = content
        self.close()

    def _open(self) -> sqlite3.Connection:
        if self._sql is None:
            raise AssertionError("a statement outside of a transaction")
        return self._sql

    def _call(self, word: str, effect: Callable[[], Any]) -> Any:
        """Nothing is sent twice."""
        done: list[Any] = []

        def once() -> Any:
            if not done:
                done.append(effect())
            return done[0]

        return self._process.call(f"sqlite.{word}", once)


def take_turn(file: SimFile, process: Process) -> None:
    """Have the example's place find the file, as the process, in this thread."""
    _thread.reached = file, process


def _connect_simulated(_path: str, **_options: Any) -> SimConnection:
    return SimConnection(*_thread.reached)


@contextmanager
def simulated_files() -> Iterator[None]:
    """In the block, the example's place works on the simulated file of its thread."""
    simulated = SimpleNamespace(**{**vars(sqlite3), "connect": _connect_simulated})
    found = {f"GOBBLIN_SQLITE_{CONNECTION.upper()}_FILE": "simulated"}
    with mock.patch.object(example, "sqlite3", simulated), mock.patch.dict(os.environ, found):
        yield
