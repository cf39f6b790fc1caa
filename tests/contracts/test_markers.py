"""Small files that are made whole or not at all: what markers of publications rest on, for every file system."""

import errno
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gobblin_assets.errors import RejectedError, RetryableError
from gobblin_assets.fs.port import FileSystem
from tests.support.file_systems import ADAPTERS, identity
from tests.support.mounts import tmpfs


def read(fs: FileSystem, path: Path) -> bytes:
    with fs.open_input(str(path)) as stream:
        return stream.read()


def test_a_new_file_holds_its_content(fs: FileSystem, tmp_path: Path) -> None:
    content = os.urandom(3 << 20)

    assert fs.write_new(str(tmp_path / "new"), content)

    assert read(fs, tmp_path / "new") == content
    assert [path.name for path in tmp_path.iterdir()] == ["new"]


def test_what_is_there_is_never_replaced(fs: FileSystem, tmp_path: Path) -> None:
    fs.write_new(str(tmp_path / "taken"), b"first")
    before = identity(fs, tmp_path / "taken")

    assert not fs.write_new(str(tmp_path / "taken"), b"second")

    assert read(fs, tmp_path / "taken") == b"first"
    assert identity(fs, tmp_path / "taken") == before
    assert [path.name for path in tmp_path.iterdir()] == ["taken"], "the refused one left something behind"


def test_of_many_writers_of_one_name_exactly_one_makes_it(fs: FileSystem, tmp_path: Path) -> None:
    contents = [bytes([number]) * 5_000 for number in range(16)]
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda content: fs.write_new(str(tmp_path / "one"), content), contents))

    assert made.count(True) == 1
    assert read(fs, tmp_path / "one") == contents[made.index(True)]
    assert [path.name for path in tmp_path.iterdir()] == ["one"]


def test_the_file_and_its_name_are_synced_in_this_order_before_it_returns(
    adapter: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs, seen, fsync = ADAPTERS[adapter](None), [], os.fsync

    def record(descriptor: int) -> None:
        kind = "directory" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file"
        seen.append((kind, (tmp_path / "new").exists()))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", record)
    fs.write_new(str(tmp_path / "new"), b"content")

    assert seen == [("file", False), ("directory", True)]


def test_its_mode_follows_the_configured_umask(adapter: str, tmp_path: Path) -> None:
    previous = os.umask(0o077)
    try:
        ADAPTERS[adapter](0o027).write_new(str(tmp_path / "new"), b"")
    finally:
        os.umask(previous)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640


def test_a_missing_parent_is_named(fs: FileSystem, tmp_path: Path) -> None:
    with pytest.raises(RejectedError, match="parent"):
        fs.write_new(str(tmp_path / "missing" / "new"), b"content")


def test_a_full_disk_leaves_nothing_under_the_name(fs: FileSystem, tmp_path: Path) -> None:
    with tmpfs(tmp_path / "small", options="size=64k,mode=755") as mount:
        with pytest.raises(RetryableError, match=errno.errorcode[errno.ENOSPC]):
            fs.write_new(str(mount / "new"), b"x" * (1 << 20))
        assert list(mount.iterdir()) == []
        assert fs.write_new(str(mount / "new"), b"small")
