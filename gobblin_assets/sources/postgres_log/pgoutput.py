"""Messages of the plugin ``pgoutput``, version 1 of its protocol. Pure.

Each payload begins with the byte of its kind. Numbers are big-endian; times are microseconds since 2000, in UTC.
CorruptionError for bytes that are no such message.

Messages of rows (I, U, D, T) are taken apart column by column: there is no loop over rows.

    I oid N new        U oid [K|O old] N new        D oid K|O old        T count options oid …
    a tuple: width (2 bytes), then for each column: n (NULL), u (unchanged, not sent), or t length (4 bytes) text

A cursor for each message is moved by one column at a time, for all messages at once. Values are copied once, by Arrow,
from an array whose elements are in turn a value and what lies between it and the next one.
"""

import datetime as dt
import re
import struct
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gobblin_assets.errors import CorruptionError

_EPOCH: Final = dt.datetime(2000, 1, 1, tzinfo=dt.UTC)
_LSN: Final = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})")
_KEY_FLAG: Final = 1
_TRANSACTIONAL_FLAG: Final = 1
_IDENTITIES: Final = b"dnfi"
# Postgres leaves out the name of its own catalogue.
_CATALOG: Final = "pg_catalog"


@dataclass(frozen=True, slots=True)
class Begin:
    """The message that begins a transaction.

    ``final_lsn``: where the transaction's commit record begins.
    """

    final_lsn: int
    commit_at: dt.datetime
    xid: int


@dataclass(frozen=True, slots=True)
class Commit:
    """The message that ends a transaction.

    ``commit_lsn``: where the commit record begins, ``end_lsn``: where the transaction ends.
    """

    commit_lsn: int
    end_lsn: int
    at: dt.datetime


@dataclass(frozen=True, slots=True)
class RelationColumn:
    """A column of a Relation message.

    ``type_oid`` may be that of a domain; ``modifier`` is pg_attribute.atttypmod.
    """

    name: str
    type_oid: int
    modifier: int
    is_key: bool


@dataclass(frozen=True, slots=True)
class RelationMessage:
    """A table as the rows that follow have it. ``identity`` is pg_class.relreplident."""

    oid: int
    schema: str
    table: str
    identity: str
    columns: tuple[RelationColumn, ...]


@dataclass(frozen=True, slots=True)
class TruncateMessage:
    """Tables that one statement emptied."""

    oids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LogicalMessage:
    """A message that somebody wrote by ``pg_logical_emit_message``."""

    is_transactional: bool
    lsn: int
    prefix: str
    content: bytes


def parse_begin(payload: bytes) -> Begin:
    cursor = _Cursor(payload, b"B")
    final_lsn, micros, xid = cursor.take(">QqI")
    cursor.end()
    return Begin(final_lsn, _read_time(micros), xid)


def parse_commit(payload: bytes) -> Commit:
    cursor = _Cursor(payload, b"C")
    _flags, commit_lsn, end_lsn, micros = cursor.take(">BQQq")
    cursor.end()
    return Commit(commit_lsn, end_lsn, _read_time(micros))


def parse_relation(payload: bytes) -> RelationMessage:
    cursor = _Cursor(payload, b"R")
    (oid,) = cursor.take(">I")
    schema, table = cursor.take_text() or _CATALOG, cursor.take_text()
    identity, width = cursor.take(">BH")
    columns = []
    for _ in range(width):
        (flags,) = cursor.take(">B")
        name = cursor.take_text()
        type_oid, modifier = cursor.take(">Ii")
        columns.append(RelationColumn(name, type_oid, modifier, bool(flags & _KEY_FLAG)))
    cursor.end()
    if identity not in _IDENTITIES:
        raise CorruptionError(f"a relation message has the replica identity {chr(identity)!r}")
    return RelationMessage(oid, schema, table, chr(identity), tuple(columns))


def parse_truncate(payload: bytes) -> TruncateMessage:
    cursor = _Cursor(payload, b"T")
    count, _options = cursor.take(">IB")
    # The bound comes first: the count of damaged bytes may be anything.
    if count * 4 != cursor.left:
        raise CorruptionError(f"a truncate message of {count} tables has {cursor.left} bytes of them")
    return TruncateMessage(cursor.take(f">{count}I"))


def parse_logical_message(payload: bytes) -> LogicalMessage:
    cursor = _Cursor(payload, b"M")
    flags, lsn = cursor.take(">BQ")
    prefix = cursor.take_text()
    (size,) = cursor.take(">I")
    if size != cursor.left:
        raise CorruptionError(f"a logical message of {size} bytes has {cursor.left}")
    return LogicalMessage(bool(flags & _TRANSACTIONAL_FLAG), lsn, prefix, payload[len(payload) - size :])


def parse_lsn(text: str) -> int:
    """The number of a pg_lsn such as ``16/B374D848``."""
    found = _LSN.fullmatch(text)
    if found is None:
        raise CorruptionError(f"{text!r} is no place in Postgres' log")
    return int(found[1], 16) << 32 | int(found[2], 16)


def write_lsn(lsn: int) -> str:
    """The number as Postgres writes a pg_lsn."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def _read_time(micros: int) -> dt.datetime:
    try:
        return _EPOCH + dt.timedelta(microseconds=micros)
    except OverflowError as error:
        raise CorruptionError(f"a message has the time {micros} us since 2000") from error


class _Cursor:
    """A cursor that reads a payload from its front to its end."""

    def __init__(self, payload: bytes, kind: bytes) -> None:
        if payload[:1] != kind:
            raise CorruptionError(f"expected a message of the kind {kind!r}, found {payload[:1]!r}")
        self._payload = payload
        self._kind = kind
        self._place = 1

    @property
    def left(self) -> int:
        return len(self._payload) - self._place

    def take(self, form: str) -> "tuple[int, ...]":
        size = struct.calcsize(form)
        if size > self.left:
            raise CorruptionError(f"a message of the kind {self._kind!r} ends within a field")
        found = struct.unpack_from(form, self._payload, self._place)
        self._place += size
        return found

    def take_text(self) -> str:
        end = self._payload.find(b"\0", self._place)
        if end < 0:
            raise CorruptionError(f"a message of the kind {self._kind!r} has a name without an end")
        try:
            found = self._payload[self._place : end].decode("utf-8")
        except UnicodeDecodeError as error:
            raise CorruptionError(f"a message of the kind {self._kind!r} has a name that is no UTF-8") from error
        self._place = end + 1
        return found

    def end(self) -> None:
        if self.left:
            raise CorruptionError(f"a message of the kind {self._kind!r} has {self.left} bytes too many")


Numbers = npt.NDArray[np.int64]
_Bytes = npt.NDArray[np.uint8]

OPS: Final = ("c", "b", "u", "d", "t")
_INSERTED, _BEFORE, _UPDATED, _DELETED, _TRUNCATED = range(len(OPS))
_NULL, _UNCHANGED, _TEXT, _BAD = range(4)
_NOT_FOUND: Final = 255


def _table_of(pairs: dict[bytes, int], otherwise: int) -> _Bytes:
    made = np.full(256, otherwise, np.uint8)
    for key, value in pairs.items():
        made[key[0]] = value
    return made


_KINDS: Final = _table_of({b"n": _NULL, b"u": _UNCHANGED, b"t": _TEXT}, _BAD)
# Of a message's first row, unless it is an update with an old tuple.
_FIRST_OPS: Final = _table_of({b"I": _INSERTED, b"U": _UPDATED, b"D": _DELETED, b"T": _TRUNCATED}, _NOT_FOUND)
_HEADER_BYTES: Final = 5
"""The kind and the table's number."""
_TUPLE_BYTES: Final = 3
"""The kind of tuple and its width."""


@dataclass(frozen=True, slots=True)
class _Cells:
    """One column of some tuples: the kind of each value, and where its text is in the buffer."""

    kinds: _Bytes
    starts: Numbers
    ends: Numbers


@dataclass(frozen=True, slots=True)
class RowTuples:
    """The rows that messages mean, in order.

    ``ops``: places in ``OPS``. ``messages``: the place of each row's message. ``steps``: 1 for the second row of a
    message, otherwise 0. ``cells`` are the columns of the rows, in ``buffer``; ``places`` are the rows' own numbers.
    """

    ops: _Bytes
    messages: Numbers
    steps: Numbers
    is_one_to_one: bool
    buffer: pa.Buffer
    cells: tuple[_Cells, ...]
    places: Numbers

    def binaries(self, number: int) -> pa.BinaryArray:
        """The texts of a column. NULL where there is none, and where Postgres sent none."""
        cells = self.cells[number]
        rows = len(cells.kinds)
        if rows == 0:
            return pa.array([], pa.binary())
        # Every second element is a value: the last one has no gap behind it.
        offsets = np.empty(2 * rows, np.int32)
        offsets[0::2], offsets[1::2] = cells.starts, cells.ends
        spread = pa.BinaryArray.from_buffers(
            pa.binary(), 2 * rows - 1, [None, pa.py_buffer(offsets), self.buffer], null_count=0
        )
        sources = self._find_sources(cells)
        is_null = cells.kinds[sources] != _TEXT if sources is not self.places else cells.kinds != _TEXT
        return spread.take(pa.array(2 * sources, mask=is_null if is_null.any() else None))

    def unchanged(self, number: int) -> "npt.NDArray[np.bool_] | None":
        """Where the column's value was not sent, and no old tuple has it; None: nowhere."""
        cells = self.cells[number]
        is_unchanged = cells.kinds == _UNCHANGED
        if not is_unchanged.any():
            return None
        sources = self._find_sources(cells)
        return np.asarray(is_unchanged & (cells.kinds[sources] != _TEXT))

    def _find_sources(self, cells: _Cells) -> Numbers:
        """The row that has the value of each row: the row before an update has what was not sent again."""
        filled = (cells.kinds == _UNCHANGED) & (self.steps == 1)
        return np.where(filled, self.places - 1, self.places) if filled.any() else self.places


def parse_tuples(payloads: pa.BinaryArray, oid: int, width: int) -> RowTuples:
    """The rows of messages of the table ``oid``, which has ``width`` columns. CorruptionError for any other message."""
    count = len(payloads)
    if payloads.null_count:
        raise CorruptionError("a change has no message")
    _validity, of_offsets, buffer = payloads.buffers()
    if count == 0 or buffer is None or of_offsets is None:
        if count:
            raise CorruptionError("a change has an empty message")
        return _no_rows(width)
    offsets = np.frombuffer(of_offsets, np.int32)[payloads.offset : payloads.offset + count + 1].astype(np.int64)
    reader = _Reader(buffer, width)
    starts, ends = offsets[:-1], offsets[1:]
    if np.any(ends - starts < _HEADER_BYTES):
        raise CorruptionError("a change has a message that ends within its header")
    ops = _FIRST_OPS[reader.data[starts]]
    if np.any(ops == _NOT_FOUND):
        raise CorruptionError(f"{bytes(reader.data[starts[ops == _NOT_FOUND][:1]])!r} is no kind of a change")
    is_truncation = ops == _TRUNCATED
    if is_truncation.any():
        _check_truncations(payloads, is_truncation, oid)
    if np.any((reader.numbers_at(starts + 1) != oid) & ~is_truncation):
        raise CorruptionError(f"a change of another table came as one of the table {oid}")
    markers = reader.take(starts + _HEADER_BYTES)
    is_old = (markers == ord("K")) | (markers == ord("O"))
    is_double = is_old & (ops == _UPDATED)
    expected = is_truncation | (is_old & (ops == _DELETED)) | is_double | ((markers == ord("N")) & (ops != _DELETED))
    if not expected.all():
        raise CorruptionError("a change has a tuple of a kind that does not belong to it")
    if not (is_double.any() or is_truncation.any()):
        cells, cursors = reader.read(starts + _HEADER_BYTES)
        _require_ends(cursors, ends)
        rows = np.arange(count)
        made = RowTuples(ops, rows, np.zeros(count, np.int64), True, buffer, cells, rows)
    else:
        made = _combine(reader, buffer, starts, ends, ops, is_double, is_truncation)
    _require_sent(made)
    return made


def _combine(
    reader: "_Reader",
    buffer: pa.Buffer,
    starts: Numbers,
    ends: Numbers,
    ops: _Bytes,
    is_double: "npt.NDArray[np.bool_]",
    is_truncation: "npt.NDArray[np.bool_]",
) -> RowTuples:
    """Rows of messages of which some have no tuple or two."""
    counts = 1 + is_double.astype(np.int64)
    firsts = np.cumsum(counts) - counts
    total = int(counts.sum())
    with_tuple, doubles = np.flatnonzero(~is_truncation), np.flatnonzero(is_double)
    one, cursors = reader.read(starts[with_tuple] + _HEADER_BYTES)
    is_single = ~is_double[with_tuple]
    _require_ends(cursors[is_single], ends[with_tuple][is_single])
    seconds = cursors[~is_single]
    if np.any(reader.take(seconds) != ord("N")) or np.any(seconds >= ends[doubles]):
        raise CorruptionError("an update has an old tuple and no new one")
    other, cursors = reader.read(seconds)
    _require_ends(cursors, ends[doubles])
    messages = np.repeat(np.arange(len(ops)), counts)
    steps = np.arange(total) - firsts[messages]
    row_ops = ops[messages]
    row_ops[firsts[doubles]] = _BEFORE
    columns = []
    for first, second in zip(one, other, strict=True):
        # The row of a truncation has no value: its place only keeps the offsets in order.
        kinds, begins = np.full(total, _NULL, np.uint8), starts[messages]
        stops = begins.copy()
        for places, cells in ((firsts[with_tuple], first), (firsts[doubles] + 1, second)):
            kinds[places], begins[places], stops[places] = cells.kinds, cells.starts, cells.ends
        columns.append(_Cells(kinds, begins, stops))
    return RowTuples(row_ops, messages, steps, False, buffer, tuple(columns), np.arange(total))


class _Reader:
    """A reader that moves cursors through a buffer of one table's messages."""

    def __init__(self, buffer: pa.Buffer, width: int) -> None:
        self.data: _Bytes = np.frombuffer(buffer, np.uint8)
        self._width = width
        # A four-byte number at every place, aligned or not.
        views = max(len(self.data) - 3, 0)
        self._numbers: Any = (
            np.ndarray((views,), "<u4", buffer=self.data, strides=(1,)) if views else np.zeros(1, "<u4")
        )
        self._number_max = max(views - 1, 0)

    def take(self, places: Numbers) -> _Bytes:
        # A damaged length may lead anywhere: it is found where the cursor does not end with its message.
        return self.data[np.minimum(places, len(self.data) - 1)]

    def numbers_at(self, places: Numbers) -> Numbers:
        return np.asarray(self._numbers[np.minimum(places, self._number_max)].byteswap().astype(np.int64))

    def read(self, places: Numbers) -> tuple[tuple[_Cells, ...], Numbers]:
        """The columns of the tuples that begin at ``places``, and where each tuple ends."""
        widths = self.take(places + 1).astype(np.int64) << 8 | self.take(places + 2)
        if np.any(widths != self._width):
            raise CorruptionError(f"a change has another number of columns than its table, which has {self._width}")
        cursors = places + _TUPLE_BYTES
        columns = []
        for _ in range(self._width):
            kinds = _KINDS[self.take(cursors)]
            if np.any(kinds == _BAD):
                raise CorruptionError("a change has a value of an unknown kind")
            cursors = cursors + 1
            is_text = kinds == _TEXT
            if is_text.all():
                begins = cursors + 4
                cursors = begins + self.numbers_at(cursors)
            else:
                begins = cursors + 4 * is_text
                cursors = begins + self.numbers_at(cursors) * is_text
            columns.append(_Cells(kinds, begins, cursors))
        return tuple(columns), cursors


def _require_ends(cursors: Numbers, ends: Numbers) -> None:
    # Cursors only grow: one that ends in the right place was never out of its message.
    if not np.array_equal(cursors, ends):
        raise CorruptionError("a change does not end where its last value ends")


def _require_sent(rows: RowTuples) -> None:
    can_lack = rows.ops == _UPDATED
    for cells in rows.cells:
        if np.any((cells.kinds == _UNCHANGED) & ~can_lack):
            raise CorruptionError("a change that is no update lacks a value")


def _check_truncations(payloads: pa.BinaryArray, is_truncation: "npt.NDArray[np.bool_]", oid: int) -> None:
    for message in payloads.filter(pa.array(is_truncation)).to_pylist():
        if oid not in parse_truncate(message).oids:
            raise CorruptionError(f"a truncation of other tables came as one of the table {oid}")


def _no_rows(width: int) -> RowTuples:
    none = np.zeros(0, np.int64)
    kinds = np.zeros(0, np.uint8)
    return RowTuples(kinds, none, none, True, pa.py_buffer(b""), (_Cells(kinds, none, none),) * width, none)
