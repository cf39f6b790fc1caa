"""Small files that are made whole or not at all, as markers of publications need them, on every file system."""

import errno
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gobblin_assets.errors import RejectedError, RetryableError
from tests.support.file_systems import ADAPTERS
from tests.support.places import Place


def test_a_new_file_holds_its_content(place: Place) -> None:
    content = os.urandom(3 << 20)

    assert place.fs.write_new({place.at("new"): content}) == {place.at("new")}

    assert place.read(place.at("new")) == content
    assert place.list_all() == ["new"]


@pytest.mark.parametrize("kind", ["file", "directory"])
def test_what_is_there_is_never_replaced(place: Place, kind: str) -> None:
    taken = place.at("taken")
    place.write(taken if kind == "file" else f"{taken}/inside", b"first")
    before = place.list_all(), place.fs.list_files(place.root)

    assert not place.fs.write_new({taken: b"second"})

    assert place.read(taken if kind == "file" else f"{taken}/inside") == b"first"
    after = place.list_all(), place.fs.list_files(place.root)
    assert after == before, "replaced, or the refused one left something behind"


def test_of_many_writers_of_one_name_exactly_one_makes_it(place: Place) -> None:
    contents = [bytes([number]) * 5_000 for number in range(16)]
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda content: place.fs.write_new({place.at("one"): content}), contents))

    assert sorted(map(len, made)) == [0] * 15 + [1]
    assert place.read(place.at("one")) == contents[made.index(frozenset({place.at("one")}))]
    assert place.list_all() == ["one"]


def test_a_file_is_synced_before_it_has_its_name(adapter: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fs, seen, fsync = ADAPTERS[adapter](None), [], os.fsync

    def record(descriptor: int) -> None:
        kind = "directory" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file"
        seen.append((kind, (tmp_path / "new").exists()))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", record)
    fs.write_new({str(tmp_path / "new"): b"content"})

    assert seen == [("file", False)]


def test_several_are_made_at_once_and_those_that_are_there_stay(place: Place) -> None:
    place.write(place.at("one/taken"), b"first")
    place.fs.make_directories(place.at("two"))
    contents = {"one/taken": b"second", "one/new": b"new", **{f"two/{number}": b"%d" % number for number in range(20)}}

    made = place.fs.write_new({place.at(name): content for name, content in contents.items()})

    assert made == {place.at(name) for name in contents} - {place.at("one/taken")}
    assert {name: place.read(place.at(name)) for name in contents} == {**contents, "one/taken": b"first"}
    assert not place.fs.write_new({})
    with pytest.raises(RejectedError, match="parent"):
        place.fs.write_new({place.at("one/last"): b"", place.at("missing/new"): b""})


def test_its_mode_follows_the_configured_umask(adapter: str, tmp_path: Path) -> None:
    previous = os.umask(0o077)
    try:
        ADAPTERS[adapter](0o027).write_new({str(tmp_path / "new"): b""})
    finally:
        os.umask(previous)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640


def test_a_missing_parent_is_named(place: Place) -> None:
    with pytest.raises(RejectedError, match="parent"):
        place.fs.write_new({place.at("missing/new"): b"content"})


def test_a_full_disk_leaves_nothing_under_the_name(place: Place) -> None:
    with place.on_small_disk() as disk:
        with pytest.raises(RetryableError, match=errno.errorcode[errno.ENOSPC]):
            disk.fs.write_new({disk.at("new"): b"x" * (1 << 20)})
        assert disk.list_all() == []
        assert disk.fs.write_new({disk.at("new"): b"small"})
