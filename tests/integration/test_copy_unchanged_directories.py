"""Directories whose time stayed are not listed again, and what changes them is seen all the same."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from sqlalchemy import text

from gobblin_assets.errors import RejectedError
from gobblin_assets.jobs.copy.parsing import read_copy
from gobblin_assets.model.extract import Mode
from tests.support.copy_lake import CopyLake, CopyWorld, files_of, look_at, opening, settle

pytestmark = pytest.mark.turns(of=8)

LONG_AGO: Final = 1_700_000_000
PATHS: Final = ("albums/a", "albums/b/c", "albums/b/d/e", "albums/b/d/f", "albums/d/g")


@pytest.fixture
def lake(database_url: str, tmp_path: Path) -> CopyLake:
    made = CopyLake(database_url, str(tmp_path), urns=("albums",))
    for path in PATHS:
        made.write(path, 1)
    settle(made)
    return made


@pytest.fixture
def world(lake: CopyLake) -> Iterator[CopyWorld]:
    with opening(lake) as open_world:
        opened = open_world(deletes="all", skip_unchanged_directories=True)
        run(opened)
        run(opened)
        yield opened


def run(world: CopyWorld, mode: Mode = Mode.APPEND) -> int:
    """How many directories were not listed again."""
    world.lines.clear()
    report = world.run(mode=mode)
    assert not report.failed, report.failed
    said = [line for line in world.lines if "were not listed again" in line]
    return int(said[0].split()[1]) if said else 0


@pytest.mark.core
def test_only_directories_that_changed_are_listed(lake: CopyLake, world: CopyWorld) -> None:
    assert run(world) == 3
    lake.write("albums/b/d/new", 1)
    assert run(world) == 2
    assert look_at(lake.tree) == look_at(lake.source)
    settle(lake)
    assert run(world) == 2, "it had changed just before it was listed"
    assert run(world) == 3
    lake.write("albums/b/d/newer", 1)
    lake.write("albums/b/d/deep/deeper", 1)
    run(world)
    lake.write("albums/b/d/newest", 1)
    lake.write("albums/b/d/deep/deepest", 1)
    run(world)
    assert look_at(lake.tree) == look_at(lake.source), "below a directory that is skipped"


@pytest.mark.core
def test_new_removed_and_replaced_files_and_directories_are_seen(lake: CopyLake, world: CopyWorld) -> None:
    (lake.source / "albums/b/d/e").unlink()
    lake.write("albums/b/x/y/z", 1)
    lake.write("albums/d/aside", 2).rename(lake.source / "albums/d/g")
    lake.write("albums/a", 2)

    run(world)

    assert look_at(lake.tree) == look_at(lake.source)


def test_another_directory_of_the_same_time_is_listed(lake: CopyLake, world: CopyWorld) -> None:
    old = lake.source / "albums/b/d"
    mtime_ns, parent_ns = old.stat().st_mtime_ns, old.parent.stat().st_mtime_ns
    old.rename(lake.source.parent / "away")
    lake.write("albums/b/d/other", 1)
    os.utime(old, ns=(mtime_ns, mtime_ns))
    os.utime(old.parent, ns=(parent_ns, parent_ns))

    assert run(world) == 1, "the time of its parent was set back, too"

    assert look_at(lake.tree) == look_at(lake.source)


@pytest.mark.parametrize("knows_ctimes", [True, False])
def test_a_directory_whose_time_was_set_back_is_listed_once_its_ctime_is_known(
    lake: CopyLake, world: CopyWorld, knows_ctimes: bool
) -> None:
    if not knows_ctimes:
        forget_ctimes(world)
    directory = lake.source / "albums/b/d"
    mtime_ns = directory.stat().st_mtime_ns
    lake.write("albums/b/d/new", 1)
    os.utime(directory, ns=(mtime_ns, mtime_ns))

    assert run(world) == (2 if knows_ctimes else 3)

    assert (lake.tree / "albums/b/d/new").exists() is knows_ctimes


def forget_ctimes(world: CopyWorld) -> None:
    """As versions before this one wrote what they knew."""
    with world.engine.begin() as connection:
        for urn, facts in connection.execute(text("SELECT urn, source_facts FROM gobblin.dataset")).all():
            for each in facts["directories"].values():
                each["entries"] = {path: times[:2] for path, times in each["entries"].items()}
            connection.execute(
                text("UPDATE gobblin.dataset SET source_facts = CAST(:facts AS jsonb) WHERE urn = :urn"),
                {"facts": json.dumps(facts), "urn": urn},
            )


def test_what_is_written_in_place_is_not_seen_until_every_file_is(lake: CopyLake, world: CopyWorld) -> None:
    lake.write("albums/b/c", 2)
    assert run(world) == 3
    assert files_of(lake.tree) != files_of(lake.source)

    assert run(world, Mode.REFRESH) == 0
    assert look_at(lake.tree) == look_at(lake.source)
    assert run(world) == 3


def test_a_directory_that_the_destination_lacks_is_copied(lake: CopyLake, world: CopyWorld) -> None:
    shutil.rmtree(lake.tree / "albums/b/d")

    assert run(world) == 2

    assert look_at(lake.tree) == look_at(lake.source)


def test_what_waits_is_found_by_the_next_run(lake: CopyLake) -> None:
    with opening(lake) as open_world:
        world = open_world(skip_unchanged_directories=True, files_per_run_max=2)
        for _run in range(4):
            run(world)
        assert look_at(lake.tree) == look_at(lake.source)
        assert run(world) == 3


def test_file_sets_that_one_run_publishes_are_all_remembered(lake: CopyLake) -> None:
    shutil.rmtree(lake.source / "albums")
    for day in (1, 2, 3):
        lake.write(f"days/2026-01-0{day}/x/a", 1)
    settle(lake)
    options = {"datasets": [], "finder": {"kind": "stream", "pattern": "days/%Y-%m-%d"}}
    with opening(lake) as open_world:
        world = open_world(options, skip_unchanged_directories=True)
        assert [count_skips(world) for _run in range(2)] == [0, 3]
        # Without the option for once, nothing of what was remembered stays.
        assert count_skips(open_world(options)) == 0
        assert [count_skips(world) for _run in range(2)] == [0, 3]


def count_skips(world: CopyWorld) -> int:
    """Of how many file sets directories were not listed again."""
    world.lines.clear()
    report = world.run()
    assert not report.failed, report.failed
    return len([line for line in world.lines if "were not listed again" in line])


def test_a_directory_that_went_back_is_listed_if_files_waited_meanwhile(lake: CopyLake) -> None:
    directory = lake.source / "albums/b/d"
    with opening(lake) as open_world:
        world = open_world(skip_unchanged_directories=True)
        run(world)
        run(world)
        before = directory.stat()
        for name in ("e", "f", "new"):
            lake.write(f"albums/b/d/{name}", 2)
        os.utime(directory)
        bounded = open_world(skip_unchanged_directories=True, files_per_run_max=2)
        run(bounded)
        assert "albums/b/d/new" not in files_of(lake.tree)

        for name in ("e", "f"):
            lake.write(f"albums/b/d/{name}", 1)
        (directory / "new").unlink()
        os.utime(directory, ns=(before.st_mtime_ns, before.st_mtime_ns))
        assert run(bounded) == 2
        assert files_of(lake.tree) == files_of(lake.source)


@pytest.mark.parametrize("change", [{"exclude": ["f"]}, {"deletes": "ours"}])
def test_other_options_list_everything_again(lake: CopyLake, world: CopyWorld, change: dict[str, Any]) -> None:
    with opening(lake) as open_world:
        changed = open_world(**{"deletes": "all", "skip_unchanged_directories": True, **change})
        assert run(changed) == 0
        assert run(changed) == 3


def test_a_source_that_is_gone_deletes_nothing(lake: CopyLake, world: CopyWorld) -> None:
    (lake.source / "albums").rename(lake.source.parent / "unmounted")
    (lake.source / "albums").mkdir()

    (failed,) = world.run().failed

    assert "the source has no file" in str(failed.error)
    assert set(files_of(lake.tree)) == set(PATHS)


@pytest.mark.parametrize(
    "option", [{"same": "checksum"}, {"attributes": "sync"}, {"links": "follow"}, {"source": "s3://b/in"}]
)
def test_what_needs_a_look_at_each_file_is_refused(option: dict[str, Any]) -> None:
    """And of objects: their directories have no times."""
    source = option.get("source", "/in")
    others = {name: value for name, value in option.items() if name != "source"}
    defaults = {"skip_unchanged_directories": True, **others}
    with pytest.raises(RejectedError, match="skip_unchanged_directories"):
        read_copy({"job": "m", "kind": "distcp", "source": source, "destination": "/out", "defaults": defaults})
