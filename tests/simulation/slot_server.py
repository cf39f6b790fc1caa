"""A Postgres of the simulated world, as a reader of its change log meets it: one slot, and tables of numbered rows.

    server.execute(sql, arguments)     the statements of the product, as it writes them; unknown ones are refused
    server.stream(reader, start)       a walsender; the slot has one reader, until it is ended or hangs up
    server.fetch(reader, count, at)    messages of transactions in the order of their commits, and how far it has sent
    server.confirm(reader, position)   what lies before it is needed no more, and can't be read again

Its clients go on whenever it is asked for something: they begin, insert, change keys, delete, truncate, commit and roll
back. A commit is in the log before others see it. Each number is given once: a change that is lost or comes twice is
seen in what the log adds up to. Sometimes a table has another name for a while, and is written to.
"""

import datetime as dt
import random
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import psycopg

from gobblin_assets.errors import RetryableError
from gobblin_assets.sources.postgres_log import server_state, table_copy, table_terms, walsender
from gobblin_assets.sources.postgres_log.pgoutput import write_lsn
from gobblin_assets.sources.postgres_log.server_state import APPLICATION
from tests.simulation.slot_messages import DELETE, INSERT, MOVE, TRUNCATE, SimChange, write_change, write_relation
from tests.simulation.slot_tables import SimTables

SLOT: Final = "gobblin_sink"
_AT: Final = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
_OPEN_MAX: Final = 3
_STEP: Final = 0x10
_WAITS_MAX: Final = 20
ONLY_LOOKS: Final = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint"
"""Of a mutant."""

_NO_TIMEOUT: Final = "SELECT set_config('statement_timeout', %s, false)"

Row = tuple[str, int]
"""A table and a number."""

Message = tuple[bytes, int]
"""What a walsender sends, and the end that it says with it."""


@dataclass
class SimTransaction:
    """``places``: of its changes in the log. ``commit``: of its commit record."""

    xid: int
    rows: list[SimChange] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    commit: int = 0

    @property
    def end(self) -> int:
        return self.commit + _STEP


@dataclass
class SimSlot:
    """``reader``: of the walsender that has it."""

    confirmed: int
    reader: int | None = None
    is_lost: bool = False


@dataclass
class SimPostgres:
    """``confirming`` is told of each confirmation before it counts. ``writes_max``: how many rows are ever written.

    ``tables``: by their first names, by which they are told apart here.
    """

    tables: Sequence[str]
    chance: random.Random
    writes_max: int
    confirming: Callable[[int], None] = lambda _position: None
    system_id: str = "7000000000000000001"
    timeline: int = 1
    end: int = 1 << 24
    slot: SimSlot | None = None
    log: list[SimTransaction] = field(default_factory=list)
    snapshots: dict[str, frozenset[int]] = field(default_factory=dict)
    is_settled: bool = False
    _running: dict[int, SimTransaction] = field(default_factory=dict)
    _shown: set[int] = field(default_factory=set)
    _next_xid: int = 700
    _newest_ended: int = 699
    _written: int = 0
    _numbers: list[int] = field(default_factory=list)
    _present: set[Row] = field(default_factory=set)
    _held: dict[Row, int] = field(default_factory=dict)
    _starts: dict[int, int] = field(default_factory=dict)
    _tables: SimTables = field(default_factory=SimTables)

    def __post_init__(self) -> None:
        self._numbers = self.chance.sample(range(1, self.writes_max + 1), self.writes_max)
        self._tables.seed(repr(self._numbers))
        for table in self.tables:
            self._tables.create(table, table)

    # Its clients -----------------------------------------------------------------------------------------

    def breathe(self) -> None:
        """Its clients do something, or nothing."""
        for _step in range(self.chance.choice((0, 0, 1, 2, 4))):
            self._do_something()
        if not self.is_settled:
            self._tables.rename_something(self._is_free)

    def settle(self) -> None:
        """All transactions end, and nobody writes any more."""
        self.is_settled = True
        self._end_all()
        self._tables.settle()

    def _is_free(self, table: str) -> bool:
        return not any(change.table == table for each in self._running.values() for change in each.rows)

    def _do_something(self) -> None:
        going = [each for each in self._running.values() if not each.commit]
        deed = self.chance.random()
        if deed < 0.1:
            # Of other databases, or of nobody.
            self.end += _STEP
        elif deed < 0.3 and not self.is_settled and len(self._running) < _OPEN_MAX:
            self._running[self._next_xid] = SimTransaction(self._next_xid)
            self._next_xid += 1
        elif deed < 0.65 and going and self._written < self.writes_max:
            self._write(self.chance.choice(going))
        elif self._running:
            self._end_a_little(self.chance.choice(list(self._running.values())))

    def _write(self, transaction: SimTransaction, table: str | None = None) -> None:
        """Rows that others change, and tables that others empty, are left alone."""
        table = table or self.chance.choice(list(self._tables.called))
        others = [each for each in self._running.values() if each is not transaction]
        if any(change.kind == TRUNCATE and change.table == table for each in others for change in each.rows):
            return
        free = sorted(row for row in self._present if row[0] == table and row not in self._held)
        deed = self.chance.random()
        if deed < 0.03 and not any(change.table == table for each in others for change in each.rows):
            self._held |= dict.fromkeys(free, transaction.xid)
            change = SimChange(TRUNCATE, table)
        elif deed < 0.6 or not free:
            change = SimChange(INSERT, table, self._give_number())
        else:
            row = self.chance.choice(free)
            self._held[row] = transaction.xid
            is_move = deed < 0.9
            change = SimChange(MOVE if is_move else DELETE, table, self._give_number() if is_move else 0, row[1])
        called, is_published = self._tables.called[table], bool(self._tables.members[table])
        transaction.rows.append(replace(change, called=called, is_published=is_published))
        transaction.places.append(self.end)
        self.end += _STEP

    def _give_number(self) -> int:
        self._written += 1
        # What is written when the log is lost may come behind all others.
        return self._numbers[self._written - 1] if self._written <= self.writes_max else self._written

    def _end_a_little(self, transaction: SimTransaction) -> None:
        if not transaction.commit and self.chance.random() < 0.15:
            self._leave(transaction)
            self._newest_ended = max(self._newest_ended, transaction.xid)
        elif not transaction.commit:
            self._log_commit(transaction)
        else:
            self._show(transaction)

    def _end(self, transaction: SimTransaction) -> None:
        if not transaction.commit:
            self._log_commit(transaction)
        self._show(transaction)

    def _log_commit(self, transaction: SimTransaction) -> None:
        transaction.commit = self.end
        self.end += _STEP
        self.log.append(transaction)

    def _show(self, transaction: SimTransaction) -> None:
        self._leave(transaction)
        self._newest_ended = max(self._newest_ended, transaction.xid)
        self._shown.add(transaction.xid)
        for change in transaction.rows:
            if change.kind == TRUNCATE:
                self._present -= {row for row in self._present if row[0] == change.table}
            self._present.discard((change.table, change.old))
            if change.number:
                self._present.add((change.table, change.number))

    def _leave(self, transaction: SimTransaction) -> None:
        del self._running[transaction.xid]
        self._held = {row: xid for row, xid in self._held.items() if xid != transaction.xid}

    # What happens to it ----------------------------------------------------------------------------------

    def end_readers(self) -> None:
        if self.slot is not None:
            self.slot.reader = None

    def lose(self, loss: str) -> None:
        """As the name of the loss says; something that nobody has read yet is committed before."""
        self._write_one()
        if loss.startswith("a table "):
            self._end_all()
            self._lose_table(self.tables[0], loss)
            return
        self.end_readers()
        if self.slot is None:
            raise AssertionError("there is no slot to be lost")
        if "stranger" in loss or "another" in loss:
            self.slot.confirmed = self.end
        if "another" in loss:
            self.system_id = "7000000000000000002"
        if "standby" in loss:
            self.timeline += 1
        if "is gone" in loss:
            self.slot = None
        elif "removed" in loss:
            self.slot.is_lost = True

    def _lose_table(self, table: str, loss: str) -> None:
        """It is written to all the while."""
        self._tables.members[table] = 0
        self._write_one(table)
        if "dropped" in loss:
            table = self._tables.replace(table)
        else:
            self._tables.come_back(table)
        self._write_one(table)

    def _end_all(self) -> None:
        for transaction in list(self._running.values()):
            self._end(transaction)

    def _write_one(self, table: str | None = None) -> None:
        transaction = self._running[self._next_xid] = SimTransaction(self._next_xid)
        self._next_xid += 1
        self._write(transaction, table)
        self._end(transaction)

    # Statements ------------------------------------------------------------------------------------------

    def execute(self, sql: str, arguments: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        self.breathe()
        answers: Mapping[str, Callable[..., list[tuple[Any, ...]]]] = {
            server_state._SERVER: self._say_server,
            server_state._SLOT: self._say_slot,
            server_state._PUBLICATION: lambda _name: [
                ({"pubinsert": True, "pubupdate": True, "pubdelete": True, "pubtruncate": True},)
            ],
            server_state._TABLES: lambda _publication: self._tables.list_published(),
            table_terms.TERMS_QUERY: lambda _publication, oids: [(each,) for each in self._tables.list_terms(oids)],
            walsender._MAKE: self._make,
            walsender._DROP: self._drop,
            walsender._END: self._end_reader,
            _NO_TIMEOUT: lambda _milliseconds: [],
            table_copy._TIMEOUTS: list,
            table_copy._PLACE: lambda: [(write_lsn(self.end),)],
            table_copy._NEXT_XID: self._take_xid,
            table_copy._XMIN: lambda: [(self._find_xmin(),)],
            table_copy._SNAPSHOT: self._take_snapshot,
            table_copy._FLUSHED: lambda _place: [(True,)],
            "SELECT 0": lambda: [(0,)],
            ONLY_LOOKS: lambda: [(self._newest_ended + 1,)],
        }
        return answers[sql](*arguments)

    def read_snapshot(self, name: str, table: str) -> list[int]:
        self.breathe()
        return sorted(self.rows_by(table, lambda each: each.xid in self.snapshots[name]))

    def plan_copy(self, name: str, table: str) -> tuple[str, tuple[int, ...]]:
        """What tells the table from a later one, and bounds of ranges, of which each question gets other ones."""
        self.breathe()
        changes = [each for of in self.log if of.xid in self.snapshots[name] for each in of.rows if each.table == table]
        bounds = self.chance.sample(range(1, self.writes_max), self.chance.choice((0, 1, 2, 3)))
        return str(sum(each.kind == TRUNCATE for each in changes)), tuple(sorted(bounds))

    def rows_by(self, table: str, counts: Callable[[SimTransaction], bool]) -> set[int]:
        """The numbers that are there behind the transactions that count."""
        found: set[int] = set()
        changes = (each for of in self.log if counts(of) for each in of.rows)
        for change in (each for each in changes if each.table == table and each.is_published):
            if change.kind == TRUNCATE:
                found.clear()
            found.discard(change.old)
            if change.number:
                found.add(change.number)
        return found

    def _say_server(self) -> list[tuple[Any, ...]]:
        return [(self.system_id, 180_000, "logical", False, write_lsn(self.end), f"{self.timeline:08X}{0:016X}", True)]

    def _say_slot(self, _name: str) -> list[tuple[Any, ...]]:
        if self.slot is None:
            return []
        found: dict[str, Any] = {
            "database": "shop",
            "is_here": True,
            "plugin": "pgoutput",
            "confirmed_flush_lsn": write_lsn(self.slot.confirmed),
            "wal_status": "lost" if self.slot.is_lost else "reserved",
            "active_pid": self.slot.reader,
            "application": None if self.slot.reader is None else f"{APPLICATION} sink",
        }
        return [(found,)]

    def _make(self, _name: str) -> list[tuple[Any, ...]]:
        """It waits for the transactions that are running, as Postgres does; and is given up if they take too long."""
        waited_for = set(self._running)
        for _wait in range(_WAITS_MAX):
            if not waited_for & self._running.keys():
                break
            self._do_something()
        else:
            raise psycopg.errors.QueryCanceled
        if self.slot is None:
            self.slot = SimSlot(self.end)
        return [(write_lsn(self.slot.confirmed),)]

    def _drop(self, _name: str) -> list[tuple[Any, ...]]:
        self.slot = None
        return [(None,)]

    def _end_reader(self, reader: int) -> list[tuple[Any, ...]]:
        if self.slot is not None and self.slot.reader == reader:
            self.slot.reader = None
        return [(True,)]

    def _take_xid(self) -> list[tuple[Any, ...]]:
        """The statement is a transaction, which ends with it."""
        taken = self._next_xid
        self._next_xid += 1
        self._newest_ended = max(self._newest_ended, taken)
        return [(taken,)]

    def _find_xmin(self) -> int:
        """A snapshot ends behind the newest number that has ended, and lists those below that run."""
        return min(self._running, default=self._newest_ended + 1)

    def _take_snapshot(self) -> list[tuple[Any, ...]]:
        xmax = self._newest_ended + 1
        running = ",".join(str(xid) for xid in sorted(self._running) if xid < xmax)
        text = f"{min(self._find_xmin(), xmax)}:{xmax}:{running}"
        # One name for one state: whoever asks twice gets what is seen then.
        self.snapshots[text] = frozenset(self._shown)
        return [(text, text, write_lsn(self.end), _AT)]

    # The stream ------------------------------------------------------------------------------------------

    def stream(self, reader: int, start: int) -> None:
        self.breathe()
        if self.slot is None or self.slot.is_lost or self.slot.reader not in (None, reader):
            raise RetryableError(f"the slot can't be read: {self.slot}")
        self.slot.reader = reader
        self._starts[reader] = max(start, self.slot.confirmed)

    def fetch(self, reader: int, count: int, at: int) -> tuple[list[Message], int | None]:
        """``count`` messages behind the first ``at``; how far the log was sent, if no message is left."""
        self.breathe()
        self._require_reader(reader)
        sent = [each for each in self.log if each.commit >= self._starts[reader]]
        messages = [message for each in sent for message in self._write_messages(each)]
        if self.chance.random() < 0.2:
            # It is on its way.
            return [], None
        found = messages[at : at + count]
        return found, None if found else self.end

    def confirm(self, reader: int, position: int) -> None:
        slot = self._require_reader(reader)
        if position > slot.confirmed:
            self.confirming(position)
            slot.confirmed = position

    def hang_up(self, reader: int) -> None:
        if self.slot is not None and self.slot.reader == reader:
            self.slot.reader = None

    def _require_reader(self, reader: int) -> SimSlot:
        if self.slot is None or self.slot.reader != reader:
            raise RetryableError("terminating connection due to administrator command")
        return self.slot

    def _write_messages(self, transaction: SimTransaction) -> list[Message]:
        """A walsender tells of a table before each transaction that changes it, which it may do."""
        first = transaction.places[0] if transaction.places else transaction.commit
        begin = struct.pack(">cQqI", b"B", transaction.commit, 0, transaction.xid)
        end = struct.pack(">cBQQq", b"C", 0, transaction.commit, transaction.end, 0)
        sent = [each for each in zip(transaction.rows, transaction.places, strict=True) if each[0].is_published]
        tables = sorted({(change.table, change.called) for change, _place in sent})
        told = [(write_relation(self._tables.oids[table], called), first) for table, called in tables]
        rows = [(write_change(self._tables.oids[change.table], change), place) for change, place in sent]
        return [(begin, first), *told, *rows, (end, transaction.end)] if rows else []
