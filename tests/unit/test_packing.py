"""Packing: every WorkUnit once, no hole inside a key's share, no group more loaded than it must be."""

import itertools
import uuid
from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobblin_assets.errors import RejectedError
from gobblin_assets.ingest.packing import pack_work_units
from gobblin_assets.model.partition import AssetPartition
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.model.work_unit import WorkUnit, WorkUnitId

_IDS = itertools.count(1)


def make_unit(dataset: str, partition: str | None, key: str, number: int, size: int | None) -> WorkUnit:
    return WorkUnit(
        id=WorkUnitId(uuid.UUID(int=next(_IDS))),
        dataset=DatasetUrn(dataset),
        partition=AssetPartition(partition),
        key=key,
        number=number,
        interval=None,
        estimated_bytes=size,
    )


@st.composite
def plans(draw: st.DrawFn) -> list[WorkUnit]:
    keys = draw(
        st.lists(
            st.tuples(st.sampled_from("abc"), st.sampled_from([None, "p", "q"]), st.sampled_from("xy")),
            unique=True,
            max_size=8,
        )
    )
    size = st.one_of(st.none(), st.integers(0, 1000), st.integers(0, 10**12))
    units = [
        make_unit(*key, number, each) for key in keys for number, each in enumerate(draw(st.lists(size, max_size=12)))
    ]
    return draw(st.permutations(units))


@given(plans(), st.integers(1, 12))
def test_every_work_unit_is_packed_once_and_a_key_has_no_hole_in_a_group(units: list[WorkUnit], bins: int) -> None:
    packed = pack_work_units(units, bins)
    assert sorted(u.id for m in packed for u in m.work_units) == sorted(u.id for u in units)
    assert len(packed) <= bins
    assert [multi.number for multi in packed] == list(range(len(packed)))
    for multi in packed:
        assert multi.work_units
        numbers = defaultdict(list)
        for unit in multi.work_units:
            numbers[unit.dataset, unit.partition.key, unit.key].append(unit.number)
        for found in numbers.values():
            assert found == list(range(found[0], found[0] + len(found)))


@given(plans(), st.integers(1, 12))
def test_no_group_is_heavier_than_two_fair_shares_and_one_work_unit(units: list[WorkUnit], bins: int) -> None:
    packed = pack_work_units(units, bins)
    fair = -(-sum(unit.weight for unit in units) // bins)
    largest = max((unit.weight for unit in units), default=0)
    assert all(multi.weight <= 2 * fair + largest for multi in packed)


def test_a_small_dataset_stays_together_and_a_large_one_is_spread() -> None:
    large = [make_unit("large", None, "t", number, 100) for number in range(8)]
    small = [make_unit("small", p, "t", number, 5) for p in ("1", "2") for number in range(3)]
    packed = pack_work_units([*small, *large], 4)
    assert len(packed) == 4
    assert sum(any(unit.dataset == "small" for unit in multi.work_units) for multi in packed) == 1
    assert all(any(unit.dataset == "large" for unit in multi.work_units) for multi in packed)


def test_no_group_at_all_is_refused() -> None:
    with pytest.raises(RejectedError, match="max_multi_work_units"):
        pack_work_units([], 0)
