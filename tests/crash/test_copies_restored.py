"""A log of copies that was restored from a backup is reconciled with the tree, and nothing in the tree moves.

The backup may have a publication open that the lost history ended: recovered, finished by its own process, or given up.
"""

import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from gobblin_assets import failpoints
from gobblin_assets.commit.reconciliation import Way
from gobblin_assets.db.embedded import EmbeddedServer
from gobblin_assets.failpoints import Failpoint
from gobblin_assets.model.sequence_state import SequenceState
from gobblin_assets.model.state import DatasetOutcome
from tests.crash.test_copies import AN_ACT, SEALED, kill, pause
from tests.crash.test_kills import open_sequence
from tests.support import copy_lake
from tests.support.copy_lake import (
    OF_VERSION_2,
    REMOVED,
    REPLACED,
    CopyLake,
    CopyWorld,
    content_of,
    files_of,
    inodes_of,
)
from tests.support.copy_places import BUCKET, HDFS, make_copy_lake
from tests.support.lake import start_worker
from tests.support.restoring import Backup, backups, reconcile, start_reconciliation
from tests.support.shares import cross, rare, rotating
from tests.support.workers import Worker

pytestmark = pytest.mark.turns(of=4)

lake = copy_lake.lake

ALBUMS: Final = "albums"
MOVED_ASIDE: Final = Counter(content_of(path, 1) for path in (REMOVED, *REPLACED) if path.startswith(ALBUMS))
MOVED_ASIDE_TWICE: Final = MOVED_ASIDE + Counter(
    content_of(path, 2) for path in OF_VERSION_2 if path.startswith(ALBUMS)
)
OF_SETTING_ASIDE: Final = (
    Failpoint.FENCE_RAISED,
    Failpoint.ABANDON_RECORDED,
    Failpoint.LOST_DIRECTORY_MOVED,
    f"{Failpoint.LOST_DIRECTORY_MOVED}@2",
    Failpoint.LOST_FILES_MOVED,
    Failpoint.LOST_MARKER_MOVED,
    Failpoint.OPEN_SEQUENCE_ENDED,
    f"{Failpoint.LOST_MARKER_MOVED}@3",
)


@pytest.fixture
def backup(server: EmbeddedServer) -> Iterator[Backup]:
    with backups(server) as take:
        yield take


@pytest.fixture
def world(lake: CopyLake) -> Iterator[CopyWorld]:
    """The first version of one dataset was copied, and then the source changed."""
    opened = replace(lake, urns=(ALBUMS,)).open_world()
    assert not opened.run().failed
    lake.change_source()
    yield opened
    opened.close()


def kill_and_back_up(world: CopyWorld, backup: Backup, at: str) -> CopyWorld:
    """The world as it will be restored: one publication is open."""
    kill(world.lake, at)
    world.expire_leases()
    return back_up(world, backup)


def recover(world: CopyWorld) -> None:
    """End what is open, and publish nothing else."""
    world.operations().recover_due(None, on_publication=lambda _publication: None)


def back_up(world: CopyWorld, backup: Backup) -> CopyWorld:
    restored = backup(world)
    assert isinstance(restored, CopyWorld)
    return restored


def check_stopped(world: CopyWorld) -> None:
    assert [each.outcome for each in world.run().failed] == [DatasetOutcome.BLOCKED]


def check_goes_on(world: CopyWorld) -> None:
    """What differs is published, nothing is open, and the next change is published as ever."""
    assert not world.run().failed
    check_albums(world)
    world.lake.write("albums/changed.bin", 7)
    assert not world.run().failed
    check_albums(world)
    assert not world.stores.commits.list_open(None, limit=10)


def check_albums(world: CopyWorld) -> None:
    assert files_of(world.lake.tree / ALBUMS) == files_of(world.lake.source / ALBUMS)


@pytest.mark.rotating
@pytest.mark.parametrize("at", SEALED, ids=str)
def test_what_the_backup_has_open_was_recovered_in_the_history_that_was_lost(
    world: CopyWorld, backup: Backup, at: str
) -> None:
    restored = kill_and_back_up(world, backup, at)
    open_ = open_sequence(restored)
    assert not world.run().failed
    world.lake.change_again()
    assert not world.run().failed
    originals = inodes_of(world.lake.tree)
    check_stopped(restored)

    done = reconcile(restored, ALBUMS, Way.SET_ASIDE)

    assert done.ended == (open_,)
    assert restored.stores.commits.get(open_).state is SequenceState.ABORTED
    assert not restored.run().failed
    assert inodes_of(world.lake.tree) == originals, "files were copied that are the same"
    assert restored.slots() == MOVED_ASIDE_TWICE, "an older version is lost"
    assert done.aside is not None
    kept = [path for path in Path(done.aside).rglob("slots/*") if path.is_file()]
    assert Counter(path.read_bytes() for path in kept) == MOVED_ASIDE_TWICE, "it is not where the command says"
    check_goes_on(restored)


def test_what_the_backup_has_open_was_finished_by_its_own_process(world: CopyWorld, backup: Backup) -> None:
    taken: list[CopyWorld] = []

    def take(point: Failpoint) -> None:
        if point is Failpoint.SEALED_BEFORE_EXECUTE and not taken:
            taken.append(back_up(world, backup))

    with failpoints.install(take):
        assert not world.run().failed
    world.lake.change_again()
    assert not world.run().failed
    (restored,) = taken
    restored.expire_leases()
    originals = inodes_of(world.lake.tree)
    check_stopped(restored)

    done = reconcile(restored, ALBUMS, Way.SET_ASIDE)

    assert len(done.ended) == 1
    assert not restored.run().failed
    assert inodes_of(world.lake.tree) == originals
    check_goes_on(restored)


@pytest.mark.rotating
@pytest.mark.parametrize(("at", "then"), cross(SEALED, ("run", "abandon")), ids=str)
@pytest.mark.parametrize("way", Way)
def test_a_recovery_that_the_backup_does_not_have_is_only_a_newer_fence(
    world: CopyWorld, backup: Backup, way: Way, at: str, then: str
) -> None:
    """The lost history recovered what is open, and published nothing else: the directory has a name of that history."""
    before = files_of(world.lake.tree / ALBUMS)
    restored = kill_and_back_up(world, backup, at)
    kill(world.lake, Failpoint.ATTEMPTS_CAPTURED)
    world.expire_leases()
    recover(world)
    check_stopped(restored)

    done = reconcile(restored, ALBUMS, way)

    assert not done.ended
    if then == "abandon":
        restored.operations().abandon(open_sequence(restored), reason="a test")
        assert files_of(world.lake.tree / ALBUMS) == before
    check_goes_on(restored)


@pytest.mark.rotating
@pytest.mark.parametrize("at", SEALED, ids=str)
def test_what_the_lost_history_gave_up_can_be_given_up_again(world: CopyWorld, backup: Backup, at: str) -> None:
    restored = kill_and_back_up(world, backup, at)
    before = files_of(world.lake.tree / ALBUMS)
    world.operations().abandon(open_sequence(world), reason="a test")
    given_up = files_of(world.lake.tree / ALBUMS)
    assert at is Failpoint.SEAL_COMMITTED or given_up != before

    restored.operations().abandon(open_sequence(restored), reason="a test")

    assert files_of(world.lake.tree / ALBUMS) == given_up
    check_goes_on(restored)


@pytest.mark.rotating
@pytest.mark.parametrize("point", OF_SETTING_ASIDE, ids=str)
@pytest.mark.parametrize(
    "stopped_at",
    [rotating(f"{AN_ACT}@{n}") for n in (2, 3, 5)] + [rotating(Failpoint.MARKER_WRITTEN), Failpoint.STEP_BEFORE],
    ids=str,
)
def test_setting_aside_killed_anywhere_is_completed_and_who_wakes_up_then_moves_nothing(
    world: CopyWorld, backup: Backup, stopped_at: str, point: str
) -> None:
    """Whoever wakes up has put its marker: without one, nobody can know of it."""
    restored = kill_and_back_up(world, backup, f"{Failpoint.STEP_AFTER}@5")
    assert not world.run().failed
    world.lake.change_again()
    zombie = pause(world.lake, stopped_at)

    set_aside_twice(restored, point)

    check_albums(restored)
    check_zombie(restored, zombie)


@pytest.mark.parametrize(
    ("elsewhere", "sealed", "point"),
    [
        *(rare(BUCKET, f"{Failpoint.STEP_AFTER}@3", point) for point in OF_SETTING_ASIDE),
        *(rare(HDFS, f"{Failpoint.STEP_AFTER}@5", point) for point in OF_SETTING_ASIDE),
    ],
    ids=str,
)
def test_setting_aside_elsewhere_killed_anywhere_is_completed_and_who_wakes_up_then_moves_nothing(
    request: pytest.FixtureRequest,
    database_url: str,
    backup: Backup,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    elsewhere: str,
    sealed: str,
    point: str,
) -> None:
    there = make_copy_lake(request, elsewhere, database_url, tmp_path, monkeypatch)
    with closing(there.open_world()) as both, closing(replace(there, urns=(ALBUMS,)).open_world()) as albums:
        assert not both.run().failed
        there.change_source()
        both.engine.dispose()
        restored = kill_and_back_up(albums, backup, sealed)
        assert not albums.run().failed
        there.change_again()
        zombie = start_worker(albums.lake, failpoint=f"{Failpoint.STEP_BEFORE}=stop@2")
        zombie.wait_until_stopped()
        set_aside_twice(restored, point)
        before, originals, kept = there.look(), there.identities(), restored.slots()

        zombie.wake_up()
        zombie.wait()

        assert (there.look(), there.identities()) == (before, originals)
        # In a bucket, who wakes up may put one more version aside before it is refused.
        assert restored.slots() == kept or (elsewhere == BUCKET and restored.slots() > kept)
        assert not restored.run().failed
        assert not both.run(urns=["logs/app"]).failed
        both.check_trees()


@pytest.mark.rotating
@pytest.mark.parametrize("stopped_at", [Failpoint.ATTEMPTS_CLAIMED, Failpoint.ATTEMPTS_CAPTURED, f"{AN_ACT}@1"])
@pytest.mark.parametrize("way", ["run", "abandon"])
def test_who_was_overtaken_in_the_lost_history_moves_nothing_after_it_was_set_aside(
    world: CopyWorld, backup: Backup, way: str, stopped_at: str
) -> None:
    """It had the directory of what the backup has open, or was about to take it."""
    restored = kill_and_back_up(world, backup, f"{Failpoint.STEP_AFTER}@5")
    if way == "abandon":
        stopped_at = Failpoint.ABANDON_RECORDED if stopped_at is Failpoint.ATTEMPTS_CLAIMED else stopped_at
        stopped_at = Failpoint.ABANDON_CAPTURED if stopped_at is Failpoint.ATTEMPTS_CAPTURED else stopped_at
    argument = str(open_sequence(world)) if way == "abandon" else ""
    zombie = pause(world.lake, stopped_at, action=way, argument=argument)
    world.expire_leases()
    recover(world)
    world.lake.change_again()
    assert not world.run().failed

    reconcile(restored, ALBUMS, Way.SET_ASIDE)
    assert not restored.run().failed

    check_zombie(restored, zombie)


def set_aside_twice(restored: CopyWorld, point: str) -> None:
    """The first process is killed there, and the second one completes it."""
    open_ = open_sequence(restored)
    name, _, count = point.partition("@")
    worker = start_reconciliation(restored.lake, ALBUMS, Way.SET_ASIDE, failpoint=f"{name}=kill@{count or 1}")
    assert worker.wait() == -signal.SIGKILL
    assert worker.reached()
    restored.expire_leases()
    check_stopped(restored)
    reconcile(restored, ALBUMS, Way.SET_ASIDE)
    assert restored.stores.commits.get(open_).state is SequenceState.ABORTED
    assert not restored.run().failed


def check_zombie(restored: CopyWorld, zombie: Worker) -> None:
    tree = restored.lake.tree
    before, originals, kept = files_of(tree), inodes_of(tree), restored.slots()
    assert kept >= MOVED_ASIDE

    zombie.wake_up()
    zombie.wait()

    assert (files_of(tree), inodes_of(tree)) == (before, originals)
    assert restored.slots() == kept
    check_goes_on(restored)
