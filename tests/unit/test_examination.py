"""Which lost history a log can adopt: only one that continues from its version without a gap or a doubt."""

import dataclasses
import uuid

import pytest

from gobblin_assets.commit.attempts import published_directories
from gobblin_assets.commit.examination import (
    LanesInLog,
    Remembered,
    decide_chain,
    decide_lane_chain,
    is_replaced,
)
from gobblin_assets.commit.markers import Marker
from gobblin_assets.commit.sequence import KeyMove, KnownSequence, SealedSequence, SealOrder
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.files import FileIdentity
from gobblin_assets.model.sequence_state import SequenceState
from gobblin_assets.model.state import DatasetId, SequenceId
from gobblin_assets.model.urn import DatasetUrn, JobName
from gobblin_assets.model.watermark import long_watermark


def remembered(
    version: int | None, known: KnownSequence | None = None, *, partition: str = "", replaces: bool = False
) -> Remembered:
    sequence_id = SequenceId(uuid.uuid4())
    sealed = None
    if version is not None:
        order = SealOrder(sequence_id, DatasetId(0), partition, 1, version - 1, (), b"", 0, 0, (), complete=True)
        sealed = SealedSequence(JobName("j"), DatasetUrn("u"), Mode.APPEND, replaces, order, ())
    return Remembered(sequence_id, known, version, sealed=sealed)


def open_as(state: SequenceState) -> KnownSequence:
    return KnownSequence(state, is_sealed=state is not SequenceState.BUILDING)


def test_an_unbroken_history_is_taken_back_in_its_order() -> None:
    lost = [remembered(4), remembered(5), remembered(6)]
    assert decide_chain(3, lost) == (tuple(lost), None)


@pytest.mark.parametrize("state", [SequenceState.PREPARED, SequenceState.BLOCKED, SequenceState.BUILDING])
def test_it_may_begin_with_what_the_log_has_unfinished(state: SequenceState) -> None:
    lost = [remembered(4, open_as(state)), remembered(5)]
    assert decide_chain(3, lost) == (tuple(lost), None)


def test_without_a_lost_sequence_nothing_is_taken_back_and_an_open_one_goes_on_by_itself() -> None:
    assert decide_chain(3, []) == ((), None)
    assert decide_chain(3, [remembered(4, open_as(SequenceState.PREPARED))]) == ((), None)


@pytest.mark.parametrize(
    ("lost", "said"),
    [
        ([remembered(5)], "no marker of version 4"),
        ([remembered(4), remembered(6)], "no marker of version 5"),
        ([remembered(4), remembered(4)], "2 sequences claim version 4"),
        ([remembered(4, open_as(SequenceState.PREPARED)), remembered(4)], "2 sequences claim version 4"),
        ([remembered(3), remembered(4)], "the log has gone on by itself"),
        ([remembered(4), remembered(None)], "no marker: an older release"),
        ([remembered(4, KnownSequence(SequenceState.ABORTED, is_sealed=False))], "given up in this log"),
        ([remembered(4, open_as(SequenceState.ABANDONING)), remembered(5)], "being given up"),
    ],
    ids=["begins late", "gap", "two", "open and lost", "log went on", "no marker", "aborted", "abandoning"],
)
def test_any_doubt_is_said_and_nothing_is_taken_back(lost: list[Remembered], said: str) -> None:
    chain, refusal = decide_chain(3, lost)
    assert chain == ()
    assert said in (refusal or "")


def test_only_a_later_refresh_of_the_same_partition_replaces() -> None:
    first = remembered(4, partition="a")
    assert is_replaced(first, [remembered(5), remembered(6, partition="a", replaces=True)])
    assert not is_replaced(first, [remembered(5, partition="b", replaces=True), remembered(6, partition="a")])
    assert not is_replaced(first, [])


def test_a_published_directory_is_known_by_its_name_alone() -> None:
    sequence_id = SequenceId(uuid.uuid4())
    mine = f"/lake/job/data/u/k={sequence_id.hex}-0/{sequence_id.hex}-12"
    strangers = [f"/lake/job/data/u/{sequence_id.hex}/f", f"/lake/job/data/u/{sequence_id.hex}-0/deeper/f", "/f"]
    assert published_directories([f"{mine}/part-0", f"{mine}/part-1", *strangers]) == {sequence_id: {mine}}


def of_lane(number: int, version: int, *moves: tuple[str, int, int], replaces: bool = False) -> Remembered:
    """Of a lane's publication that moved these keys, from and to."""
    each = remembered(version, replaces=replaces)
    assert each.sealed is not None
    moved = tuple(KeyMove(key, "", long_watermark(old), long_watermark(new)) for key, old, new in moves)
    sealed = dataclasses.replace(each.sealed, order=dataclasses.replace(each.sealed.order, moves=moved))
    marker = Marker("a path", FileIdentity(1, 1, 1), version, 1, each.sequence_id, number)
    return dataclasses.replace(each, sealed=sealed, markers=(marker,))


LANES_IN_LOG = LanesInLog({0: 3, 1: 7}, {(key, ""): long_watermark(10) for key in "abc"})


def test_the_vnodes_say_the_order_among_lanes() -> None:
    first = of_lane(0, 4, ("a", 10, 20), ("b", 10, 11))
    second = of_lane(1, 8, ("b", 11, 12), ("c", 10, 30))
    third = of_lane(0, 5, ("c", 30, 31))
    new = of_lane(2, 1, ("a", 20, 21))
    for lost in ([second, third, new, first], [new, third, second, first]):
        chain, refusal = decide_lane_chain(LANES_IN_LOG, lost)
        assert refusal is None
        assert sorted(chain, key=str) == sorted(lost, key=str)
        assert chain.index(first) < chain.index(second) < chain.index(third)
        assert chain.index(first) < chain.index(new)


@pytest.mark.parametrize(
    ("lost", "said"),
    [
        ([of_lane(0, 4, ("a", 10, 20)), of_lane(1, 8, ("a", 10, 15))], "lane 1 does not start where 'a' stands"),
        ([of_lane(0, 4, ("a", 9, 20))], "lane 0 does not start where 'a' stands"),
        ([of_lane(1, 8, ("a", 20, 30)), of_lane(0, 4, ("b", 10, 20))], "lane 1 does not start where 'a' stands"),
        ([of_lane(1, 9, ("a", 10, 20))], "lane 1: storage has no marker of version 8"),
        ([of_lane(2, 2, ("a", 10, 20))], "lane 2: storage has no marker of version 1"),
        ([of_lane(1, 7, ("a", 10, 20))], "lane 1: the log has gone on by itself"),
        ([of_lane(0, 4, ("a", 10, 20), replaces=True)], "a refresh"),
    ],
    ids=["two from one place", "went back", "hole", "gap", "gap in a new lane", "log went on", "refresh"],
)
def test_any_doubt_about_lanes_is_said_and_nothing_is_taken_back(lost: list[Remembered], said: str) -> None:
    chain, refusal = decide_lane_chain(LANES_IN_LOG, lost)
    assert chain == ()
    assert said in (refusal or "")


def test_without_a_lost_sequence_of_any_lane_open_ones_go_on_by_themselves() -> None:
    prepared = dataclasses.replace(of_lane(1, 8, ("a", 10, 20)), known=open_as(SequenceState.PREPARED))
    assert decide_lane_chain(LANES_IN_LOG, [prepared]) == ((), None)
    lost = of_lane(0, 4, ("a", 20, 30))
    assert decide_lane_chain(LANES_IN_LOG, [lost, prepared]) == ((prepared, lost), None)
