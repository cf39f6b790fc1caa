"""Attributes of files and directories that a copy keeps, and what it does where they alone differ."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from tests.support import copy_lake
from tests.support.copy_lake import CopyLake, CopyWorld, Open, inodes_of, look_at
from tests.support.copying import access_list

pytestmark = pytest.mark.turns(of=8)

lake = copy_lake.lake
job = copy_lake.job

CLOSED: Final = {"albums": 0o500, "albums/bare": 0o555, "albums/fresh": 0o2555, "albums/fresh/inside": 0o555}


def run(world: CopyWorld) -> None:
    report = world.run()
    assert not report.failed, report.failed


@pytest.mark.rotating(of=3)
@pytest.mark.core
@pytest.mark.parametrize("attributes", ["leave", "sync"])
def test_a_file_of_another_mode_is_left_or_copied_again(lake: CopyLake, job: Open, attributes: str) -> None:
    run(job())
    place, before = lake.tree / "albums/kept.bin", inodes_of(lake.tree)["albums/kept.bin"]
    (lake.source / "albums/kept.bin").chmod(0o640)

    run(job(attributes=attributes))

    assert place.stat().st_mode & 0o777 == (0o640 if attributes == "sync" else 0o601)
    assert (place.stat().st_ino != before) == (attributes == "sync")


def _add_attribute(path: Path) -> None:
    os.setxattr(path, "user.more", b"2")


def _change_attribute(path: Path) -> None:
    os.setxattr(path, "user.origin", b"changed")


def _remove_attribute(path: Path) -> None:
    os.removexattr(path, "user.origin")


def _change_access_list(path: Path) -> None:
    os.setxattr(path, "system.posix_acl_access", access_list(4321))


@pytest.mark.parametrize(
    ("letters", "change", "name"),
    [
        ("ptx", _add_attribute, "user.more"),
        ("ptx", _change_attribute, "user.origin"),
        ("ptx", _remove_attribute, "user.origin"),
        ("pta", _change_access_list, "system.posix_acl_access"),
        ("pta", _change_attribute, None),
        ("ptx", _change_access_list, None),
    ],
)
def test_a_file_of_other_access_lists_or_extended_attributes_is_copied_again(
    lake: CopyLake, job: Open, letters: str, change: Callable[[Path], None], name: str | None
) -> None:
    origin, place = lake.source / "albums/kept.bin", lake.tree / "albums/kept.bin"
    os.setxattr(origin, "user.origin", b"first")
    os.setxattr(origin, "system.posix_acl_access", access_list(1234))
    world = job(attributes="sync", preserve=letters)
    run(world)
    before = inodes_of(lake.tree)

    run(world)
    assert inodes_of(lake.tree) == before, "nothing has changed"
    mtime_ns = origin.stat().st_mtime_ns
    change(origin)
    os.utime(origin, ns=(mtime_ns, mtime_ns))
    run(world)

    now = inodes_of(lake.tree)
    assert {path for path in now if now[path] != before[path]} == ({"albums/kept.bin"} if name else set())
    if name is not None:
        kept = {each: os.getxattr(place, each) for each in os.listxattr(place)}
        assert kept.get(name) == (os.getxattr(origin, name) if name in os.listxattr(origin) else None)
    run(world)
    assert inodes_of(lake.tree) == now


def test_an_access_list_by_the_directory_s_default_is_no_reason_to_copy_again(lake: CopyLake, job: Open) -> None:
    run(job())
    for directory in (lake.tree, *(path for path in lake.tree.rglob("*") if path.is_dir())):
        os.setxattr(directory, "system.posix_acl_default", access_list(1234))
    lake.write("albums/later.bin", 1)
    world = job(attributes="sync", preserve="pta")
    run(world)
    before = inodes_of(lake.tree)

    run(world)

    assert "system.posix_acl_access" in os.listxattr(lake.tree / "albums/later.bin")
    assert inodes_of(lake.tree) == before


@pytest.mark.rotating(of=3)
@pytest.mark.core
@pytest.mark.parametrize("letters", ["pt", "ptx", "pta", "ptxa"])
def test_new_directories_get_access_lists_and_extended_attributes(lake: CopyLake, job: Open, letters: str) -> None:
    """The dataset's own directory is made empty, and one below it is published with its files."""
    lake.write("albums/fresh/inside/file", 1)
    (lake.source / "albums/bare").mkdir()
    names = ("albums", "albums/bare", "albums/fresh", "albums/fresh/inside")
    for name in names:
        os.setxattr(lake.source / name, "user.origin", name.encode())
        for kind in ("access", "default"):
            os.setxattr(lake.source / name, f"system.posix_acl_{kind}", access_list(1234))

    run(job(preserve=letters))

    expected = {"user.origin"} if "x" in letters else set()
    if "a" in letters:
        expected |= {"system.posix_acl_access", "system.posix_acl_default"}
    for name in names:
        kept = {each: os.getxattr(lake.tree / name, each) for each in os.listxattr(lake.tree / name)}
        assert kept == {each: os.getxattr(lake.source / name, each) for each in expected}
    assert look_at(lake.tree) == look_at(lake.source)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may write to every directory")
def test_directories_that_let_nobody_write_keep_their_modes(lake: CopyLake, job: Open) -> None:
    """A later run writes, replaces and removes in them."""
    lake.write("albums/fresh/inside/file", 1)
    (lake.source / "albums/bare").mkdir()
    for name, mode in CLOSED.items():
        (lake.source / name).chmod(mode)

    run(job(deletes="ours"))

    assert look_at(lake.tree) == look_at(lake.source)
    lake.write("albums/bare/later", 2)
    lake.write("albums/fresh/inside/file", 2)
    lake.write("albums/later/file", 2).parent.chmod(0o555)
    (lake.source / "albums/removed.bin").unlink()
    run(job(deletes="ours"))
    assert look_at(lake.tree) == look_at(lake.source)
