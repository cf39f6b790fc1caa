"""Half-open intervals ``[low, high)`` of positions, which WorkUnits read and the ledger records."""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gobblin_assets.errors import RejectedError
from gobblin_assets.model.watermark import Watermark


@dataclass(frozen=True, slots=True)
class Interval:
    """Positions ``low <= p < high``. ``low`` None means "from before everything". ``low == high`` is empty.

    The width is a difference of positions, never a count of records.
    """

    low: Watermark | None
    high: Watermark

    def __post_init__(self) -> None:
        if self.low is not None and self.high < self.low:
            raise RejectedError(
                f"the interval [{self.low}, {self.high}) ends before it starts",
                field="interval",
                hint="The upper bound must not lie below the lower one.",
            )

    @property
    def is_empty(self) -> bool:
        return self.low is not None and self.low == self.high

    def low_bytes(self) -> bytes:
        """The encoded lower bound; ``b""`` sorts before every position."""
        return b"" if self.low is None else self.low.encode()

    def high_bytes(self) -> bytes:
        return self.high.encode()

    def overlaps(self, other: "Interval") -> bool:
        """Whether some position lies in both. An empty interval overlaps nothing."""
        if self.is_empty or other.is_empty:
            return False
        return self.low_bytes() < other.high_bytes() and other.low_bytes() < self.high_bytes()

    def __str__(self) -> str:
        return f"[{'-∞' if self.low is None else self.low}, {self.high})"


@dataclass(frozen=True, slots=True)
class Gap:
    """Positions between two active intervals of one watermark key that no sequence has published."""

    after: Watermark
    before: Watermark | None


def join_neighbours(ascending: Iterable[Interval]) -> tuple[Interval, ...]:
    """The same positions in as few intervals as possible. They must not overlap."""
    joined: list[Interval] = []
    for each in ascending:
        if joined and joined[-1].high == each.low:
            joined[-1] = Interval(joined[-1].low, each.high)
        else:
            joined.append(each)
    return tuple(joined)


def subtract_intervals(whole: Interval, held: Iterable[Interval]) -> tuple[Interval, ...]:
    """The parts of ``whole`` that lie in none of ``held``, ascending, none empty. ``held`` must not overlap."""
    left: list[Interval] = []
    rest: Interval | None = whole
    for each in sorted((each for each in held if whole.overlaps(each)), key=Interval.low_bytes):
        if rest is None:
            break
        if each.low is not None and rest.low_bytes() < each.low_bytes():
            left.append(Interval(rest.low, each.low))
        rest = Interval(each.high, rest.high) if each.high < rest.high else None
    if rest is not None and not rest.is_empty:
        left.append(rest)
    return tuple(left)


def find_gaps(active: Sequence[Interval]) -> list[Gap]:
    """Gaps between active intervals of one key; they must not overlap, in any order."""
    ordered = sorted((i for i in active if not i.is_empty), key=Interval.low_bytes)
    return [
        Gap(after=earlier.high, before=later.low)
        for earlier, later in itertools.pairwise(ordered)
        if later.low is not None and earlier.high < later.low
    ]
