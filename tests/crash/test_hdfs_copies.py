"""Copies to HDFS, killed and paused: names hold what the log says, and no version of a file is ever lost."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from gobblin_assets.db.embedded import EmbeddedServer
from gobblin_assets.failpoints import Failpoint
from tests.crash.test_copies import MOVED_ASIDE, MOVED_ASIDE_TWICE, check_complete, kill
from tests.crash.test_copies_restored import OF_SETTING_ASIDE, kill_and_back_up, set_aside_twice
from tests.crash.test_copies_strangers import abandon_beside
from tests.crash.test_kills import open_sequence
from tests.support import copy_lake
from tests.support.copy_lake import look_at
from tests.support.hdfs_lake import HdfsLake, HdfsWorld, make_hdfs_lake
from tests.support.hdfs_place import HdfsClient
from tests.support.hdfs_server import HdfsServer
from tests.support.lake import start_worker
from tests.support.restoring import backups

world, changed = copy_lake.world, copy_lake.changed

POINTS: Final = (
    Failpoint.ATTEMPT_REGISTERED,
    Failpoint.ATTEMPT_WRITTEN,
    Failpoint.STAGE_COMMITTED,
    Failpoint.SEAL_COMMITTED,
    Failpoint.MARKER_WRITTEN,
    f"{Failpoint.STEP_AFTER}@2",
    f"{Failpoint.STEP_AFTER}@6",
    f"{Failpoint.STEP_AFTER}@8",
    Failpoint.VERIFIED_BEFORE_FINISH,
    Failpoint.FINISHED_BEFORE_EVENTS,
)
"""Ten, from the first byte to the last event: among the acts are directories, renames of a replacement, removals."""


@pytest.fixture
def lake(hdfs_server: HdfsServer, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HdfsLake:
    for name in (*hdfs_server.environment, "HADOOP_USER_NAME"):
        monkeypatch.setenv(name, os.environ.get(name, ""))  # put back after the test
    return make_hdfs_lake(hdfs_server, database_url, tmp_path)


@pytest.mark.rotating
@pytest.mark.parametrize("at", POINTS, ids=str)
@pytest.mark.turns("kills of copies to HDFS")
def test_a_change_killed_anywhere_is_completed_by_the_next(lake: HdfsLake, changed: HdfsWorld, at: str) -> None:
    kill(lake, at)
    changed.expire_leases()

    assert not changed.run().failed

    check_complete(changed)
    assert changed.slots() == MOVED_ASIDE


@pytest.mark.rotating
@pytest.mark.parametrize(
    "at",
    [
        f"{Failpoint.STEP_AFTER}@1",
        f"{Failpoint.STEP_BEFORE}@5",
        f"{Failpoint.STEP_BEFORE}@11",
        f"{Failpoint.STEP_AFTER}@13",
        Failpoint.VERIFIED_BEFORE_FINISH,
    ],
)
@pytest.mark.parametrize("way", ["resumed", "abandoned"])
@pytest.mark.turns("kills of copies to HDFS")
def test_an_ordinary_user_s_closed_directories_are_closed_again(lake: HdfsLake, at: str, way: str) -> None:
    HdfsClient(lake.http_address).ask("PUT", lake.place, "SETOWNER", owner="ann")
    ordinary = replace(lake, environment=(*lake.environment, ("GOBBLIN_HDFS_USER", "ann")))
    (lake.source / "albums").chmod(0o555)
    assert start_worker(ordinary).wait() == 0
    before = lake.look()
    assert before == look_at(lake.source)
    lake.change_source()
    (lake.source / "albums/new.bin").chmod(0o444)
    for path in ("trip/sea", "trip", "empty/nested", "empty"):
        (lake.source / "albums" / path).chmod(0o555)
    kill(ordinary, at)
    world = lake.open_world()
    world.expire_leases()
    if way == "abandoned":
        sequence_id = str(open_sequence(world))
        assert start_worker(ordinary, action="abandon", argument=sequence_id).wait() == 0
        now = lake.look()
        assert {name: now[name] for name in before} == before
        assert {found for name, found in now.items() if name not in before} <= {(0o555,)}

    assert start_worker(ordinary).wait() == 0

    check_complete(world)
    world.close()


@pytest.mark.thorough
@pytest.mark.parametrize("at", [Failpoint.STEP_BEFORE, f"{Failpoint.STEP_AFTER}@6", Failpoint.EXECUTED_BEFORE_SYNC])
@pytest.mark.parametrize("way", ["resumed", "abandoned"])
def test_a_paused_copy_changes_nothing_when_it_wakes_up(lake: HdfsLake, changed: HdfsWorld, at: str, way: str) -> None:
    point, _, count = at.partition("@")
    zombie = start_worker(lake, failpoint=f"{point}=stop@{count or 1}")
    zombie.wait_until_stopped()
    changed.expire_leases()
    if way == "abandoned":
        changed.operations().abandon(open_sequence(changed), reason="a test")
    assert not changed.run().failed
    lake.change_again()
    assert not changed.run().failed
    changed.check_copied()
    before, stood = lake.look(), lake.file_ids()

    zombie.wake_up()
    assert zombie.wait() in (0, 1), "the zombie crashed instead of giving up"

    assert (lake.look(), lake.file_ids()) == (before, stood)
    assert changed.slots() == MOVED_ASIDE_TWICE
    assert not changed.run().failed
    check_complete(changed)
    assert lake.file_ids() == stood


@pytest.mark.thorough
@pytest.mark.parametrize("at", [Failpoint.SEAL_COMMITTED, f"{Failpoint.STEP_AFTER}@6", f"{Failpoint.STEP_AFTER}@8"])
def test_an_abandonment_gives_the_old_versions_back(lake: HdfsLake, changed: HdfsWorld, at: str) -> None:
    before, stood = lake.look(), lake.file_ids()
    kill(lake, at)
    changed.expire_leases()

    changed.operations().abandon(open_sequence(changed), reason="a test")

    now = lake.look()
    assert {name: now.get(name) for name in before} == before
    ids = lake.file_ids()
    assert {name: ids.get(name) for name in stood} == stood, "these are other files"
    assert not changed.run().failed
    check_complete(changed)
    assert changed.slots() == MOVED_ASIDE


@pytest.mark.rotating
@pytest.mark.parametrize("name", ["new.bin", "changed.bin", "removed.bin"])
@pytest.mark.turns("kills of copies to HDFS")
def test_a_stranger_at_a_name_blocks_and_stays(lake: HdfsLake, changed: HdfsWorld, name: str) -> None:
    kill(lake, Failpoint.SEAL_COMMITTED)
    changed.expire_leases()
    sequence_id = open_sequence(changed)
    HdfsClient(lake.http_address).write(f"{lake.place}/albums/{name}", b"mine")
    stood = lake.file_ids()[f"albums/{name}"]

    assert [str(report.urn) for report in changed.run().failed] == ["albums"]

    assert changed.stores.commits.get(sequence_id).state == "BLOCKED"
    abandon_beside(changed, sequence_id)
    assert lake.file_ids()[f"albums/{name}"] == stood
    assert HdfsClient(lake.http_address).read(f"{lake.place}/albums/{name}") == b"mine"
    assert not changed.run().failed


@pytest.mark.rare
@pytest.mark.parametrize("point", OF_SETTING_ASIDE, ids=str)
def test_setting_aside_killed_anywhere_is_completed_and_who_wakes_up_then_moves_nothing(
    server: EmbeddedServer, lake: HdfsLake, changed: HdfsWorld, point: str
) -> None:
    changed.close()
    albums = replace(lake, urns=("albums",)).open_world()
    with backups(server) as backup:
        restored = kill_and_back_up(albums, backup, f"{Failpoint.STEP_AFTER}@5")
        assert not albums.run().failed
        lake.change_again()
        zombie = start_worker(albums.lake, failpoint=f"{Failpoint.STEP_BEFORE}=stop@2")
        zombie.wait_until_stopped()
        set_aside_twice(restored, point)
        before, stood, kept = lake.look(), lake.file_ids(), restored.slots()

        zombie.wake_up()
        zombie.wait()

        assert (lake.look(), lake.file_ids(), restored.slots()) == (before, stood, kept)
        assert not restored.run().failed
        assert not changed.run(urns=["logs/app"]).failed
        changed.check_trees()
    albums.close()
