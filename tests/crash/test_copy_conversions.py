"""Copies that are killed while they convert: names hold whole old or whole new files, and no program is left behind."""

import gzip
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from gobblin_assets.failpoints import Failpoint
from tests.crash.test_kills import kill_at
from tests.support.archives import AT_S, put, tar_of
from tests.support.copy_lake import CopyLake, CopyWorld, files_of
from tests.support.gpg import Keys, look_at_programs, open_keys

WAIT_S_MAX: Final = 150.0
LARGE: Final = os.urandom(1 << 20) * 8


@pytest.fixture
def keys() -> Iterator[Keys]:
    with open_keys() as opened:
        yield opened


def open_lake(database_url: str, directory: Path, converters: list[Any]) -> CopyLake:
    options = {"datasets": [], "defaults": {"converters": converters, "deletes": "ours"}}
    made = CopyLake(database_url, str(directory), options=options)
    made.source.mkdir()
    return made


def expect(lake: CopyLake, files: dict[str, bytes]) -> None:
    assert {name: found[2] for name, found in files_of(lake.tree).items()} == files


def check_ended(world: CopyWorld) -> None:
    assert world.scalar("SELECT count(*) FROM gobblin.commit_sequence WHERE state NOT IN ('DONE', 'ABORTED')") == 0
    assert not world.run().failed, "nothing is left to do"


@pytest.mark.parametrize("at", [1, pytest.param(3, marks=pytest.mark.rotating)])
def test_a_conversion_that_was_killed_is_done_by_the_next(database_url: str, tmp_path: Path, at: int) -> None:
    """The third piece is of a member: the archive was published before, and has new members now."""
    lake = open_lake(database_url, tmp_path, ["gunzip", "untar"])
    put(lake.source / "a.tar.gz", gzip.compress(tar_of([("one", b"1"), ("two", b"2"), ("three", b"3")])))
    put(lake.source / "b.gz", gzip.compress(b"old"))
    world = lake.open_world()
    assert not world.run().failed
    before = {"a/one": b"1", "a/two": b"2", "a/three": b"3", "b": b"old"}
    expect(lake, before)
    put(
        lake.source / "a.tar.gz", gzip.compress(tar_of([("one", b"I"), ("two", b"II"), ("four", b"IV")])), at_s=AT_S + 1
    )
    put(lake.source / "b.gz", gzip.compress(LARGE, 1), at_s=AT_S + 1)

    kill_at(lake, f"{Failpoint.CONVERSION_BEGUN}=kill@{at}")
    world.expire_leases()

    expect(lake, before)
    assert not world.run().failed
    expect(lake, {"a/one": b"I", "a/two": b"II", "a/four": b"IV", "b": LARGE})
    check_ended(world)
    world.close()


def test_gpg_ends_with_the_copy_that_started_it(
    database_url: str, tmp_path: Path, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COPY_PASSPHRASE", keys.passphrase)
    lake = open_lake(
        database_url, tmp_path, [{"kind": "gpg_encrypt", "homedir": keys.homedir, "recipients": [keys.fingerprint]}]
    )
    put(lake.source / "large", LARGE)
    world = lake.open_world()

    kill_at(lake, f"{Failpoint.CONVERSION_BEGUN}=kill@1")

    deadline = time.monotonic() + WAIT_S_MAX
    while programs := look_at_programs(keys.homedir):
        assert time.monotonic() < deadline, f"gpg lives on: {programs}"
        threading.Event().wait(0.02)
    world.expire_leases()
    expect(lake, {})
    assert not world.run().failed
    assert list(files_of(lake.tree)) == ["large.gpg"]
    check_ended(world)
    world.close()
