"""A copy of a table in ranges of its key, each from a snapshot of its own: its progress, and the transactions that it
has. Pure.

All ranges share one place in the log, from which the log is followed after the last range. The transactions that a
range's snapshot saw are left out of the log only for the keys of that range.

A snapshot is (xmin, xmax, running): it saw every transaction below xmin that committed, and those from xmin up to xmax
that were not running (https://www.postgresql.org/docs/current/functions-info.html, pg_snapshot). Its numbers have 64
bits; the log's have 32, and mean the nearest one. Only transactions that ended before ``until`` can be among those that
a snapshot saw (``SeenTransactions``).
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

from gobblin_assets.errors import CorruptionError
from gobblin_assets.sources.postgres_log.pgoutput import parse_lsn, write_lsn
from gobblin_assets.sources.postgres_log.table_terms import TableTerms, parse_terms

_WRAP = 1 << 32


@dataclass(frozen=True)
class SeenTransactions:
    """The transactions that one snapshot saw.

    ``until``: the end of the log when the snapshot was there.
    """

    xmin: int
    xmax: int
    running: tuple[int, ...]
    until: int

    @cached_property
    def _running(self) -> frozenset[int]:
        return frozenset(self.running)

    def has(self, xid: int, commit_lsn: int) -> bool:
        """Whether the copy has the changes of a transaction that committed; ``xid`` as the log has it."""
        if commit_lsn >= self.until:
            return False
        whole = self._widen(xid)
        return whole < self.xmin or (whole < self.xmax and whole not in self._running)

    def write(self) -> str:
        return f"{self.xmin}:{self.xmax}:{','.join(map(str, self.running))}@{write_lsn(self.until)}"

    def _widen(self, xid: int) -> int:
        """The number with 64 bits that is nearest to xmax."""
        behind = (xid - self.xmax) % _WRAP
        return self.xmax + (behind if behind < _WRAP // 2 else behind - _WRAP)


def parse_seen(text: str) -> SeenTransactions:
    """What ``write`` wrote. CorruptionError for anything else."""
    snapshot, _, until = text.partition("@")
    return read_snapshot(snapshot, parse_lsn(until))


def read_snapshot(text: str, until: int) -> SeenTransactions:
    """A pg_snapshot as Postgres writes it, such as ``10:20:10,14``."""
    try:
        xmin, xmax, running = text.split(":")
        return SeenTransactions(int(xmin), int(xmax), tuple(int(each) for each in running.split(",") if each), until)
    except ValueError as error:
        raise CorruptionError(f"{text!r} is no snapshot of Postgres") from error


RANGES_MAX: Final = 256


@dataclass(frozen=True, slots=True)
class KeyRange:
    """Keys from ``low`` on, below ``high``; None: without this bound."""

    column: str
    low: int | None
    high: int | None


@dataclass(frozen=True, slots=True)
class SeenRanges:
    """The transactions that each copied range of a table has.

    ``bounds``: where each range but the first begins, by the values of ``column``, which is None for a single range.

    ``seen``: of the ranges that are copied, in order.
    """

    column: str | None
    bounds: tuple[int, ...]
    seen: tuple[SeenTransactions, ...]

    @property
    def count(self) -> int:
        return len(self.bounds) + 1

    @property
    def is_whole(self) -> bool:
        return len(self.seen) == self.count

    @property
    def next_range(self) -> KeyRange | None:
        """What is to be copied next; None: all keys."""
        if self.column is None:
            return None
        ends = (None, *self.bounds, None)
        return KeyRange(self.column, ends[len(self.seen)], ends[len(self.seen) + 1])

    def add(self, seen: SeenTransactions) -> "SeenRanges":
        """With one range more."""
        return replace(self, seen=(*self.seen, seen))

    def list_verdicts(self, xid: int, commit_lsn: int) -> tuple[bool, ...]:
        """Of each range, whether its copy has the changes of a transaction that committed; ``xid`` as the log has it.

        Empty: none has, since all snapshots are older.
        """
        if commit_lsn >= self.seen[-1].until:
            return ()
        return tuple(each.has(xid, commit_lsn) for each in self.seen)

    def find_range(self, key: int) -> int:
        return bisect_right(self.bounds, key)

    def write(self) -> Mapping[str, object]:
        """As facts have it."""
        return {"column": self.column, "bounds": list(self.bounds), "seen": [each.write() for each in self.seen]}


@dataclass(frozen=True, slots=True)
class PartialCopy:
    """A copy with some of its ranges done.

    ``place``: from which the log is followed behind the last range. ``shape``: distinguishes the table from what it
    becomes by another definition, or once it was emptied or written anew; then ranges of both do not fit together.
    ``terms``: of the first range; None: not known.
    """

    place: int
    shape: str
    ranges: SeenRanges
    terms: TableTerms | None = None

    def write(self) -> Mapping[str, object]:
        """As facts have it."""
        terms = None if self.terms is None else self.terms.write()
        return {"place": write_lsn(self.place), "shape": self.shape, "ranges": self.ranges.write(), "terms": terms}


def single_range(seen: SeenTransactions) -> SeenRanges:
    """What a copy of the whole table has."""
    return SeenRanges(None, (), (seen,))


def split_keys(steps: Sequence[int], parts: int) -> tuple[int, ...]:
    """Where each part but the first begins. ``steps``: keys in order, with about as many rows between any two of them.

    Of few keys, there are fewer parts.
    """
    count = min(parts, RANGES_MAX)
    bounds = set()
    for part in range(1, count):
        place, rest = divmod(part * (len(steps) - 1), count)
        bounds.add(steps[place] + (steps[place + 1] - steps[place]) * rest // count)
    return tuple(sorted(bounds - {steps[0]}))


def parse_ranges(said: Any) -> SeenRanges:
    """What ``SeenRanges.write`` wrote. CorruptionError for anything else."""
    try:
        column, bounds, seen = said["column"], tuple(map(int, said["bounds"])), said["seen"]
        found = SeenRanges(
            None if column is None else str(column), bounds, tuple(parse_seen(str(each)) for each in seen)
        )
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptionError(f"what is recorded of the ranges of a copy is not readable: {error!r}") from error
    if list(bounds) != sorted(set(bounds)) or len(found.seen) > found.count or (bounds and found.column is None):
        raise CorruptionError(f"a copy of {len(bounds) + 1} ranges has {len(found.seen)} of them, between {bounds}")
    return found


def parse_partial(said: Mapping[str, Any]) -> PartialCopy:
    """What ``PartialCopy.write`` wrote. CorruptionError for anything else."""
    try:
        place, shape, ranges = str(said["place"]), str(said["shape"]), said["ranges"]
    except (KeyError, TypeError) as error:
        raise CorruptionError(f"what is recorded of a copy in ranges is not readable: {error!r}") from error
    terms = said.get("terms")
    return PartialCopy(parse_lsn(place), shape, parse_ranges(ranges), None if terms is None else parse_terms(terms))


def say_progress(ranges: Sequence[object], count: int) -> str:
    """For people."""
    return f"range {len(ranges)} of {count}"
