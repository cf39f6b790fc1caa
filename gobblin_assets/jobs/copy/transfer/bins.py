"""Bins: items, and parts of large files, that are copied together, of about equal weight, by worst-fit decreasing."""

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from gobblin_assets.errors import RejectedError
from gobblin_assets.jobs.copy.copyable import CopyItem

FILE_COST_BYTES: Final = 65_536
"""The bytes that are copied in the time that one more file or directory takes (some 25 µs, at 2.5 GB/s)."""

BIN_WEIGHT_MIN: Final = 64 * FILE_COST_BYTES
"""Less work than this is not worth another bin: some 2 ms."""


@dataclass(frozen=True, slots=True)
class SplitPart:
    """The part ``number`` of a file item, from ``offset`` on."""

    item: CopyItem
    number: int
    offset: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Bin:
    """The items of one writer, in the order of their numbers. ``weight``: its bytes, and those that its files cost.

    ``parts``: of files that several writers fill.
    """

    number: int
    items: tuple[CopyItem, ...]
    weight: int
    parts: tuple[SplitPart, ...] = ()

    @property
    def writer(self) -> str:
        """The name of the writer's directory in the attempt, such as ``w000``."""
        return f"w{self.number:03d}"


def plan_bins(items: Sequence[CopyItem], bins_max: int, split_bytes: int | None = None) -> tuple[Bin, ...]:
    """Put every item into one of at most ``bins_max`` bins, none of them empty. The same items give the same bins.

    The heaviest item goes first, and each into the lightest bin. A directory item is never divided: one rename
    publishes it. ``split_bytes``: a file item of more bytes is divided into parts of so many; None: no file is.
    """
    if bins_max < 1:
        raise RejectedError(f"expected 1 or more, found {bins_max}", field="bins", hint="Give at least one bin.")
    if len({item.number for item in items}) != len(items):
        raise ValueError("two items have one number: their staged files would have one name")
    whole = [item for item in items if not is_split(item, split_bytes)]
    parts = [part for item in items if is_split(item, split_bytes) for part in _divide(item, split_bytes or 0)]
    weighed: list[tuple[int, tuple[int, int], Sequence[CopyItem | SplitPart]]] = [
        *((sum(map(weigh_item, group)), (group[0].number, 0), group) for group in _group(whole)),
        *((FILE_COST_BYTES + part.size_bytes, (part.item.number, part.number), (part,)) for part in parts),
    ]
    weighed.sort(key=lambda each: (-each[0], each[1]))
    total = sum(weight for weight, _name, _work in weighed)
    # Parts are worth a bin each, however small: who divides a file wants several writers.
    count = min(bins_max, len(weighed), max(1, total // BIN_WEIGHT_MIN, len(parts)))
    inside: list[list[CopyItem | SplitPart]] = [[] for _ in range(count)]
    levels = [(0, number) for number in range(count)]
    for weight, _name, work in weighed:
        level, number = levels[0]
        inside[number] += work
        heapq.heapreplace(levels, (level + weight, number))
    weights = {number: level for level, number in levels}
    return tuple(_make_bin(number, found, weights[number]) for number, found in enumerate(inside))


def _make_bin(number: int, found: Sequence[CopyItem | SplitPart], weight: int) -> Bin:
    items = [each for each in found if isinstance(each, CopyItem)]
    parts = [each for each in found if isinstance(each, SplitPart)]
    return Bin(
        number,
        tuple(sorted(items, key=lambda item: item.number)),
        weight,
        tuple(sorted(parts, key=lambda part: (part.item.number, part.number))),
    )


def _group(items: Sequence[CopyItem]) -> list[list[CopyItem]]:
    """Files that are unpacked from one archive stay together: the archive is read once."""
    groups: dict[object, list[CopyItem]] = {}
    for item in items:
        archive = None if item.is_directory else item.files[0].archive
        groups.setdefault(item.number if archive is None else archive, []).append(item)
    return list(groups.values())


def is_split(item: CopyItem, split_bytes: int | None) -> bool:
    """Whether several writers fill the item's file."""
    if split_bytes is None or item.is_directory:
        return False
    return item.files[0].size_bytes > split_bytes


def _divide(item: CopyItem, part_bytes: int) -> Iterator[SplitPart]:
    size_bytes = item.files[0].size_bytes
    for number, offset in enumerate(range(0, size_bytes, part_bytes)):
        yield SplitPart(item, number, offset, min(part_bytes, size_bytes - offset))


def weigh_item(item: CopyItem) -> int:
    """The item's bytes, and ``FILE_COST_BYTES`` for each of its files and directories."""
    entries = len(item.files) + len(item.directories) + item.is_directory
    return entries * FILE_COST_BYTES + sum(file.work_bytes for file in item.files)


def list_items(bins: Sequence[Bin]) -> list[CopyItem]:
    """All items of the bins, those that were divided too, each once."""
    divided = {part.item.number: part.item for found in bins for part in found.parts}
    return [item for found in bins for item in found.items] + list(divided.values())
