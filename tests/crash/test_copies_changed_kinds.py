"""Names that become a file's after a directory's, and the other way: the job's own versions give way, others don't."""

import shutil
from collections import Counter
from typing import Final

import pytest

from gobblin_assets.failpoints import Failpoint
from tests.crash.test_copies import check_complete, kill
from tests.crash.test_kills import open_sequence
from tests.support import copy_lake
from tests.support.copy_lake import CopyLake, CopyWorld, Open, content_of, files_of, look_at
from tests.support.shares import rotating

pytestmark = pytest.mark.turns(of=4)

world, job = copy_lake.world, copy_lake.job

BEFORE: Final = ("albums/to_file/a", "albums/to_file/deep/b", "albums/to_directory", "albums/kept", "albums/emptied/c")
AFTER: Final = (
    "albums/to_file",
    "albums/to_directory/a",
    "albums/to_directory/deep/b",
    "albums/kept",
    "albums/emptied",
)
GIVE_WAY: Final = BEFORE[:3]


@pytest.fixture
def lake(database_url: str, tmp_path_factory: pytest.TempPathFactory) -> CopyLake:
    made = CopyLake(database_url, str(tmp_path_factory.mktemp("lake")), urns=("albums",))
    for path in BEFORE:
        made.write(path, 1)
    return made


def change_kinds(lake: CopyLake, world: CopyWorld) -> None:
    """From BEFORE, which is published, and of which the job has emptied a directory since, to AFTER."""
    report = world.run()
    assert not report.failed, str(report.failed[0].error)
    shutil.rmtree(lake.source / "albums/emptied")
    report = world.run()
    assert not report.failed, str(report.failed[0].error)
    assert (lake.tree / "albums/emptied").is_dir()
    shutil.rmtree(lake.source / "albums/to_file")
    (lake.source / "albums/to_directory").unlink()
    for path in AFTER:
        lake.write(path, 2)


def kept(world: CopyWorld) -> Counter[bytes]:
    return Counter(path.read_bytes() for path in world.lake.tree.rglob("slots/*") if path.is_file())


def test_a_name_of_another_kind_is_published_in_one_run(lake: CopyLake, world: CopyWorld) -> None:
    change_kinds(lake, world)

    (report,) = world.run().datasets

    assert report.error is None
    assert report.figures["removed"] == len(GIVE_WAY)
    check_complete(world)
    assert kept(world) >= Counter(content_of(path, 1) for path in GIVE_WAY)
    world.lines.clear()
    report = world.run()
    assert not report.failed, str(report.failed[0].error)
    assert any("nothing differs" in line for line in world.lines), world.lines


ACTS: Final = 11
"""Three files and three directories moved away, three published, one replaced by two renames."""


@pytest.mark.rotating
@pytest.mark.parametrize(
    "at",
    [
        Failpoint.SEAL_COMMITTED,
        *(rotating(f"{Failpoint.STEP_AFTER}@{number}") for number in range(1, ACTS)),
        Failpoint.VERIFIED_BEFORE_FINISH,
    ],
    ids=str,
)
@pytest.mark.parametrize("way", ["completed", rotating("abandoned")])
def test_killed_anywhere_it_is_completed_or_taken_back(lake: CopyLake, world: CopyWorld, at: str, way: str) -> None:
    change_kinds(lake, world)
    before = look_at(lake.tree)
    kill(lake, at)
    world.expire_leases()
    if way == "abandoned":
        world.operations().abandon(open_sequence(world), reason="a test")
        assert look_at(lake.tree) == before

    report = world.run()
    assert not report.failed, str(report.failed[0].error)

    check_complete(world)


@pytest.mark.parametrize("way", ["completed", "abandoned"])
def test_a_new_directory_that_is_published_in_parts(
    lake: CopyLake, job: Open, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = job(deletes="ours", split={"bytes_min": 10})
    change_kinds(lake, world)
    before = look_at(lake.tree)
    kill(world.lake, Failpoint.VERIFIED_BEFORE_FINISH)
    world.expire_leases()
    if way == "abandoned":
        world.operations().abandon(open_sequence(world), reason="a test")
        assert files_of(lake.tree) == files_of_look(before)

    report = world.run()
    assert not report.failed, str(report.failed[0].error)

    check_complete(world)


def files_of_look(look: copy_lake.Look) -> copy_lake.Look:
    return {name: found for name, found in look.items() if len(found) > 1}


@pytest.mark.parametrize("whose", ["a stranger's file", "a changed file", "a link", "an excluded file"])
def test_what_is_not_the_job_s_own_never_gives_way(lake: CopyLake, job: Open, whose: str) -> None:
    world = job(deletes="ours", exclude=["*.tmp"])
    change_kinds(lake, world)
    directory = lake.tree / "albums/to_file/deep"
    match whose:
        case "a stranger's file":
            (directory / "theirs").write_text("mine")
        case "a changed file":
            (directory / "b").write_text("mine")
        case "a link":
            (directory / "theirs").symlink_to("b")
        case _:
            (directory / "x.tmp").write_text("mine")
    before = look_at(lake.tree)

    (report,) = world.run().datasets

    assert "to_file is a file in the source and a directory at the destination" in str(report.error)
    assert look_at(lake.tree) == before


def test_without_deletes_only_an_empty_directory_gives_way(lake: CopyLake, job: Open) -> None:
    change_kinds(lake, job(deletes="ours"))
    world = job(deletes="off")
    before = look_at(lake.tree)

    (report,) = world.run().datasets

    assert "deletes" in str(report.error)
    assert look_at(lake.tree) == before
    (lake.source / "albums/to_file").unlink()
    shutil.rmtree(lake.source / "albums/to_directory")
    report = world.run()
    assert not report.failed, str(report.failed[0].error)
    assert (lake.tree / "albums/emptied").is_file()


def test_they_count_among_the_removals(lake: CopyLake, job: Open) -> None:
    change_kinds(lake, job(deletes="ours"))

    (report,) = job(deletes="ours", delete_max=2).run().datasets

    assert str(report.error).startswith("delete_max:")


def test_a_stranger_who_comes_meanwhile_blocks_and_stays(lake: CopyLake, world: CopyWorld) -> None:
    change_kinds(lake, world)
    kill(lake, Failpoint.SEAL_COMMITTED)
    world.expire_leases()
    theirs = lake.tree / "albums/to_file/deep/theirs"
    theirs.write_text("mine")

    (report,) = world.run().datasets

    assert world.stores.commits.get(open_sequence(world)).state == "BLOCKED", report
    assert theirs.read_text() == "mine"
    theirs.rename(lake.source.parent / "elsewhere")
    world.operations().resume(open_sequence(world))
    report = world.run()
    assert not report.failed, str(report.failed[0].error)
    check_complete(world)
