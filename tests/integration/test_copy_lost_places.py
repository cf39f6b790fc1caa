"""What the source lost at once stops the removals of that place, until a person confirms them."""

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gobblin_assets.model.state import DatasetOutcome
from tests.support import copy_lake
from tests.support.copy_lake import CopyLake, CopyWorld, Open, files_of, settle
from tests.support.mounts import bound, tmpfs

pytestmark = pytest.mark.turns(of=8)

job = copy_lake.job

FILES = ("albums/disk/a", "albums/disk/below/b", "albums/kept", "albums/gone")


@pytest.fixture
def lake(database_url: str, tmp_path: Path) -> CopyLake:
    return CopyLake(database_url, str(tmp_path), urns=("albums",))


@dataclass(frozen=True)
class Mount:
    """``albums/disk`` of the source, with those FILES that lie below it."""

    point: Path
    stack: ExitStack

    def take_away(self) -> None:
        self.stack.close()


@pytest.fixture(params=["tmpfs", "bind"])
def mount(lake: CopyLake, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Mount]:
    point, other = lake.source / "albums/disk", tmp_path / "other"
    point.mkdir(parents=True)
    other.mkdir()
    with ExitStack() as stack:
        stack.enter_context(tmpfs(point) if request.param == "tmpfs" else bound(other, point))
        for path in FILES:
            lake.write(path, 1)
        yield Mount(point, stack)


def outcomes(world: CopyWorld, *, confirm_deletes: bool = False, **options: Any) -> list[DatasetOutcome]:
    world.lines.clear()
    report = world.run(confirm_deletes=confirm_deletes, **options)
    assert not report.failed, report.failed
    return [each.outcome for each in report.datasets]


@pytest.mark.rotating(of=3)
@pytest.mark.core
@pytest.mark.parametrize("deletes", ["ours", "all"])
@pytest.mark.parametrize("left", ["nothing", "a file"])
def test_a_mount_that_is_away_removes_nothing_of_its_files(
    lake: CopyLake, job: Open, mount: Mount, deletes: str, left: str
) -> None:
    world = job(deletes=deletes, delete_max=1)
    outcomes(world)
    mount.take_away()
    if left == "a file":
        (mount.point / "not-mounted").write_text("put the disk in")
    (lake.source / "albums/gone").unlink()
    lake.write("albums/new", 1)

    assert outcomes(world) == [DatasetOutcome.PARTIAL]

    present = {*files_of(lake.tree)} - {"albums/disk/not-mounted"}
    assert present == {"albums/disk/a", "albums/disk/below/b", "albums/kept", "albums/new"}
    assert any("--confirm-deletes" in line and "albums/disk" in line for line in world.lines), world.lines
    # Whoever publishes meanwhile does not forget it.
    lake.write("albums/newer", 1)
    outcomes(world)
    assert {"albums/disk/a", "albums/newer"} <= {*files_of(lake.tree)}

    world = job(deletes=deletes)
    outcomes(world, confirm_deletes=True)
    assert files_of(lake.tree) == files_of(lake.source)
    outcomes(world)


def test_another_disk_at_the_place_is_not_the_one_that_was_published(lake: CopyLake, job: Open) -> None:
    point = lake.source / "albums/disk"
    world = job(deletes="ours")
    with tmpfs(point):
        for path in FILES:
            lake.write(path, 1)
        outcomes(world)
    with tmpfs(point):
        lake.write("albums/disk/other", 1)
        assert outcomes(world) == [DatasetOutcome.PARTIAL]
        assert {"albums/disk/a", "albums/disk/other"} <= {*files_of(lake.tree)}
        outcomes(world, confirm_deletes=True)
        assert files_of(lake.tree) == files_of(lake.source)
        # From now on it is the known one.
        (point / "other").unlink()
        lake.write("albums/disk/kept", 1)
        assert outcomes(world) == [DatasetOutcome.COMMITTED]
        assert files_of(lake.tree) == files_of(lake.source)


def test_a_mount_below_a_mount_is_not_forgotten_while_both_are_away(lake: CopyLake, job: Open, tmp_path: Path) -> None:
    point, other = lake.source / "albums/disk", tmp_path / "other"
    (other / "below").mkdir(parents=True)
    point.mkdir(parents=True)
    lake.write("albums/kept", 1)
    world = job(deletes="ours")
    with bound(other, point):
        lake.write("albums/disk/a", 1)
        with tmpfs(point / "below"):
            lake.write("albums/disk/below/b", 1)
            outcomes(world)
    lake.write("albums/new", 1)
    assert outcomes(world) == [DatasetOutcome.PARTIAL]
    with bound(other, point):
        lake.write("albums/disk/below/placeholder", 1)

        assert outcomes(world) == [DatasetOutcome.PARTIAL]

    assert {"albums/disk/a", "albums/disk/below/b"} <= {*files_of(lake.tree)}


def test_a_link_to_a_mount_that_is_away(lake: CopyLake, job: Open, tmp_path: Path) -> None:
    point = lake.source / "albums/disk"
    lake.write("albums/kept", 1)
    (lake.source / "albums/link").symlink_to("disk", target_is_directory=True)
    world = job(deletes="ours", links="follow")
    with tmpfs(point):
        lake.write("albums/disk/a", 1)
        outcomes(world)
    assert "albums/link/a" in files_of(lake.tree)
    lake.write("albums/disk/placeholder", 1)

    assert outcomes(world) == [DatasetOutcome.PARTIAL]

    assert {"albums/disk/a", "albums/link/a"} <= {*files_of(lake.tree)}


def test_the_whole_source_is_a_mount_that_is_away(lake: CopyLake, job: Open) -> None:
    with tmpfs(lake.source):
        for path in FILES:
            lake.write(path, 1)
        world = job(deletes="all")
        outcomes(world)
    lake.write("albums/readme", 1)

    assert outcomes(world) == [DatasetOutcome.PARTIAL]
    assert {*files_of(lake.tree)} == {*FILES, "albums/readme"}


@pytest.mark.rotating(of=3)
@pytest.mark.core
@pytest.mark.parametrize("options", [{}, {"include": ["*"]}, {"exclude": [".keep"]}, {"links": "follow"}])
def test_a_directory_that_lost_all_its_entries_at_once(lake: CopyLake, job: Open, options: dict[str, Any]) -> None:
    for path in FILES:
        lake.write(path, 1)
    world = job(deletes="ours", **options)
    outcomes(world)
    shutil.rmtree(lake.source / "albums/disk")
    (lake.source / "albums/disk").mkdir()
    if "exclude" in options:
        (lake.source / "albums/disk/.keep").touch()
    (lake.source / "albums/gone").unlink()

    assert outcomes(world) == [DatasetOutcome.PARTIAL]
    assert {*files_of(lake.tree)} == {"albums/disk/a", "albums/disk/below/b", "albums/kept"}
    assert any("albums/disk" in line and "2 files" in line for line in world.lines), world.lines

    # What comes there meanwhile does not make it whole again.
    lake.write("albums/disk/new", 1)
    assert outcomes(world) == [DatasetOutcome.PARTIAL]
    assert {*files_of(lake.tree)} == {"albums/disk/a", "albums/disk/below/b", "albums/kept", "albums/disk/new"}

    outcomes(world, confirm_deletes=True)
    assert {*files_of(lake.tree)} == {"albums/kept", "albums/disk/new"}
    # Once it is over, single files go as ever.
    lake.write("albums/disk/newer", 1)
    outcomes(world)
    (lake.source / "albums/disk/new").unlink()
    assert outcomes(world) == [DatasetOutcome.COMMITTED]
    assert {*files_of(lake.tree)} == {"albums/kept", "albums/disk/newer"}


def test_it_is_whole_again_when_its_files_are_back(lake: CopyLake, job: Open) -> None:
    for path in FILES:
        lake.write(path, 1)
    world = job(deletes="ours")
    outcomes(world)
    away = lake.source / "albums/disk"
    away.rename(lake.source / "away")
    away.mkdir()
    assert outcomes(world) == [DatasetOutcome.PARTIAL]
    away.rmdir()
    (lake.source / "away").rename(away)
    assert outcomes(world) == [DatasetOutcome.COMMITTED]

    (away / "a").unlink()

    assert outcomes(world) == [DatasetOutcome.COMMITTED]
    assert files_of(lake.tree) == files_of(lake.source)


def test_a_directory_that_was_removed_itself_is_removed(lake: CopyLake, job: Open) -> None:
    for path in FILES:
        lake.write(path, 1)
    for options in ({}, {"include": ["*"]}):
        world = job(deletes="ours", **options)
        outcomes(world)
        shutil.rmtree(lake.source / "albums/disk")
        assert outcomes(world) == [DatasetOutcome.COMMITTED]
        assert files_of(lake.tree) == files_of(lake.source)
        lake.write("albums/disk/a", 2)
        lake.write("albums/disk/below/b", 2)


def test_a_stream_says_it_once_and_publishes_nothing_more(lake: CopyLake, job: Open) -> None:
    for path in FILES:
        lake.write(path, 1)
    world = job(deletes="ours")
    outcomes(world)
    (lake.source / "albums/disk/below/b").unlink()
    outcomes(world, news_only=True)

    assert outcomes(world, news_only=True) == [DatasetOutcome.SKIPPED]
    assert "albums/disk/below/b" in files_of(lake.tree)


@pytest.mark.parametrize(("share", "is_refused"), [("40%", True), ("50%", False), ("0%", True), ("100%", False)])
def test_delete_max_may_be_a_share(lake: CopyLake, job: Open, share: str, is_refused: bool) -> None:
    for path in ("albums/a", "albums/b", "albums/c", "albums/d"):
        lake.write(path, 1)
    world = job(deletes="ours", delete_max=share)
    outcomes(world)
    (lake.source / "albums/a").unlink()
    (lake.source / "albums/b").unlink()

    report = world.run()

    assert bool(report.failed) is is_refused
    if is_refused:
        assert str(report.failed[0].error).startswith("delete_max:")
        assert len(files_of(lake.tree)) == 4
    else:
        assert files_of(lake.tree) == files_of(lake.source)


def test_a_share_is_of_all_files_also_of_directories_that_are_not_listed(lake: CopyLake, job: Open) -> None:
    lake.write("albums/a", 1)
    for number in range(8):
        lake.write(f"albums/rest/{number}", 1)
    lake.write("albums/more/a", 1)
    lake.write("albums/more/b", 1)
    settle(lake)
    world = job(deletes="ours", delete_max="10%", skip_unchanged_directories=True)
    outcomes(world)
    outcomes(world)
    (lake.source / "albums/more/a").unlink()

    outcomes(world)

    assert files_of(lake.tree) == files_of(lake.source)
