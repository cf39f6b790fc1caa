"""Marks of lanes as properties."""

from dataclasses import replace

import pytest

from gobblin_assets.commit.steps import StepVerdict
from gobblin_assets.destinations.lane_marks import RECENT_MAX, MarkPlace, decide_load
from gobblin_assets.destinations.lane_properties import (
    count_loaded_rows,
    find_lane_mark,
    moved_mark,
    refusing_mark,
)
from gobblin_assets.destinations.load_rows import TableBatch
from gobblin_assets.destinations.table_names import LoadedTable
from gobblin_assets.errors import CorruptionError


def batch_of(version: int, *, dataset: str = "a:b", lane: int = 1) -> TableBatch:
    place = MarkPlace("shop.orders", "root", "job", dataset, lane)
    return TableBatch(LoadedTable("shop", "orders"), place, version, f"sequence {version}", 10)


def test_a_mark_names_the_last_publications_and_counts_all_rows() -> None:
    properties: dict[str, str] = {}
    for version in range(1, RECENT_MAX + 3):
        batch = batch_of(version)
        assert decide_load(find_lane_mark(properties, batch.mark), version, batch.sequence_id) is StepVerdict.DO
        properties |= moved_mark(properties, batch)

    mark = find_lane_mark(properties, batch_of(1).mark)
    assert mark is not None
    assert (mark.version, len(mark.recent), mark.recent[0]) == (
        RECENT_MAX + 2,
        RECENT_MAX,
        f"sequence {RECENT_MAX + 2}",
    )
    assert count_loaded_rows(properties, batch_of(1).mark) == 10 * (RECENT_MAX + 2)


def test_rows_that_replace_all_others_are_counted_anew() -> None:
    properties = moved_mark({}, batch_of(1))
    properties |= moved_mark(properties, replace(batch_of(2), replaces=True))

    assert count_loaded_rows(properties, batch_of(1).mark) == 10


def test_what_is_given_up_stays_out_until_the_lane_goes_on() -> None:
    properties = moved_mark({}, batch_of(1))
    properties |= refusing_mark(properties, batch_of(2))
    properties |= refusing_mark(properties, batch_of(3))

    mark = find_lane_mark(properties, batch_of(1).mark)
    assert mark is not None
    assert [decide_load(mark, n, f"sequence {n}") for n in (1, 2, 3, 4)] == [
        StepVerdict.DONE,
        StepVerdict.CONFLICT,
        StepVerdict.CONFLICT,
        StepVerdict.DO,
    ]
    assert count_loaded_rows(properties, batch_of(1).mark) == 10
    later = find_lane_mark(moved_mark(properties, batch_of(4)), batch_of(1).mark)
    assert later is not None
    assert later.given_up == ()


def test_marks_of_lanes_and_datasets_are_apart() -> None:
    properties = moved_mark({}, batch_of(1, dataset="a", lane=1)) | moved_mark({}, batch_of(1, dataset="a:1", lane=1))

    assert find_lane_mark(properties, batch_of(1, dataset="a", lane=11).mark) is None
    assert count_loaded_rows(properties, batch_of(1, dataset="a", lane=0).mark) == 10


@pytest.mark.parametrize("damage", ["", "{}", "[]", "null", '{"version": "x"}'])
def test_a_mark_that_somebody_changed_is_not_taken_for_none(damage: str) -> None:
    (name,) = moved_mark({}, batch_of(1))

    with pytest.raises(CorruptionError, match="no mark of a lane") as raised:
        find_lane_mark({name: damage}, batch_of(1).mark)
    assert raised.value.hint
