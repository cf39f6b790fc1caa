"""Faults of conversions: a program gpg that hangs, and a source whose server is gone."""

import errno
import gzip
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from gobblin_assets.errors import RetryableError
from gobblin_assets.jobs.copy.converters import gpg
from gobblin_assets.jobs.copy.converters.chain import open_chain, read_chain, write_chain
from gobblin_assets.jobs.copy.converters.converter_port import ByteSource
from gobblin_assets.jobs.copy.converters.listing import ConvertedListing
from gobblin_assets.jobs.copy.copyable import Conversion, CopyItem, PlannedFile
from gobblin_assets.jobs.copy.globs import Filters
from gobblin_assets.jobs.copy.sameness import Sameness
from gobblin_assets.jobs.copy.transfer.bins import plan_bins
from gobblin_assets.jobs.copy.transfer.converting import convert_entries
from gobblin_assets.jobs.copy.transfer.crews import ThreadCrew
from gobblin_assets.jobs.copy.transfer.file_copy import CopyOptions
from gobblin_assets.jobs.copy.transfer.writing import BinWork, RowBatch, pack_item
from tests.support.archives import put, zip_of
from tests.support.copying import entry_of


def silent_work(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> BinWork:
    """A file that a program named gpg is to decrypt, which ``script`` is in place of."""
    program = folder / "bin/gpg"
    put(program, f"#!/bin/sh\n{script}\n".encode()).chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    put(folder / "in/a.gpg", os.urandom(1_000_000))
    file = PlannedFile.of("a", entry_of(folder / "in", "a.gpg"), conversion=Conversion(1, (0,)))
    (found,) = plan_bins([CopyItem(0, "a", (file,))], 1)
    (folder / "attempt" / found.writer).mkdir(parents=True)
    return BinWork(
        *(str(folder / "in"), str(folder / "attempt" / found.writer), (True, False, False, False)),
        tuple(map(pack_item, found.items)),
        converters=write_chain(["gpg_decrypt"]),
    )


@pytest.mark.parametrize(
    "script", ["exec sleep 600", "cat >/dev/null; exec sleep 600", "cat >/dev/null; exec sleep 600 >&-"]
)
def test_a_stop_reaches_a_writer_whose_gpg_says_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    work = silent_work(tmp_path, monkeypatch, f"touch {tmp_path}/begun\n{script}")
    crew = ThreadCrew([lambda: work], 1)

    def stop() -> None:
        while not (tmp_path / "begun").exists():
            pass
        crew.stop()

    threading.Thread(target=stop, daemon=True).start()

    def take() -> None:
        list(crew.reports())
        crew.close()

    closing = threading.Thread(target=take, daemon=True)
    closing.start()
    closing.join(timeout=20)
    assert not closing.is_alive()


@pytest.mark.parametrize("script", ["exec sleep 600", "cat >/dev/null; exec sleep 600", "cat; exec sleep 600 >&-"])
def test_a_gpg_that_hangs_fails_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    monkeypatch.setattr(gpg, "SILENT_MAX_S", 0.5)
    work = silent_work(tmp_path, monkeypatch, script)
    crew = ThreadCrew([lambda: work], 1)
    rows = [row for batch in crew.reports() if isinstance(batch, RowBatch) for row in batch.rows]
    crew.close()
    assert "gpg has done nothing for" in str(rows)


def test_a_slow_source_is_no_silence_of_gpg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpg, "SILENT_MAX_S", 0.3)
    work = silent_work(tmp_path, monkeypatch, "cat\necho '[GNUPG:] DECRYPTION_OKAY' >&2")
    released = threading.Event()
    released_after = threading.Timer(1.5, released.set)
    released_after.start()

    class Slow:
        def __init__(self) -> None:
            self.pieces = [b"one", b"two"]

        def read(self, _size: int, /) -> bytes:
            released.wait()
            return self.pieces.pop() if self.pieces else b""

    with read_chain(work.converters).convert(Slow(), (0,), "a") as content:
        assert read_to_end_of(content) == b"twoone"


def read_to_end_of(content: ByteSource) -> bytes:
    return b"".join(iter(lambda: content.read(1_000), b""))


@pytest.mark.parametrize(("function", "count"), [("fstat", 1), ("fstat", 2), ("listxattr", 1), ("getxattr", 1)])
def test_a_source_whose_server_is_gone_fails_its_file_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str, count: int
) -> None:
    put(tmp_path / "in/a.gz", gzip.compress(b"a"))
    os.setxattr(tmp_path / "in/a.gz", "user.x", b"1")
    file = PlannedFile.of("a", entry_of(tmp_path / "in", "a.gz"), conversion=Conversion(1, (0,)))
    options = CopyOptions(checksum=True, access_lists=False, extended=True)
    called, calls = getattr(os, function), []

    def go_stale(descriptor: int, *more: Any) -> Any:
        if Path(f"/proc/self/fd/{descriptor}").readlink().name == "a.gz":
            calls.append(descriptor)
            if len(calls) == count:
                raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return called(descriptor, *more)

    monkeypatch.setattr(os, function, go_stale)
    entries = [((0, 0), file, str(tmp_path / "target"))]
    ((_place, staged, error),) = convert_entries(
        str(tmp_path / "in"), write_chain(["gunzip"]), options, entries, lambda _count: None
    )
    assert staged is None
    assert isinstance(error, RetryableError)


def test_an_archive_whose_server_goes_while_it_is_planned_fails_its_file_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "a.zip", zip_of([("x", b"1")]))
    called = os.fstat

    def go_stale(descriptor: int) -> os.stat_result:
        if Path(f"/proc/self/fd/{descriptor}").readlink().name == "a.zip":
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return called(descriptor)

    chain = open_chain(["unzip"])
    listing = ConvertedListing(chain, str(tmp_path), Filters(), lambda _path: None, Sameness())
    listed = [entry_of(tmp_path, "a.zip")]
    monkeypatch.setattr(os, "fstat", go_stale)
    with pytest.raises(RetryableError, match="can't read"):
        list(listing.list_entries(iter(listed)))
