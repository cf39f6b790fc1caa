"""Modes, mounts and owners: what a destination on a POSIX system gets, and why it is refused."""

import multiprocessing
import os
import signal
import stat
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gobblin_assets.errors import GobblinError, RejectedError, RetryableError
from gobblin_assets.fs.file_system import LEFT_BEHIND_S, PROBE_PREFIX, FileSystem
from gobblin_assets.fs.posix import PosixFileSystem
from tests.support.file_systems import ADAPTERS, identity, write
from tests.support.forks import FORKS
from tests.support.mounts import tmpfs

# --- modes


def test_modes_follow_the_configured_umask_whatever_the_process_has(adapter: str, tmp_path: Path) -> None:
    fs = ADAPTERS[adapter](0o027)
    previous = os.umask(0o077)
    try:
        fs.make_directories(str(tmp_path / "made" / "deep"))
        file = write(tmp_path / "written" / "deep" / "file")
    finally:
        os.umask(previous)
    (tmp_path / "written").chmod(0o2700)
    before = identity(fs, file)
    fs.apply_modes(str(tmp_path / "written"))
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "made").parent.rglob("*")}
    assert modes == {
        tmp_path / "made": 0o750,
        tmp_path / "made" / "deep": 0o750,
        tmp_path / "written": 0o2750,
        tmp_path / "written" / "deep": 0o750,
        file: 0o640,
    }
    assert identity(fs, file) == before


def test_without_a_umask_modes_stay_as_they_are(fs: FileSystem, tmp_path: Path) -> None:
    file = write(tmp_path / "file")
    file.chmod(0o604)
    fs.apply_modes(str(tmp_path))
    assert stat.S_IMODE(file.stat().st_mode) == 0o604


@pytest.mark.parametrize("umask", [-1, 0o1000, 0o777, 0o100])
def test_a_umask_that_locks_the_owner_out_is_refused(umask: int) -> None:
    with pytest.raises(RejectedError, match="umask"):
        PosixFileSystem(umask)


# --- mounts and owners


def test_a_file_system_that_makes_no_directories_is_named(fs: FileSystem) -> None:
    with pytest.raises(RejectedError, match="the file system of /proc makes no directories") as refused:
        fs.make_directories("/proc/lake")
    assert refused.value.field == "destination"


def test_staging_on_another_file_system_is_refused_before_anything_is_written(fs: FileSystem, tmp_path: Path) -> None:
    with tmpfs(tmp_path / "other") as other:
        with pytest.raises(RejectedError, match="same file system") as refused:
            fs.probe(str(other / "staging"), str(tmp_path / "lake"))
        assert refused.value.field == "destination"
        assert list(other.iterdir()) == []
        assert not (tmp_path / "lake").exists()


def test_a_disk_without_inodes_is_retryable(fs: FileSystem, tmp_path: Path) -> None:
    with tmpfs(tmp_path / "full", options="nr_inodes=3,mode=755") as full:
        with pytest.raises(RetryableError) as failed:
            fs.make_directories(str(full / "a" / "b" / "c" / "d"))
        assert failed.value.fields["errno"] == "ENOSPC"


def _probe_as_nobody(connection: "multiprocessing.connection.Connection", adapter: str, root: str) -> None:
    if os.geteuid() == 0:
        os.setuid(65534)
    try:
        ADAPTERS[adapter](None).probe(f"{root}/.staging", f"{root}/lake")
    except GobblinError as error:
        connection.send((type(error).__name__, error.fields.get("field"), str(error)))
    else:
        connection.send(None)


@pytest.mark.parametrize("mode", [0o555, 0o000])
def test_a_destination_without_permission_is_refused(adapter: str, tmp_path: Path, mode: int) -> None:
    root = tmp_path / "closed"
    root.mkdir()
    for parent in root.parents:
        if parent.stat().st_uid == os.geteuid() and parent.is_relative_to(tmp_path.parent.parent):
            parent.chmod(0o755)  # pytest's own folders are closed to others
    root.chmod(mode)
    receiving, sending = FORKS.Pipe(duplex=False)
    process = FORKS.Process(target=_probe_as_nobody, args=(sending, adapter, str(root)))
    process.start()
    answer = receiving.recv()
    process.join(60)
    root.chmod(0o755)
    assert answer is not None
    assert answer[:2] == ("RejectedError", "destination")
    assert "EACCES" in answer[2]


# --- probes that were killed


class _Killed(PosixFileSystem):
    """The process is killed in the middle of a probe: two renames are done, and nothing is cleaned up."""

    def sync_directories(self, directories: Iterable[str]) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


def _probe_until_killed(staging: str, lake: str) -> None:
    _Killed().probe(staging, lake)


def _leave_behind(staging: str, lake: str) -> None:
    child = FORKS.Process(target=_probe_until_killed, args=(staging, lake))
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL


def _grow_old(lake: Path) -> None:
    then = lake.stat().st_mtime - LEFT_BEHIND_S - 60
    for path in lake.rglob(f"{PROBE_PREFIX}*"):
        os.utime(path, (then, then), follow_symlinks=False)


def test_a_probe_removes_what_killed_ones_left_once_it_is_an_hour_old(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    roots = (str(lake / ".staging"), str(lake))
    _leave_behind(*roots)
    left = lake / f"{PROBE_PREFIX}old-directory"
    write(left / "inside")
    kept = write(tmp_path / "elsewhere")
    (lake / f"{PROBE_PREFIX}old-link").symlink_to(kept)
    published = write(lake / "orders" / "part-0.parquet")
    found = set(lake.rglob(f"{PROBE_PREFIX}*"))
    assert len(found) > 2

    PosixFileSystem().probe(*roots)
    assert set(lake.rglob(f"{PROBE_PREFIX}*")) == found, "another probe may be at work"
    _grow_old(lake)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _number: PosixFileSystem().probe(*roots), range(8)))

    assert list(lake.rglob(f"{PROBE_PREFIX}*")) == []
    assert published.exists()
    assert kept.exists()


def test_what_can_not_be_removed_does_not_stop_a_probe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = tmp_path / "lake"
    stubborn = write(lake / f"{PROBE_PREFIX}1-file")
    other = write(lake / f"{PROBE_PREFIX}2-file")
    _grow_old(lake)
    unlink = Path.unlink

    def refuse(path: Path, *, missing_ok: bool = False) -> None:
        if path == stubborn:
            raise PermissionError(1, "Operation not permitted", str(path))
        unlink(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", refuse)
    PosixFileSystem().probe(str(lake / ".staging"), str(lake))

    assert stubborn.exists()
    assert not other.exists()
