"""Packing: every WorkUnit once, no gap inside a key's share, and no group with more load than necessary."""

import itertools
import uuid
from collections import defaultdict
from dataclasses import replace
from random import Random
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobblin_assets.errors import RejectedError
from gobblin_assets.model.partition import AssetPartition
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.model.work_unit import WorkUnit, WorkUnitId
from gobblin_assets.run.packing import pack_run, pack_work_units
from gobblin_assets.spec.job_spec import JobSpec, PackerSpec, SplitSpec

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


@st.composite
def packers(draw: st.DrawFn) -> PackerSpec:
    return PackerSpec(
        type=draw(st.sampled_from(["single_level", "bi_level", "topic_grouping"])),
        container_capacity=draw(st.sampled_from([0.0001, 0.001, 10.0, 1e7])),
        capacity_strategy=draw(st.sampled_from(["min", "max", "mean", "median"])),
        containers_min=draw(st.integers(1, 12)),
    )


LIMITS = st.dictionaries(st.sampled_from("abc").map(DatasetUrn), st.integers(1, 12))
CAPACITIES = st.dictionaries(st.sampled_from("abc").map(DatasetUrn), st.lists(st.integers(1, 10**8), max_size=5))


@given(plans(), st.integers(1, 12), packers(), CAPACITIES, LIMITS)
def test_every_work_unit_is_packed_once_and_a_key_has_no_hole_in_a_group(
    units: list[WorkUnit],
    bins: int,
    packer: PackerSpec,
    capacities: dict[DatasetUrn, list[int]],
    limits: dict[DatasetUrn, int],
) -> None:
    packed = pack_work_units(units, bins, packer, capacities, limits)
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


@given(plans(), st.integers(1, 12), packers(), LIMITS, st.randoms())
def test_the_order_of_what_was_planned_changes_nothing(
    units: list[WorkUnit], bins: int, packer: PackerSpec, limits: dict[DatasetUrn, int], random: Random
) -> None:
    shuffled = random.sample(units, len(units))
    packed = pack_work_units(units, bins, packer, limits=limits)
    assert pack_work_units(shuffled, bins, packer, limits=limits) == packed


@given(plans(), st.integers(1, 12), st.sampled_from(["single_level", "bi_level"]))
def test_no_group_is_heavier_than_two_fair_shares_and_one_work_unit(
    units: list[WorkUnit], bins: int, kind: Literal["single_level", "bi_level"]
) -> None:
    packed = pack_work_units(units, bins, PackerSpec(type=kind))
    fair = -(-sum(unit.weight for unit in units) // bins)
    largest = max((unit.weight for unit in units), default=0)
    assert all(multi.weight <= 2 * fair + largest for multi in packed)


@given(plans(), st.integers(1, 12))
def test_groups_are_split_until_there_are_as_many_as_asked_for(units: list[WorkUnit], containers_min: int) -> None:
    packer = PackerSpec(type="topic_grouping", container_capacity=1e12, containers_min=containers_min)
    packed = pack_work_units(units, 1_000, packer)
    datasets = {unit.dataset for unit in units}
    assert len(packed) == max(len(datasets), min(containers_min, len(units)))


def test_a_small_dataset_stays_together_and_a_large_one_is_spread() -> None:
    large = [make_unit("large", None, "t", number, 100) for number in range(8)]
    small = [make_unit("small", p, "t", number, 5) for p in ("1", "2") for number in range(3)]
    packed = pack_work_units([*small, *large], 4, PackerSpec())
    assert len(packed) == 4
    assert sum(any(unit.dataset == "small" for unit in multi.work_units) for multi in packed) == 1
    assert all(any(unit.dataset == "large" for unit in multi.work_units) for multi in packed)


def test_a_single_level_spreads_the_keys_of_a_small_dataset() -> None:
    units = [make_unit("small", None, key, 0, 5) for key in "abcd"] + [make_unit("large", None, "t", 0, 1_000)]
    packed = pack_work_units(units, 3, PackerSpec(type="single_level"))
    assert sorted(multi.weight for multi in packed) == [10, 10, 1_000]


def test_a_group_holds_one_dataset_up_to_its_capacity() -> None:
    # In MB: 4 and 4 of the first; 6 of the second, which has no room beside a 5.
    units = [make_unit("first", None, key, 0, 4_000_000) for key in "ab"]
    units += [
        make_unit("second", None, key, 0, size * 1_000_000) for key, size in zip("wxyz", (6, 5, 4, 3), strict=True)
    ]
    packed = pack_work_units(units, 10, PackerSpec(type="topic_grouping"))
    assert sorted("".join(unit.key for unit in multi.work_units) for multi in packed) == ["ab", "wy", "xz"]


@pytest.mark.parametrize(("strategy", "count"), [("min", 12), ("max", 1), ("mean", 3), ("median", 4)])
def test_a_group_holds_what_tasks_of_the_topic_bore_before(
    strategy: Literal["min", "max", "mean", "median"], count: int
) -> None:
    units = [make_unit("topic", None, str(number), 0, 1_000_000) for number in range(12)]
    packer = PackerSpec(type="topic_grouping", capacity_strategy=strategy)
    # The lowest is no MB/s, which a task's capacity never falls below.
    observed = {DatasetUrn("topic"): [100, 3_000_000, 13_000_000]}
    assert len(pack_work_units(units, 20, packer, observed)) == count


def test_more_groups_than_tasks_are_placed_together() -> None:
    units = [make_unit(f"topic-{number}", None, "0", 0, 9_000_000) for number in range(40)]
    packed = pack_work_units(units, 8, PackerSpec(type="topic_grouping"))
    assert [len(multi.work_units) for multi in packed] == [5] * 8


def test_the_load_of_a_source_counts_in_place_of_bytes() -> None:
    units = [
        replace(make_unit("t", None, key, 0, 10**9), estimated_load=load)
        for key, load in zip("abc", (2, 1, 1), strict=True)
    ]
    packed = pack_work_units(units, 2, PackerSpec())
    assert [multi.weight for multi in packed] == [2, 2]


@pytest.mark.parametrize("kind", ["single_level", "bi_level", "topic_grouping"])
@pytest.mark.parametrize("topics", [1, 50, 10_000])
def test_ten_thousand_work_units_are_packed_whole(
    kind: Literal["single_level", "bi_level", "topic_grouping"], topics: int
) -> None:
    units = [
        make_unit(
            f"topic-{number % topics}", None, f"{number // topics % 40}", number // topics // 40, number * 977 % 10**6
        )
        for number in range(10_000)
    ]
    packed = pack_work_units(units, 64, PackerSpec(type=kind, containers_min=64))
    assert len(packed) == 64
    assert sum(len(multi.work_units) for multi in packed) == 10_000


def topic_of(*rows: int | None, record_bytes: int = 100) -> list[WorkUnit]:
    return [
        replace(
            make_unit("topic", None, str(key), 0, None if count is None else count * record_bytes),
            estimated_row_count=count,
        )
        for key, count in enumerate(rows)
    ]


def job_of(**said: object) -> JobSpec:
    return JobSpec.model_validate({"job": "j", "source": {"connection": "c"}, "destination": "/lake", **said})


MILLION = 1_000_000
SMALL = topic_of(*[500_000] * 4)


@pytest.mark.parametrize(
    ("units", "job", "split", "count"),
    [
        pytest.param(SMALL, {}, {}, 1, id="two million rows are one task"),
        pytest.param(topic_of(*[500_000] * 8), {}, {}, 2, id="four are two"),
        pytest.param(topic_of(*[5 * MILLION] * 12), {}, {}, 8, id="many are as many as there may be"),
        pytest.param(topic_of(4_000_000), {}, {}, 1, id="a WorkUnit is not cut"),
        pytest.param(SMALL, {}, {"task_rows_min": 1_000_000}, 2, id="by the dataset's own word"),
        pytest.param(topic_of(*[500_000] * 4, record_bytes=4_000), {}, {}, 4, id="large rows are eight GB"),
        pytest.param(topic_of(500_000, None, 500_000), {}, {}, 3, id="rows are not known"),
        pytest.param(SMALL, {"commit_policy": "successful"}, {}, 4, id="each publishes by itself"),
        pytest.param(SMALL, {"rows_per_s_max": 10.0}, {}, 4, id="one after another"),
        pytest.param(SMALL, {"packer": {"type": "single_level"}}, {}, 4, id="the packer spreads each key"),
    ],
)
def test_a_dataset_that_is_published_whole_has_no_more_tasks_than_its_rows_are_worth(
    units: list[WorkUnit], job: dict[str, object], split: dict[str, int], count: int
) -> None:
    packed = pack_run(job_of(**job), units, {DatasetUrn("topic"): SplitSpec(**split)})
    assert len(packed) == count
    assert sorted(unit.key for multi in packed for unit in multi.work_units) == sorted(unit.key for unit in units)


def test_small_datasets_beside_each_other_are_a_task_each() -> None:
    units = [replace(unit, dataset=DatasetUrn(name)) for name in "abc" for unit in SMALL]
    packed = pack_run(job_of(), units, {DatasetUrn(name): SplitSpec() for name in "abc"})
    assert [{unit.dataset for unit in multi.work_units} for multi in packed] == [{"a"}, {"b"}, {"c"}]


def test_no_group_at_all_is_refused() -> None:
    with pytest.raises(RejectedError, match="max_multi_work_units"):
        pack_work_units([], 0, PackerSpec())
