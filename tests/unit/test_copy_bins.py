"""Bins of items that are copied together."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobblin_assets.errors import RejectedError
from gobblin_assets.fs.tree import EntryKind, TreeEntry
from gobblin_assets.jobs.copy.copyable import Attributes, CopyItem, PlannedFile
from gobblin_assets.jobs.copy.transfer.bins import FILE_COST_BYTES, list_items, plan_bins, weigh_item
from gobblin_assets.model.files import FileIdentity

MIB = 1 << 20


def file(path: str, size_bytes: int) -> PlannedFile:
    return PlannedFile.of(path, TreeEntry(path, EntryKind.FILE, FileIdentity(size_bytes)))


def item(number: int, size_bytes: int) -> CopyItem:
    return CopyItem(number, f"f{number}", (file(f"f{number}", size_bytes),))


def directory(number: int, sizes: list[int], below: int = 0) -> CopyItem:
    files = tuple(file(f"d{number}/{n}", size) for n, size in enumerate(sizes))
    return CopyItem(number, f"d{number}", files, True, tuple((f"s{n}", Attributes()) for n in range(below)))


def test_large_items_are_spread_and_small_ones_fill_up() -> None:
    bins = plan_bins([item(n, size * MIB) for n, size in enumerate([1, 7, 2, 8, 3])], 2)
    assert [[each.number for each in found.items] for found in bins] == [[0, 2, 3], [1, 4]]
    assert [found.writer for found in bins] == ["w000", "w001"]


def test_files_cost_something_even_when_they_are_empty() -> None:
    many, large = directory(1, [0] * 1_000), item(2, 10 * MIB)
    assert weigh_item(many) > weigh_item(large)
    assert weigh_item(directory(1, [5, 6], below=3)) == 11 + (2 + 3 + 1) * FILE_COST_BYTES


def test_a_directory_stays_together() -> None:
    bins = plan_bins([directory(1, [MIB] * 50), item(2, MIB), item(3, MIB)], 8)
    assert [found.items for found in bins if any(each.is_directory for each in found.items)] == [
        (directory(1, [MIB] * 50),)
    ]


def test_little_work_has_one_bin_and_no_work_has_none() -> None:
    assert len(plan_bins([item(n, 10) for n in range(20)], 8)) == 1
    assert plan_bins([], 8) == ()


def test_two_items_of_one_number_are_a_mistake() -> None:
    with pytest.raises(ValueError, match="one number"):
        plan_bins([item(1, 1), item(1, 2)], 2)


def test_no_bins_are_refused() -> None:
    with pytest.raises(RejectedError, match="found 0"):
        plan_bins([item(1, 1)], 0)


@given(st.lists(st.integers(0, 50 * MIB), max_size=60), st.integers(1, 9))
def test_each_item_is_in_one_bin_and_no_bin_is_heavier_than_the_rest_by_more_than_an_item(
    sizes: list[int], bins_max: int
) -> None:
    items = [item(number, size) for number, size in enumerate(sizes)]
    bins = plan_bins(items, bins_max)
    assert sorted(each.number for found in bins for each in found.items) == list(range(len(items)))
    assert all(found.weight == sum(map(weigh_item, found.items)) for found in bins)
    assert len(bins) <= bins_max
    assert all(found.items for found in bins)
    if bins:
        weights = [found.weight for found in bins]
        assert max(weights) - min(weights) <= max(map(weigh_item, items))
    assert plan_bins(items[::-1], bins_max) == bins


def test_12_bytes_by_4_are_3_parts_for_3_writers() -> None:
    (first, *others) = plan_bins([item(7, 12), item(8, 4)], 8, split_bytes=4)
    parts = sorted((part for found in (first, *others) for part in found.parts), key=lambda part: part.offset)
    assert [(part.item.number, part.number, part.offset, part.size_bytes) for part in parts] == [
        (7, 0, 0, 4),
        (7, 1, 4, 4),
        (7, 2, 8, 4),
    ]
    assert len(others) == 2
    assert [each.number for found in (first, *others) for each in found.items] == [8]
    assert sorted(each.number for each in list_items((first, *others))) == [7, 8]


def test_the_last_part_may_be_shorter_and_directories_stay_together() -> None:
    bins = plan_bins([item(1, 13), directory(2, [100])], 2, split_bytes=4)
    assert sorted(part.size_bytes for found in bins for part in found.parts) == [1, 4, 4, 4]
    assert [each.number for found in bins for each in found.items] == [2]
    assert len(bins) == 2
