"""The verdict on copies under test: it must report changes behind the log's back, and so must the observer."""

import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pytest

from gobblin_assets.commit.attempts import STAGING_NAME
from gobblin_assets.failpoints import Failpoint
from tests.crash.test_copies import kill
from tests.crash.test_kills import open_sequence
from tests.support.copy_lake import CopyLake, CopyWorld
from tests.support.shares import rotating
from tests.torture.copy_history import CopyDestination, check_copies, check_last_change, describe_destination
from tests.torture.copy_source import SourceTree
from tests.torture.copy_watch import CopyWatch
from tests.torture.observer import Remembered, Subject
from tests.torture.proving_files import make_content, read_version
from tests.torture.tally import Tally
from tests.torture.test_history import connect_to

NAME: Final = "a/kept.bin"
WHOLE_LOOKS: Final = "samples with all files of a dataset"


@dataclass
class Copied:
    """A tree in its second version, copied, and what an observer saw of it."""

    world: CopyWorld
    tree: SourceTree
    tally: Tally
    destination: CopyDestination
    watch: CopyWatch

    @property
    def lake(self) -> CopyLake:
        return self.world.lake

    @property
    def place(self) -> Path:
        return self.lake.tree / NAME

    def look(self) -> str:
        with connect_to(self.lake.database_url)() as connection:
            self.watch.look(connection, self.destination.subjects[0])
        return "\n".join(self.tally.violations)

    def judge(self) -> str:
        check_copies(connect_to(self.lake.database_url), [self.destination], Remembered({}, {}), self.tally)
        return "\n".join(self.tally.violations)


@pytest.fixture
def copied(database_url: str, tmp_path: Path) -> Iterator[Copied]:
    options = {"datasets": (), "finder": {"pattern": "teams/*"}}
    lake = CopyLake(database_url, str(tmp_path), urns=("teams/a",), trash_keep_s=0.0, options=options)
    lake.tree.mkdir()
    aside = tmp_path / "aside"
    aside.mkdir()
    tree = SourceTree(lake.source / "teams/a", "a", aside, ("",), random.Random(NAME))
    world, tally, subject = lake.open_world(), Tally(), Subject(lake.job_name, "teams/a")
    watch = CopyWatch({subject: (tree, lake.tree)}, tally)
    made = Copied(world, tree, tally, describe_destination(world), watch)
    assert not world.run().failed
    assert made.look() == ""
    tree.write("kept.bin", 50)
    for _ in range(5):
        tree.change()
    assert not world.run().failed
    assert made.look() == ""
    yield made
    world.close()


def put(copied: Copied, content: bytes, version: int = 2) -> None:
    """Put this at the name at once, with the attributes of a version."""
    known = copied.tree.history[NAME][version - 1]
    made = copied.lake.tree / "made"
    made.write_bytes(content)
    made.chmod(known.mode)
    os.utime(made, ns=(known.mtime_ns, known.mtime_ns))
    made.replace(copied.place)


def a_byte_is_another(copied: Copied) -> None:
    """In place, with its length and its time as before."""
    content, entry = bytearray(copied.place.read_bytes()), copied.place.stat()
    content[40] ^= 1
    copied.place.write_bytes(content)
    os.utime(copied.place, ns=(entry.st_atime_ns, entry.st_mtime_ns))


def an_end_is_missing(copied: Copied) -> None:
    os.truncate(copied.place, copied.place.stat().st_size - 1)


def a_file_is_of_another_name(copied: Copied) -> None:
    put(copied, make_content("a/other.bin", 2, 50))


def a_file_is_mixed(copied: Copied) -> None:
    put(copied, make_content(NAME, 1, 50)[:60] + copied.place.read_bytes()[60:])


def an_old_version_is_back(copied: Copied) -> None:
    size = copied.tree.history[NAME][0].size
    empty = len(make_content(NAME, 1, 0))
    put(copied, make_content(NAME, 1, size - empty), version=1)


def a_file_is_gone(copied: Copied) -> None:
    copied.place.unlink()


def a_file_was_never_published(copied: Copied) -> None:
    (copied.lake.tree / "a/stranger").write_bytes(make_content("a/stranger", 1, 10))


def a_mode_is_another(copied: Copied) -> None:
    copied.place.chmod(0o777)


def a_file_was_copied_by_somebody_else(copied: Copied) -> None:
    put(copied, copied.place.read_bytes())


def a_source_changed(copied: Copied) -> None:
    copied.tree.write("kept.bin", 50)


def staging_is_left(copied: Copied) -> None:
    (copied.destination.work / STAGING_NAME / "somebody").mkdir()


def test_a_good_copy_has_no_differences(copied: Copied) -> None:
    assert copied.judge() == ""
    check_last_change(copied.destination, [], copied.tally)
    assert copied.tally.violations == []
    assert copied.tally.of(WHOLE_LOOKS) == 2


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (a_byte_is_another, ["1 names differ in bytes, mode or time"]),
        (a_file_is_gone, ["1 names are missing", "verify says of teams/a"]),
        rotating(a_file_was_never_published, ["1 names are too many"]),
        rotating(a_mode_is_another, ["1 names differ in bytes, mode or time"]),
        (a_file_was_copied_by_somebody_else, ["1 names are not those of the log", "verify says of teams/a"]),
        rotating(a_source_changed, ["1 names differ in bytes, mode or time"]),
        rotating(staging_is_left, ["1 left in staging"]),
    ],
)
def test_damage_is_said(copied: Copied, damage: Callable[[Copied], None], said: list[str]) -> None:
    damage(copied)

    judged = copied.judge()
    assert [each for each in said if each not in judged] == []


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (a_byte_is_another, ["is no whole version of the source"]),
        rotating(an_end_is_missing, ["is no whole version of the source"]),
        rotating(a_file_is_of_another_name, ["is no whole version of the source"]),
        (a_file_is_mixed, ["is no whole version of the source"]),
        (an_old_version_is_back, ["went back from version 2 to 1", "is version 1, and 2 was acknowledged"]),
        (a_file_is_gone, ["is missing"]),
        rotating(a_file_was_never_published, ["is a file that the log does not have there"]),
        rotating(a_mode_is_another, ["has not the attributes of its version"]),
        rotating(a_file_was_copied_by_somebody_else, ["is a file that the log does not have there"]),
    ],
)
def test_an_observer_sees_it_at_once(copied: Copied, damage: Callable[[Copied], None], said: list[str]) -> None:
    damage(copied)

    seen = copied.look()
    assert [each for each in said if each not in seen] == []


def test_an_observer_takes_an_abandonment_for_no_step_back(copied: Copied) -> None:
    copied.tree.write("kept.bin", 70)
    kill(copied.lake, Failpoint.STEP_AFTER)
    copied.world.expire_leases()
    assert copied.look() == ""
    assert read_version(NAME, copied.place.read_bytes()) == 3

    copied.world.operations().abandon(open_sequence(copied.world), reason="a test")

    assert copied.look() == ""
    assert read_version(NAME, copied.place.read_bytes()) == 2


def test_a_replaced_file_that_no_slot_keeps_is_said(copied: Copied) -> None:
    """The job's slots are emptied at once."""
    check_last_change(copied.destination, [copied.tree], copied.tally)
    assert "the slots hold []" in "\n".join(copied.tally.violations)


def test_slots_hold_what_the_last_change_moved_away(copied: Copied) -> None:
    world = replace(copied.lake, trash_keep_s=60.0).open_world()

    check_last_change(describe_destination(world), [copied.tree], copied.tally)

    assert copied.tally.violations == []
    assert copied.tally.of("versions in slots after the last change") > 0
    world.close()
