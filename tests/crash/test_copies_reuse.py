"""Copies that are killed amid their files: the next run takes what is finished, as it was, and nothing else."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from gobblin_assets import failpoints
from gobblin_assets.destinations.claims import WORK_NAME
from gobblin_assets.failpoints import Failpoint
from gobblin_assets.jobs.copy.transfer.journal import JOURNAL_NAME
from tests.crash.points import OF_A_REUSE
from tests.crash.test_copies import check_complete, check_paused, kill
from tests.support import copy_lake
from tests.support.copy_lake import CopyLake, CopyWorld, inodes_of, opening
from tests.support.lake import start_worker
from tests.support.shares import rotating

pytestmark = pytest.mark.turns(of=4)

lake, world = copy_lake.lake, copy_lake.world

MANY: Final = 2_000
AGAIN_MAX: Final = MANY // 20
ALBUMS: Final = "albums/many"
_TAKEN: Final = re.compile(r"([\d,]+) of ([\d,]+) files were there from an earlier attempt")


def taken(world: CopyWorld) -> list[tuple[int, int]]:
    """Of each attempt that took files: how many, and how many it staged."""
    found = (_TAKEN.search(line) for line in world.lines)
    return [(int(each[1].replace(",", "")), int(each[2].replace(",", ""))) for each in found if each]


def left(world: CopyWorld) -> list[Path]:
    """The files that killed attempts left, by their staged paths."""
    staging = Path(world.lake.root, WORK_NAME).rglob("w0*/**/*")
    return sorted(path for path in staging if path.is_file() and path.name != JOURNAL_NAME)


def kill_twice(lake: CopyLake, world: CopyWorld, *points: str) -> None:
    for point in points:
        kill(lake, point)
        world.expire_leases()


@pytest.mark.parametrize("at", [f"{Failpoint.FILE_JOURNALED}@{MANY // 2}", rotating(Failpoint.STAGED_BEFORE_SEAL)])
def test_little_of_many_files_is_copied_again(lake: CopyLake, world: CopyWorld, at: str) -> None:
    for number in range(MANY):
        lake.write(f"{ALBUMS}/{number % 7}/{number}", 1)
    kill_twice(lake, world, at)
    finished = len(left(world))
    inodes = {path.stat().st_ino for path in left(world)}
    assert finished >= MANY // 2

    report = world.run()

    assert not report.failed
    ((count, _of),) = [each for each in taken(world) if each[1] >= MANY]
    notes = [note for each in report.datasets for note in each.notes]
    assert any(note.startswith(f"{count:,} of ") for note in notes), "the table of the run says it too"
    assert finished - count <= AGAIN_MAX
    assert len(inodes & set(inodes_of(lake.tree).values())) == count
    check_complete(world)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (Failpoint.ATTEMPT_WRITTEN, Failpoint.REUSE_CAPTURED),
        (Failpoint.STAGED_BEFORE_SEAL, f"{Failpoint.FILE_STAGED}@2"),
        rotating(f"{Failpoint.FILE_STAGED}@3", Failpoint.REUSE_MARKED),
        rotating(f"{Failpoint.FILE_JOURNALED}@3", f"{Failpoint.FILE_JOURNALED}@2"),
        rotating(Failpoint.ATTEMPT_DURABLE, Failpoint.ATTEMPT_WRITTEN),
        rotating(Failpoint.STAGE_COMMITTED, Failpoint.STAGE_COMMITTED),
        rotating(Failpoint.ATTEMPT_WRITTEN, Failpoint.SEAL_COMMITTED),
        rotating(Failpoint.ATTEMPT_WRITTEN, Failpoint.SEQUENCE_BEGUN),
    ],
    ids=str,
)
def test_a_reuse_killed_anywhere_is_gone_on_with(lake: CopyLake, world: CopyWorld, first: str, second: str) -> None:
    kill_twice(lake, world, first, second)

    assert not world.run().failed

    check_complete(world)
    if second is not Failpoint.SEAL_COMMITTED:
        assert taken(world)
    assert not left(world), "attempts of the killed runs are left"


@pytest.mark.parametrize("point", [Failpoint.ATTEMPT_WRITTEN, rotating(Failpoint.ATTEMPT_DURABLE)])
def test_the_next_try_takes_what_a_failed_one_finished(lake: CopyLake, world: CopyWorld, point: Failpoint) -> None:
    reached = []

    def fail_once(at: Failpoint) -> None:
        if at is point and not reached:
            reached.append(at)
            raise OSError(5, "injected")

    with failpoints.install(fail_once):
        assert not world.run().failed

    assert taken(world) == [(4, 4)]
    check_complete(world)


@pytest.mark.parametrize("at", [*OF_A_REUSE, *(rotating(f"{point}@2") for point in OF_A_REUSE)], ids=str)
def test_a_paused_reuse_changes_nothing_when_it_wakes_up(lake: CopyLake, world: CopyWorld, at: str) -> None:
    """The names are published by others meanwhile, in two further versions."""
    assert not world.run().failed
    lake.change_source()
    kill_twice(lake, world, Failpoint.ATTEMPT_WRITTEN)

    check_paused(lake, world, at, "resumed")


def flip_a_byte(path: Path) -> None:
    """With its length and times as before."""
    times = path.stat()
    content = bytearray(path.read_bytes())
    content[0] ^= 1
    path.write_bytes(bytes(content))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def shorten(path: Path) -> None:
    os.truncate(path, 1)


def change_mode(path: Path) -> None:
    path.chmod(0o777)


def link(path: Path) -> None:
    """Somebody else may still write to it."""
    path.with_name("another-name").hardlink_to(path)


@pytest.mark.parametrize("tamper", [flip_a_byte, shorten, change_mode, link])
def test_a_file_that_is_not_as_it_was_finished_is_copied_again(
    lake: CopyLake, world: CopyWorld, tamper: Callable[[Path], None]
) -> None:
    kill_twice(lake, world, Failpoint.ATTEMPT_WRITTEN)
    changed = left(world)[0]
    inode = changed.stat().st_ino
    tamper(changed)

    assert not world.run().failed

    assert taken(world) == [(3, 4)]
    assert inode not in inodes_of(lake.tree).values()
    check_complete(world)


def test_a_file_whose_origin_changed_is_copied_again(lake: CopyLake, world: CopyWorld) -> None:
    kill_twice(lake, world, Failpoint.ATTEMPT_WRITTEN)
    lake.write("albums/kept.bin", 2)

    assert not world.run().failed

    assert taken(world) == [(3, 4)]
    check_complete(world)


def cut_off(journal: bytes) -> bytes:
    return journal[:-5]


def zeros(journal: bytes) -> bytes:
    return bytes(len(journal))


def leads_out(journal: bytes) -> bytes:
    return journal.replace(b'"1",', b'"../w000/1",').replace(b'"2",', b'"/etc/passwd",')


@pytest.mark.parametrize(("tear", "whole"), [(cut_off, 3), (zeros, 0), (leads_out, None)])
def test_a_torn_line_is_no_line(
    lake: CopyLake, world: CopyWorld, tear: Callable[[bytes], bytes], whole: int | None
) -> None:
    kill_twice(lake, world, Failpoint.ATTEMPT_WRITTEN)
    (journal,) = Path(lake.root, WORK_NAME).rglob(JOURNAL_NAME)
    torn = tear(journal.read_bytes())
    assert torn != journal.read_bytes()
    journal.write_bytes(torn)

    assert not world.run().failed

    found = taken(world)[0][0] if taken(world) else 0
    assert found == whole or (whole is None and found < 4)
    check_complete(world)


@pytest.mark.parametrize(
    ("job", "defaults"),
    [
        ({}, {"same": "checksum"}),
        ({}, {"same": "never"}),
        ({}, {"preserve": "ptx"}),
        ({"reuse_keep_s": 0}, {}),
    ],
    ids=str,
)
def test_what_time_and_length_do_not_tell_is_copied_again(
    lake: CopyLake, job: dict[str, object], defaults: dict[str, object]
) -> None:
    with opening(lake) as open_world:
        opened = open_world(job, deletes="ours", **defaults)
        kill(opened.lake, Failpoint.ATTEMPT_WRITTEN)
        opened.expire_leases()

        assert not opened.run().failed

        assert not taken(opened)
        check_complete(opened)


def test_what_nobody_takes_is_removed_after_its_time(lake: CopyLake, world: CopyWorld) -> None:
    kill_twice(lake, world, Failpoint.ATTEMPT_WRITTEN)
    away = lake.source.rename(Path(lake.directory, "away"))
    lake.source.mkdir()
    assert world.run().failed, "the source's directories are missing"
    assert len(left(world)) == 4

    world.execute("UPDATE gobblin.commit_sequence SET aborted_at = aborted_at - interval '1 day'")
    assert world.run().failed
    assert not left(world)

    lake.source.rmdir()
    away.rename(lake.source)
    assert not world.run().failed
    assert not taken(world)
    check_complete(world)


def test_a_killed_copy_leaves_no_file_that_a_dead_writer_still_writes_to(lake: CopyLake, world: CopyWorld) -> None:
    """A writer that stops before its line, amid a file, keeps that file: the line comes after the file is closed."""
    zombie = start_worker(lake, failpoint=f"{Failpoint.FILE_STAGED}=stop@2")
    zombie.wait_until_stopped()
    world.expire_leases()

    assert not world.run().failed

    (count, _of) = taken(world)[0]
    assert count == 1
    originals = inodes_of(lake.tree)
    zombie.wake_up()
    assert zombie.wait() in (0, 1)
    assert inodes_of(lake.tree) == originals
    assert not world.run().failed
    check_complete(world)
