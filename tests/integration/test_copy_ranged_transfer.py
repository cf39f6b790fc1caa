"""Objects copied into an attempt's directory: bytes by ranges of one version, by threads and by processes."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import google_crc32c
import pytest

from gobblin_assets.errors import ErrorFamily
from gobblin_assets.fs.objects import Absent, HasEtag, ObjectFiles
from gobblin_assets.fs.posix_tree import PosixTree
from gobblin_assets.fs.registry import open_tree
from gobblin_assets.fs.s3.s3_settings import PREFIX
from gobblin_assets.fs.tree import EntryKind
from gobblin_assets.jobs.copy.checksums import checksums_agree
from gobblin_assets.jobs.copy.copyable import CopyItem, PlannedFile
from gobblin_assets.jobs.copy.transfer import local
from gobblin_assets.jobs.copy.transfer.file_copy import RANGE_BYTES
from gobblin_assets.jobs.copy.transfer.transfer_port import FileResult, TransferOrder
from tests.support.copying import copy_all, divide, entry_of, order_of, staged
from tests.support.faulty_store import FaultyStore, Message, StoreFault, faulty_store
from tests.support.s3_servers import S3Server

SIZES = (0, 1, 4_096, RANGE_BYTES, 2 * RANGE_BYTES + 7)
TWO_RANGES = RANGE_BYTES + 1


@dataclass(frozen=True)
class Source:
    """``files`` reach the store directly; what copies reaches it through ``proxy``."""

    proxy: FaultyStore
    files: ObjectFiles
    root: str
    attempt: Path

    def write(self, name: str, content: bytes) -> None:
        path = f"{self.root}/{name}"
        found = self.files.find_object(path)
        upload = self.files.begin_upload(path, {})
        part = self.files.write_part(path, upload, 1, content, google_crc32c.value(content))
        self.files.complete_upload(path, upload, [part], Absent() if found is None else HasEtag(found.etag))

    def remove(self, name: str) -> None:
        found = self.files.find_object(f"{self.root}/{name}")
        assert found is not None
        self.files.remove_object(found.path, found.etag)

    def plan(self, bins: int = 2) -> TransferOrder:
        tree, root = open_tree(f"s3:/{self.root}", "source", hidden=frozenset(), follow_links=False)
        entries = [entry for entry in tree.list_tree(root) if entry.kind is EntryKind.FILE]
        items = [
            CopyItem(number, entry.path, (PlannedFile.of(entry.path, entry),))
            for number, entry in enumerate(entries, 1)
        ]
        return replace(order_of(Path(), self.attempt, divide(items, bins)), source_root=f"s3:/{self.root}")

    def copy(self, order: TransferOrder | None = None) -> dict[str, FileResult]:
        return copy_all(self.plan() if order is None else order)

    def change_at(self, number: int, change: Callable[[], None]) -> None:
        """Do it before the store sees the n-th GET."""
        seen = [0]

        def choose(request: Message) -> StoreFault | None:
            seen[0] += request.method == "GET"
            if request.method == "GET" and seen[0] == number:
                change()
            return None

        self.proxy.choose = choose


@pytest.fixture
def source(versitygw: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Source]:
    with faulty_store(versitygw.address) as proxy:
        for name, value in {**versitygw.environment, f"{PREFIX}ENDPOINT_URL": proxy.endpoint_url}.items():
            monkeypatch.setenv(name, value)
        yield Source(proxy, versitygw.open(), f"/{versitygw.make_bucket()}/in", tmp_path / "attempt")


def test_objects_of_all_sizes_are_copied_whole_by_few_requests(source: Source) -> None:
    contents = {f"f{size}": os.urandom(size) for size in SIZES}
    for name, content in contents.items():
        source.write(name, content)
    order = source.plan()
    source.proxy.seen.clear()
    results = source.copy(order)
    assert results.keys() == contents.keys()
    for name, content in contents.items():
        assert results[name].failure is None, results[name]
        assert staged(order, results[name]).read_bytes() == content
        assert results[name].checksum == google_crc32c.value(content)
    # One for each range, and a HEAD for the object without any.
    assert (source.proxy.counts("GET"), source.proxy.counts("HEAD")) == (6, 1)


def test_processes_reach_the_store_by_the_environment(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "COLD_FILES_MIN", 1)
    for number in range(8):
        source.write(f"d/ä {number}", b"%d" % number)
    order = source.plan(bins=4)
    results = source.copy(order)
    assert sorted(staged(order, each).read_bytes() for each in results.values()) == [b"%d" % n for n in range(8)]


@pytest.mark.parametrize("content", [b"same!", b"", b"longer than before"])
@pytest.mark.parametrize("before", [b"first", b""])
def test_an_object_that_changed_since_it_was_planned_fails_alone(source: Source, before: bytes, content: bytes) -> None:
    source.write("changed", before)
    source.write("gone", b"x")
    source.write("kept", b"kept")
    order = source.plan()
    source.write("changed", content + b"." * (before == content))
    source.remove("gone")
    results = source.copy(order)
    for name in ("changed", "gone"):
        failure = results[name].failure
        assert failure is not None
        assert failure.family is ErrorFamily.RETRYABLE
        assert name in failure.message
    assert staged(order, results["kept"]).read_bytes() == b"kept"


def test_an_object_that_changes_between_two_ranges_fails(source: Source) -> None:
    """The new one has the same length, so that only its ETag tells."""
    source.write("a", b"a" * TWO_RANGES)
    order = source.plan()
    source.change_at(2, lambda: source.write("a", b"b" * TWO_RANGES))
    failure = source.copy(order)["a"].failure
    assert failure is not None
    assert "another version" in failure.message
    assert source.proxy.counts("GET") > 1


@pytest.mark.parametrize("fault", [StoreFault.BUSY, StoreFault.LOST])
def test_a_range_that_is_refused_or_lost_is_read_again(source: Source, fault: StoreFault) -> None:
    content = os.urandom(TWO_RANGES)
    source.write("a", content)
    order = source.plan()
    source.proxy.fault_once(fault, "GET", "/a")
    results = source.copy(order)
    assert staged(order, results["a"]).read_bytes() == content


def test_checksums_of_both_sides_are_compared(source: Source, tmp_path: Path) -> None:
    content = os.urandom(TWO_RANGES)
    source.write("a", content)
    (tmp_path / "a").write_bytes(content)
    tree, root = open_tree(f"s3:/{source.root}", "source", hidden=frozenset(), follow_links=False)
    (theirs,) = tree.list_tree(root)
    copies = PosixTree("destination")
    assert checksums_agree(tree, root, copies, str(tmp_path), theirs, entry_of(tmp_path, "a"))
    (tmp_path / "a").write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert not checksums_agree(tree, root, copies, str(tmp_path), theirs, entry_of(tmp_path, "a"))
