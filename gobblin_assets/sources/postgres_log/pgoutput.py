"""Messages of the plugin ``pgoutput``, version 1 of its protocol, other than those of rows. Pure.

Each payload begins with the byte of its kind. Numbers are big-endian; times are microseconds since 2000, in UTC.
CorruptionError for bytes that are no such message.
"""

import datetime as dt
import re
import struct
from dataclasses import dataclass
from typing import Final

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
    """What somebody wrote by ``pg_logical_emit_message``."""

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
    """Reads a payload from its front to its end."""

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
