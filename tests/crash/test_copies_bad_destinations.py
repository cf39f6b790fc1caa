"""Copies whose destination fills up, turns read-only or is closed to them, and a log that was restored meanwhile.

At every moment each name has the old or the new version, and the next run after the repair completes all.
"""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gobblin_assets import failpoints
from gobblin_assets.db.embedded import EmbeddedServer
from gobblin_assets.errors import RejectedError
from gobblin_assets.failpoints import Failpoint
from gobblin_assets.model.state import DatasetOutcome
from tests.support.copy_lake import CopyLake, CopyWorld, files_of
from tests.support.mounts import remount_read_only, tmpfs
from tests.support.ordinary_user import Loss, ordinary_user, run
from tests.support.postgres import make_reachable_directory
from tests.support.restoring import backups
from tests.support.shares import rotating

pytestmark = pytest.mark.turns(of=4)


@pytest.fixture
def small(database_url: str, tmp_path: Path) -> Iterator[CopyWorld]:
    """On a disk of its own, the first version was copied; the source has changed since."""
    lake = CopyLake(database_url, str(tmp_path), urns=("albums",))
    with tmpfs(lake.tree, options="size=512k,mode=755"):
        lake.make_source()
        world = lake.open_world()
        assert not world.run().failed
        lake.change_source()
        yield world
        world.close()


def check_names(world: CopyWorld, before: dict[str, tuple[object, ...]]) -> None:
    """Each name has its old version or the new one, whole."""
    source, found = files_of(world.lake.source / "albums"), files_of(world.lake.tree / "albums")
    for path in {*before, *found}:
        assert found.get(path) in (before.get(path), source.get(path)), path


def check_albums(world: CopyWorld) -> None:
    assert files_of(world.lake.tree / "albums") == files_of(world.lake.source / "albums")


def test_a_copy_to_a_full_disk_changes_no_name_and_the_next_one_copies_all(small: CopyWorld) -> None:
    large = small.lake.source / "albums/large.bin"
    large.write_bytes(b"large" * 100_000)
    before = files_of(small.lake.tree / "albums")
    ballast = small.lake.tree / "ballast"
    ballast.write_bytes(b"\0" * 300 * 1024)

    report = small.run()

    assert [each.error_family for each in report.failed] == ["RetryableError"]
    assert files_of(small.lake.tree / "albums") == before
    ballast.unlink()
    large.write_bytes(b"smaller" * 1_000)
    assert not small.run().failed
    check_albums(small)


@pytest.mark.parametrize("count", [1, *map(rotating, range(2, 7))])
def test_a_destination_that_turns_read_only_between_two_moves_is_completed_later(small: CopyWorld, count: int) -> None:
    before = files_of(small.lake.tree / "albums")
    reached = 0

    def lock(point: Failpoint) -> None:
        nonlocal reached
        if point is Failpoint.STEP_BEFORE:
            reached += 1
            if reached == count:
                remount_read_only(small.lake.tree)

    with failpoints.install(lock):
        report = small.run()

    assert [each.error_family for each in report.failed] == ["RejectedError"]
    check_names(small, before)
    with pytest.raises(RejectedError, match="EROFS"):
        small.run()
    subprocess.run(["mount", "-o", "remount,rw", small.lake.root], check=True)
    assert not small.run().failed
    check_albums(small)


@pytest.mark.parametrize(
    ("mode", "point"),
    [
        (0o555, f"{Failpoint.STEP_BEFORE}@1"),
        rotating(0o555, f"{Failpoint.STEP_AFTER}@3"),
        rotating(0o555, f"{Failpoint.STEP_AFTER}@6"),
        rotating(0o333, f"{Failpoint.EXECUTED_BEFORE_SYNC}@1"),
        rotating(0o666, f"{Failpoint.SYNCED_BEFORE_VERIFY}@1"),
    ],
)
def test_a_directory_that_may_no_longer_be_changed_waits_for_the_right(
    server: EmbeddedServer, database_url: str, mode: int, point: str
) -> None:
    with ordinary_user() as user:
        directory = make_reachable_directory("gobblin-copies-")
        lake = CopyLake(user.url_of(server, database_url, directory), str(directory), urns=("albums",))
        lake.tree.mkdir()
        lake.make_source()
        for path in (directory, lake.tree, *lake.source.rglob("*")):
            user.own(path)
        assert {each.outcome for each in user.do(run, lake).datasets.values()} == {DatasetOutcome.COMMITTED}
        lake.change_source()
        for path in lake.source.rglob("*"):
            user.own(path)
        before = files_of(lake.tree / "albums")
        name, _, count = point.partition("@")

        lost = user.do(run, lake, Loss(Failpoint(name), str(lake.tree / "albums"), mode, int(count)))

        assert lost.was_lost
        (failed,) = lost.datasets.values()
        assert (failed.error_family, "EACCES" in str(failed.error)) == ("RejectedError", True)
        world = lake.open_world()
        check_names(world, before)
        (lake.tree / "albums").chmod(0o755)
        assert {each.outcome for each in user.do(run, lake).datasets.values()} == {DatasetOutcome.COMMITTED}
        check_albums(world)
        world.close()
    shutil.rmtree(directory)


@pytest.mark.parametrize("runs", [1, rotating(2)])
def test_copies_that_a_restored_log_forgot_stop_the_dataset_and_nothing_moves(
    server: EmbeddedServer, database_url: str, tmp_path: Path, runs: int
) -> None:
    lake = CopyLake(database_url, str(tmp_path))
    lake.make_source()
    world = lake.open_world()
    assert not world.run().failed
    with backups(server) as backup:
        restored = backup(world)
        for number in range(runs):
            lake.write("albums/changed.bin", 2 + number)
            assert not world.run(urns=["albums"]).failed
        world.close()
        before = files_of(lake.tree)
        lake.write("albums/changed.bin", 9)
        lake.write("logs/app/today.log", 9)

        report = restored.run()

        (stopped,) = report.failed
        assert (stopped.urn, stopped.outcome) == ("albums", DatasetOutcome.BLOCKED)
        assert "restored from an older backup" in str(stopped.error)
        after = files_of(lake.tree)
        assert {path for path in {*before, *after} if before.get(path) != after.get(path)} == {"logs/app/today.log"}
