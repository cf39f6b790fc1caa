"""Changes of a transaction that some ranges of a copy have, and others lack: each change by the range of its key.

An update that moves a row from one range to another is two changes: of the old key, and of the new one. A copy may have
one of them. What is left then becomes a message of its own: a deletion of the old key, or an insertion of the new row.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from gobblin_assets.errors import CorruptionError
from gobblin_assets.sources.postgres_log.copy_ranges import SeenRanges

_HEAD: Final = 5
_OLD: Final = b"KO"
_TRUNCATE, _UPDATE = b"TU"
_TEXT, _NULL, _UNCHANGED = b"tnu"

Cells = Sequence[tuple[int, bytes]]
"""Of one tuple: the kind of each value, and the bytes of it."""


@dataclass(frozen=True, slots=True)
class JudgedChange:
    """What is left of a message. ``step``: 1 if only its second row is left.

    ``lost``: why the log can't tell what is so behind it.
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
