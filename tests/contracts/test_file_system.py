"""One suite for every file system; now POSIX by the kernel's exclusive rename, and by link and unlink."""

import errno
import multiprocessing
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gobblin_assets.errors import (
    ConflictError,
    OutcomeUnknownError,
    RejectedError,
    RetryableError,
)
from gobblin_assets.fs.exclusive_rename import find_exclusive_rename
from gobblin_assets.fs.port import FileSystem, RenameOutcome
from gobblin_assets.fs.posix import SYNC_BATCH_FILES, PosixFileSystem
from tests.support.file_systems import ADAPTERS, identity, write


def test_linux_has_the_exclusive_rename() -> None:
    assert (find_exclusive_rename() is not None) == (os.uname().sysname == "Linux")


# --- identities and listings


def test_an_identity_survives_a_rename_and_tells_a_copy_apart(fs: FileSystem, tmp_path: Path) -> None:
    source, target = write(tmp_path / "a"), tmp_path / "b"
    before = identity(fs, source)
    assert fs.rename_no_replace(str(source), str(target)) is RenameOutcome.RENAMED
    assert identity(fs, target).matches(before)
    assert not identity(fs, write(tmp_path / "copy")).matches(before)
    assert fs.find_identity(str(source)) is None
    assert fs.find_identity(str(target / "below a file")) is None


@pytest.mark.parametrize("kind", ["directory", "link", "dangling", "fifo"])
def test_what_is_no_regular_file_has_no_identity(fs: FileSystem, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x"
    match kind:
        case "directory":
            path.mkdir()
        case "link":
            path.symlink_to(write(tmp_path / "y"))
        case "dangling":
            path.symlink_to(tmp_path / "nowhere")
        case _:
            os.mkfifo(path)
    with pytest.raises(ConflictError):
        fs.find_identity(str(path))


def test_a_listing_has_every_file_at_any_depth_in_path_order(fs: FileSystem, tmp_path: Path) -> None:
    names = ["a/b/c/1", "a/b-1", "a.b", "a/b/0", "_x/y", ".z", "é", "a b"]
    paths = sorted(str(write(tmp_path / "root" / name, name)) for name in names)
    found = fs.list_files(str(tmp_path / "root"))
    assert [file.path for file in found] == paths
    assert all(file.identity == fs.find_identity(file.path) for file in found)


def test_a_missing_directory_lists_as_empty_and_a_file_is_a_conflict(fs: FileSystem, tmp_path: Path) -> None:
    assert fs.list_files(str(tmp_path / "none")) == []
    with pytest.raises(ConflictError):
        fs.list_files(str(write(tmp_path / "file")))


def test_a_symbolic_link_inside_is_refused_and_never_followed(fs: FileSystem, tmp_path: Path) -> None:
    outside = write(tmp_path / "outside" / "file")
    root = write(tmp_path / "root" / "good").parent
    (root / "link").symlink_to(outside.parent)
    for refused in (
        lambda: fs.list_files(str(root)),
        lambda: fs.is_directory(str(root / "link")),
        lambda: fs.rename_no_replace(str(root / "link"), str(root / "other")),
        lambda: fs.remove_tree(str(root / "link")),
        lambda: fs.remove_file(str(root / "link"), identity(fs, outside)),
    ):
        with pytest.raises(ConflictError):
            refused()
    fs.remove_tree(str(root))
    assert outside.exists()
    assert not root.exists()


def test_a_destination_may_itself_stand_behind_a_link(fs: FileSystem, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    root = tmp_path / "lake"
    root.symlink_to(tmp_path / "disk")
    fs.probe(str(root / ".staging"), str(root))
    write(root / "data" / "file")
    assert [file.path for file in fs.list_files(str(root))] == [str(root / "data" / "file")]
    assert list((tmp_path / "disk").iterdir()) == [tmp_path / "disk" / "data"]


def test_a_uri_keeps_every_character(fs: FileSystem) -> None:
    assert (fs.scheme, fs.to_uri("/a b/%2F~1")) == ("file", "file:///a b/%2F~1")


def test_an_input_can_be_read_from_any_place_and_is_no_link(fs: FileSystem, tmp_path: Path) -> None:
    path = write(tmp_path / "file", "0123456789")
    with fs.open_input(str(path)) as stream:
        stream.seek(-3, os.SEEK_END)
        assert stream.read() == b"789"
    (tmp_path / "link").symlink_to(path)
    for missing in ("link", "none"):
        with pytest.raises(RejectedError):
            fs.open_input(str(tmp_path / missing))


# --- directories


def test_directories_are_made_with_their_parents_and_twice_is_fine(fs: FileSystem, tmp_path: Path) -> None:
    for _ in range(2):
        fs.make_directories(str(tmp_path / "a" / "b" / "c"))
    assert fs.is_directory(str(tmp_path / "a" / "b" / "c"))
    assert not fs.is_directory(str(tmp_path / "a" / "none"))
    assert not fs.is_directory(str(write(tmp_path / "file")))


@pytest.mark.parametrize("below", ["file", "file/a", "file/a/b"])
def test_a_file_where_a_directory_should_be_is_a_conflict(fs: FileSystem, tmp_path: Path, below: str) -> None:
    write(tmp_path / "file")
    with pytest.raises(ConflictError):
        fs.make_directories(str(tmp_path / below))


def test_an_empty_directory_is_removed_and_a_full_one_stays(fs: FileSystem, tmp_path: Path) -> None:
    full = write(tmp_path / "full" / "file").parent
    (tmp_path / "empty").mkdir()
    assert fs.remove_empty_directory(str(tmp_path / "empty"))
    assert fs.remove_empty_directory(str(tmp_path / "empty"))
    assert not fs.remove_empty_directory(str(full))
    with pytest.raises(ConflictError):
        fs.remove_empty_directory(str(full / "file"))
    fs.remove_tree(str(full))
    fs.remove_tree(str(full))
    assert not full.exists()


def test_a_tree_goes_away_while_others_remove_it_too(fs: FileSystem, tmp_path: Path) -> None:
    for n in range(300):
        write(tmp_path / "tree" / str(n % 30) / str(n))
    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(fs.remove_tree, str(tmp_path / "tree")) for _ in range(4)]:
            done.result()
    assert not (tmp_path / "tree").exists()


def test_directories_are_made_while_others_remove_the_empty_parent(fs: FileSystem, tmp_path: Path) -> None:
    stop = threading.Event()

    def remove() -> None:
        while not stop.is_set():
            fs.remove_empty_directory(str(tmp_path / "a"))

    remover = threading.Thread(target=remove)
    remover.start()
    try:
        for n in range(200):
            try:
                fs.make_directories(str(tmp_path / "a" / str(n)))
            except RetryableError:
                continue  # the bound was reached: an answer, and nothing half-made counts as made
            assert fs.is_directory(str(tmp_path / "a" / str(n)))
            (tmp_path / "a" / str(n)).rmdir()
    finally:
        stop.set()
        remover.join()


# --- renames


@pytest.mark.parametrize("source_kind", ["file", "directory"])
@pytest.mark.parametrize("target_kind", ["file", "full directory", "empty directory", "dangling link"])
def test_a_rename_never_replaces_anything(fs: FileSystem, tmp_path: Path, source_kind: str, target_kind: str) -> None:
    source = write(tmp_path / "source" / "file", "new")
    source = source if source_kind == "file" else source.parent
    target = tmp_path / "target"
    match target_kind:
        case "file":
            write(target, "old")
        case "full directory":
            write(target / "file", "old")
        case "empty directory":
            target.mkdir()
        case _:
            target.symlink_to(tmp_path / "nowhere")
    before = target.lstat()
    assert fs.rename_no_replace(str(source), str(target)) is RenameOutcome.TARGET_EXISTS
    assert source.exists()
    assert (target.lstat().st_ino, target.lstat().st_mode) == (before.st_ino, before.st_mode)
    if target_kind == "file":
        assert target.read_text() == "old"


def test_a_directory_moves_with_all_its_contents(fs: FileSystem, tmp_path: Path) -> None:
    write(tmp_path / "source" / "deep" / "file", "x")
    assert fs.rename_no_replace(str(tmp_path / "source"), str(tmp_path / "target")) is RenameOutcome.RENAMED
    assert (tmp_path / "target" / "deep" / "file").read_text() == "x"
    assert not (tmp_path / "source").exists()


def test_a_missing_source_is_an_answer_and_a_missing_parent_is_refused(fs: FileSystem, tmp_path: Path) -> None:
    assert fs.rename_no_replace(str(tmp_path / "none"), str(tmp_path / "x")) is RenameOutcome.SOURCE_MISSING
    for source in (write(tmp_path / "file"), write(tmp_path / "directory" / "file").parent):
        with pytest.raises(RejectedError, match="parent") as refused:
            fs.rename_no_replace(str(source), str(tmp_path / "missing" / "x"))
        assert refused.value.field == "destination"
        assert source.exists()


def _race(adapter: str, sources: list[str], target: str, start: "multiprocessing.synchronize.Barrier") -> list[str]:
    fs = ADAPTERS[adapter](None)
    answers = []
    for source in sources:
        start.wait(60)
        answers.append(fs.rename_no_replace(source, f"{target}-{len(answers)}").value)
    return answers


RACES = 60


def _racer(connection: "multiprocessing.connection.Connection", *arguments: object) -> None:
    connection.send(_race(*arguments))  # type: ignore[arg-type]  # the arguments of _race, through a process
    connection.close()


@pytest.mark.parametrize("kind", ["file", "directory"])
@pytest.mark.parametrize("own_sources", [True, False], ids=["own-sources", "one-source"])
def test_of_racing_processes_exactly_one_wins_each_name(
    adapter: str, tmp_path: Path, kind: str, own_sources: bool
) -> None:
    context = multiprocessing.get_context("spawn")
    start = context.Barrier(2)
    pipes, racers = [], []
    for racer in range(2):
        sources = []
        for n in range(RACES):
            place = tmp_path / (f"{n}-{racer}" if own_sources else f"{n}")
            write(place if kind == "file" else place / "file", str(racer if own_sources else n))
            sources.append(str(place))
        receiving, sending = context.Pipe(duplex=False)
        arguments = (sending, adapter, sources, str(tmp_path / "target"), start)
        racers.append(context.Process(target=_racer, args=arguments))
        pipes.append(receiving)
    for process in racers:
        process.start()
    answers = [pipe.recv() for pipe in pipes]
    for process in racers:
        process.join(60)
    for n, pair in enumerate(zip(*answers, strict=True)):
        assert sorted(pair).count("renamed") == 1, (n, pair)
        target = tmp_path / f"target-{n}"
        winner = (target if kind == "file" else target / "file").read_text()
        assert winner == (str(pair.index("renamed")) if own_sources else str(n))


def test_a_crash_between_link_and_unlink_is_told_by_the_identities_and_finished_by_removing_the_source(
    tmp_path: Path, adapter: str
) -> None:
    fs = ADAPTERS[adapter](None)
    source, target = write(tmp_path / "source"), tmp_path / "target"
    os.link(source, target)
    staged = identity(fs, source)
    assert fs.rename_no_replace(str(source), str(target)) is RenameOutcome.TARGET_EXISTS
    assert identity(fs, target).matches(staged)
    assert fs.remove_file(str(source), staged)
    assert identity(fs, target) == staged
    assert not source.exists()


def test_an_error_after_the_link_is_an_unknown_outcome(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write(tmp_path / "source")

    def unlink(self: Path, missing_ok: bool = False) -> None:
        raise OSError(errno.EIO, "I/O error", str(self))

    monkeypatch.setattr(Path, "unlink", unlink)
    with pytest.raises(OutcomeUnknownError):
        PosixFileSystem(exclusive_rename=None).rename_no_replace(str(source), str(tmp_path / "target"))
    assert (tmp_path / "target").exists()


# --- removal


def test_only_the_file_that_is_meant_is_removed(fs: FileSystem, tmp_path: Path) -> None:
    path = write(tmp_path / "file", "one")
    meant = identity(fs, path)
    path.rename(tmp_path / "kept")
    write(path, "two")
    with pytest.raises(ConflictError):
        fs.remove_file(str(path), meant)
    assert path.read_text() == "two"
    assert fs.remove_file(str(tmp_path / "kept"), meant)
    assert fs.remove_file(str(tmp_path / "kept"), meant)
    assert not (tmp_path / "kept").exists()


# --- durability


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The paths in the order of their fsync calls, which are really made."""
    order: list[str] = []
    lock, fsync = threading.Lock(), os.fsync

    def record(descriptor: int) -> None:
        fsync(descriptor)
        with lock:
            order.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))

    monkeypatch.setattr(os, "fsync", record)
    return order


def test_every_file_is_synced_before_any_directory_and_each_once(
    fs: FileSystem, tmp_path: Path, synced: list[str]
) -> None:
    files = [str(write(tmp_path / f"d{n % 7}" / str(n))) for n in range(SYNC_BATCH_FILES + 50)]
    fs.make_durable(iter(files))
    assert sorted(synced[: len(files)]) == sorted(files)
    assert sorted(synced[len(files) :]) == [str(tmp_path / f"d{n}") for n in range(7)]


def test_directories_are_synced_once_each_and_missing_ones_skipped(
    fs: FileSystem, tmp_path: Path, synced: list[str]
) -> None:
    (tmp_path / "a").mkdir()
    fs.sync_directories([str(tmp_path), str(tmp_path / "a"), str(tmp_path / "none"), str(tmp_path)])
    assert sorted(synced) == [str(tmp_path), str(tmp_path / "a")]
    fs.sync_directories([])
    fs.make_durable([])


def test_a_sync_that_fails_is_reported_and_not_tried_again(
    fs: FileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = []

    def fail(descriptor: int) -> None:
        tries.append(descriptor)
        raise OSError(errno.EIO, "I/O error")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(RetryableError) as failed:
        fs.make_durable([str(write(tmp_path / "file"))])
    assert (failed.value.fields["path"], failed.value.fields["errno"]) == (str(tmp_path / "file"), "EIO")
    assert len(tries) == 1


def test_a_file_that_vanished_is_no_durable_file(fs: FileSystem, tmp_path: Path) -> None:
    with pytest.raises(RetryableError, match="disappeared"):
        fs.make_durable([str(tmp_path / "none")])
