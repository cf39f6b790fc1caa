"""Attempts of several datasets by one read: killed, taken over and failing, each dataset is published by itself."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import text

from gobblin_assets.errors import GobblinError, RejectedError, RetryableError
from gobblin_assets.failpoints import Failpoint, install
from gobblin_assets.fs.posix import PosixFileSystem
from gobblin_assets.model.path_names import path_of
from gobblin_assets.model.urn import DatasetUrn, Role
from tests.crash.test_kills import kill_at
from tests.crash.test_zombies import require_harmless
from tests.support.lake import JOB as LAKE_JOB
from tests.support.lake import Lake, World, start_worker
from tests.support.shares import cross
from tests.support.table_lake import with_objects, with_tables

pytestmark = pytest.mark.turns(of=4)

# All datasets of a shared attempt pass these points together; each passes the later points by itself.
TOGETHER = (
    Failpoint.ATTEMPT_REGISTERED,
    Failpoint.ATTEMPT_WRITTEN,
    Failpoint.ATTEMPT_DURABLE,
    Failpoint.STAGE_COMMITTED,
    Failpoint.SEAL_COMMITTED,
    Failpoint.FINISH_COMMITTED,
)
ONE_BY_ONE = (Failpoint.STEP_AFTER, Failpoint.CLEANUP_CAPTURED)
PASSED = [*((point, 1) for point in TOGETHER), *((point, count) for point in ONE_BY_ONE for count in (1, 2))]


@pytest.fixture
def lake(lake: Lake) -> Lake:
    return replace(lake, shares=True)


def count_tags(world: World) -> object:
    return world.scalar("SELECT count(DISTINCT tag) FROM gobblin.attempt")


def expire_lease_of(world: World, urn: str) -> None:
    query = """
        UPDATE gobblin.lease SET expires_at = clock_timestamp() - interval '1 second'
         WHERE lane_id = (SELECT dataset_id FROM gobblin.dataset WHERE urn = :urn)
    """
    with world.engine.begin() as connection:
        connection.execute(text(query), {"urn": urn})


@with_tables
def test_all_datasets_are_one_read(world: World) -> None:
    assert not world.run().failed

    assert count_tags(world) == 1
    assert world.scalar("SELECT count(*) FROM gobblin.attempt") == len(world.lake.urns)
    world.check_exactly_once()


@with_tables
@pytest.mark.parametrize(("point", "count"), PASSED, ids=str)
def test_a_run_killed_anywhere_is_completed_by_the_next(lake: Lake, world: World, point: Failpoint, count: int) -> None:
    kill_at(lake, f"{point}=kill@{count}")
    world.expire_leases()
    for urn in lake.urns:
        lake.add_rows(urn, 5)

    assert not world.run().failed

    world.check_exactly_once()


@with_objects
@pytest.mark.rotating
@pytest.mark.parametrize(("point", "count"), PASSED, ids=str)
def test_a_zombie_that_wakes_up_changes_nothing(lake: Lake, world: World, point: Failpoint, count: int) -> None:
    zombie = start_worker(lake, failpoint=f"{point}=stop@{count}")
    zombie.wait_until_stopped()
    world.expire_leases()
    world.run()

    require_harmless(world, zombie)


@with_objects
@pytest.mark.parametrize(("stolen", "point"), cross((0, 1), TOGETHER[:5]), ids=str)
def test_one_dataset_that_is_taken_over_leaves_the_others_alone(
    lake: Lake, world: World, point: Failpoint, stolen: int
) -> None:
    urn = sorted(lake.urns)[stolen]
    sleeper = start_worker(lake, failpoint=f"{point}=stop")
    sleeper.wait_until_stopped()
    expire_lease_of(world, urn)
    assert not world.run(urns=[urn]).failed

    sleeper.wake_up()
    assert sleeper.wait() in (0, 1)

    world.expire_leases()
    assert not world.run().failed
    world.check_exactly_once()


@with_objects
@pytest.mark.parametrize("failures", [1, 2])
@pytest.mark.parametrize("point", TOGETHER[:3], ids=str)
def test_what_fails_together_is_tried_in_halves(world: World, point: Failpoint, failures: int) -> None:
    left = [failures]

    def hook(found: Failpoint) -> None:
        if found is point and left[0]:
            left[0] -= 1
            raise RetryableError("the disk was full for a moment")

    with install(hook):
        assert not world.run().failed

    assert left == [0]
    world.check_exactly_once()


class FaultyDisk:
    """Wraps the file system's syncs; after ``arm``, the first that ``fails`` chooses fails."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[list[str]] = []
        self.failed: list[str] = []
        self._fails: Callable[[str], GobblinError | None] | None = None
        for name in ("make_durable", "sync_directories"):
            monkeypatch.setattr(PosixFileSystem, name, self._watch(getattr(PosixFileSystem, name)))

    def arm(self, fails: Callable[[str], GobblinError | None]) -> None:
        """``fails``: the error of a path's sync, or None. After an error that is no RejectedError, no sync fails."""
        self._fails = fails

    def _watch(self, sync: Callable[[PosixFileSystem, Iterable[str]], None]) -> Any:
        def watched(fs: PosixFileSystem, paths: Iterable[str]) -> None:
            given = list(paths)
            self.calls.append(given)
            error = next((error for path in given if self._fails is not None and (error := self._fails(path))), None)
            if error is None:
                return sync(fs, given)
            if not isinstance(error, RejectedError):
                self._fails, self.failed = None, given
            raise error

        return watched


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> FaultyDisk:
    return FaultyDisk(monkeypatch)


def lose_a_write(_path: str) -> GobblinError:
    return RetryableError("EIO")


def test_a_file_whose_sync_failed_is_not_synced_again_but_written_anew(world: World, disk: FaultyDisk) -> None:
    def hook(point: Failpoint) -> None:
        if point is Failpoint.ATTEMPT_WRITTEN and not disk.failed:
            disk.arm(lose_a_write)

    with install(hook):
        assert not world.run().failed

    assert len([path for path in disk.failed if path.endswith(".parquet")]) >= len(world.lake.urns)
    later = disk.calls[disk.calls.index(disk.failed) + 1 :]
    assert not [path for call in later for path in call if path in disk.failed]
    world.check_exactly_once()


@pytest.mark.parametrize("is_taken_over", [False, True])
def test_a_rename_whose_sync_failed_is_counted_and_goes_on_with_the_next_run(
    world: World, disk: FaultyDisk, *, is_taken_over: bool
) -> None:
    def hook(point: Failpoint) -> None:
        if point is Failpoint.EXECUTED_BEFORE_SYNC and not disk.failed:
            disk.arm(lose_a_write)
            if is_taken_over:
                fence_out(world, min(world.lake.urns))

    with install(hook):
        report = world.run()

    assert {each.urn for each in report.failed} == set(world.lake.urns), "the error is everybody's who waited"
    counted = world.scalar("SELECT sum(failed_tries) FROM gobblin.commit_sequence WHERE state = 'PREPARED'")
    assert counted == len(world.lake.urns) - is_taken_over
    world.expire_leases()
    assert not world.run().failed
    world.check_exactly_once()


def test_a_directory_that_can_t_be_synced_is_its_own_dataset_s_error(world: World, disk: FaultyDisk) -> None:
    urn = min(world.lake.urns)
    place = path_of(world.lake.root, LAKE_JOB, DatasetUrn(urn), Role.DATA)

    def refuse(path: str) -> GobblinError | None:
        return RejectedError("EACCES", field="destination") if path.startswith(place) else None

    def hook(point: Failpoint) -> None:
        if point is Failpoint.EXECUTED_BEFORE_SYNC:
            disk.arm(refuse)

    with install(hook):
        report = world.run()

    assert [each.urn for each in report.failed] == [urn]
    disk.arm(lambda _path: None)
    world.expire_leases()
    assert not world.run().failed
    world.check_exactly_once()


def fence_out(world: World, urn: str) -> None:
    query = """
        UPDATE gobblin.lease SET fence = fence + 1, owner = 'another'
         WHERE lane_id = (SELECT dataset_id FROM gobblin.dataset WHERE urn = :urn)
    """
    with world.engine.begin() as connection:
        connection.execute(text(query), {"urn": urn})
