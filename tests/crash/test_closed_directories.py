"""Copies by a user who may not write everywhere, with directories that let nobody write: killed anywhere, these have
the source's modes in the end, and a stranger's mode is left alone.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from gobblin_assets.failpoints import Failpoint
from tests.crash.points import OF_A_CAPTURE
from tests.crash.test_kills import OF_ABANDONMENT, kill_at, open_sequence
from tests.support import copy_lake
from tests.support.copy_lake import CopyLake, CopyWorld, look_at
from tests.support.lake import start_worker

pytestmark = pytest.mark.turns(of=4)

lake, world = copy_lake.lake, copy_lake.world

AT_FIRST: Final = {"albums": 0o555, "logs/app": 0o500}
AFTER_THE_CHANGE: Final = {
    "albums/trip/sea": 0o555,
    "albums/trip": 0o2555,
    "albums/empty/nested": 0o500,
    "albums/empty": 0o555,
}
ACTS: Final = range(1, 19)
"""``albums``: opened, two directories made, two names placed, two replaced by two renames each, one removed, and four
directories closed. Then ``logs/app``: opened, a file replaced, closed."""

OPENED, AMID, CLOSED_ONE, CLOSED = (f"{Failpoint.STEP_AFTER}@{number}" for number in (1, 6, 12, 14))


@pytest.fixture
def confined(lake: CopyLake) -> CopyLake:
    """For processes of their own: the tests' own one keeps its rights. The source has changed since the first copy."""
    made = replace(lake, is_confined=True)
    close(made, AT_FIRST)
    assert start_worker(made).wait() == 0
    assert look_at(made.tree) == look_at(made.source)
    made.change_source()
    close(made, AFTER_THE_CHANGE)
    return made


def close(made: CopyLake, modes: dict[str, int]) -> None:
    for path, mode in modes.items():
        (made.source / path).chmod(mode)


def kill(made: CopyLake, at: str, **how: str) -> None:
    point, _, count = at.partition("@")
    kill_at(made, f"{point}=kill@{count or 1}", **how)


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o7777


def test_directories_have_the_source_s_modes_whatever_changes_in_them(confined: CopyLake, world: CopyWorld) -> None:
    assert start_worker(confined).wait() == 0
    world.check_copied()

    confined.change_again()
    for path in ("albums/trip/sea/deeper", "logs/app/old"):
        (confined.source / path).mkdir()
        confined.write(f"{path}/file", 3)
    assert start_worker(confined).wait() == 0
    world.check_copied()


def change_kinds(made: CopyLake) -> None:
    """A file becomes a closed directory, and a closed directory, with another one in it, a file."""
    assert start_worker(made).wait() == 0
    (made.source / "albums/kept.bin").unlink()
    made.write("albums/kept.bin/file", 3).parent.chmod(0o555)
    for name in ("nested", ""):
        (made.source / "albums/empty" / name).rmdir()
    made.write("albums/empty", 3)


def test_what_changes_its_kind_in_a_closed_directory_gives_way(confined: CopyLake, world: CopyWorld) -> None:
    change_kinds(confined)

    assert start_worker(confined).wait() == 0

    world.check_copied()


@pytest.mark.rotating
def test_what_gave_way_in_a_closed_directory_comes_back_closed(confined: CopyLake, world: CopyWorld) -> None:
    change_kinds(confined)
    before = look_at(confined.tree)
    kill(confined, Failpoint.VERIFIED_BEFORE_FINISH)
    world.expire_leases()

    assert start_worker(confined, action="abandon", argument=str(open_sequence(world))).wait() == 0

    assert look_at(confined.tree) == before


@pytest.mark.rare
@pytest.mark.parametrize("point", [Failpoint.STEP_BEFORE, Failpoint.STEP_AFTER])
@pytest.mark.parametrize("number", ACTS)
def test_a_change_killed_at_any_act_is_completed_by_the_next(
    confined: CopyLake, world: CopyWorld, point: Failpoint, number: int
) -> None:
    kill(confined, f"{point}@{number}")
    world.expire_leases()

    assert start_worker(confined).wait() == 0

    world.check_copied()


@pytest.mark.rare
@pytest.mark.parametrize("first", [OPENED, AMID, CLOSED_ONE, CLOSED])
@pytest.mark.parametrize(
    "second",
    [
        *OF_A_CAPTURE,
        f"{Failpoint.STEP_BEFORE}@1",
        f"{Failpoint.STEP_AFTER}@1",
        f"{Failpoint.STEP_AFTER}@4",
        Failpoint.VERIFIED_BEFORE_FINISH,
    ],
)
def test_a_recovery_killed_anywhere_is_completed_by_the_next(
    confined: CopyLake, world: CopyWorld, first: str, second: str
) -> None:
    for at in (first, second):
        kill(confined, at)
        world.expire_leases()

    assert start_worker(confined).wait() == 0

    world.check_copied()


@pytest.mark.rare
@pytest.mark.parametrize("sealed", [OPENED, AMID, CLOSED_ONE, CLOSED])
@pytest.mark.parametrize("point", [*OF_ABANDONMENT, None])
def test_an_abandonment_killed_anywhere_leaves_directories_closed(
    confined: CopyLake, world: CopyWorld, sealed: str, point: Failpoint | None
) -> None:
    before = look_at(confined.tree)
    kill(confined, sealed)
    world.expire_leases()
    sequence_id = open_sequence(world)
    if point is not None:
        kill(confined, point, action="abandon", argument=str(sequence_id))
        world.expire_leases()
    else:
        assert start_worker(confined, action="abandon", argument=str(sequence_id)).wait() == 0

    assert start_worker(confined, action="recover").wait() == 0

    assert world.stores.commits.get(sequence_id).state == "ABORTED"
    after = look_at(confined.tree)
    assert {path: after[path] for path in before} == before
    left = {path: found for path, found in after.items() if path not in before}
    assert left == {path: (AFTER_THE_CHANGE[path],) for path in left}, "a directory that was made stays open"


def _change_the_mode(tree: Path) -> None:
    (tree / "albums").chmod(0o700)


def _replace(tree: Path) -> None:
    (tree / "albums").rename(tree / "elsewhere")
    (tree / "albums").mkdir(0o755)
    for each in (tree / "elsewhere").iterdir():
        each.rename(tree / "albums" / each.name)
    (tree / "elsewhere").rmdir()


@pytest.mark.rotating
@pytest.mark.parametrize(
    ("disturb", "mode"), [(_change_the_mode, 0o700), (_replace, 0o755)], ids=["a mode", "a directory"]
)
def test_a_stranger_s_directory_keeps_its_mode(
    confined: CopyLake, world: CopyWorld, disturb: Callable[[Path], None], mode: int
) -> None:
    """Once all names are as they should be, and the first directory is to be closed."""
    kill(confined, f"{Failpoint.STEP_BEFORE}@11")
    world.expire_leases()
    disturb(confined.tree)

    assert start_worker(confined).wait() == 0

    assert mode_of(confined.tree / "albums") == mode
    (confined.source / "albums").chmod(mode)
    world.check_trees()
