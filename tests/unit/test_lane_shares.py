"""How lanes are shared among workers: each worker decides about itself."""

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobblin_assets.commit.lanes import DatasetLanes, LaneState
from gobblin_assets.jobs.sink.lane_shares import decide_quota, decide_shares, plan_moves, plan_places
from gobblin_assets.model.state import DatasetId, LaneId
from gobblin_assets.model.watermark import long_watermark


def lane(number: int, *, is_live: bool = True) -> LaneState:
    return LaneState(LaneId(number), number, 0, is_live, "host:1", {f"t:{number}": long_watermark(1)})


@pytest.mark.parametrize(
    ("in_use", "mine", "quota", "take", "give_back"),
    [
        ([lane(0), lane(1)], {0, 1}, 2, (), ()),
        ([lane(0), lane(1, is_live=False)], {0}, 2, (1,), ()),
        ([lane(0), lane(1)], {0, 1}, 1, (), (1,)),
        # Lanes 2 and 3 have lost their vnodes: there are fewer lanes now.
        ([lane(0), lane(1)], {0, 1, 2, 3}, 2, (), (2, 3)),
        ([lane(0), lane(1)], {0, 1, 3}, 1, (), (1, 3)),
    ],
)
def test_a_worker_takes_what_is_missing_and_gives_back_what_is_above_its_share_or_not_in_use(
    in_use: list[LaneState], mine: set[int], quota: int, take: tuple[int, ...], give_back: tuple[int, ...]
) -> None:
    shares = decide_shares([[each] for each in in_use], frozenset(map(LaneId, mine)), quota, frozenset())

    assert (shares.take, shares.give_back) == (take, give_back)


def lanes_with(count: int, vnodes: list[list[str]]) -> DatasetLanes:
    """Lanes by number with their vnodes, spread over the first ``count``."""
    made = [
        LaneState(LaneId(number), number, 0, True, "host:1", dict.fromkeys(names, long_watermark(1)))
        for number, names in enumerate(vnodes)
    ]
    return DatasetLanes(DatasetId(LaneId(0)), count, tuple(made))


@st.composite
def spreads(draw: st.DrawFn) -> DatasetLanes:
    """Any lanes with any vnodes, and any count of lanes to spread them over."""
    loads = draw(st.lists(st.integers(0, 6), min_size=1, max_size=8))
    numbers = iter(range(sum(loads)))
    vnodes = [[f"t:{next(numbers)}" for _each in range(load)] for load in loads]
    return lanes_with(draw(st.integers(1, len(loads))), vnodes)


@given(spreads(), st.data())
def test_moves_make_shares_even_and_then_nothing_moves_any_more(found: DatasetLanes, data: st.DataObject) -> None:
    known = sorted(vnode for lane in found.lanes for vnode in lane.vnodes)
    read = frozenset(data.draw(st.sets(st.sampled_from(known))) if known else ())
    vnodes = {lane.number: set(lane.vnodes) for lane in found.lanes}
    for number, moves in plan_moves(found, read).items():
        for vnode, target in moves.items():
            assert vnode in vnodes[number], "only what the lane has"
            vnodes[number].remove(vnode)
            vnodes[target].add(vnode)

    shares = [len(vnodes[number] & read) for number in range(found.count)]
    assert max(shares) - min(shares) <= 1
    assert all(not vnodes[number] for number in range(found.count, len(found.lanes)))
    assert sorted(vnode for mine in vnodes.values() for vnode in mine) == known
    after = lanes_with(found.count, [sorted(vnodes[number]) for number in sorted(vnodes)])
    assert plan_moves(after, read) == {}


@given(spreads(), st.integers(0, 20))
def test_new_vnodes_go_where_there_are_fewest(found: DatasetLanes, count: int) -> None:
    new = [f"new:{number}" for number in range(count)]
    known = [vnode for lane in found.lanes for vnode in lane.vnodes]
    before = [len(lane.vnodes) for lane in found.lanes][: found.count]

    places = plan_places(found, [*new, *known])

    assert list(places) == new, "those that have a lane stay"
    after = [load + sum(number == each for each in places.values()) for number, load in enumerate(before)]
    raised = [load for load, old in zip(after, before, strict=True) if load > old]
    assert not raised or max(raised) - min(after) <= 1


@given(st.sets(st.uuids(), min_size=1, max_size=9), st.integers(0, 40))
def test_the_shares_of_all_workers_are_even_and_are_all_lanes(workers: set[uuid.UUID], lane_count: int) -> None:
    quotas = [decide_quota(list(workers), worker, lane_count) for worker in workers]

    assert sum(quotas) == lane_count
    assert max(quotas) - min(quotas) <= 1
