"""Rows on HDFS, where each file is renamed by itself: killed, paused and given up as on a disk."""

import os
from pathlib import Path

import pytest

from gobblin_assets.failpoints import Failpoint
from tests.crash.test_kills import (
    OF_A_RUN,
    OF_ABANDONMENT,
    OF_RECOVERY,
    check_every_sequence_was_announced,
    kill_at,
    open_sequence,
)
from tests.crash.test_zombies import AFTER_THE_SEAL, require_harmless, visible_files_of
from tests.support.hdfs_server import HdfsServer
from tests.support.kinds import HDFS
from tests.support.lake import Lake, World, make_lake, start_worker

pytestmark = pytest.mark.turns(of=4)


@pytest.fixture
def lake(hdfs_server: HdfsServer, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    for name in (*hdfs_server.environment, "HADOOP_USER_NAME"):
        monkeypatch.setenv(name, os.environ.get(name, ""))  # put back after the test
    store = hdfs_server.uri(hdfs_server.make_root())
    return make_lake(
        database_url, tmp_path, ("numbered_rows", HDFS), store=store, environment=dict(hdfs_server.environment)
    )


@pytest.mark.rare
@pytest.mark.parametrize("point", OF_A_RUN, ids=str)
def test_a_run_killed_anywhere_is_completed_by_the_next(lake: Lake, world: World, point: Failpoint) -> None:
    kill_at(lake, f"{point}=kill@{1 if point in OF_A_RUN[:2] else 2}")
    world.expire_leases()
    for urn in lake.urns:
        lake.add_rows(urn, 5)

    assert not world.run().failed

    world.check_exactly_once()
    check_every_sequence_was_announced(world)


@pytest.mark.rare
@pytest.mark.parametrize("point", OF_RECOVERY, ids=str)
def test_recovery_killed_anywhere_is_completed_by_the_next(lake: Lake, world: World, point: Failpoint) -> None:
    kill_at(lake, f"{Failpoint.STEP_AFTER}=kill")
    world.expire_leases()
    kill_at(lake, f"{point}=kill")
    world.expire_leases()

    world.run()

    world.check_exactly_once()


@pytest.mark.rare
@pytest.mark.parametrize("point", OF_ABANDONMENT, ids=str)
def test_an_abandonment_killed_anywhere_leaves_nothing_visible(lake: Lake, world: World, point: Failpoint) -> None:
    kill_at(lake, f"{Failpoint.STEP_AFTER}=kill")
    world.expire_leases()
    sequence_id = open_sequence(world)
    kill_at(lake, f"{point}=kill", action="abandon", argument=str(sequence_id))
    world.expire_leases()

    world.operations().recover_due(None, on_publication=lambda _publication: None)

    assert world.stores.commits.get(sequence_id).state == "ABORTED"
    assert not [path for path in world.stored_files() if sequence_id.hex in path], "files of the abandoned stay visible"
    world.run()
    world.check_exactly_once()


@pytest.mark.rare
@pytest.mark.parametrize("point", OF_A_RUN, ids=str)
def test_a_zombie_that_wakes_up_changes_nothing(lake: Lake, world: World, point: Failpoint) -> None:
    zombie = start_worker(lake, failpoint=f"{point}=stop")
    zombie.wait_until_stopped()
    world.expire_leases()
    for urn in lake.urns:
        lake.add_rows(urn, 5)
    world.run()

    require_harmless(world, zombie)


@pytest.mark.rare
@pytest.mark.parametrize("point", AFTER_THE_SEAL, ids=str)
def test_a_zombie_finds_nothing_to_rename_after_an_abandonment(lake: Lake, world: World, point: Failpoint) -> None:
    zombie = start_worker(lake, failpoint=f"{point}=stop")
    zombie.wait_until_stopped()
    world.expire_leases()
    sequence_id = open_sequence(world)
    world.operations().abandon(sequence_id, reason="given up by a person")
    assert visible_files_of(world, sequence_id) == []

    zombie.wake_up()
    zombie.wait()

    assert visible_files_of(world, sequence_id) == [], "the zombie published a part of what was given up"
    world.run()
    world.check_exactly_once()
