"""Changes of numbered rows as a simulated walsender writes them, and as a change log has them."""

import struct
from dataclasses import dataclass
from typing import Final

INSERT, MOVE, DELETE, TRUNCATE = "IUDT"
_NUMBER_AT: Final = 8
"""In a tuple of one column."""


@dataclass(frozen=True)
class SimChange:
    """``number``: of the row that is there behind it. ``old``: of the one that was there before.

    ``called``: the table's name then. ``is_published``: the log has the change.
    """

    kind: str
    table: str
    number: int = 0
    old: int = 0
    called: str = ""
    is_published: bool = True


def write_change(oid: int, change: SimChange) -> bytes:
    if change.kind == TRUNCATE:
        return struct.pack(">cIBI", b"T", 1, 0, oid)
    old = _write_tuple(b"K", change.old) if change.old else b""
    new = _write_tuple(b"N", change.number) if change.number else b""
    return struct.pack(">cI", change.kind.encode(), oid) + old + new


def write_relation(oid: int, called: str) -> bytes:
    """Of a table with the column n, which is its key."""
    head = struct.pack(">cI", b"R", oid) + b"public\0" + called.encode() + b"\0"
    return head + struct.pack(">cH", b"d", 1) + b"\1n\0" + struct.pack(">Ii", 20, -1)


def _write_tuple(kind: bytes, number: int) -> bytes:
    text = str(number).encode()
    return struct.pack(">cHcI", kind, 1, b"t", len(text)) + text


def read_change(payload: bytes) -> list[tuple[str, int | None]]:
    """The letters and numbers of the rows that it means, as a change log has them."""
    kind, at = chr(payload[0]), 5
    if kind == TRUNCATE:
        return [("t", None)]
    numbers = []
    while at < len(payload):
        (size,) = struct.unpack_from(">I", payload, at + 4)
        numbers.append(int(payload[at + _NUMBER_AT : at + _NUMBER_AT + size]))
        at += _NUMBER_AT + size
    letters = {INSERT: "c", DELETE: "d", MOVE: "bu"}[kind]
    return list(zip(letters, numbers, strict=True))
