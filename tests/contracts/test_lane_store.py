"""What any lane store must do, and a lease store for lanes: Postgres and the simulated database alike."""

from dataclasses import replace
from typing import Any

import pytest

from gobblin_assets.errors import ConflictError, FencedError, RejectedError
from gobblin_assets.model.sequence_state import SequenceState
from gobblin_assets.model.state import DatasetId, LaneId, WorkingState
from gobblin_assets.model.watermark import long_watermark
from gobblin_assets.state.leases import Holder, Lease
from tests.support.commit_log import TTL_S, Built, LogWorld, move


def two_lanes(log: LogWorld) -> tuple[Lease, Lease]:
    """Two lanes of one dataset, each held by a run of its own."""
    first, second = log.spread(log.register("topic"), 2)
    return log.take_lane(first), log.take_lane(second)


def vnodes_of(log: LogWorld, dataset_id: DatasetId) -> dict[int, set[str]]:
    return {lane.number: set(lane.vnodes) for lane in log.lanes_of(dataset_id)}


def publish(log: LogWorld, lease: Lease, key: str, old: int | None, new: int) -> Built:
    return log.publish(lease, moves=[move(old, new, key=key)])


# Lanes and their leases --------------------------------------------------------------------------------------------


def test_a_dataset_has_lane_0_from_the_start(log: LogWorld) -> None:
    topic = log.register("topic")

    (lanes,) = log.lanes.load(topic, DatasetId(LaneId(999))).values()

    assert (lanes.dataset_id, lanes.count) == (topic, 1)
    (lane,) = lanes.lanes
    assert (lane.lane_id, lane.number, lane.version, lane.is_live, lane.owner, lane.vnodes) == (
        topic,
        0,
        0,
        False,
        None,
        {},
    )


def test_spreading_makes_lanes_and_takes_none_away(log: LogWorld) -> None:
    topic = log.register("topic")
    ids = log.spread(topic, 3)

    assert (len(set(ids)), ids[0]) == (3, topic)
    assert log.commits.list_lane_ids(topic) == ids
    assert log.changes_nothing(lambda: log.lanes.spread(topic, 3))
    assert log.spread(topic, 1) == ids
    assert log.lanes.load(topic)[topic].count == 1
    assert log.spread(topic, 4)[:3] == ids
    orders = log.register("orders")
    assert orders not in log.commits.list_lane_ids(topic), "the ids of lanes and datasets are of one series"
    with pytest.raises(RejectedError, match="999"):
        log.lanes.spread(DatasetId(LaneId(999)), 2)


def test_fences_of_new_lanes_begin_at_the_highest_of_the_dataset(log: LogWorld) -> None:
    topic = log.register("topic")
    log.leases.raise_fence(topic, floor=40)

    _first, second = log.spread(topic, 2)

    assert log.leases.get_status(second).fence == 40
    assert log.take_lane(second).fence == 41
    assert log.leases.get_status(topic).fence == 40


def test_lanes_are_taken_by_themselves(log: LogWorld) -> None:
    topic = log.register("topic")
    first, second = log.spread(topic, 2)
    run_id = log.start_run()
    lease = log.take_lane(second, run_id)

    assert (lease.dataset_id, lease.lane, lease.lane_id) == (topic, second, second)
    assert log.take_lane(first) == Lease(topic, 1)
    held = Holder("another", log.start_run())
    assert log.changes_nothing(lambda: log.leases.take_lanes([first, second], held, ttl_s=TTL_S))
    assert log.leases.take_lanes([second, first], held, ttl_s=TTL_S) == []
    again = Holder("worker", run_id)
    assert log.changes_nothing(lambda: log.leases.take_lanes([second], again, ttl_s=TTL_S))
    assert log.leases.take_lanes([second], again, ttl_s=TTL_S) == [lease]
    assert [each.is_live for each in log.lanes_of(topic)] == [True, True]
    with pytest.raises(RejectedError, match="999"):
        log.leases.take_lanes([LaneId(999)], held, ttl_s=TTL_S)


def test_a_lane_is_renewed_released_and_taken_over_like_a_dataset(log: LogWorld) -> None:
    first, second = two_lanes(log)
    log.advance(TTL_S - 1)
    assert log.leases.renew([second], ttl_s=TTL_S) == {second.lane_id}
    log.advance(2)

    assert log.leases.list_live([first.lane_id, second.lane_id]) == {second.lane_id}
    taken = log.take_lane(first.lane_id)
    assert taken.fence > first.fence
    log.leases.release([second, first])
    assert log.leases.list_live([first.lane_id, second.lane_id]) == {first.lane_id}
    assert log.leases.get_status(second.lane_id).fence == second.fence


def test_who_takes_a_lane_over_ends_the_run_that_let_it_run_out(log: LogWorld) -> None:
    _first, second = log.spread(log.register("topic"), 2)
    dead = log.start_run()
    log.take_lane(second, dead)
    log.advance(TTL_S + 1)
    log.take_lane(second)

    assert dict(log.backing.list_rows("run", "run_id", "state"))[dead] == WorkingState.FAILED.value


def test_a_dataset_is_taken_as_a_whole_when_all_its_lanes_are_free(log: LogWorld) -> None:
    first, second = two_lanes(log)
    topic, holder = first.dataset_id, Holder("whole", log.start_run())
    for lease in (first, second):
        assert log.changes_nothing(lambda: log.leases.take([topic], holder, ttl_s=TTL_S))
        assert log.leases.take([topic], holder, ttl_s=TTL_S) == []
        log.leases.release([lease])

    (whole,) = log.leases.take([topic], holder, ttl_s=TTL_S)

    assert (whole.lane_id, whole.lane) == (topic, None)
    assert log.leases.list_live([topic, second.lane_id]) == {topic}
    assert log.changes_nothing(lambda: log.leases.take([topic], holder, ttl_s=TTL_S))
    assert log.leases.take([topic], holder, ttl_s=TTL_S) == [whole], "found again after a lost acknowledgement"


def test_one_lane_that_is_held_keeps_a_dataset_and_not_others(log: LogWorld) -> None:
    topic, orders = log.register("topic"), log.register("orders")
    _first, second = log.spread(topic, 2)
    log.take_lane(second)

    taken = log.leases.take([topic, orders], Holder("whole", log.start_run()), ttl_s=TTL_S)

    assert [lease.dataset_id for lease in taken] == [orders]
    assert not log.leases.get_status(topic).is_live


def test_taking_the_whole_fences_whoever_held_a_lane(log: LogWorld) -> None:
    first, second = two_lanes(log)
    built = log.build(second, moves=[])
    log.advance(TTL_S + 1)

    log.take(first.dataset_id)

    assert log.leases.get_status(first.lane_id).fence > first.fence
    assert log.leases.get_status(second.lane_id).fence > second.fence
    assert log.leases.renew([first, second], ttl_s=TTL_S) == frozenset()
    with pytest.raises(FencedError):
        log.commits.seal(built.order)


def test_taking_the_whole_ends_the_dead_runs_of_all_lanes(log: LogWorld) -> None:
    first, second = log.spread(log.register("topic"), 2)
    dead = [log.start_run(), log.start_run()]
    log.take_lane(first, dead[0])
    log.take_lane(second, dead[1])
    log.advance(TTL_S + 1)
    log.take(DatasetId(first))

    states = dict(log.backing.list_rows("run", "run_id", "state"))
    assert [states[run_id] for run_id in dead] == [WorkingState.FAILED.value] * 2


def test_no_lane_is_taken_while_somebody_holds_the_whole(log: LogWorld) -> None:
    topic = log.register("topic")
    ids = log.spread(topic, 2)
    run_id = log.start_run()
    whole = log.take(topic, run_id)

    for holder in (Holder("another", log.start_run()), Holder("worker", run_id)):
        assert log.changes_nothing(lambda holder=holder: log.leases.take_lanes(ids, holder, ttl_s=TTL_S))
        assert log.leases.take_lanes([*ids], holder, ttl_s=TTL_S) == []

    log.leases.release([whole])
    assert len(log.leases.take_lanes(ids, Holder("another", log.start_run()), ttl_s=TTL_S)) == 2


def test_a_whole_that_ran_out_leaves_its_lanes_free(log: LogWorld) -> None:
    topic = log.register("topic")
    first, second = log.spread(topic, 2)
    whole = log.take(topic)
    log.advance(TTL_S + 1)

    assert log.take_lane(second).fence > 1
    assert log.take_lane(first).fence > whole.fence
    assert log.leases.take([topic], Holder("whole", log.start_run()), ttl_s=TTL_S) == []


def test_the_holder_of_a_lane_is_not_the_holder_of_the_whole(log: LogWorld) -> None:
    topic, run_id = log.register("topic"), log.start_run()
    log.take_lane(topic, run_id)

    assert log.leases.take([topic], Holder("worker", run_id), ttl_s=TTL_S) == []


def test_the_holder_of_some_lane_is_found(log: LogWorld) -> None:
    topic = log.register("topic")
    first, second = log.spread(topic, 2)
    assert (log.leases.find_holder(topic).lane_id, log.leases.find_holder(topic).is_live) == (first, False)

    lease = log.take_lane(second)

    found = log.leases.find_holder(topic)
    assert (found.lane_id, found.is_live, found.fence) == (second, True, lease.fence)
    assert found == log.leases.get_status(second)
    log.take_lane(first)
    assert log.leases.find_holder(topic).lane_id == first
    with pytest.raises(RejectedError, match="999"):
        log.leases.find_holder(DatasetId(LaneId(999)))


# Vnodes --------------------------------------------------------------------------------------------------------------


def test_a_vnode_is_placed_in_one_lane(log: LogWorld) -> None:
    first, second = two_lanes(log)

    assert log.lanes.place(first, ["a", "b"]) == {"a", "b"}
    assert log.lanes.place(second, ["b", "c", "c"]) == {"c"}
    assert log.changes_nothing(lambda: log.lanes.place(first, ["a"]))
    assert log.lanes.place(first, ["a", "c"]) == {"a"}
    assert log.lanes.place(first, []) == frozenset()
    assert vnodes_of(log, first.dataset_id) == {0: {"a", "b"}, 1: {"c"}}


def test_nobody_places_under_a_fence_that_was_replaced(log: LogWorld) -> None:
    first, _second = two_lanes(log)
    log.advance(TTL_S + 1)
    log.take_lane(first.lane_id)

    with pytest.raises(FencedError):
        log.lanes.place(first, ["a"])
    assert vnodes_of(log, first.dataset_id) == {0: set(), 1: set()}


def test_a_vnode_moves_with_its_position(log: LogWorld) -> None:
    first, second = two_lanes(log)
    publish(log, first, "a", None, 10)
    log.lanes.place(first, ["b"])

    assert log.lanes.move(first, 1, ["a", "b"]) == {"a", "b"}

    there = log.lanes_of(first.dataset_id)[1]
    assert there.vnodes == {"a": long_watermark(10), "b": None}
    assert log.changes_nothing(lambda: log.lanes.move(first, 1, ["a"]))
    assert log.lanes.move(first, 1, ["a", "unknown"]) == {"a"}
    publish(log, second, "a", 10, 20)
    with pytest.raises(ConflictError):
        publish(log, first, "a", 20, 30)
    with pytest.raises(RejectedError, match="no lane 7"):
        log.lanes.move(first, 7, ["a"])


def test_only_the_lane_s_own_vnodes_move(log: LogWorld) -> None:
    first, second = two_lanes(log)
    log.lanes.place(second, ["a"])
    log.spread(first.dataset_id, 3)

    assert log.changes_nothing(lambda: log.lanes.move(first, 2, ["a"]))
    assert log.lanes.move(first, 2, ["a"]) == frozenset()
    # The answer says what is there now, whoever brought it.
    assert log.lanes.move(first, 1, ["a"]) == {"a"}


def test_nobody_moves_under_a_fence_that_was_replaced(log: LogWorld) -> None:
    first, _second = two_lanes(log)
    log.lanes.place(first, ["a"])
    log.advance(TTL_S + 1)
    log.take_lane(first.lane_id)

    with pytest.raises(FencedError):
        log.lanes.move(first, 1, ["a"])
    assert vnodes_of(log, first.dataset_id) == {0: {"a"}, 1: set()}


def test_a_vnode_that_an_open_sequence_moves_stays(log: LogWorld) -> None:
    first, _second = two_lanes(log)
    built = log.prepare(first, moves=[move(None, 10, key="a")])
    log.lanes.place(first, ["b"])

    assert log.lanes.move(first, 1, ["a", "b"]) == {"b"}
    log.block(built)
    assert log.lanes.move(first, 1, ["a"]) == frozenset()
    log.commits.resume(built.sequence_id, fence=first.fence)
    log.commits.finish(built.sequence_id, fence=first.fence)
    assert log.lanes.move(first, 1, ["a"]) == {"a"}


def test_a_key_of_another_lane_or_another_place_is_not_sealed(log: LogWorld) -> None:
    first, second = two_lanes(log)
    publish(log, first, "a", None, 10)
    refused: list[Any] = [
        (second, [move(10, 20, key="a")]),
        (first, [move(9, 20, key="a")]),
        (first, [move(None, 20, key="a", low=10)]),
        (first, [move(5, 6, key="new")]),
        (first, [move(10, 20, key="a"), move(None, 1, key="b"), move(3, 4, key="c")]),
    ]
    for lease, moves in refused:
        built = log.build(lease, moves=moves)
        with pytest.raises(ConflictError, match=r"watermark|lane"):
            log.commits.seal(built.order)
        assert log.commits.get(built.sequence_id).state is SequenceState.BUILDING
    assert vnodes_of(log, first.dataset_id) == {0: {"a"}, 1: set()}, "what was refused left no key behind"


def test_a_key_that_moved_after_the_plan_is_not_sealed(log: LogWorld) -> None:
    first, _second = two_lanes(log)
    publish(log, first, "a", None, 10)
    built = log.build(first, moves=[move(10, 20, key="a")])
    log.lanes.move(first, 1, ["a"])

    with pytest.raises(ConflictError, match="lane"):
        log.commits.seal(built.order)


def test_an_interval_that_leaves_the_watermark_is_sealed_wherever_it_is(log: LogWorld) -> None:
    first, second = two_lanes(log)
    log.publish(first, moves=[move(None, 10, key="a", low=0)])
    behind = replace(move(None, 0, key="a", low=-5), new=None)

    log.publish(first, moves=[behind])
    with pytest.raises(ConflictError):
        log.prepare(second, moves=[replace(behind, intervals=move(None, -6, key="a", low=-9).intervals)])


def test_who_holds_the_whole_dataset_publishes_the_keys_of_all_lanes(log: LogWorld) -> None:
    first, second = two_lanes(log)
    publish(log, second, "b", None, 10)
    log.leases.release([first, second])
    whole = log.take(first.dataset_id)

    publish(log, whole, "b", 10, 20)

    assert vnodes_of(log, first.dataset_id)[1] == {"b"}, "the key stays in its lane"


def test_who_let_the_whole_dataset_run_out_learns_it_when_any_lane_is_taken(log: LogWorld) -> None:
    first, second = two_lanes(log)
    log.leases.release([first, second])
    whole = log.take(first.dataset_id)
    built = log.build(whole, replaces=True, moves=[])
    log.advance(TTL_S + 1)
    taken = log.take_lane(second.lane_id)

    with pytest.raises(FencedError):
        log.commits.seal(built.order)
    assert log.leases.renew([whole], ttl_s=TTL_S) == frozenset()
    publish(log, taken, "b", None, 10)
