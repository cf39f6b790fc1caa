"""Workers of a sink are killed, paused past their leases, and not answered: each record of the log is published once.

The log is real Postgres, files are in a real directory, and workers are processes. What follows a fault is the work of
another worker, up to the end of the log.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gobblin_assets.failpoints import ArmedFailpoints, Failpoint, install
from tests.crash.points import OF_A_RESCALE, OF_A_SINK, OF_EXECUTION
from tests.crash.test_kills import KILLED
from tests.support.shares import cross, often, rotating
from tests.support.sink_lake import SinkLake, SinkWorld, count_reached, start_sink_worker
from tests.support.spark import wait_until

pytestmark = pytest.mark.turns(of=6)

OF_A_BINDING = (Failpoint.DESTINATION_MARKED, Failpoint.DESTINATION_BOUND)
ONCE = (*OF_A_BINDING, Failpoint.LEASE_TAKEN)
OF_RECOVERY = (Failpoint.RECOVERY_STARTED, Failpoint.SEALED_BEFORE_EXECUTE, *OF_EXECUTION)

# A worker joins two empty lanes by two publications without rows, which have no attempt.
WITH_ROWS = {
    point: 1
    if point
    in (
        Failpoint.LEASE_TAKEN,
        *(Failpoint.ATTEMPT_REGISTERED, Failpoint.STAGE_COMMITTED, Failpoint.STEP_BEFORE, Failpoint.STEP_AFTER),
        *(Failpoint.EXECUTED_BEFORE_SYNC, Failpoint.SYNCED_BEFORE_VERIFY),
    )
    else 3
    for point in Failpoint
}
COMMITS = (
    Failpoint.LEASE_TAKEN,
    Failpoint.SEQUENCE_BEGUN,
    Failpoint.ATTEMPT_REGISTERED,
    Failpoint.STAGE_COMMITTED,
    Failpoint.SEAL_COMMITTED,
    Failpoint.FINISH_COMMITTED,
    Failpoint.CLEANUP_MARKED,
    Failpoint.FOLD_COMMITTED,
    Failpoint.VNODES_MOVED,
)
BETWEEN_STEPS = (
    Failpoint.ATTEMPT_WRITTEN,
    Failpoint.STAGED_BEFORE_SEAL,
    Failpoint.SEALED_BEFORE_EXECUTE,
    Failpoint.STEP_BEFORE,
    Failpoint.STEP_AFTER,
    Failpoint.VERIFIED_BEFORE_FINISH,
)
SEALED = (Failpoint.SEAL_COMMITTED, Failpoint.STEP_AFTER, Failpoint.VERIFIED_BEFORE_FINISH)
AROUND_A_MOVE = (Failpoint.SEQUENCE_BEGUN, Failpoint.SEAL_COMMITTED, Failpoint.FINISH_COMMITTED)


@pytest.fixture
def lake(database_url: str, tmp_path: Path) -> SinkLake:
    return SinkLake(database_url, str(tmp_path))


@pytest.fixture
def world(lake: SinkLake) -> Iterator[SinkWorld]:
    opened = SinkWorld(lake)
    yield opened
    opened.close()


def kill_at(lake: SinkLake, point: Failpoint, count: int = 1) -> None:
    worker = start_sink_worker(lake, failpoint=f"{point}=kill@{count}")
    assert worker.wait() == KILLED
    assert worker.reached(), "the failpoint was never reached"


def some_published(world: SinkWorld) -> Callable[[], bool]:
    """Whether records are published; sequences are no measure of it, since they are folded."""
    query = "SELECT count(*) > 0 FROM gobblin.watermark_key WHERE (watermark ->> 'value')::bigint > 0"
    return lambda: bool(world.scalar(query))


@pytest.mark.every_run
def test_every_point_that_a_sink_reaches_is_killed_here(lake: SinkLake, world: SinkWorld) -> None:
    seen: set[Failpoint] = set()
    kill_at(lake, Failpoint.SEAL_COMMITTED)
    world.expire()

    with install(seen.add):
        world.work()
        world.scale(4)
        world.work()

    world.check_exactly_once()
    assert seen | set(OF_A_BINDING) == {*OF_A_SINK, *OF_RECOVERY, *OF_A_RESCALE}


@pytest.mark.every_run
@pytest.mark.parametrize(
    ("point", "count"),
    [
        *(often(point, 1) for point in OF_A_SINK),
        *(rotating(point, count) for count in (2, 3, 4) for point in OF_A_SINK if point not in ONCE),
    ],
    ids=str,
)
def test_a_worker_killed_anywhere_is_gone_on_with_by_another(
    lake: SinkLake, world: SinkWorld, point: Failpoint, count: int
) -> None:
    kill_at(lake, point, count)
    world.expire()

    world.work()

    world.check_exactly_once()


@pytest.mark.parametrize("point", [*map(often, COMMITS)], ids=str)
def test_a_worker_that_is_not_answered_goes_on_by_the_log(lake: SinkLake, world: SinkWorld, point: Failpoint) -> None:
    world.work(some_published(world))
    world.scale(4)
    log = str(Path(lake.directory, "failpoints.log"))

    with install(ArmedFailpoints(f"{point}=lose,{point}=lose@3", log)):
        world.work(lambda: count_reached(log) > 0 and world.is_published())

    world.check_exactly_once()
    assert sorted(world.lane_sizes()) == [1, 1, 1, 2]


def covered(world: SinkWorld) -> dict[str, list[tuple[int, int]]]:
    """What the ledger covers of each vnode. Whoever wakes up and finds lanes free may fold what is published."""
    joined: dict[str, list[tuple[int, int]]] = {}
    for vnode, spans in world.ledger().items():
        found = joined.setdefault(vnode, [])
        for low, high in spans:
            if found and found[-1][1] == low:
                found[-1] = found[-1][0], high
            else:
                found.append((low, high))
    return joined


@pytest.mark.parametrize(
    "point", [*BETWEEN_STEPS, *(rotating(p) for p in OF_A_SINK if p not in (*BETWEEN_STEPS, *OF_A_BINDING))], ids=str
)
def test_a_zombie_that_wakes_up_changes_nothing(lake: SinkLake, world: SinkWorld, point: Failpoint) -> None:
    zombie = start_sink_worker(lake, failpoint=f"{point}=stop@{WITH_ROWS[point]}")
    zombie.wait_until_stopped()
    world.expire()
    world.work()
    world.check_exactly_once()
    before = covered(world), world.published_paths()

    zombie.wake_up()
    assert zombie.wait() == 0, "the zombie crashed instead of giving up"

    assert (covered(world), world.published_paths()) == before
    # What the zombie wrote after it woke up is removed by the next cleanup.
    world.work(lambda: not world.staging_left())
    world.check_exactly_once()


@pytest.mark.parametrize(("point", "other"), cross(BETWEEN_STEPS, BETWEEN_STEPS), ids=str)
def test_a_zombie_that_wakes_up_within_another_s_cut_changes_nothing(
    lake: SinkLake, world: SinkWorld, point: Failpoint, other: Failpoint
) -> None:
    """Both go on to the end of the log, with the shares that they then have."""
    zombie = start_sink_worker(lake, failpoint=f"{point}=stop@{WITH_ROWS[point]}")
    zombie.wait_until_stopped()
    world.expire()
    successor = start_sink_worker(lake, failpoint=f"{other}=stop")
    successor.wait_until_stopped()

    zombie.wake_up()
    successor.wake_up()

    assert (zombie.wait(), successor.wait()) == (0, 0)
    world.check_exactly_once()


def test_a_paused_worker_loses_its_lanes_by_time_alone(lake: SinkLake) -> None:
    slow = replace(lake, lease_ttl_s=1.5, speed=1.0)
    zombie = start_sink_worker(slow, failpoint=f"{Failpoint.STAGED_BEFORE_SEAL}=stop@3")
    zombie.wait_until_stopped()
    world = SinkWorld(slow)

    world.work()

    before = covered(world), world.published_paths()
    zombie.wake_up()
    assert zombie.wait() == 0
    assert (covered(world), world.published_paths()) == before
    world.check_exactly_once()
    world.close()


@pytest.mark.parametrize(
    ("first", "second"),
    [*cross(SEALED, OF_RECOVERY), (Failpoint.STAGED_BEFORE_SEAL, Failpoint.RECOVERY_STARTED)],
    ids=str,
)
def test_a_recovery_killed_anywhere_is_completed_by_the_next(
    lake: SinkLake, world: SinkWorld, first: Failpoint, second: Failpoint
) -> None:
    kill_at(lake, first, WITH_ROWS[first])
    world.expire()
    kill_at(lake, second)
    world.expire()

    world.work()

    world.check_exactly_once()


@pytest.mark.parametrize(
    ("up", "down"),
    [
        (1, 1),
        (2, 3),
        *(rotating(up, down) for up in (1, 2, 3) for down in (1, 2, 3) if (up, down) not in ((1, 1), (2, 3))),
    ],
)
def test_lanes_are_rescaled_although_workers_die_at_each_move(
    lake: SinkLake, world: SinkWorld, up: int, down: int
) -> None:
    world.work(some_published(world))
    world.scale(4)
    kill_at(lake, Failpoint.VNODES_MOVED, min(up, 2))
    world.expire()
    world.work()
    assert sorted(world.lane_sizes()) == [1, 1, 1, 2]
    world.scale(1)
    kill_at(lake, Failpoint.VNODES_MOVED, down)
    world.expire()

    world.work()

    world.check_exactly_once()
    assert world.lane_sizes() == [lake.vnode_count, 0, 0, 0]


@pytest.mark.parametrize(("count", "point"), cross((1, 2, 3), AROUND_A_MOVE), ids=str)
def test_a_worker_killed_after_a_move_leaves_vnodes_where_they_are_or_where_they_go(
    lake: SinkLake, world: SinkWorld, point: Failpoint, count: int
) -> None:
    """What moved is joined by another lane of the same worker, from where it is published up to."""
    lake = replace(lake, epoch_count=20)
    world.lake = lake
    world.work(some_published(world))
    world.scale(4)
    kill_at(lake, point, count)
    world.scale(1)
    world.expire()

    world.work()

    world.check_exactly_once()
    assert world.lane_sizes()[0] == lake.vnode_count


def test_a_worker_goes_on_alone_when_another_dies_while_lanes_are_rescaled(lake: SinkLake) -> None:
    long = replace(lake, epoch_count=30, lanes=4)
    world = SinkWorld(long)
    world.work(some_published(world))
    doomed = start_sink_worker(long, failpoint=f"{Failpoint.VNODES_MOVED}=kill")
    other = start_sink_worker(long, failpoint=f"{Failpoint.VNODES_MOVED}=lose")
    wait_until(lambda: world.count_held_lanes() == [2, 2], "even shares")
    world.scale(1)
    assert doomed.wait() == KILLED
    world.expire()

    assert other.wait() == 0

    world.check_exactly_once()
    assert world.lane_sizes() == [long.vnode_count, 0, 0, 0]
    world.close()
