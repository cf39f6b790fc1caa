"""A copy of a table in ranges of its key, each of a snapshot of its own: what is done of it, and what it has. Pure.

All ranges share one place in the log, from which the log is followed behind the last of them. What the snapshot of a
range saw is left out of the log for the keys of that range alone.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from gobblin_assets.errors import CorruptionError
from gobblin_assets.sources.postgres_log.pgoutput import parse_lsn, write_lsn
from gobblin_assets.sources.postgres_log.seen_transactions import SeenTransactions, parse_seen
from gobblin_assets.sources.postgres_log.table_terms import TableTerms, parse_terms

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
    """A copy of which some ranges are done.

    ``place``: from which the log is followed behind the last range. ``shape``: tells the table from what it becomes
    by another definition, or once it was emptied or written anew; then ranges of both do not fit together. ``terms``:
    of the first range; None: not known.
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
