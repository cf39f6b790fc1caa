"""Lag: how much of a log is not published. Pure.

It is counted in positions. A log may have fewer records than that: markers of transactions and compaction leave gaps.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from gobblin_assets.errors import CorruptionError
from gobblin_assets.model.watermark import Watermark

KEYS_SHOWN_MAX: Final = 100

Unread = Mapping[str, tuple[int, int]]
"""By watermark key: the first position that is not published, and the log's end at that time."""


@dataclass(frozen=True, slots=True)
class KeyLag:
    """The lag of one watermark key: everything below ``position`` is published, and the log ended at ``end``."""

    key: str
    position: int
    end: int

    @property
    def count(self) -> int:
        return self.end - self.position


@dataclass(frozen=True, slots=True)
class Lag:
    """The lag of one dataset with ``key_count`` keys. ``largest``: the keys with the largest lags, largest first.

    They are at most ``KEYS_SHOWN_MAX``, without keys that have no lag.
    """

    total: int
    key_count: int
    largest: tuple[KeyLag, ...]


def measure_lag(unread: Unread, published: Mapping[str, Watermark] | None = None) -> Lag | None:
    """The rest of ``unread`` after the keys of ``published`` have moved there. None: no key is known."""
    if not unread:
        return None
    moved = {} if published is None else published
    keys = [KeyLag(key, _position_of(key, moved, first), end) for key, (first, end) in unread.items()]
    behind = sorted((each for each in keys if each.count), key=lambda each: (-each.count, each.key))
    return Lag(sum(each.count for each in behind), len(keys), tuple(behind[:KEYS_SHOWN_MAX]))


def lag_to_json(lag: Lag) -> dict[str, object]:
    """The lag as a sequence's details keep it."""
    largest = [[each.key, each.position, each.end] for each in lag.largest]
    return {"total": lag.total, "keys": lag.key_count, "largest": largest}


def lag_from_json(data: Mapping[str, Any] | None) -> Lag | None:
    if data is None:
        return None
    return Lag(data["total"], data["keys"], tuple(KeyLag(*each) for each in data["largest"]))


def _position_of(key: str, moved: Mapping[str, Watermark], first: int) -> int:
    if key not in moved:
        return first
    value = moved[key].value
    if not isinstance(value, int):
        raise CorruptionError(f"the watermark of {key} is {moved[key]}, which is no number")
    return value
