"""Files that are longer or shorter than their file system says, as those of /proc and /sys: none is published."""

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gobblin_assets.errors import ErrorFamily, RejectedError
from gobblin_assets.fs.posix_ranged import open_posix_ranged
from gobblin_assets.jobs.copy.transfer.bins import plan_bins
from gobblin_assets.jobs.copy.transfer.moving import CHUNK_BYTES
from tests.support import copy_lake
from tests.support.copy_lake import CopyLake, Open, files_of
from tests.support.copying import copy_all, divide, file_items, fill, identity_of, order_of

lake, job = copy_lake.lake, copy_lake.job

OF_PROC = Path("/proc/sys/kernel/pty")
"""Files of 0 bytes, which have some."""

OF_SYS = Path("/sys/kernel/mm/transparent_hugepage/enabled")
"""A file of 4,096 bytes, which has some twenty."""


@pytest.mark.parametrize("checksum", [True, False])
def test_a_file_that_says_that_it_is_empty_fails(tmp_path: Path, checksum: bool) -> None:
    results = copy_all(order_of(OF_PROC, tmp_path, divide(file_items(OF_PROC), 1), checksum=checksum))

    failures = {path: result.failure for path, result in results.items()}
    assert {each and each.family for each in failures.values()} == {ErrorFamily.REJECTED}
    assert f"{OF_PROC}/max says 0 bytes, and has more" in str(failures["max"])


def test_a_file_that_says_more_than_it_has_fails(tmp_path: Path) -> None:
    items = [each for each in file_items(OF_SYS.parent) if each.path == OF_SYS.name]
    failure = copy_all(order_of(OF_SYS.parent, tmp_path, divide(items, 1)))[OF_SYS.name].failure
    assert failure is not None
    assert (failure.family, f"{OF_SYS} says 4,096 bytes, and has fewer" in failure.message) == (
        ErrorFamily.REJECTED,
        True,
    )


class ToldLengths:
    """The file system says another length of one file, always the same one."""

    def __init__(self, path: Path, more_bytes: int, patch: pytest.MonkeyPatch) -> None:
        self.inode, self.more_bytes = path.stat().st_ino, more_bytes
        for name in ("stat", "lstat", "fstat"):
            patch.setattr(os, name, partial(self.tell, getattr(os, name)))

    def tell(self, ask: Any, *place: Any, **options: Any) -> os.stat_result:
        found: os.stat_result = ask(*place, **options)
        if found.st_ino != self.inode:
            return found
        fields = list(found[:10])
        fields[6] += self.more_bytes
        names = ("st_atime_ns", "st_mtime_ns", "st_ctime_ns", "st_blocks", "st_blksize", "st_rdev")
        return os.stat_result(fields, {each: getattr(found, each) for each in names})


@pytest.mark.parametrize(("more_bytes", "said"), [(-1, "more"), (-7, "more"), (1, "fewer"), (CHUNK_BYTES, "fewer")])
@pytest.mark.parametrize("size_bytes", [8, 1_000, 2 * CHUNK_BYTES + 9])
@pytest.mark.parametrize("checksum", [True, False])
@pytest.mark.parametrize("part_bytes", [None, CHUNK_BYTES])
def test_each_way_to_copy_reads_to_the_end(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    more_bytes: int,
    said: str,
    size_bytes: int,
    checksum: bool,
    part_bytes: int | None,
) -> None:
    path = fill(tmp_path / "in/a", os.urandom(size_bytes))
    fill(tmp_path / "in/b")
    ToldLengths(path, more_bytes, monkeypatch)
    bins = plan_bins(file_items(tmp_path / "in"), 4, part_bytes)

    results = copy_all(order_of(tmp_path / "in", tmp_path / "attempt", bins, checksum=checksum))

    failure = results["a"].failure
    assert failure is not None
    assert (failure.family, f"bytes, and has {said}" in failure.message) == (ErrorFamily.REJECTED, True)
    assert results["b"].failure is None


@pytest.mark.parametrize(("more_bytes", "said"), [(-1, "more"), (-8, "more"), (1, "fewer")])
def test_what_is_read_by_ranges_is_read_to_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more_bytes: int, said: str
) -> None:
    """As uploads and copies to HDFS read it."""
    path = fill(tmp_path / "a", b"8 bytes!")
    ToldLengths(path, more_bytes, monkeypatch)
    planned = identity_of(path)

    with pytest.raises(RejectedError, match=f"bytes, and has {said}"):
        read_all(path, planned.size_bytes)


def read_all(path: Path, size_bytes: int) -> Iterator[bytes]:
    opened = open_posix_ranged(str(path), identity_of(path), follow_links=False)
    try:
        return iter([opened.read_at(place, min(4, size_bytes - place)) for place in range(0, size_bytes, 4)])
    finally:
        opened.close()


@pytest.mark.parametrize("options", [{}, {"same": "checksum"}], ids=["by time", "by checksum"])
@pytest.mark.parametrize("verify", ["length", "reread"])
@pytest.mark.parametrize("converters", [[], ["gzip"], [{"kind": "tar", "name": "all.tar"}]], ids=["", "gzip", "tar"])
def test_nothing_of_such_a_file_set_is_published(
    lake: CopyLake, job: Open, options: dict[str, Any], verify: str, converters: list[Any]
) -> None:
    if options and converters:
        pytest.skip("refused together")
    places = {"source": str(OF_PROC.parent), "datasets": [{"urn": OF_PROC.name}]}
    world = job({**places, "verify": verify}, converters=converters, **options)

    (failed,) = world.run().failed

    assert failed.error_family is ErrorFamily.REJECTED
    assert f"{OF_PROC}/" in str(failed.error)
    assert "says 0 bytes, and has more" in str(failed.error)
    assert files_of(lake.tree) == {}
