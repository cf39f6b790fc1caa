"""Which items are copied together: bins of about equal weight, by worst-fit decreasing."""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from gobblin_assets.errors import RejectedError
from gobblin_assets.jobs.copy.copyable import CopyItem

FILE_COST_BYTES: Final = 65_536
"""The bytes that are copied in the time that one more file or directory takes (some 25 µs, at 2.5 GB/s)."""

BIN_WEIGHT_MIN: Final = 64 * FILE_COST_BYTES
"""Less work than this is not worth another bin: some 2 ms."""


@dataclass(frozen=True, slots=True)
class Bin:
    """The items of one writer, in the order of their numbers. ``weight``: its bytes, and those that its files cost."""

    number: int
    items: tuple[CopyItem, ...]
    weight: int

    @property
    def writer(self) -> str:
        """The name of the writer's directory in the attempt, such as ``w000``."""
        return f"w{self.number:03d}"


def plan_bins(items: Sequence[CopyItem], bins_max: int) -> tuple[Bin, ...]:
    """Put every item into one of at most ``bins_max`` bins, none of them empty. The same items give the same bins.

    The heaviest item goes first, and each into the lightest bin. An item is never divided: one rename publishes it.
    """
    if bins_max < 1:
        raise RejectedError(f"expected 1 or more, found {bins_max}", field="bins", hint="Give at least one bin.")
    if len({item.number for item in items}) != len(items):
        raise ValueError("two items have one number: their staged files would have one name")
    weighed = sorted(((weigh_item(item), item) for item in items), key=lambda each: (-each[0], each[1].number))
    total = sum(weight for weight, _item in weighed)
    count = min(bins_max, len(weighed), max(1, total // BIN_WEIGHT_MIN))
    inside: list[list[CopyItem]] = [[] for _ in range(count)]
    levels = [(0, number) for number in range(count)]
    for weight, item in weighed:
        level, number = levels[0]
        inside[number].append(item)
        heapq.heapreplace(levels, (level + weight, number))
    weights = {number: level for level, number in levels}
    return tuple(
        Bin(number, tuple(sorted(found, key=lambda item: item.number)), weights[number])
        for number, found in enumerate(inside)
    )


def weigh_item(item: CopyItem) -> int:
    """The item's bytes, and ``FILE_COST_BYTES`` for each of its files and directories."""
    entries = len(item.files) + len(item.directories) + item.is_directory
    return entries * FILE_COST_BYTES + sum(file.origin.identity.size_bytes for file in item.files)
