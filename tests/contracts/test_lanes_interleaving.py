"""Lanes on two connections, one held between two of its statements: takers, movers, sealers and finishers."""

from collections.abc import Callable, Iterator

import pytest
from sqlalchemy import Engine

from gobblin_assets.commit.postgres import PostgresCommitStepStore
from gobblin_assets.commit.postgres.lanes import PostgresLaneStore
from gobblin_assets.errors import ConflictError
from gobblin_assets.model.sequence_state import SequenceState
from gobblin_assets.model.state import DatasetId, LaneId
from gobblin_assets.state.leases import Holder, Lease
from gobblin_assets.state.postgres import PostgresLeaseStore
from tests.support.commit_log import TTL_S, Built, LogWorld, move, open_postgres
from tests.support.interleaving import WAIT_S_MAX, Connections, open_connections

TAKE_WHOLE = "SET fence = l.fence + 1"
TAKE_LANE = "SET fence = fence + 1"
FINISH = "SET version = n.version + 1"
# Which lanes are asked for together, by their numbers.
ASKED = [(1,), (0,), (0, 1), (1, 2)]


@pytest.fixture
def log(emptied_engine: Engine) -> LogWorld:
    return open_postgres(emptied_engine)


@pytest.fixture
def two(emptied_engine: Engine) -> Iterator[Connections]:
    with open_connections(emptied_engine) as connections:
        yield connections


def taker_of_whole(engine: Engine, log: LogWorld, dataset_id: DatasetId) -> Callable[[], list[Lease]]:
    holder = Holder("whole", log.start_run())
    return lambda: PostgresLeaseStore(engine).take([dataset_id], holder, ttl_s=TTL_S)


def taker_of_lanes(engine: Engine, log: LogWorld, lane_ids: list[LaneId]) -> Callable[[], list[Lease]]:
    holder = Holder("lanes", log.start_run())
    return lambda: PostgresLeaseStore(engine).take_lanes(lane_ids, holder, ttl_s=TTL_S)


@pytest.mark.parametrize("numbers", ASKED)
def test_a_taker_of_lanes_waits_for_a_taker_of_the_whole_and_gets_nothing(
    log: LogWorld, two: Connections, numbers: tuple[int, ...]
) -> None:
    topic = log.register("topic")
    ids = log.spread(topic, 3)

    with two.pause(TAKE_WHOLE, taker_of_whole(two.held, log, topic)) as whole:
        lanes = two.start(taker_of_lanes(two.other, log, [ids[number] for number in numbers]))
        assert two.has_to_wait(lanes)

    assert len(whole.result(WAIT_S_MAX)) == 1
    assert lanes.result(WAIT_S_MAX) == []
    assert log.leases.list_live(ids) == {topic}


@pytest.mark.parametrize("numbers", ASKED)
def test_a_taker_of_the_whole_waits_for_a_taker_of_lanes_and_gets_nothing(
    log: LogWorld, two: Connections, numbers: tuple[int, ...]
) -> None:
    topic = log.register("topic")
    ids = log.spread(topic, 3)
    asked = [ids[number] for number in numbers]

    with two.pause(TAKE_LANE, taker_of_lanes(two.held, log, asked)) as lanes:
        whole = two.start(taker_of_whole(two.other, log, topic))
        assert two.has_to_wait(whole)

    assert len(lanes.result(WAIT_S_MAX)) == len(asked)
    assert whole.result(WAIT_S_MAX) == []
    assert log.leases.list_live(ids) == set(asked)


def test_a_lane_that_is_made_beside_a_taker_of_the_whole_is_not_free(log: LogWorld, two: Connections) -> None:
    topic = log.register("topic")
    log.spread(topic, 2)

    with two.pause(TAKE_WHOLE, taker_of_whole(two.held, log, topic)) as whole:
        *_others, new = log.spread(topic, 3)
        late = two.start(taker_of_lanes(two.other, log, [new]))
        assert two.has_to_wait(late)

    assert len(whole.result(WAIT_S_MAX)) == 1
    assert late.result(WAIT_S_MAX) == []
    assert log.leases.list_live([topic, new]) == {topic}


def test_takers_of_different_lanes_do_not_wait_for_each_other(log: LogWorld, two: Connections) -> None:
    topic = log.register("topic")
    _first, second, third = log.spread(topic, 3)

    with two.pause(TAKE_LANE, taker_of_lanes(two.held, log, [second])) as one:
        other = two.start(taker_of_lanes(two.other, log, [third]))
        assert not two.has_to_wait(other)

    assert [lease.lane for lease in (*one.result(WAIT_S_MAX), *other.result(WAIT_S_MAX))] == [second, third]


def test_of_two_takers_of_a_lane_one_gets_it(log: LogWorld, two: Connections) -> None:
    _first, second = log.spread(log.register("topic"), 2)

    with two.pause(TAKE_LANE, taker_of_lanes(two.held, log, [second])) as one:
        other = two.start(taker_of_lanes(two.other, log, [second]))
        assert two.has_to_wait(other)

    assert (len(one.result(WAIT_S_MAX)), other.result(WAIT_S_MAX)) == (1, [])


def two_lanes(log: LogWorld) -> tuple[Lease, Lease]:
    first, second = log.spread(log.register("topic"), 2)
    return log.take_lane(first), log.take_lane(second)


def test_a_sealer_waits_for_a_mover_and_is_refused(log: LogWorld, two: Connections) -> None:
    first, _second = two_lanes(log)
    log.publish(first, moves=[move(None, 10, key="a")])
    built = log.build(first, moves=[move(10, 20, key="a")])

    mover = PostgresLaneStore(two.held)
    with two.pause("UPDATE gobblin.watermark_key k SET lane_id", lambda: mover.move(first, 1, ["a"])) as moving:
        sealing = two.start(lambda: PostgresCommitStepStore(two.other).seal(built.order))
        assert two.has_to_wait(sealing)

    assert moving.result(WAIT_S_MAX) == {"a"}
    with pytest.raises(ConflictError, match="lane"):
        sealing.result(WAIT_S_MAX)
    assert log.commits.get(built.sequence_id).state is SequenceState.BUILDING


def test_a_mover_waits_for_a_sealer_and_leaves_what_it_moves(log: LogWorld, two: Connections) -> None:
    first, _second = two_lanes(log)
    log.publish(first, moves=[move(None, 10, key="a")])
    built = log.build(first, moves=[move(10, 20, key="a")])

    sealer = PostgresCommitStepStore(two.held)
    with two.pause("INSERT INTO gobblin.planned_move", lambda: sealer.seal(built.order)) as sealing:
        moving = two.start(lambda: PostgresLaneStore(two.other).move(first, 1, ["a"]))
        assert two.has_to_wait(moving)

    sealing.result(WAIT_S_MAX)
    assert moving.result(WAIT_S_MAX) == frozenset()
    assert log.commits.finish(built.sequence_id, fence=first.fence) == 2


def test_a_taker_of_a_lane_waits_for_a_mover(log: LogWorld, two: Connections) -> None:
    first, _second = two_lanes(log)
    log.lanes.place(first, ["a"])
    log.advance(TTL_S + 1)

    mover = PostgresLaneStore(two.held)
    with two.pause("UPDATE gobblin.watermark_key k SET lane_id", lambda: mover.move(first, 1, ["a"])) as moving:
        taking = two.start(taker_of_lanes(two.other, log, [first.lane_id]))
        assert two.has_to_wait(taking)

    assert moving.result(WAIT_S_MAX) == {"a"}
    assert len(taking.result(WAIT_S_MAX)) == 1


def test_a_vnode_that_two_lanes_place_at_once_is_in_one(log: LogWorld, two: Connections) -> None:
    first, second = two_lanes(log)

    placer = PostgresLaneStore(two.held)
    with two.pause("SELECT name FROM gobblin.watermark_key", lambda: placer.place(first, ["a", "b"])) as placing:
        late = two.start(lambda: PostgresLaneStore(two.other).place(second, ["b", "c"]))
        assert two.has_to_wait(late)

    assert (placing.result(WAIT_S_MAX), late.result(WAIT_S_MAX)) == ({"a", "b"}, {"c"})


def test_lanes_that_two_processes_make_at_once_are_made_once(log: LogWorld, two: Connections) -> None:
    topic = log.register("topic")

    maker = PostgresLaneStore(two.held)
    with two.pause("INSERT INTO gobblin.lane ", lambda: maker.spread(topic, 3)) as making:
        late = two.start(lambda: PostgresLaneStore(two.other).spread(topic, 4))
        assert two.has_to_wait(late)

    making.result(WAIT_S_MAX)
    late.result(WAIT_S_MAX)
    assert [lane.number for lane in log.lanes_of(topic)] == [0, 1, 2, 3]


def test_of_two_finishers_of_one_dataset_the_second_waits_and_no_version_is_lost(
    log: LogWorld, two: Connections
) -> None:
    leases = two_lanes(log)
    built = [log.prepare(lease, moves=[move(None, 1, key=str(lease.lane_id))]) for lease in leases]
    calls = [
        lambda store, each=each: PostgresCommitStepStore(store).finish(each.sequence_id, fence=each.fence)
        for each in built
    ]

    with two.pause(FINISH, lambda: calls[0](two.held)) as finishing:
        late = two.start(lambda: calls[1](two.other))
        assert two.has_to_wait(late)

    assert (finishing.result(WAIT_S_MAX), late.result(WAIT_S_MAX)) == (1, 2)
    assert [lane.version for lane in log.lanes_of(leases[0].dataset_id)] == [1, 1]


def test_finishers_of_the_same_datasets_do_not_wait_for_each_other_in_a_circle(log: LogWorld, two: Connections) -> None:
    ids = [log.spread(log.register(urn), 2) for urn in ("topic", "other")]
    built = [[log.prepare(log.take_lane(lane_id), moves=[]) for lane_id in lanes] for lanes in ids]
    (a0, a1), (b0, b1) = built

    def finish(engine: Engine, *some: Built) -> Callable[[], object]:
        fences = {each.sequence_id: each.fence for each in some}
        return lambda: PostgresCommitStepStore(engine).finish_all(fences)

    with two.pause(FINISH, finish(two.held, a0, b1)) as finishing:
        late = two.start(finish(two.other, b0, a1))
        assert two.has_to_wait(late)

    assert finishing.result(WAIT_S_MAX) == {a0.sequence_id: 1, b1.sequence_id: 1}
    assert late.result(WAIT_S_MAX) == {b0.sequence_id: 2, a1.sequence_id: 2}
