"""Messages of a slot, gathered into records of each table, in the order of the log.

Two kinds of transactions are left out here for a table: those that were published before the place where its vnode
begins, and those that its copy has. Of a copy in ranges, only some may have a transaction: then each of its changes is
judged by its key.

An update that moves a row from one range to another is two changes: of the old key, and of the new one. A copy may have
one of them. The other half of the update becomes a message of its own: a deletion of the old key, or an insertion of
the new row.
"""

import datetime as dt
import json
import struct
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from gobblin_assets.errors import CorruptionError, GobblinError, RejectedError
from gobblin_assets.model.defects import find_family
from gobblin_assets.sources.jdbc.connection import JdbcConnection
from gobblin_assets.sources.jdbc.names import TableName
from gobblin_assets.sources.jdbc.postgres import postgres_families
from gobblin_assets.sources.jdbc.postgres_tables import find_keys, find_types
from gobblin_assets.sources.postgres_log.column_memory import ColumnMemory
from gobblin_assets.sources.postgres_log.copy_ranges import SeenRanges
from gobblin_assets.sources.postgres_log.log_starts import TableStart
from gobblin_assets.sources.postgres_log.logged_table import (
    CHANGE_SCHEMA,
    LOST_KEY,
    LoggedColumn,
    LoggedTable,
    table_to_json,
)
from gobblin_assets.sources.postgres_log.pgoutput import (
    Begin,
    Commit,
    LogicalMessage,
    RelationMessage,
    parse_begin,
    parse_commit,
    parse_logical_message,
    parse_relation,
    parse_truncate,
)
from gobblin_assets.sources.postgres_log.server_state import open_log_session
from gobblin_assets.sources.postgres_log.table_decoder import MESSAGE_SCHEMA
from gobblin_assets.sources.postgres_log.walsender import Walsender

_HEAD: Final = 5
_OLD: Final = b"KO"
_TEXT, _NULL, _UNCHANGED = b"tnu"

Cells = Sequence[tuple[int, bytes]]
"""Of one tuple: the kind of each value, and the bytes of it."""


@dataclass(frozen=True, slots=True)
class JudgedChange:
    """The rest of a message, without what a copy has. ``step``: 1 if only its second row is left.

    ``lost``: why the log can't say what is so behind it.
    """

    payload: bytes
    step: int = 0
    lost: str | None = None


def judge_change(
    payload: bytes, ranges: SeenRanges, verdicts: Sequence[bool], key_at: int | None
) -> JudgedChange | None:
    """A message I, U, D or T without what the copy has; None: the copy has all of it.

    ``verdicts``: of each range, whether its copy has the transaction. ``key_at``: the place of the ranges' column among
    those of the table; None: it has no such column.
    """
    kind = payload[0]
    if kind == _TRUNCATE:
        return JudgedChange(payload, lost="it was truncated")
    if key_at is None:
        return JudgedChange(payload, lost=f"its column {ranges.column} was dropped or renamed")
    if kind != _UPDATE or payload[_HEAD] not in _OLD:
        cells, _end = _read_cells(payload, _HEAD)
        return None if verdicts[_find_range(cells, key_at, ranges)] else JudgedChange(payload)
    old, middle = _read_cells(payload, _HEAD)
    new, _end = _read_cells(payload, middle)
    has_old, has_new = (verdicts[_find_range(cells, key_at, ranges)] for cells in (old, new))
    if has_old and has_new:
        return None
    if not has_old and not has_new:
        return JudgedChange(payload)
    if has_new:
        return JudgedChange(b"D" + payload[1:middle])
    return _insert(payload, old, new)


def _insert(payload: bytes, old: Cells, new: Cells) -> JudgedChange:
    """The new row alone: what was not sent with it must be in the old one."""
    whole = []
    for (kind, value), before in zip(new, old, strict=True):
        if kind == _UNCHANGED and before[0] != _TEXT:
            return JudgedChange(payload, lost="a row came into a range that was copied, without its large values")
        whole.append(before if kind == _UNCHANGED else (kind, value))
    written = b"".join(
        bytes([kind]) + (struct.pack(">I", len(value)) + value if kind == _TEXT else b"") for kind, value in whole
    )
    return JudgedChange(b"I" + payload[1:_HEAD] + b"N" + struct.pack(">H", len(whole)) + written, step=1)


def _find_range(cells: Cells, key_at: int, ranges: SeenRanges) -> int:
    try:
        return ranges.find_range(int(cells[key_at][1]))
    except (IndexError, ValueError) as error:
        raise CorruptionError(f"a change has no number in {ranges.column}, which is of the table's key") from error


def _read_cells(payload: bytes, at: int) -> tuple[Cells, int]:
    """The tuple whose kind is at this place, and where it ends."""
    cells = []
    try:
        (width,) = struct.unpack_from(">H", payload, at + 1)
        at += 3
        for _ in range(width):
            kind, at = payload[at], at + 1
            size = 0
            if kind == _TEXT:
                (size,) = struct.unpack_from(">I", payload, at)
                at += 4
            elif kind not in (_NULL, _UNCHANGED):
                raise CorruptionError("a change has a value of an unknown kind")
            cells.append((kind, payload[at : at + size]))
            at += size
    except (IndexError, struct.error) as error:
        raise CorruptionError("a change ends within a value") from error
    if at > len(payload):
        raise CorruptionError("a change ends within a value")
    return cells, at


MESSAGES_MAX: Final = 20_000
BYTES_MAX: Final = 16 << 20
"""Of what is gathered before it is given on; the rest of a large transaction follows."""

_BEGIN, _COMMIT, _RELATION, _TRUNCATE, _MESSAGE = b"BCRTM"
_UPDATE: Final = b"U"[0]
_WHOLE_ROWS: Final = "f"
_ROWS: Final = b"IUD"
_OLD_TUPLES: Final = b"KO"
_MICROS: Final = dt.timedelta(microseconds=1)
_EPOCH_START: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@dataclass(slots=True)
class _Changes:
    """Changes of one table that were gathered and not given. Of the transaction that is read now: ``is_left_out``, and
    ``verdicts`` if only some ranges of the copy have it. ``key_at``: the place of their column. ``lost``: what has
    happened to the table, if no more of it is known. ``relation``: what the next change that is not left out comes
    with, unless that is known already.
    """

    vnode: str
    start: TableStart
    begins_at: int
    seen: SeenRanges | None
    memory: ColumnMemory
    metadata: Mapping[bytes, str] | None = None
    payloads: list[bytes] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    # (count of the payloads before it, lsn, xid, time) of each transaction.
    transactions: list[tuple[int, int, int, int]] = field(default_factory=list)
    transaction: Begin | None = None
    is_left_out: bool = False
    verdicts: tuple[bool, ...] | None = None
    key_at: int | None = None
    lost: str | None = None
    relation: RelationMessage | None = None

    def enter(self, begin: Begin) -> None:
        self.transaction = begin
        verdicts = () if self.seen is None else self.seen.list_verdicts(begin.xid, begin.final_lsn)
        has_any = any(verdicts)
        self.is_left_out = begin.final_lsn < self.begins_at or (has_any and all(verdicts))
        self.verdicts = verdicts if has_any else None
        if not self.is_left_out:
            at = (begin.commit_at - _EPOCH_START) // _MICROS
            self.transactions.append((len(self.payloads), begin.final_lsn, begin.xid, at))

    def add(self, payload: bytes, number: int) -> None:
        """A change of a transaction that is not left out. ``number``: of its first row in the transaction."""
        if self.lost is None and self.verdicts is not None and self.seen is not None:
            left = judge_change(payload, self.seen, self.verdicts, self.key_at)
            if left is None:
                return
            payload, number = left.payload, number + left.step
            self.lost = None if left.lost is None else f"changed between the ranges of its copy: {left.lost}"
        self.payloads.append(payload)
        self.numbers.append(number)

    def take(self) -> pa.RecordBatch | None:
        # The transaction that is read now may go on.
        last = [(0, *self.transactions[-1][1:])] if self.transactions else []
        if not self.payloads:
            self.transactions = last
            return None
        if self.metadata is None:
            raise CorruptionError(f"the log gave a change of {self.vnode} before the table")
        starts = [each[0] for each in self.transactions]
        counts = np.diff([*starts, len(self.payloads)])
        lsns, xids, times = (np.repeat([each[n] for each in self.transactions], counts) for n in (1, 2, 3))
        chunk = pa.RecordBatch.from_arrays(
            [
                pa.array(self.payloads, pa.binary()),
                pa.array(lsns, pa.int64()),
                pa.array(self.numbers, pa.int64()),
                pa.array(xids, pa.int64()),
                pa.array(times, pa.int64()).cast(pa.timestamp("us", "UTC")),
            ],
            schema=CHANGE_SCHEMA.with_metadata(
                {**self.metadata, **({} if self.lost is None else {LOST_KEY: self.lost})}
            ),
        )
        self.payloads, self.numbers, self.transactions = [], [], last
        return chunk


@dataclass(slots=True)
class _Messages:
    """Messages of one prefix that were gathered and not given."""

    vnode: str
    begins_at: int
    rows: list[tuple[bytes, int, int | None, int | None, dt.datetime | None]] = field(default_factory=list)

    def take(self) -> pa.RecordBatch | None:
        rows, self.rows = self.rows, []
        if not rows:
            return None
        columns = zip(*rows, strict=True)
        return pa.RecordBatch.from_arrays(
            [pa.array(column, each.type) for column, each in zip(columns, MESSAGE_SCHEMA, strict=True)],
            schema=MESSAGE_SCHEMA,
        )


class ChangeGathering:
    """The records of one stream. ``vnodes``: for each vnode its start, the place where it begins, the transactions in
    its copy, and the facts of its columns.

    ``is_busy``: more messages may be there. ``has_given``: records were given since the last barrier.
    """

    def __init__(
        self,
        connection: JdbcConnection,
        vnodes: Mapping[str, tuple[TableStart, int, SeenRanges | None, ColumnMemory]],
        say: Callable[[str], None],
    ) -> None:
        self._connection = connection
        self._say = say
        self._wanted = {
            start.table.oid: _Changes(vnode, start, position, seen, memory)
            for vnode, (start, position, seen, memory) in vnodes.items()
            if start.table is not None
        }
        self._messages = {
            start.prefix: _Messages(vnode, position)
            for vnode, (start, position, _seen, _memory) in vnodes.items()
            if start.prefix is not None
        }
        self._by_oid: dict[bytes, _Changes | None] = {}
        self._begin: Begin | None = None
        self._number = 0
        self._ready: list[tuple[str, pa.RecordBatch]] = []
        self._failures: dict[str, GobblinError] = {}
        self.is_busy = False
        self.has_given = False

    @property
    def is_in_transaction(self) -> bool:
        return self._begin is not None

    def keep(self, vnodes: Collection[str]) -> None:
        """Gather for these alone."""
        for changes in self._wanted.values():
            if changes.vnode not in vnodes:
                self._by_oid = {oid: None if each is changes else each for oid, each in self._by_oid.items()}
        self._wanted = {oid: each for oid, each in self._wanted.items() if each.vnode in vnodes}
        self._messages = {prefix: each for prefix, each in self._messages.items() if each.vnode in vnodes}

    def gather(self, stream: Walsender, *, until_commit: bool) -> int | None:
        """Read what is there, up to the bounds, or up to the end of a transaction. The end of the last one, if any."""
        end: int | None = None
        left, size = MESSAGES_MAX, BYTES_MAX
        read, by_oid = stream.read_message, self._by_oid
        with stream.families():
            while left > 0 and size > 0:
                payload = read()
                if payload is None:
                    break
                kind = payload[0]
                left -= 1
                if kind in _ROWS:
                    changes = by_oid[payload[1:5]]
                    number = self._number
                    self._number = number + (2 if kind == _UPDATE and payload[5] in _OLD_TUPLES else 1)
                    if changes is None:
                        continue
                    begin = self._begin or self._require_begin()
                    try:
                        if changes.transaction is not begin:
                            changes.enter(begin)
                        if not changes.is_left_out:
                            if changes.relation is not None:
                                self._learn(changes, changes.relation, (begin.final_lsn, number))
                            changes.add(payload, number)
                            size -= len(payload)
                    except Exception as error:  # noqa: BLE001  the failure of this table; others go on
                        self._give_up(changes, error)
                elif kind == _COMMIT:
                    end = self._end(parse_commit(payload))
                    if until_commit:
                        break
                else:
                    end = self._take_other(kind, payload) or end
            self.is_busy = left <= 0 or size <= 0
        return end

    def take(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        """What was gathered: (vnode, records)."""
        ready, self._ready = self._ready, []
        for vnode, chunk in ready:
            self.has_given = True
            yield vnode, chunk
        for changes in list(self._wanted.values()):
            try:
                chunk = changes.take()
            except Exception as error:  # noqa: BLE001  the failure of this table; others go on
                self._give_up(changes, error)
                continue
            if chunk is not None:
                self.has_given = True
                yield changes.vnode, chunk
        for gathered in self._messages.values():
            chunk = gathered.take()
            if chunk is not None:
                self.has_given = True
                yield gathered.vnode, chunk

    def take_failures(self) -> list[tuple[str, GobblinError]]:
        """The vnodes whose changes could not be gathered, each once. Nothing of them is given any more."""
        found, self._failures = list(self._failures.items()), {}
        return found

    def _give_up(self, changes: _Changes, error: Exception) -> None:
        self._failures[changes.vnode] = find_family(changes.start.urn, error)
        self._wanted = {oid: each for oid, each in self._wanted.items() if each is not changes}
        self._ready = [each for each in self._ready if each[0] != changes.vnode]
        # In place: messages are being read.
        for oid in [oid for oid, each in self._by_oid.items() if each is changes]:
            self._by_oid[oid] = None

    def _take_other(self, kind: int, payload: bytes) -> int | None:
        """The place behind a message outside of transactions."""
        if kind == _BEGIN:
            self._begin, self._number = parse_begin(payload), 1
        elif kind == _RELATION:
            self._meet(parse_relation(payload))
        elif kind == _TRUNCATE:
            number = self._number
            self._number += 1
            for oid in parse_truncate(payload).oids:
                changes = self._by_oid.get(oid.to_bytes(4, "big"))
                if changes is None:
                    continue
                begin = self._require_begin()
                try:
                    if changes.transaction is not begin:
                        changes.enter(begin)
                    if not changes.is_left_out:
                        if changes.relation is not None:
                            self._learn(changes, changes.relation, (begin.final_lsn, number))
                        changes.add(payload, number)
                except Exception as error:  # noqa: BLE001  the failure of this table; others go on
                    self._give_up(changes, error)
        elif kind == _MESSAGE:
            return self._take_message(parse_logical_message(payload))
        return None

    def _take_message(self, message: LogicalMessage) -> int | None:
        number = self._number
        begin = self._require_begin() if message.is_transactional else None
        if begin is not None:
            self._number += 1
        messages = self._messages.get(message.prefix)
        lsn = message.lsn if begin is None else begin.final_lsn
        if messages is not None and lsn >= messages.begins_at:
            of_transaction = (None, None, None) if begin is None else (number, begin.xid, begin.commit_at)
            messages.rows.append((message.content, lsn, *of_transaction))
        # Nothing that has ended before it is still to come.
        return message.lsn + 1 if begin is None else None

    def _end(self, commit: Commit) -> int:
        if self._begin is None or self._begin.final_lsn != commit.commit_lsn:
            raise CorruptionError("the log ends a transaction that it did not begin")
        self._begin = None
        return commit.end_lsn

    def _require_begin(self) -> Begin:
        if self._begin is None:
            raise CorruptionError("the log has a change outside of a transaction")
        return self._begin

    def _meet(self, relation: RelationMessage) -> None:
        """Of changes that are left out, nothing is asked: their types may be gone, and what mends that is a copy."""
        changes = self._find_wanted(relation)
        self._by_oid[relation.oid.to_bytes(4, "big")] = changes
        if changes is not None:
            changes.relation = relation

    def _learn(self, changes: _Changes, relation: RelationMessage, place: tuple[int, int]) -> None:
        """The table goes on like this at ``place`` (LSN and number). What came before belongs to what it was."""
        chunk = changes.take()
        if chunk is not None:
            self._ready.append((changes.vnode, chunk))
        if changes.lost is None and changes.seen is not None:
            names = [column.name for column in relation.columns]
            changes.key_at = names.index(changes.seen.column) if changes.seen.column in names else None
        table = self._describe(relation, changes.start.urn)
        if changes.lost is None:
            changes.lost = changes.memory.meet(table, changes.start, place, self._ask, self._say)
        changes.metadata = {
            b"table": table_to_json(table),
            b"copy": str(changes.start.decided.copy),
            b"key": json.dumps(changes.start.decided.key),
        }
        changes.relation = None

    def _find_wanted(self, relation: RelationMessage) -> _Changes | None:
        """The table, whatever its name is now. Or the one whose name another table has taken since: it stops."""
        found = self._wanted.get(relation.oid)
        if found is not None:
            return found
        name, lsn = TableName(relation.schema, relation.table), self._require_begin().final_lsn
        for changes in self._wanted.values():
            if changes.start.table is not None and changes.start.table.name == name and lsn >= changes.begins_at:
                changes.lost = "is another table than the one that was copied, which was renamed, moved or dropped"
                return changes
        return None

    def _ask(self, sql: str, arguments: Sequence[Any]) -> list[tuple[Any, ...]]:
        with open_log_session(self._connection) as session, postgres_families(self._connection):
            return session.execute(sql.encode(), arguments).fetchall()

    def _describe(self, relation: RelationMessage, urn: str) -> LoggedTable:
        """With the types as the server has them now: the log has only their numbers.

        RejectedError if one is gone, of which rows are still in the log.
        """
        asked = [(column.type_oid, column.modifier) for column in relation.columns]
        types = find_types(self._ask, asked)
        key = {column.name for column in relation.columns if column.is_key}
        if relation.identity == _WHOLE_ROWS:
            # The message has all columns for the key's.
            found = find_keys(self._ask, [relation.oid]).get(relation.oid)
            key = set() if found is None else set(found.identity)
        gone = [column.name for column in relation.columns if (column.type_oid, column.modifier) not in types]
        if gone:
            table = TableName(relation.schema, relation.table)
            raise RejectedError(
                f"changes of {table} are in the log from before the type of {', '.join(gone)} was dropped, and the "
                "server does not say any more what it was",
                field=f"datasets[{urn}].table",
                hint=f"Copy the table again, behind what is published: gobblin-assets sink recopy JOB --dataset {urn}. "
                "Drop types when their last rows are published.",
                table=str(table),
            )
        return LoggedTable(
            relation.oid,
            relation.schema,
            relation.table,
            relation.identity,
            tuple(
                LoggedColumn(column.name, types[column.type_oid, column.modifier], column.name in key)
                for column in relation.columns
            ),
        )
