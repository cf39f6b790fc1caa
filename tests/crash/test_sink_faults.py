"""What a worker of a sink does when the commit log refuses or does not answer: it goes on, and nothing is lost."""

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import text

from gobblin_assets.commit.lanes import DatasetLanes
from gobblin_assets.commit.postgres.lanes import PostgresLaneStore
from gobblin_assets.errors import RetryableError
from gobblin_assets.failpoints import Failpoint, install
from gobblin_assets.model.state import DatasetId, RunId
from gobblin_assets.state.leases import Holder, Lease
from tests.crash.test_kills import KILLED
from tests.support.sink_lake import SinkLake, SinkWorld, start_sink_worker

pytestmark = pytest.mark.turns(of=4)


@pytest.fixture
def world(database_url: str, tmp_path: Path) -> Iterator[SinkWorld]:
    # A lane that failed backs off for five seconds, and the clock runs fast.
    opened = SinkWorld(SinkLake(database_url, str(tmp_path), speed=200.0))
    yield opened
    opened.close()


def fail_some(point: Failpoint, count: int) -> tuple[list[Failpoint], Callable[[Failpoint], None]]:
    raised: list[Failpoint] = []

    def act(reached: Failpoint) -> None:
        if reached is point and len(raised) < count:
            raised.append(reached)
            raise RetryableError("the log does not answer")

    return raised, act


def test_a_worker_goes_on_when_no_lane_could_begin_an_attempt(world: SinkWorld) -> None:
    raised, act = fail_some(Failpoint.ATTEMPT_REGISTERED, 1)

    with install(act):
        world.work()

    assert len(raised) == 1
    world.check_exactly_once()


class LanesOutOfReach(PostgresLaneStore):
    """Does not answer once, as soon as leases are held."""

    def __init__(self, world: SinkWorld) -> None:
        super().__init__(world.engine)
        self._world = world
        self.failed = 0

    def load(self, *dataset_ids: DatasetId) -> Mapping[DatasetId, DatasetLanes]:
        if not self.failed and self._world.count_held_lanes():
            self.failed += 1
            raise RetryableError("the log does not answer")
        return super().load(*dataset_ids)


def test_lanes_that_were_taken_and_not_loaded_are_given_back(world: SinkWorld) -> None:
    lanes = LanesOutOfReach(world)
    world.stores = replace(world.stores, lanes=lanes)

    world.work()

    assert lanes.failed == 1
    world.check_exactly_once()


def test_a_log_that_failed_long_ago_backs_off_as_if_for_the_first_time(world: SinkWorld) -> None:
    def wait(seconds: float) -> bool:
        time.sleep(seconds / world.lake.speed)
        return world.is_published()

    worker = world.open_worker(wait)
    (sink,) = worker.sinks.values()
    sink.failures = 8

    worker.run()

    assert sink.failures == 0


class TakenOver(PostgresLaneStore):
    """Another process takes the first lane over, and leaves it, before a vnode is placed in it."""

    def __init__(self, world: SinkWorld) -> None:
        super().__init__(world.engine)
        self._engine_of_world = world.engine
        self.fenced = 0

    def place(self, lease: Lease, vnodes: Sequence[str]) -> frozenset[str]:
        if not self.fenced:
            self.fenced += 1
            leave = "UPDATE gobblin.lease SET fence = fence + 1, owner = NULL, expires_at = NULL WHERE lane_id = :id"
            with self._engine_of_world.begin() as connection:
                connection.execute(text(leave), {"id": lease.lane_id})
        return super().place(lease, vnodes)


def test_a_worker_goes_on_without_a_lane_that_was_taken_over_before_it_places_vnodes(world: SinkWorld) -> None:
    lanes = TakenOver(world)
    world.stores = replace(world.stores, lanes=lanes)

    world.work()

    assert lanes.fenced == 1
    assert any("taken over" in line for line in world.lines)
    world.check_exactly_once()


def test_what_is_left_in_a_lane_that_is_out_of_use_is_tidied_up(world: SinkWorld) -> None:
    """The lane's last holder died with files in staging, and its vnodes went to another lane."""
    worker = start_sink_worker(world.lake, failpoint=f"{Failpoint.ATTEMPT_WRITTEN}=kill@3")
    assert worker.wait() == KILLED
    world.expire()
    dataset_id = world.register()
    first, last = world.stores.lanes.load(dataset_id)[dataset_id].lanes
    (lease,) = world.stores.leases.take_lanes([last.lane_id], Holder("a mover", RunId(uuid.uuid4())), ttl_s=60)
    world.stores.lanes.move(lease, first.number, list(last.vnodes))
    world.stores.leases.release([lease])
    world.scale(1)
    building = f"SELECT count(*) FROM gobblin.commit_sequence WHERE state = 'BUILDING' AND lane_id = {last.lane_id}"
    assert world.scalar(building) == 1

    world.work(lambda: world.is_published() and world.scalar(building) == 0)

    world.check_exactly_once()
    assert world.staging_left() == []
