"""The simulated disk after a power cut, case by case, and states that it never has whichever changes survive."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gobblin_assets.errors import RejectedError
from gobblin_assets.fs.file_system import RenameOutcome
from tests.simulation.file_system import ChangeKind, PendingChange, SimDisk, SimFileSystem, Unsynced, path_of

LAKE = "/lake"
FILE = "/lake/staged/file"
CHAIN = ("/lake/staged", "/lake", "/")
CONTENT = b"content"


@pytest.fixture
def disk() -> SimDisk:
    """A durable file in a durable directory, and a durable empty directory."""
    made = SimDisk()
    made.write_file(FILE, CONTENT)
    made.mkdir("/lake/final")
    fs = SimFileSystem(made)
    fs.make_durable([FILE])
    fs.sync_directories(CHAIN)
    assert not made.pending
    return made


@pytest.fixture
def fs(disk: SimDisk) -> SimFileSystem:
    return SimFileSystem(disk)


def lose_only(kind: ChangeKind) -> Callable[[PendingChange], bool]:
    return lambda change: change.kind is not kind


def lose_number(number: int) -> Callable[[PendingChange], bool]:
    return lambda change: change.number != number


# --- contents and names


def test_content_that_was_not_synced_is_lost_and_its_name_may_stay(disk: SimDisk, fs: SimFileSystem) -> None:
    disk.write_file("/lake/staged/new", b"rows")
    fs.sync_directories(["/lake/staged"])
    before = fs.find_identity("/lake/staged/new")
    disk.power_cut()
    after = fs.find_identity("/lake/staged/new")
    assert disk.read("/lake/staged/new") == b""
    assert before is not None
    assert after is not None
    assert not after.matches(before)


@pytest.mark.parametrize(
    ("unsynced", "left"), [(Unsynced.OLD, b""), (Unsynced.HALF, b"ro"), (Unsynced.ZEROS, b"\0\0\0\0")]
)
def test_what_a_file_without_its_content_holds_can_be_chosen(disk: SimDisk, unsynced: Unsynced, left: bytes) -> None:
    disk.write_file("/lake/staged/new", b"rows")
    disk.write_file(FILE, b"written once more")
    disk.power_cut(lose_only(ChangeKind.WRITE), unsynced=unsynced)
    assert disk.files() == {FILE: CONTENT, "/lake/staged/new": left}


def test_a_name_that_was_not_synced_is_lost_with_its_content(disk: SimDisk) -> None:
    disk.write_file("/lake/staged/new", b"rows")
    disk.power_cut()
    assert disk.files() == {FILE: CONTENT}


def test_durable_files_have_contents_and_names_but_no_durable_parents(disk: SimDisk, fs: SimFileSystem) -> None:
    disk.write_file("/lake/new/file", b"rows")
    disk.write_file("/lake/new/other", b"rows")
    fs.make_durable(["/lake/new/file"])
    assert disk.durable_files() == {FILE: CONTENT}
    fs.sync_directories(["/lake"])
    assert disk.durable_files() == {FILE: CONTENT, "/lake/new/file": b"rows"}


def test_parents_that_somebody_else_made_must_be_synced_too(disk: SimDisk, fs: SimFileSystem) -> None:
    other = SimFileSystem(disk)
    other.make_directories("/lake/final/a/b")  # then its process ends
    fs.make_directories("/lake/final/a/b/c")
    fs.rename_no_replace(FILE, "/lake/final/a/b/c/file")
    fs.sync_directories(["/lake/staged", "/lake/final/a/b/c", "/lake/final/a/b"])
    assert disk.durable_files() == {FILE: CONTENT}
    fs.sync_directories(["/lake/final/a"])
    assert disk.durable_files() == {FILE: CONTENT}
    fs.sync_directories(["/lake/final"])
    assert disk.durable_files() == {"/lake/final/a/b/c/file": CONTENT}
    assert not disk.pending


def test_a_removal_that_was_not_synced_is_undone(disk: SimDisk, fs: SimFileSystem) -> None:
    fs.remove_tree("/lake/staged")
    fs.sync_directories(["/lake/staged"])
    assert disk.durable_files() == {FILE: CONTENT}
    fs.sync_directories(["/lake"])
    assert disk.durable_files() == {}
    assert not disk.pending


def test_a_file_made_whole_is_durable_with_its_directory(disk: SimDisk, fs: SimFileSystem) -> None:
    assert fs.write_new({"/lake/final/marker": b"text"}) == {"/lake/final/marker"}
    assert not fs.write_new({"/lake/final/marker": b"other"})
    fs.sync_directories(["/lake/final"])
    disk.power_cut()
    assert disk.files() == {FILE: CONTENT, "/lake/final/marker": b"text"}


# --- renames


@pytest.mark.parametrize("synced", ["/lake/staged", "/lake/final"])
def test_a_rename_of_which_one_directory_was_synced_may_be_lost_and_leaves_one_name(
    disk: SimDisk, fs: SimFileSystem, synced: str
) -> None:
    assert fs.rename_no_replace(FILE, "/lake/final/file") is RenameOutcome.RENAMED
    fs.sync_directories([synced])
    assert disk.durable_files() == {FILE: CONTENT}
    fs.sync_directories(["/lake/staged", "/lake/final"])
    assert disk.durable_files() == {"/lake/final/file": CONTENT}


def test_a_sync_before_the_rename_does_not_count(disk: SimDisk, fs: SimFileSystem) -> None:
    fs.sync_directories(["/lake/staged", "/lake/final"])
    fs.rename_no_replace(FILE, "/lake/final/file")
    fs.sync_directories(["/lake/final"])
    assert disk.durable_files() == {FILE: CONTENT}


def test_a_rename_inside_of_one_directory_needs_one_sync(disk: SimDisk, fs: SimFileSystem) -> None:
    fs.rename_no_replace("/lake/staged", "/lake/captured")
    assert disk.durable_files() == {FILE: CONTENT}
    fs.sync_directories(["/lake"])
    assert disk.durable_files() == {"/lake/captured/file": CONTENT}


def test_entries_belong_to_the_directory_and_not_to_its_name(disk: SimDisk, fs: SimFileSystem) -> None:
    disk.write_file("/lake/staged/synced", b"1")
    disk.write_file("/lake/staged/unsynced", b"2")
    fs.make_durable(["/lake/staged/synced"])
    fs.rename_no_replace("/lake/staged", "/lake/final/part")
    disk.write_file("/lake/final/part/later", b"3")
    fs.make_durable(["/lake/final/part/later"])
    kept = disk.copy()
    disk.power_cut()
    assert disk.files() == {FILE: CONTENT, "/lake/staged/later": b"3", "/lake/staged/synced": b"1"}
    kept.power_cut(lambda change: change.kind is ChangeKind.RENAME)
    assert list(kept.files()) == ["/lake/final/part/file", "/lake/final/part/later", "/lake/final/part/synced"]


def test_a_rename_is_lost_with_the_name_it_began_from(disk: SimDisk, fs: SimFileSystem) -> None:
    disk.write_file("/lake/staged/new", b"rows")
    fs.rename_no_replace("/lake/staged/new", "/lake/final/new")
    disk.power_cut(lose_only(ChangeKind.CREATE))
    assert disk.files() == {FILE: CONTENT}


def test_a_rename_into_a_directory_that_is_lost_is_lost(disk: SimDisk, fs: SimFileSystem) -> None:
    fs.make_directories("/lake/new")
    fs.rename_no_replace(FILE, "/lake/new/file")
    disk.power_cut(lose_only(ChangeKind.CREATE))
    assert disk.files() == {FILE: CONTENT}


def test_a_synced_name_takes_the_rename_along_that_freed_it(disk: SimDisk, fs: SimFileSystem) -> None:
    fs.make_directories("/lake/new/deep")
    fs.rename_no_replace(FILE, "/lake/new/deep/file")
    disk.write_file(FILE, b"another")
    fs.make_durable([FILE])
    assert disk.durable_files() == {"/lake/new/deep/file": CONTENT, FILE: b"another"}


def test_two_directories_never_end_inside_of_each_other(fs: SimFileSystem, disk: SimDisk) -> None:
    disk.write_file("/lake/final/inner/file", b"inner")
    fs.make_durable(["/lake/final/inner/file"])
    fs.sync_directories(["/lake/final"])
    fs.rename_no_replace("/lake/final/inner", "/lake/inner")
    fs.rename_no_replace("/lake/final", "/lake/inner/final")
    disk.power_cut(lambda change: change.path == "/lake/inner/final")
    assert disk.files() == {FILE: CONTENT, "/lake/final/inner/file": b"inner"}


# --- which changes survive


def test_a_killed_process_loses_nothing(disk: SimDisk, fs: SimFileSystem) -> None:
    disk.write_file("/lake/new/file", b"rows")
    fs.rename_no_replace(FILE, "/lake/new/old")
    before = disk.files()
    disk.power_cut(lambda _change: True)
    assert disk.files() == before
    assert not disk.pending


def test_exactly_one_of_several_changes_can_be_lost(disk: SimDisk, fs: SimFileSystem) -> None:
    for name in ("1", "2", "3"):
        disk.write_file(f"/lake/staged/{name}", name.encode())
    renames = {}
    for name in ("1", "2", "3"):
        fs.rename_no_replace(f"/lake/staged/{name}", f"/lake/final/{name}")
        renames[name] = disk.pending[-1].number
    for name, number in renames.items():
        world = disk.copy()
        world.power_cut(lose_number(number))
        others = [f"/lake/final/{other}" for other in renames if other != name]
        assert sorted(world.files()) == sorted([*others, FILE, f"/lake/staged/{name}"])


def test_changes_come_in_their_order_and_say_what_they_are(disk: SimDisk, fs: SimFileSystem) -> None:
    disk.write_file("/lake/new/file", b"rows")
    fs.rename_no_replace("/lake/new/file", "/lake/final/file")
    fs.remove_empty_directory("/lake/new")
    assert [str(change) for change in disk.pending] == [
        "create /lake/new",
        "create /lake/new/file",
        "write /lake/new/file",
        "rename /lake/new/file -> /lake/final/file",
        "remove /lake/new",
    ]
    assert [change.number for change in disk.pending] == sorted(change.number for change in disk.pending)


# --- copies and fingerprints


def test_a_fingerprint_knows_what_is_durable_and_forgets_how_it_came_about(disk: SimDisk, fs: SimFileSystem) -> None:
    found = [disk.fingerprint()]
    fs.rename_no_replace(FILE, "/lake/final/file")
    found.append(disk.fingerprint())
    fs.sync_directories(["/lake/staged"])
    found.append(disk.fingerprint())
    fs.sync_directories(["/lake/final"])
    found.append(disk.fingerprint())
    assert len(set(found)) == len(found)
    disk.write_file("/lake/staged/short-lived", b"")
    disk.remove("/lake/staged/short-lived")
    fs.sync_directories(["/lake/staged"])
    fs.rename_no_replace("/lake/final/file", "/lake/final/other")
    fs.rename_no_replace("/lake/final/other", FILE)
    fs.sync_directories(["/lake/staged", "/lake/final"])
    assert disk.fingerprint() == found[0]


def make_half_synced() -> SimDisk:
    disk = SimDisk(listing_lag_calls=3)
    fs = SimFileSystem(disk)
    for name in ("x", "y", "z"):
        disk.write_file(f"/{name}/{name}", name.encode())
    fs.make_durable(["/x/x"])
    fs.rename_no_replace("/x/x", "/y/x")
    fs.sync_directories(["/y"])
    return disk


def test_a_fingerprint_is_the_same_in_every_process() -> None:
    program = (
        "from tests.simulation.test_file_system import make_half_synced\nprint(make_half_synced().fingerprint())\n"
    )
    root = Path(__file__).resolve().parents[2]
    found = {
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=root,
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert found == {make_half_synced().fingerprint()}


# --- lag, uris, what is noted


def test_a_lagging_listing_shows_new_names_later_and_a_look_shows_them_now() -> None:
    disk = SimDisk(listing_lag_calls=2)
    fs = SimFileSystem(disk)
    disk.write_file("/lake/old", b"")
    for _ in range(3):
        fs.is_directory("/lake")
    disk.write_file("/lake/new", b"")
    assert fs.find_identity("/lake/new") is not None
    assert [file.path for file in fs.list_files("/lake")] == ["/lake/old"]
    assert [file.path for file in fs.list_files("/lake")] == ["/lake/new", "/lake/old"]
    fs.rename_no_replace("/lake", "/moved")
    assert fs.is_directory("/moved")
    assert fs.list_files("/moved") == []
    assert [file.path for file in fs.list_files("/moved")] == ["/moved/new", "/moved/old"]


def test_worlds_that_differ_in_what_still_lags_are_different() -> None:
    disk = SimDisk(listing_lag_calls=2)
    disk.write_file("/new", b"")
    found = [disk.fingerprint()]
    for _ in range(4):
        SimFileSystem(disk).is_directory("/")
        found.append(disk.fingerprint())
    assert len(set(found)) == 3
    assert found[2:] == [found[2]] * 3


def test_a_uri_leads_back_to_its_path(fs: SimFileSystem) -> None:
    assert fs.open(fs.to_uri("/lake/a b%2F")) == (fs, "/lake/a b%2F")
    with pytest.raises(RejectedError):
        path_of("file:///lake")


def test_a_path_that_is_not_absolute_is_a_mistake_of_the_caller(fs: SimFileSystem) -> None:
    for wrong in ("lake", "lake/staged", "", fs.to_uri("/lake")):
        with pytest.raises(ValueError, match="absolute"):
            fs.is_directory(wrong)


def test_modes_are_noted_and_change_nothing(disk: SimDisk, fs: SimFileSystem) -> None:
    before = disk.fingerprint()
    fs.apply_modes("/lake/staged")
    assert fs.modes_applied == ["/lake/staged"]
    assert disk.fingerprint() == before


def test_a_durable_tree_survives_a_power_cut() -> None:
    fs = SimFileSystem(SimDisk())
    fs.make_destination("/lake/tree")
    with fs.durable_tree("/lake/tree", file_count=2):
        fs.disk.write_file("/lake/tree/file", b"one")
        fs.disk.write_file("/lake/tree/deep/er/file", b"two")
    fs.disk.write_file("/lake/tree/late", b"three")
    fs.sync_directories(["/lake"])
    fs.disk.power_cut()
    assert fs.disk.files() == {"/lake/tree/deep/er/file": b"two", "/lake/tree/file": b"one"}
