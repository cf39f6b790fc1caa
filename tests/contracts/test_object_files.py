"""The port of object stores: conditions, uploads that are used up, listings, reads of one version, the rehearsal."""

import datetime as dt
import hashlib
import uuid
from collections.abc import Callable
from dataclasses import dataclass

import google_crc32c
import pytest

from gobblin_assets.errors import ConflictError, RejectedError, RetryableError
from gobblin_assets.fs import object_rehearsal
from gobblin_assets.fs.object_work import ObjectWorkFiles, for_given_names
from gobblin_assets.fs.objects import (
    FOR_GIVEN_NAMES,
    FOR_NEW_NAMES,
    Ability,
    Absent,
    Condition,
    HasEtag,
    ObjectEntry,
    ObjectFiles,
    RemoveOutcome,
    UploadId,
    UploadPart,
    WriteOutcome,
)
from tests.support.object_store import MemoryObjects, ObjectStore
from tests.support.s3_servers import S3Server

NO_ETAG = hashlib.md5(b"nothing").hexdigest()
ODD_NAMES = ("a b", "ä", "\U0001f40d", "a+b", "100%25", "a&<b>'\"", "a=b?c#d", "~a-b_c.d", "a:b@c,d;e!(f)*")


@dataclass(frozen=True)
class Store:
    """``bucket``: a path of the store, empty at the beginning."""

    files: ObjectFiles
    bucket: str

    def at(self, key: str) -> str:
        return f"{self.bucket}/{key}"

    def put(self, key: str, content: bytes = b"content") -> ObjectEntry:
        assert self.files.put_if_absent(self.at(key), content) is WriteOutcome.WRITTEN
        return self.get(key)

    def get(self, key: str) -> ObjectEntry:
        found = self.files.find_object(self.at(key))
        assert found is not None
        return found

    def read(self, key: str) -> bytes:
        with self.files.open_input(self.at(key)) as stream:
            return stream.read()

    def upload(
        self, key: str, *contents: bytes, metadata: dict[str, str] | None = None
    ) -> tuple[UploadId, list[UploadPart]]:
        upload = self.files.begin_upload(self.at(key), metadata or {})
        return upload, [
            self.files.write_part(self.at(key), upload, number, content, google_crc32c.value(content))
            for number, content in enumerate(contents, start=1)
        ]

    def complete(self, key: str, upload: tuple[UploadId, list[UploadPart]], condition: Condition) -> WriteOutcome:
        return self.files.complete_upload(self.at(key), *upload, condition)

    def keys(self, directory: str = "", after: str = "") -> list[str]:
        below = f"{self.bucket}/{directory}".rstrip("/")
        return [each.path.removeprefix(f"{self.bucket}/") for each in self.files.list_objects(below, after)]


def open_versitygw(request: pytest.FixtureRequest) -> Store:
    server: S3Server = request.getfixturevalue("versitygw")
    return Store(server.open(), f"/{server.make_bucket()}")


def open_memory(_request: pytest.FixtureRequest) -> Store:
    return Store(MemoryObjects(ObjectStore()), "/bucket")


STORES: dict[str, Callable[[pytest.FixtureRequest], Store]] = {"memory": open_memory, "versitygw": open_versitygw}


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest) -> Store:
    return STORES[request.param](request)


# --- small objects


def test_a_small_object_is_made_once(store: Store) -> None:
    before = dt.datetime.now(dt.UTC)
    assert store.files.find_object(store.at("a/b")) is None
    found = store.put("a/b", b"one")
    assert (found.path, found.size_bytes) == (store.at("a/b"), 3)
    assert abs(found.modified_at - before) < dt.timedelta(minutes=1)
    assert store.files.put_if_absent(store.at("a/b"), b"other") is WriteOutcome.CONDITION_FAILED
    assert store.read("a/b") == b"one"
    assert store.get("a/b") == found


@pytest.mark.parametrize("name", ODD_NAMES)
def test_names_are_kept_as_they_are(store: Store, name: str) -> None:
    found = store.put(f"{name}/x{name}", b"one")
    assert store.keys(name) == [f"{name}/x{name}"]
    assert store.files.read_range(found.path, found.etag, 0, 3) == b"one"
    assert store.files.copy_object(found.path, store.at(f"copy/{name}"), found.etag) is WriteOutcome.WRITTEN
    assert store.read(f"copy/{name}") == b"one"
    assert store.files.remove_object(found.path, found.etag) is RemoveOutcome.REMOVED


def test_an_empty_object_is_an_object(store: Store) -> None:
    store.put("empty", b"")
    assert store.read("empty") == b""
    upload = store.upload("uploaded", b"")
    assert store.complete("uploaded", upload, Absent()) is WriteOutcome.WRITTEN
    assert store.get("uploaded").size_bytes == 0


# --- reading


def test_ranges_are_those_of_one_version(store: Store) -> None:
    found = store.put("a", b"0123456789")
    read = store.files.read_range
    assert (read(found.path, found.etag, 0, 10), read(found.path, found.etag, 3, 4)) == (b"0123456789", b"3456")
    with pytest.raises(RetryableError, match="another version"):
        read(found.path, NO_ETAG, 0, 1)
    with pytest.raises(RetryableError, match="another version"):
        read(found.path, found.etag, 8, 5)
    with pytest.raises(RetryableError, match="is gone"):
        read(store.at("missing"), NO_ETAG, 0, 1)


def test_a_stream_seeks_and_stays_with_its_version(store: Store) -> None:
    store.put("a", bytes(range(256)) * 8192)
    with store.files.open_input(store.at("a")) as stream:
        assert stream.seek(-3, 2) == 256 * 8192 - 3
        assert stream.read() == b"\xfd\xfe\xff"
        assert stream.seek(5) == 5
        assert stream.read(2) == b"\x05\x06"
        found = store.get("a")
        upload = store.upload("a", b"new")
        assert store.complete("a", upload, HasEtag(found.etag)) is WriteOutcome.WRITTEN
        stream.seek(256 * 8192 - 3)
        with pytest.raises(RetryableError, match="another version"):
            stream.read(3)
    with pytest.raises(RetryableError), store.files.open_input(store.at("missing")):
        pass


def test_an_object_may_have_any_bytes(store: Store) -> None:
    for number, content in enumerate([b"<Error><Code>NoSuchKey</Code></Error>", b"\r\n\r\n\0", b"\n"]):
        store.put(str(number), content)
        assert store.read(str(number)) == content


# --- uploads


def test_an_upload_is_seen_once_it_is_completed(store: Store) -> None:
    size = store.files.part_bytes_min
    upload = store.upload("d/a", b"x" * size, b"tail", metadata={"gobblin-id": "42-7", "mtime-ns": "17"})
    assert store.keys() == []
    assert store.files.find_object(store.at("d/a")) is None
    pending = list(store.files.list_uploads(store.at("d")))
    assert [(each.path, each.upload) for each in pending] == [(store.at("d/a"), upload[0])]
    assert list(store.files.list_uploads(store.at("other"))) == []
    assert store.complete("d/a", upload, Absent()) is WriteOutcome.WRITTEN
    found = store.get("d/a")
    assert (found.size_bytes, found.metadata) == (size + 4, {"gobblin-id": "42-7", "mtime-ns": "17"})
    assert store.read("d/a")[-6:] == b"xxtail"
    assert list(store.files.list_uploads(store.bucket)) == []


def test_a_completion_that_must_create_replaces_nothing(store: Store) -> None:
    found = store.put("a", b"stranger")
    upload = store.upload("a", b"ours")
    assert store.complete("a", upload, Absent()) is WriteOutcome.CONDITION_FAILED
    assert store.get("a") == found


def test_a_completion_that_must_replace_replaces_its_version_alone(store: Store) -> None:
    old = store.put("a", b"old")
    upload = store.upload("a", b"new", metadata={"gobblin-id": "1"})
    assert store.complete("a", upload, HasEtag(NO_ETAG)) is WriteOutcome.CONDITION_FAILED
    assert store.complete("missing", store.upload("missing", b"x"), HasEtag(NO_ETAG)) is WriteOutcome.CONDITION_FAILED
    assert store.get("a") == old
    assert store.complete("a", store.upload("a", b"new"), HasEtag(old.etag)) is WriteOutcome.WRITTEN
    assert store.read("a") == b"new"


def test_a_failed_condition_leaves_the_upload_pending(store: Store) -> None:
    old = store.put("a", b"old")
    upload = store.upload("a", b"new")
    assert store.complete("a", upload, Absent()) is WriteOutcome.CONDITION_FAILED
    assert store.complete("a", upload, HasEtag(old.etag)) is WriteOutcome.WRITTEN
    assert store.read("a") == b"new"


def test_an_upload_is_used_up_by_its_completion(store: Store) -> None:
    """Whatever a store answers to a second completion, what is at the name stays."""
    upload = store.upload("a", b"ours", metadata={"gobblin-id": "1"})
    assert store.complete("a", upload, Absent()) is WriteOutcome.WRITTEN
    ours = store.get("a")
    assert store.complete("a", store.upload("a", b"later"), HasEtag(ours.etag)) is WriteOutcome.WRITTEN
    later = store.get("a")
    for condition in (Absent(), HasEtag(ours.etag), HasEtag(later.etag)):
        store.complete("a", upload, condition)
        assert store.get("a") == later
    assert store.files.remove_object(later.path, later.etag) is RemoveOutcome.REMOVED
    assert store.complete("a", upload, Absent()) is WriteOutcome.SOURCE_MISSING
    assert store.files.abort_upload(store.at("a"), upload[0]) is False
    assert store.keys() == []


def test_an_upload_is_pending_until_it_is_completed_or_aborted(store: Store) -> None:
    completed, aborted = store.upload("a", b"one"), store.upload("a", b"two")
    assert store.files.has_upload(store.at("a"), completed[0])
    store.complete("a", completed, Absent())
    assert not store.files.has_upload(store.at("a"), completed[0])
    assert store.files.has_upload(store.at("a"), aborted[0])
    store.files.abort_upload(store.at("a"), aborted[0])
    assert not store.files.has_upload(store.at("a"), aborted[0])


def test_an_aborted_upload_is_never_completed(store: Store) -> None:
    upload = store.upload("a", b"ours")
    assert store.files.abort_upload(store.at("a"), upload[0]) is True
    assert store.files.abort_upload(store.at("a"), upload[0]) is False
    assert store.complete("a", upload, Absent()) is WriteOutcome.SOURCE_MISSING
    with pytest.raises(ConflictError, match="completed or aborted"):
        store.files.write_part(store.at("a"), upload[0], 1, b"x", google_crc32c.value(b"x"))
    stranger = store.put("a", b"stranger")
    store.complete("a", upload, HasEtag(stranger.etag))
    assert store.get("a") == stranger


def test_a_part_of_other_bytes_is_refused(store: Store) -> None:
    upload, _ = store.upload("a")
    with pytest.raises(RetryableError, match="other bytes"):
        store.files.write_part(store.at("a"), upload, 1, b"sent", google_crc32c.value(b"read"))


# --- copies and removals


def test_a_copy_is_of_one_version_and_keeps_its_metadata(store: Store) -> None:
    upload = store.upload("a", b"ours", metadata={"gobblin-id": "1"})
    assert store.complete("a", upload, Absent()) is WriteOutcome.WRITTEN
    found = store.get("a")
    copy = store.files.copy_object
    assert copy(found.path, store.at("b"), NO_ETAG) is WriteOutcome.SOURCE_MISSING
    assert copy(store.at("missing"), store.at("b"), found.etag) is WriteOutcome.SOURCE_MISSING
    assert store.keys() == ["a"]
    assert copy(found.path, store.at("b"), found.etag) is WriteOutcome.WRITTEN
    assert store.get("b").metadata == {"gobblin-id": "1"}
    assert store.read("b") == b"ours"


def test_a_removal_is_of_one_version(store: Store) -> None:
    found = store.put("a")
    remove = store.files.remove_object
    assert remove(found.path, NO_ETAG) is RemoveOutcome.CONDITION_FAILED
    assert store.get("a") == found
    assert remove(found.path, found.etag) is RemoveOutcome.REMOVED
    assert remove(found.path, found.etag) in {RemoveOutcome.REMOVED, RemoveOutcome.MISSING}
    assert store.files.find_object(found.path) is None


# --- listings


def test_a_listing_is_in_the_byte_order_of_keys(store: Store) -> None:
    keys = ["a!", "a-b/c", "a.txt", "a/b", "a/c/d", "a0", "b", "é", "\uff5e", "\U0001f40d"]
    for key in reversed(keys):
        store.put(key)
    assert store.keys() == keys == sorted(keys, key=str.encode)
    assert store.keys("a") == ["a/b", "a/c/d"]
    assert store.keys("a/c") == ["a/c/d"]
    assert store.keys("nothing") == []
    assert store.keys(after=store.at("a/b")) == keys[4:]
    assert store.keys("a", after=store.at("a/b")) == ["a/c/d"]
    assert store.keys(after=store.at("a/\U0010ffff")) == keys[5:]


def test_there_is_no_bucket(store: Store) -> None:
    with pytest.raises(RejectedError, match="there is no bucket"):
        list(store.files.list_objects(f"/missing-{uuid.uuid4().hex}/a"))


# --- the rehearsal


def test_a_place_of_new_names_needs_less_of_a_store_than_one_of_given_names() -> None:
    work = ObjectWorkFiles(MemoryObjects(ObjectStore(), FOR_NEW_NAMES))
    work.probe("/bucket/.staging", "/bucket")
    with pytest.raises(RejectedError, match="ignores If-Match on completing an upload, x-amz-copy-source-if-match"):
        for_given_names(work).probe("/bucket/.staging", "/bucket")


@pytest.mark.parametrize("lacking", sorted(FOR_NEW_NAMES))
def test_a_store_that_ignores_what_is_needed_is_refused(lacking: Ability) -> None:
    store = ObjectStore()
    with pytest.raises(RejectedError, match=f"ignores .*{lacking}"):
        ObjectWorkFiles(MemoryObjects(store, FOR_GIVEN_NAMES - {lacking})).probe("/bucket/.staging", "/bucket")
    assert not store.uploads


@pytest.mark.parametrize("age_s", [-1.0, object_rehearsal.LEFT_AFTER_S], ids=["old", "new"])
def test_a_rehearsal_removes_what_killed_ones_left(store: Store, monkeypatch: pytest.MonkeyPatch, age_s: float) -> None:
    """``age_s``: after how long. Nothing else is removed, whatever its name begins with."""
    monkeypatch.setattr(object_rehearsal, "LEFT_AFTER_S", age_s)
    left = f"d/rehearsal-{uuid.uuid4().hex}"
    others = [f"d/{uuid.uuid4().hex}/uploads-1.json", "d/rehearsal-mine/put", "d/rehearsed", f"{left[2:]}/put"]
    for key in (f"{left}/put", f"{left}/absent", *others):
        store.put(key)
    pending = [(store.at(key), store.upload(key, b"part")[0]) for key in (f"{left}/checked", others[0])]

    store.files.rehearse(store.at("d"), FOR_NEW_NAMES)

    is_removed = age_s < 0
    assert sorted(store.keys()) == sorted([*others, *([] if is_removed else [f"{left}/put", f"{left}/absent"])])
    assert [store.files.has_upload(*each) for each in pending] == [not is_removed, True]


def test_a_rehearsal_finds_what_is_enforced_and_leaves_nothing(store: Store) -> None:
    stranger = store.put("d/stranger")
    assert store.files.rehearse(store.at("d"), FOR_NEW_NAMES) == FOR_NEW_NAMES
    assert store.files.rehearse(store.at("d"), FOR_GIVEN_NAMES) == FOR_GIVEN_NAMES
    assert store.files.rehearse(store.at("d"), frozenset(Ability)) == frozenset(Ability)
    assert store.keys() == ["d/stranger"]
    assert store.get("d/stranger") == stranger
    assert list(store.files.list_uploads(store.bucket)) == []
