"""Files that become uploads: written down before their bytes, by few requests, and one by one if they fail."""

import json
import os
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from io import BufferedReader
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from gobblin_assets.commit.object_attempts import discard_attempt
from gobblin_assets.destinations.files.rooted import FinalNames
from gobblin_assets.destinations.fixed_names.named_outputs import StagedUpload
from gobblin_assets.errors import ErrorFamily, RejectedError, RetryableError
from gobblin_assets.fs.objects import ObjectStream
from gobblin_assets.fs.posix_ranged import open_posix_ranged
from gobblin_assets.jobs.copy import uploading
from gobblin_assets.jobs.copy.transfer.transfer_port import CopyFailure
from gobblin_assets.jobs.copy.uploading import Uploading, UploadOrder
from gobblin_assets.model.files import FileIdentity
from gobblin_assets.model.state import SequenceId
from gobblin_assets.model.urn import parse_job_name, parse_urn
from gobblin_assets.rows.attempt_files import UploadedFiles
from gobblin_assets.run.destination import Target
from tests.support.copying import fill, identity_of
from tests.support.object_store import MemoryObjects, ObjectStore

STAGING = "/bucket/tree/.gobblin/.staging/0"
LARGE = bytes(range(256)) * 140_000
"""Three parts."""


class Counted:
    """A store that counts the requests by their names. ``before`` runs before each."""

    def __init__(self, store: ObjectStore, before: Callable[[str], None] = lambda _name: None) -> None:
        self._files = MemoryObjects(store)
        self._lock = threading.Lock()
        self._before = before
        self.calls: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._files, name)
        if not callable(found):
            return found

        def call(*arguments: Any) -> Any:
            with self._lock:
                self.calls[name] += 1
            self._before(name)
            return found(*arguments)

        return call


def order_of(number: int, path: Path, identity: FileIdentity | None = None) -> UploadOrder:
    planned = identity_of(path) if identity is None else identity
    opened = partial(open_posix_ranged, str(path), planned, follow_links=False)
    return UploadOrder(number, f"/bucket/tree/{path.name}", planned.size_bytes, {"gobblin-id": str(number)}, opened)


def upload(files: Any, orders: list[UploadOrder], *, workers: int = 4, is_stopped: Any = lambda: False) -> Any:
    moved: list[int] = []
    return Uploading(files, STAGING, workers, moved.append, is_stopped).run(orders)


@pytest.mark.parametrize("workers", [1, 4])
def test_each_part_is_paid_for_and_each_file_once(tmp_path: Path, workers: int) -> None:
    spent: list[tuple[int, int]] = []
    orders = [order_of(1, fill(tmp_path / "small", b"x" * 7)), order_of(2, fill(tmp_path / "large", LARGE))]

    Uploading(
        *(Counted(ObjectStore()), STAGING, workers, lambda _size: None, lambda: False),
        pace=lambda size_bytes, files: spent.append((size_bytes, files)),
    ).run(orders)

    assert sum(size_bytes for size_bytes, _files in spent) == 7 + len(LARGE)
    assert sum(files for _size, files in spent) == 2
    assert len(spent) == 4


@pytest.mark.parametrize("workers", [1, 4])
def test_small_files_take_two_requests_and_a_share_of_one(tmp_path: Path, workers: int) -> None:
    store = ObjectStore()
    files = Counted(store)
    orders = [order_of(n, fill(tmp_path / f"f{n:03}", b"x" * n)) for n in range(250)]
    results = upload(files, orders, workers=workers)
    assert sorted(results) == list(range(250))
    assert all(isinstance(each, StagedUpload) and len(each.parts) == 1 for each in results.values())
    assert files.calls == {
        "begin_upload": 250,
        "write_part": 250,
        "put_if_absent": -(-250 // 63) if workers == 4 else 3,
    }
    written_down = [json.loads(store.read(path)) for path in store.objects]
    assert sorted(upload for some in written_down for _path, upload in some) == sorted(store.uploads)


@pytest.mark.parametrize("workers", [1, 4])
def test_a_large_file_is_uploaded_by_parts(tmp_path: Path, workers: int) -> None:
    store = ObjectStore()
    results = upload(MemoryObjects(store), [order_of(1, fill(tmp_path / "large", LARGE))], workers=workers)
    staged = results[1]
    assert isinstance(staged, StagedUpload)
    assert [(part.number, part.size_bytes) for part in staged.parts] == [
        (1, 16 << 20),
        (2, 16 << 20),
        (3, len(LARGE) - (32 << 20)),
    ]
    parts = store.uploads[staged.upload].parts
    assert b"".join(parts[number] for number in sorted(parts)) == LARGE


def test_an_upload_is_written_down_before_its_bytes(tmp_path: Path) -> None:
    store = ObjectStore()

    def look(name: str) -> None:
        if name == "write_part":
            assert store.uploads.keys() <= list_written_down(store)

    orders = [order_of(n, fill(tmp_path / f"f{n}")) for n in range(5)]
    assert len(upload(Counted(store, look), orders, workers=1)) == 5


def test_a_file_that_changed_fails_alone(tmp_path: Path) -> None:
    kept, changed, gone = (fill(tmp_path / name, b"12345") for name in ("kept", "changed", "gone"))
    large = fill(tmp_path / "large", LARGE)
    orders = [order_of(n, path) for n, path in enumerate((kept, changed, gone, large))]
    fill(changed, b"54321")
    os.utime(changed, ns=(1, 1))
    gone.unlink()
    os.truncate(large, 20 << 20)
    results = upload(MemoryObjects(ObjectStore()), orders)
    assert isinstance(results[0], StagedUpload)
    for number in (1, 2, 3):
        assert isinstance(results[number], CopyFailure)
        assert results[number].family is ErrorFamily.RETRYABLE


def test_a_cancelled_copy_ends_and_its_uploads_can_be_found(tmp_path: Path) -> None:
    store, stopped = ObjectStore(), threading.Event()

    def stop(name: str) -> None:
        if name == "write_part":
            stopped.set()

    orders = [order_of(n, fill(tmp_path / f"f{n}")) for n in range(20)]
    with pytest.raises(RetryableError, match="cancelled"):
        upload(Counted(store, stop), orders, workers=2, is_stopped=stopped.is_set)
    assert discard_attempt(MemoryObjects(store), STAGING)
    assert not store.uploads


@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize("request_", ["begin_upload", "write_part", "put_if_absent"])
def test_what_the_store_failed_is_uploaded_once_more(tmp_path: Path, request_: str, workers: int) -> None:
    store, failing = ObjectStore(), [True]

    def fail_once(name: str) -> None:
        if name == request_ and failing:
            failing.pop()
            raise RetryableError("503 SlowDown")

    orders = [order_of(n, fill(tmp_path / f"f{n}")) for n in range(3)]
    orders.append(order_of(3, fill(tmp_path / "large", LARGE)))
    results = upload(Counted(store, fail_once), orders, workers=workers)
    assert sorted(results) == [0, 1, 2, 3]
    assert all(isinstance(each, StagedUpload) for each in results.values())
    assert store.uploads.keys() <= list_written_down(store)


def list_written_down(store: ObjectStore) -> set[str]:
    return {upload for path in store.objects for _path, upload in json.loads(store.read(path))}


@pytest.mark.parametrize("request_", ["begin_upload", "put_if_absent"])
@pytest.mark.parametrize(
    "error",
    [RetryableError("503 SlowDown"), RejectedError("403", field="destination", hint="Give the right.")],
    ids=str,
)
def test_what_was_begun_and_is_not_written_down_is_aborted(
    tmp_path: Path, request_: str, error: RetryableError | RejectedError
) -> None:
    """The store fails for good, in the middle of a batch."""
    store = ObjectStore()

    def fail(name: str) -> None:
        if name == request_ and (name != "begin_upload" or len(store.uploads) >= 3):
            raise error

    with pytest.raises(type(error)):
        upload(Counted(store, fail), [order_of(n, fill(tmp_path / f"f{n:03}")) for n in range(50)], workers=1)
    assert not store.uploads


def test_a_copy_that_is_cancelled_before_it_writes_down_aborts_what_it_began(tmp_path: Path) -> None:
    store, stopped = ObjectStore(), threading.Event()

    def stop(_name: str) -> None:
        if len(store.uploads) == 4:
            stopped.set()

    orders = [order_of(n, fill(tmp_path / f"f{n}")) for n in range(5)]
    with pytest.raises(RetryableError, match="cancelled"):
        upload(Counted(store, stop), orders, workers=1, is_stopped=stopped.is_set)
    assert not store.uploads


def test_a_file_of_rows_whose_upload_is_not_written_down_aborts_it() -> None:
    store = ObjectStore()

    def fail(name: str) -> None:
        if name == "put_if_absent":
            raise RetryableError("503 SlowDown")

    names = FinalNames(
        "/bucket/lake", parse_job_name("shop"), Target(parse_urn("a"), "", SequenceId(uuid4()), 1), foresees_etags=True
    )
    with pytest.raises(RetryableError, match="503"):
        UploadedFiles(Counted(store, fail), STAGING, names).create("", "a.parquet")
    assert not store.uploads


def test_what_the_store_fails_twice_fails_alone(tmp_path: Path) -> None:
    store = ObjectStore()

    class Poisoned(Counted):
        def write_part(self, path: str, *arguments: Any) -> Any:
            if path.endswith("f1"):
                raise RetryableError("503 SlowDown")
            return MemoryObjects(store).write_part(path, *arguments)

    orders = [order_of(n, fill(tmp_path / f"f{n}")) for n in range(3)]
    results = upload(Poisoned(store), orders)
    assert {number for number, each in results.items() if isinstance(each, CopyFailure)} == {1}


@pytest.mark.parametrize("workers", [1, 4])
def test_a_store_out_of_reach_is_not_asked_for_each_file(tmp_path: Path, workers: int) -> None:
    def fail(name: str) -> None:
        if name == "write_part":
            raise RetryableError("503 SlowDown")

    files = Counted(ObjectStore(), fail)
    with pytest.raises(RetryableError, match="503 SlowDown"):
        upload(files, [order_of(n, fill(tmp_path / f"f{n}")) for n in range(100)], workers=workers)
    assert files.calls["write_part"] <= 3 * workers


def test_only_so_many_bytes_of_large_files_are_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploading, "BYTES_WAITING_MAX", 1)
    under_way, most = [0], [0]

    class Watched(Counted):
        def write_part(self, *arguments: Any) -> Any:
            under_way[0] += 1
            most[0] = max(most[0], under_way[0])
            try:
                return MemoryObjects(store).write_part(*arguments)
            finally:
                under_way[0] -= 1

    store = ObjectStore()
    results = upload(Watched(store), [order_of(1, fill(tmp_path / "large", LARGE))])
    assert isinstance(results[1], StagedUpload)
    assert most == [1]


# --- the files that are read


def test_all_bytes_of_an_object_are_few_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ObjectStream, "READ_BYTES", 1 << 22)
    store = ObjectStore()
    store.put("/bucket/a", LARGE)
    files = Counted(store)
    found = files.find_object("/bucket/a")
    stream = BufferedReader(ObjectStream(files, found), ObjectStream.BUFFER_BYTES)
    assert stream.read(5) == LARGE[:5]
    assert stream.read() == LARGE[5:]
    assert files.calls["read_range"] <= 2 + len(LARGE) // (1 << 22)


def test_ranges_of_a_file_are_read_in_any_order(tmp_path: Path) -> None:
    path = fill(tmp_path / "a", b"0123456789")
    opened = open_posix_ranged(str(path), identity_of(path), follow_links=False)
    assert (opened.read_at(8, 2), opened.read_at(0, 3)) == (b"89", b"012")
    fill(path, b"9876543210")
    os.utime(path, ns=(5, 5))
    with pytest.raises(RetryableError, match="changed"):
        opened.read_at(0, 1)
    opened.close()


def test_a_version_that_is_written_in_place_with_the_old_time_is_another_one(tmp_path: Path) -> None:
    path = fill(tmp_path / "a", b"0123456789")
    before = path.stat()
    opened = open_posix_ranged(str(path), identity_of(path), before.st_ctime_ns, follow_links=False)
    assert opened.read_at(0, 3) == b"012"
    path.write_bytes(b"9876543210")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(RetryableError, match="changed"):
        opened.read_at(3, 3)
    opened.close()


def test_a_link_is_followed_only_if_it_was_planned(tmp_path: Path) -> None:
    path = fill(tmp_path / "a", b"0123456789")
    (tmp_path / "link").symlink_to(path)
    link = str(tmp_path / "link")
    with pytest.raises(RetryableError, match="is gone"):
        open_posix_ranged(link, identity_of(path), follow_links=False)
    opened = open_posix_ranged(link, identity_of(path), follow_links=True)
    assert opened.read_at(0, 2) == b"01"
    opened.close()


def test_a_directory_is_no_file(tmp_path: Path) -> None:
    with pytest.raises((RetryableError, RejectedError)):
        open_posix_ranged(str(tmp_path), FileIdentity(1), follow_links=False)
