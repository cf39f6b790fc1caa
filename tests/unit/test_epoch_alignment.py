"""Barriers in a log: which epochs all vnodes reach, whatever the order in which their markers are read."""

import random
from collections.abc import Mapping, Sequence

from hypothesis import given
from hypothesis import strategies as st

from gobblin_assets.sources.kafka.epoch_markers import AlignedEpoch, EpochAlignment, Reached

_MARKERS = st.lists(st.integers(1, 12), unique=True, max_size=8).map(sorted)


def _begun(*vnodes: str, last: int = 0, epoch: int | None = None) -> EpochAlignment:
    alignment = EpochAlignment(last)
    for vnode in vnodes:
        alignment.begin(vnode, epoch)
    return alignment


def _read(alignment: EpochAlignment, markers: Mapping[str, Sequence[int]], chance: random.Random) -> list[AlignedEpoch]:
    """Read the vnodes' markers in an order by chance, as a reader does. A marker's position is its place and one."""
    left = {vnode: list(enumerate(numbers, start=1)) for vnode, numbers in markers.items()}
    found: list[AlignedEpoch] = []
    while going := [vnode for vnode, rest in left.items() if rest and not alignment.waits(vnode)]:
        vnode = chance.choice(sorted(going))
        position, epoch = left[vnode].pop(0)
        assert alignment.reach(vnode, epoch, position, epoch * 1000) is not Reached.BACK
        alignment.find_released()
        if alignment.is_whole:
            found.append(alignment.complete())
    return found


@given(
    st.dictionaries(st.sampled_from("abc"), _MARKERS, min_size=1), st.integers(0, 6), st.randoms(use_true_random=False)
)
def test_barriers_are_at_the_epochs_that_all_vnodes_have(
    markers: Mapping[str, Sequence[int]], last: int, chance: random.Random
) -> None:
    found = _read(_begun(*markers, last=last), markers, chance)
    shared = set.intersection(*map(set, markers.values()))
    assert [each.epoch for each in found] == sorted(epoch for epoch in shared if epoch > last)
    for each in found:
        assert each.positions == {vnode: list(numbers).index(each.epoch) + 1 for vnode, numbers in markers.items()}
        assert each.at_ms == each.epoch * 1000


def test_a_vnode_waits_for_the_others() -> None:
    alignment = _begun("a", "b")
    assert alignment.find_missing() == ()
    assert alignment.find_target() is None
    assert alignment.reach("a", 5, 10, 7_000) is Reached.WAITS
    assert alignment.waits("a")
    assert not alignment.is_whole
    assert alignment.find_missing() == ["b"]
    assert alignment.find_target() == 5
    assert alignment.reach("b", 5, 3, 6_000) is Reached.WAITS
    assert alignment.is_whole
    assert alignment.complete() == AlignedEpoch(5, {"a": 10, "b": 3}, 7_000)
    assert not alignment.waits("a")
    assert not alignment.is_whole


def test_a_missing_marker_releases_those_that_wait_for_it() -> None:
    alignment = _begun("a", "b", "c")
    alignment.reach("a", 5, 10, 0)
    alignment.reach("b", 5, 10, 0)
    alignment.reach("c", 6, 10, 0)
    assert alignment.find_released() == ["a", "b"]
    assert not alignment.waits("a")
    assert alignment.waits("c")
    assert alignment.find_target() == 6


def test_epochs_of_one_vnode_only_grow() -> None:
    alignment = _begun("a", "b", epoch=4)
    assert alignment.reach("a", 4, 1, 0) is Reached.BACK
    assert alignment.reach("a", 5, 2, 0) is Reached.WAITS
    alignment.reach("b", 5, 2, 0)
    alignment.complete()
    assert alignment.reach("a", 5, 3, 0) is Reached.BACK
    assert alignment.reach("a", 3, 3, 0) is Reached.BACK
    assert alignment.epoch_of("a") == 5


def test_a_vnode_that_comes_from_behind_gives_no_barrier_until_it_has_caught_up() -> None:
    alignment = _begun("a", epoch=9, last=9)
    alignment.begin("b", 7)
    assert alignment.reach("b", 8, 1, 0) is Reached.PASSES
    assert alignment.reach("b", 9, 2, 0) is Reached.PASSES
    assert alignment.reach("b", 10, 3, 0) is Reached.WAITS
    assert alignment.reach("a", 10, 3, 0) is Reached.WAITS
    assert alignment.complete().epoch == 10


def test_a_vnode_that_leaves_is_waited_for_no_longer() -> None:
    alignment = _begun("a", "b")
    alignment.reach("a", 5, 10, 0)
    alignment.drop("b")
    assert alignment.complete() == AlignedEpoch(5, {"a": 10}, 0)


def test_a_vnode_that_is_read_again_has_reached_nothing() -> None:
    alignment = _begun("a")
    alignment.reach("a", 5, 10, 0)
    alignment.begin("a", None)
    assert not alignment.is_whole
    assert alignment.reach("a", 5, 10, 0) is Reached.WAITS


def test_without_vnodes_there_is_no_epoch() -> None:
    assert not EpochAlignment().is_whole
