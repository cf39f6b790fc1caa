"""What only a POSIX system has: links and special files, fsync calls, racing processes, errors of single calls."""

import errno
import multiprocessing
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gobblin_assets.errors import ConflictError, OutcomeUnknownError, RejectedError, RetryableError
from gobblin_assets.fs.file_system import FileSystem, RenameOutcome
from gobblin_assets.fs.posix import PosixFileSystem, find_exclusive_rename
from gobblin_assets.fs.posix_named import PosixNamedFiles
from gobblin_assets.fs.posix_sync import SYNC_BATCH_FILES, watched_file_system
from tests.support.file_systems import ADAPTERS, identity, write
from tests.support.forks import FORKS
from tests.support.mounts import bound, tmpfs


def test_linux_has_the_exclusive_rename() -> None:
    assert (find_exclusive_rename() is not None) == (os.uname().sysname == "Linux")


def test_its_uris_are_those_that_spark_calls_local(fs: FileSystem) -> None:
    assert (fs.scheme, fs.to_uri("/a b/%2F~1")) == ("file", "file:///a b/%2F~1")


@pytest.mark.parametrize("how", ["tmpfs", "bound", "below"])
def test_no_rename_leads_into_another_mount(tmp_path: Path, how: str) -> None:
    files, here, there = PosixNamedFiles(), tmp_path / "here", tmp_path / "there"
    for directory in (here, there, tmp_path / "aside"):
        directory.mkdir()
    assert files.can_rename_into(str(here), str(there))
    with bound(tmp_path / "aside", there) if how == "bound" else tmpfs(there):
        target = there
        if how == "below":
            target = there / "inside"
            target.mkdir()
        assert not files.can_rename_into(str(here), str(target))
        assert files.can_rename_into(str(target), str(there))
        assert not list(here.iterdir())
    with pytest.raises(RejectedError):
        files.can_rename_into(str(here), str(tmp_path / "none"))


def test_directories_are_found_by_their_name(tmp_path: Path) -> None:
    for path in ("a/.x/inside/.x", "b/c/.x", ".x", "d/e"):
        (tmp_path / path).mkdir(parents=True)
    write(tmp_path / "d/.x")
    (tmp_path / "links").mkdir()
    (tmp_path / "links/.x").symlink_to(tmp_path / "a")
    (tmp_path / "links/other").symlink_to(tmp_path / "b")
    (tmp_path / "b" / os.fsdecode(b"\xff")).mkdir()

    found = set(PosixNamedFiles().find_directories(str(tmp_path), ".x"))

    assert found == {str(tmp_path / each) for each in (".x", "a/.x", "b/c/.x", "links/.x")}
    assert not list(PosixNamedFiles().find_directories(str(tmp_path / "none"), ".x"))
    assert not list(PosixNamedFiles().find_directories(str(tmp_path / "d/.x"), ".x"))


# --- links


@pytest.mark.parametrize("kind", ["link", "dangling", "fifo"])
def test_a_link_or_a_special_file_has_no_identity(fs: FileSystem, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x"
    match kind:
        case "link":
            path.symlink_to(write(tmp_path / "y"))
        case "dangling":
            path.symlink_to(tmp_path / "nowhere")
        case _:
            os.mkfifo(path)
    with pytest.raises(ConflictError):
        fs.find_identity(str(path))


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


def test_an_input_is_no_link(fs: FileSystem, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(write(tmp_path / "file"))
    with pytest.raises(RejectedError):
        fs.open_input(str(tmp_path / "link"))


@pytest.mark.parametrize("source_kind", ["file", "directory"])
def test_a_rename_never_replaces_a_dangling_link(fs: FileSystem, tmp_path: Path, source_kind: str) -> None:
    source = write(tmp_path / "source" / "file", "new")
    source = source if source_kind == "file" else source.parent
    target = tmp_path / "target"
    target.symlink_to(tmp_path / "nowhere")
    before = target.lstat()
    assert fs.rename_no_replace(str(source), str(target)) is RenameOutcome.TARGET_EXISTS
    assert source.exists()
    assert (target.lstat().st_ino, target.lstat().st_mode) == (before.st_ino, before.st_mode)


# --- renames


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
    start = FORKS.Barrier(2)
    pipes, racers = [], []
    for racer in range(2):
        sources = []
        for n in range(RACES):
            place = tmp_path / (f"{n}-{racer}" if own_sources else f"{n}")
            write(place if kind == "file" else place / "file", str(racer if own_sources else n))
            sources.append(str(place))
        receiving, sending = FORKS.Pipe(duplex=False)
        arguments = (sending, adapter, sources, str(tmp_path / "target"), start)
        racers.append(FORKS.Process(target=_racer, args=arguments))
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


def test_an_error_after_the_link_is_an_unknown_outcome(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write(tmp_path / "source")

    def unlink(self: Path, missing_ok: bool = False) -> None:
        raise OSError(errno.EIO, "I/O error", str(self))

    monkeypatch.setattr(Path, "unlink", unlink)
    with pytest.raises(OutcomeUnknownError):
        PosixFileSystem(exclusive_rename=None).rename_no_replace(str(source), str(tmp_path / "target"))
    assert (tmp_path / "target").exists()


# --- durability


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The paths in the order of their fsync calls; the calls are really made."""
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


def test_the_names_of_a_destination_are_synced_whoever_made_them(
    fs: FileSystem, tmp_path: Path, synced: list[str]
) -> None:
    (tmp_path / "a").mkdir()
    fs.make_destination(str(tmp_path / "a/b/lake"))
    expected = {str(path) for path in (tmp_path / "a/b/lake").parents}
    assert {str(tmp_path), str(tmp_path / "a"), str(tmp_path / "a/b")} <= set(synced) <= expected


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


def test_one_call_for_a_file_system_is_trusted_only_where_lost_writes_are_reported(tmp_path: Path) -> None:
    """Otherwise each file is synced by itself."""
    with watched_file_system("/proc") as sync_all:
        assert sync_all is None
    with tmpfs(tmp_path / "known") as known, watched_file_system(str(known)) as sync_all:
        assert sync_all is not None
        sync_all()
