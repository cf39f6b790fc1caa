"""Modes, mounts and owners: what a destination on a POSIX system gets, and what it is refused for."""

import multiprocessing
import os
import stat
from pathlib import Path

import pytest

from gobblin_assets.errors import GobblinError, RejectedError, RetryableError
from gobblin_assets.fs.port import FileSystem
from gobblin_assets.fs.posix import PosixFileSystem
from tests.support.file_systems import ADAPTERS, identity, write
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
    context = multiprocessing.get_context("spawn")
    receiving, sending = context.Pipe(duplex=False)
    process = context.Process(target=_probe_as_nobody, args=(sending, adapter, str(root)))
    process.start()
    answer = receiving.recv()
    process.join(60)
    root.chmod(0o755)
    assert answer is not None
    assert answer[:2] == ("RejectedError", "destination")
    assert "EACCES" in answer[2]
