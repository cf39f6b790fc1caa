"""A simulated Postgres that ``PostgresTables`` loads: one table of rows, marks of lanes, and sessions of processes.

Each statement and each COMMIT is a call of the session's process, so that faults, kills and pauses fall between them.
A transaction takes effect as a whole at its COMMIT. A mark that somebody changes is locked until then; who waits for
it for long has the server end the other's session, as it does with one that is idle in its transaction.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

import psycopg

from gobblin_assets.destinations.postgres.database_address import DatabaseAddress
from tests.simulation.process import Process

MarkKey = tuple[object, ...]

_WAITS: Final = 12
"""Calls for which a process waits for a lock, before the server ends the session that has it."""

_COLUMN: Final = re.compile(r'"(\w+)" ([a-z ]+)')
_LOCKED: Final = object()


@dataclass(frozen=True)
class SimMark:
    version: int = 0
    recent: tuple[str, ...] = ()
    given_up: tuple[str, ...] = ()
    loaded_rows: int = 0


@dataclass
class SimTables:
    """``rows``: what is committed, as texts. ``columns``: of the table, once it is made; ``has_marks``: that of marks.

    ``changes`` counts what was committed.
    """

    rows: "Counter[tuple[str, ...]]" = field(default_factory=Counter)
    columns: dict[str, str] = field(default_factory=dict)
    has_marks: bool = False
    marks: dict[MarkKey, SimMark] = field(default_factory=dict)
    changes: int = 0
    locks: dict[MarkKey, "SimSession"] = field(default_factory=dict)

    def release(self, session: "SimSession") -> None:
        self.locks = {key: each for key, each in self.locks.items() if each is not session}


@dataclass(frozen=True, slots=True)
class SimAddress(DatabaseAddress):
    """Opens sessions of one process. Errors are judged by the product."""

    tables: SimTables = field(kw_only=True)
    process: Process = field(kw_only=True)

    def open_session(self) -> Any:
        return SimSession(self.tables, self.process)


@dataclass
class _Transaction:
    rows: list[tuple[str, ...]] = field(default_factory=list)
    marks: dict[MarkKey, SimMark] = field(default_factory=dict)
    is_committed: bool = False


@dataclass
class _Answer:
    rows: Sequence[tuple[Any, ...]] = ()
    rowcount: int = 0

    def fetchone(self) -> tuple[Any, ...] | None:
        return next(iter(self.rows), None)

    def fetchall(self) -> list[tuple[Any, ...]]:
        return list(self.rows)


class SimSession:
    """As much of a psycopg connection in autocommit as ``PostgresTables`` uses. ``is_ended``: by the server."""

    def __init__(self, tables: SimTables, process: Process) -> None:
        self._tables = tables
        self._process = process
        self._open: _Transaction | None = None
        self.closed = False
        self.is_ended = False

    def close(self) -> None:
        self.closed = True
        self._tables.release(self)

    def execute(self, statement: Any, arguments: Any = None) -> _Answer:
        text = " ".join((statement if isinstance(statement, str) else statement.as_string(None)).split())
        name, carry_out = self._find(text)
        for _wait in range(_WAITS):
            answer = self._call(name, lambda: carry_out(text, arguments))
            if answer is not _LOCKED:
                return answer  # type: ignore[no-any-return]  # what carries a statement out gives answers
        holder = self._tables.locks.get(_key_of(arguments))
        if holder is not None:
            holder.end()
        return self.execute(statement, arguments)

    def end(self) -> None:
        """As the server does: what is not committed is gone."""
        self.is_ended, self._open = True, None
        self._tables.release(self)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        self._open = _Transaction()
        try:
            yield
            opened = self._open
            self._call("commit", lambda: self._commit(opened))
        finally:
            # Also where the process is killed: the server notices, and rolls back.
            self._open = None
            self._tables.release(self)

    @contextmanager
    def cursor(self) -> "Iterator[_Cursor]":
        yield _Cursor(self)

    def copy(self, lines: bytes) -> int:
        rows = [tuple(line.split("\t")) for line in lines.decode().splitlines()]

        def add() -> _Answer:
            if self._open is None:
                raise AssertionError("rows are copied in a transaction")
            self._open.rows += rows
            return _Answer()

        self._call("copy", add)
        return len(rows)

    def _call(self, name: str, effect: Callable[[], Any]) -> Any:
        """A session sends nothing twice: a process that hears nothing has lost its session."""
        done: list[Any] = []

        def once() -> Any:
            if self.is_ended or self.closed:
                raise psycopg.OperationalError("the session was ended")
            if not done:
                done.append(effect())
            return done[0]

        return self._process.call(f"tables.{name}", once)

    # Statements ------------------------------------------------------------------------------------------

    def _find(self, text: str) -> tuple[str, Callable[[str, Any], Any]]:
        """The first mark in the text says what it asks for."""
        known: tuple[tuple[str, str, Callable[[str, Any], Any]], ...] = (
            ("pg_is_in_recovery", "look", lambda *_asked: _Answer([(False,)])),
            ("pg_catalog.pg_class", "look", lambda _text, names: _Answer(self._list_columns(names))),
            ("pg_catalog.pg_namespace", "look", lambda *_asked: _Answer([(True,)])),
            ("pg_advisory_xact_lock", "look", lambda *_asked: _Answer()),
            ("set_config", "look", lambda *_asked: _Answer()),
            ("CREATE TABLE IF NOT EXISTS", "make", self._make_marks),
            ("ADD COLUMN IF NOT EXISTS table_oid", "make", lambda *_asked: _Answer()),
            ("CREATE TABLE", "make", self._make_table),
            ("INSERT INTO", "add_mark", self._add_mark),
            ("WHERE table_oid <>", "find_gone", self._find_gone),
            ("sum(loaded_rows)", "count", self._count_loaded),
            ("SELECT version", "find_mark", self._find_mark),
            ("SET version", "move_mark", self._move_mark),
            ("SET given_up", "give_up", self._give_up),
        )
        return next((name, carry_out) for part, name, carry_out in known if part in text)

    def _list_columns(self, names: Sequence[str]) -> list[tuple[Any, ...]]:
        if names[1] == "gobblin_lane":
            return [(True, "table_oid", "oid", False, False)] if self._tables.has_marks else []
        return [(True, name, kind, False, False) for name, kind in self._tables.columns.items()]

    def _make_marks(self, _text: str, _arguments: Any) -> _Answer:
        self._tables.has_marks = True
        return _Answer()

    def _make_table(self, text: str, _arguments: Any) -> _Answer:
        self._tables.columns = dict(_COLUMN.findall(text.partition("(")[2]))
        return _Answer()

    def _add_mark(self, _text: str, arguments: Any) -> _Answer:
        self._marks().setdefault(_key_of(arguments), SimMark())
        return _Answer(rowcount=1)

    def _count_loaded(self, _text: str, _arguments: Any) -> _Answer:
        return _Answer([(sum(mark.loaded_rows for mark in self._marks().values()),)])

    def _find_gone(self, _text: str, _arguments: Any) -> _Answer:
        """Nobody drops the table here."""
        return _Answer([(sum(mark.loaded_rows for mark in self._marks().values()), bool(self._tables.columns), 0)])

    def _find_mark(self, text: str, arguments: Any) -> Any:
        if "FOR UPDATE" in text and not self._lock(arguments):
            return _LOCKED
        found = self._marks().get(_key_of(arguments))
        return _Answer([] if found is None else [(found.version, list(found.recent), list(found.given_up))])

    def _move_mark(self, text: str, arguments: Any) -> Any:
        """Compares as far as the statement does."""
        if not self._lock(arguments):
            return _LOCKED
        mark = self._marks().get(_key_of(arguments))
        version, sequence_id = arguments["version"], arguments["sequence"]
        is_behind = "version <" not in text or (mark is not None and mark.version < version)
        is_allowed = "<> ALL" not in text or (mark is not None and sequence_id not in mark.given_up)
        if mark is None or not is_behind or not is_allowed:
            return _Answer(rowcount=0)
        rows = mark.loaded_rows + arguments["rows"]
        self._change(arguments, SimMark(version, (sequence_id, *mark.recent), (), rows))
        return _Answer(rowcount=1)

    def _give_up(self, _text: str, arguments: Any) -> Any:
        if not self._lock(arguments):
            return _LOCKED
        mark = self._marks()[_key_of(arguments)]
        self._change(arguments, replace(mark, given_up=(*mark.given_up, arguments["sequence"])))
        return _Answer(rowcount=1)

    def _marks(self) -> dict[MarkKey, SimMark]:
        """What is committed: each of our transactions changes a mark once, and reads it before that."""
        if not self._tables.has_marks:
            raise psycopg.errors.UndefinedTable("there is no table of marks")
        return self._tables.marks

    def _lock(self, arguments: Any) -> bool:
        return self._tables.locks.setdefault(_key_of(arguments), self) is self

    def _change(self, arguments: Any, mark: SimMark) -> None:
        if self._open is None:
            raise AssertionError("a mark is changed in a transaction")
        self._open.marks[_key_of(arguments)] = mark

    def _commit(self, opened: _Transaction | None) -> None:
        if opened is None:
            raise psycopg.OperationalError("the session was ended")
        self._tables.rows.update(opened.rows)
        self._tables.marks |= opened.marks
        self._tables.changes += 1
        self._tables.release(self)


class _Cursor:
    """Of one COPY."""

    def __init__(self, session: SimSession) -> None:
        self._session = session
        self.rowcount = 0

    @contextmanager
    def copy(self, _statement: Any) -> "Iterator[_Cursor]":
        self.rowcount = 0
        yield self

    def write(self, lines: bytes) -> None:
        self.rowcount += self._session.copy(lines)


def _key_of(arguments: Any) -> MarkKey:
    return tuple(arguments[name] for name in ("destination", "job", "dataset", "lane"))
