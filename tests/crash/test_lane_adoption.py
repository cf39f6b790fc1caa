"""A log that was restored to an earlier moment of a sink adopts what its lanes published since, and their vnodes."""

import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import pytest

from gobblin_assets import failpoints
from gobblin_assets.commit.examination import Examination, LogFinding
from gobblin_assets.commit.markers import list_markers
from gobblin_assets.commit.operations import LogOperations
from gobblin_assets.commit.reconciliation import Reconciled, Reconciliation, Way
from gobblin_assets.db.embedded import EmbeddedServer
from gobblin_assets.errors import ConflictError
from gobblin_assets.failpoints import Failpoint
from gobblin_assets.fs.registry import open_file_system
from gobblin_assets.model.clock import SystemClock
from gobblin_assets.model.state import RunId
from gobblin_assets.model.urn import JobName
from gobblin_assets.run.maintenance_run import MaintenanceRun, examination_of
from gobblin_assets.state.leases import Holder
from tests.support.forks import FORKS
from tests.support.restoring import copied
from tests.support.sink_lake import JOB, URN, SinkLake, SinkWorld, start_sink_worker
from tests.support.workers import Worker

pytestmark = pytest.mark.turns(of=4)

OF_A_SEQUENCE = (
    Failpoint.LOST_SEQUENCE_BEGUN,
    Failpoint.STAGE_COMMITTED,
    Failpoint.LOST_SEQUENCE_SEALED,
    Failpoint.MARKER_WRITTEN,
    Failpoint.VERIFIED_BEFORE_FINISH,
    Failpoint.LOST_SEQUENCE_ADOPTED,
)
KILLS = (
    *((point, 1) for point in (Failpoint.FENCE_RAISED, Failpoint.LEASE_TAKEN, Failpoint.VNODES_MOVED)),
    *((point, count) for point in OF_A_SEQUENCE for count in (2, 4)),
)
LEFT_OPEN = {
    Failpoint.ATTEMPT_REGISTERED: "BUILDING",
    Failpoint.SEALED_BEFORE_EXECUTE: "PREPARED",
    Failpoint.STEP_AFTER: "PREPARED",
}

Restore = Callable[[], SinkWorld]
"""Gives the world as it will be after a restore: the same storage and topic, under a log as it is now."""


@pytest.fixture
def world(database_url: str, tmp_path: Path) -> Iterator[SinkWorld]:
    with closing(SinkWorld(SinkLake(database_url, str(tmp_path), epoch_count=12))) as opened:
        yield opened


@pytest.fixture
def back_up(server: EmbeddedServer, world: SinkWorld) -> Iterator[Restore]:
    with ExitStack() as stack:

        def take() -> SinkWorld:
            world.engine.dispose()
            url = stack.enter_context(copied(server, world.lake.database_url))
            return stack.enter_context(closing(SinkWorld(replace(world.lake, database_url=url))))

        yield take


def publish_some(world: SinkWorld) -> None:
    query = "SELECT count(*) > 0 FROM gobblin.watermark_key WHERE (watermark ->> 'value')::bigint > 0"
    world.work(lambda: bool(world.scalar(query)))


def examination(world: SinkWorld) -> Examination:
    fs, root = open_file_system(world.lake.root)
    return examination_of(world.stores, JobName(JOB), fs, root)


def examine(world: SinkWorld) -> LogFinding:
    return examination(world).look_at(URN, thoroughly=True)


def reconcile(world: SinkWorld, way: Way = Way.ADOPT) -> Reconciled:
    """Like the command line; raises the error if something could not be done."""
    clock = SystemClock()
    operations = LogOperations(
        store=world.stores.commits,
        leases=world.stores.leases,
        open_file_system=open_file_system,
        interrupt=lambda _attempt: None,
        clock=clock,
        holder=Holder("test", RunId(clock.new_id())),
        say=world.lines.append,
        lease_ttl_s=world.lake.lease_ttl_s,
    )
    reconciliation = Reconciliation(operations, examination(world), world.stores.lanes, world.lake.root)
    repair = MaintenanceRun(operations, world.stores, JobName(JOB))
    done, failures = repair.reconcile(reconciliation, [examine(world)], way)
    for error in failures.values():
        raise error
    return done[0]


def adopt_in_a_process(lake: SinkLake, point: Failpoint, count: int) -> int | None:
    log = Path(lake.directory, "adoption-failpoints.log")
    process = FORKS.Process(target=_adopt, args=(lake, f"{point}=kill@{count}", str(log)))
    process.start()
    worker = Worker(process, log)
    code = worker.wait()
    assert worker.reached(), "the failpoint was never reached"
    return code


def _adopt(lake: SinkLake, failpoint: str, log: str) -> None:
    failpoints.arm(failpoint, log)
    reconcile(SinkWorld(lake))


def where_lanes_stand(world: SinkWorld) -> list[tuple[int, int, dict[str, str]]]:
    dataset_id = world.register()
    lanes = world.stores.lanes.load(dataset_id)[dataset_id].lanes
    return [(lane.number, lane.version, {vnode: str(at) for vnode, at in lane.vnodes.items()}) for lane in lanes]


def check_adopted(restored: SinkWorld, world: SinkWorld) -> None:
    """The restored log is as the lost one was, and a worker finds nothing to do."""
    assert not examine(restored).is_behind
    assert where_lanes_stand(restored) == where_lanes_stand(world)
    restored.check_exactly_once()
    before = restored.ledger()
    restored.work()
    restored.check_exactly_once()
    assert restored.ledger() == before


def test_what_lanes_published_is_adopted(world: SinkWorld, back_up: Restore) -> None:
    publish_some(world)
    restored = back_up()
    world.work()

    done = reconcile(restored)

    assert len(done.adopted) >= 4
    assert {each.lane_number for each in done.adopted} == {0, 1}
    check_adopted(restored, world)


def test_vnodes_move_as_they_did(world: SinkWorld, back_up: Restore) -> None:
    """Lanes that were made after the backup, and vnodes that moved before they were published again."""
    publish_some(world)
    restored = back_up()
    world.scale(4)
    world.work()
    assert [len(vnodes) for _number, _version, vnodes in where_lanes_stand(world)] == [2, 1, 1, 1]

    reconcile(restored)

    assert [lane[:2] for lane in where_lanes_stand(restored)] == [lane[:2] for lane in where_lanes_stand(world)]
    assert restored.published() == restored.expected()
    restored.work()
    restored.check_exactly_once()


@pytest.mark.parametrize(("point", "state"), LEFT_OPEN.items(), ids=str)
def test_what_the_log_has_open_is_a_part_of_the_history(
    world: SinkWorld, back_up: Restore, point: Failpoint, state: str
) -> None:
    publish_some(world)
    worker = start_sink_worker(world.lake, failpoint=f"{point}=kill")
    assert worker.wait() == -signal.SIGKILL
    world.expire()
    restored = back_up()
    assert restored.scalar(f"SELECT count(*) > 0 FROM gobblin.commit_sequence WHERE state = '{state}'")
    world.work()

    reconcile(restored)

    check_adopted(restored, world)


@pytest.mark.rotating
@pytest.mark.parametrize(("point", "count"), KILLS, ids=str)
def test_an_adoption_that_was_killed_goes_on(world: SinkWorld, back_up: Restore, point: Failpoint, count: int) -> None:
    publish_some(world)
    restored = back_up()
    world.scale(3)
    world.work()

    assert adopt_in_a_process(restored.lake, point, count) == -signal.SIGKILL
    restored.expire()
    if examine(restored).is_behind:
        reconcile(restored)

    restored.work()
    restored.check_exactly_once()


@pytest.mark.parametrize("way", Way, ids=str)
def test_a_history_with_a_gap_is_only_set_aside(world: SinkWorld, back_up: Restore, way: Way) -> None:
    publish_some(world)
    restored = back_up()
    world.work()
    fs, root = open_file_system(world.lake.root)
    lost = {each.sequence_id for each in examine(restored).forgotten}
    first = next(each for each in list_markers(fs, root, JobName(JOB), URN) if each.sequence_id in lost)
    Path(first.path).unlink()

    if way is Way.ADOPT:
        with pytest.raises(ConflictError, match="lane 0: "):
            reconcile(restored)
        return
    reconcile(restored, Way.SET_ASIDE)
    restored.work()
    restored.check_exactly_once()


def test_nothing_is_adopted_while_a_worker_holds_a_lane(world: SinkWorld, back_up: Restore) -> None:
    publish_some(world)
    restored = back_up()
    world.work()
    dataset_id = restored.register()
    lane = restored.stores.lanes.load(dataset_id)[dataset_id].lanes[1]
    restored.stores.leases.take_lanes([lane.lane_id], Holder("a worker", RunId(SystemClock().new_id())), ttl_s=60)

    with pytest.raises(ConflictError, match="a worker"):
        reconcile(restored)

    restored.expire()
    reconcile(restored)
    check_adopted(restored, world)
