"""What attempts keep in a store: uploads that are written down, and how all of it is discarded."""

from dataclasses import dataclass, field, replace

import pytest

from gobblin_assets.commit import object_attempts
from gobblin_assets.commit.object_attempts import (
    discard_attempt,
    list_undone,
    plan_parts,
    write_undo,
    write_uploads,
)
from gobblin_assets.errors import FencedError, RetryableError
from gobblin_assets.fs.objects import UploadId, UploadPart, expected_etag
from gobblin_assets.fs.s3.client import S3Client
from gobblin_assets.fs.s3.object_files import S3ObjectFiles
from tests.contracts import test_object_steps
from tests.contracts.test_object_steps import FENCE, NEW, OLD, Place
from tests.support.faulty_store import StoreFault, faulty_store
from tests.support.object_store import MemoryObjects, ObjectStore
from tests.support.s3_servers import S3Server

place = test_object_steps.place


@pytest.mark.parametrize("kind", [StoreFault.LOST, StoreFault.BROKEN, StoreFault.CUT])
def test_what_is_written_down_is_written_again_if_no_answer_came(
    versitygw: S3Server, monkeypatch: pytest.MonkeyPatch, kind: StoreFault
) -> None:
    monkeypatch.setattr(object_attempts, "BACK_OFFS_S", (0.0, 0.0))
    with faulty_store(versitygw.address) as proxy:
        settings = replace(versitygw.settings, endpoint_url=proxy.endpoint_url)
        files = S3ObjectFiles(S3Client(settings, "destination", sleep=lambda _s: None))
        place = Place(files, f"/{versitygw.make_bucket()}")
        proxy.fault_once(kind, "PUT", ".json")
        upload, _parts = place.stage(1, NEW)
        proxy.fault_once(kind, "PUT", "/undo/")
        begun = files.begin_upload(place.target, {})
        write_undo(files, place.staging, "1", FENCE, (place.target, begun))
        assert list(list_undone(files, place.staging, "1", FENCE)) == [(place.target, begun)]
        with pytest.raises(RetryableError, match="is there already"):
            write_uploads(files, place.staging, "file-1", [(place.target, begun)])
        proxy.fault_always(kind, "PUT", ".json")
        with pytest.raises(RetryableError, match="could not be written"):
            write_uploads(files, place.staging, "file-2", [(place.target, begun)])
    assert discard_attempt(versitygw.open(), place.staging)
    assert not versitygw.open().has_upload(place.target, upload)


def test_a_discarded_attempt_leaves_nothing(place: Place) -> None:
    step = place.replace_object()
    place.execute(step)
    staged, _parts = place.stage(9, b"never sealed")
    place.undo(step)
    place.files.begin_upload(step.slot, {})
    assert discard_attempt(place.files, place.staging)
    assert not place.files.has_upload(place.target, staged)
    assert list(place.files.list_objects(place.staging)) == []
    assert list(place.files.list_uploads(place.bucket)) == []
    assert not discard_attempt(place.files, place.staging)
    assert place.read() == OLD


@dataclass(frozen=True)
class AbortingObjects(MemoryObjects):
    """Writes down which uploads it is asked to abort."""

    aborted: list[UploadId] = field(default_factory=list)

    def abort_upload(self, path: str, upload: UploadId) -> bool:
        self.aborted.append(upload)
        return MemoryObjects.abort_upload(self, path, upload)


def test_a_discarding_that_is_interrupted_goes_on_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_attempts, "_DISCARDED_TOGETHER", 2)
    store, beats = ObjectStore(), [3]
    files = AbortingObjects(store)
    aborts, place = files.aborted, Place(files, "/bucket")
    for number in range(10):
        place.stage(number, NEW)
    place.files.put_if_absent(f"{place.staging}/slots/1", OLD)

    def require() -> None:
        beats[0] -= 1
        if not beats[0]:
            raise FencedError("taken over")

    with pytest.raises(FencedError):
        discard_attempt(place.files, place.staging, 2, require)
    assert len(aborts) == 4
    assert discard_attempt(place.files, place.staging, 4, require)
    assert len(aborts) == len(set(aborts)) == 10
    assert (store.uploads, store.objects) == ({}, {})


@pytest.mark.parametrize("count", [8, 9])
def test_what_became_an_object_is_not_aborted_where_it_is_worth_asking(count: int) -> None:
    files, asked = AbortingObjects(ObjectStore()), list[int]()
    place = Place(files, "/bucket")
    staged = [place.stage(number, NEW)[0] for number in range(count)]
    used_up = staged[1:]

    def find_used_up() -> list[UploadId]:
        asked.append(len(files.aborted))
        return used_up

    assert discard_attempt(files, place.staging, find_used_up=find_used_up)
    assert (asked, files.aborted) == (([], staged) if count == 8 else ([0], staged[:1]))
    assert files.store.objects == {}


@pytest.mark.parametrize(
    ("size_bytes", "expected"), [(0, [0]), (1, [1]), (16 << 20, [16 << 20]), ((16 << 20) + 1, [16 << 20, 1])]
)
def test_parts_follow_from_the_size_alone(size_bytes: int, expected: list[int]) -> None:
    assert plan_parts(size_bytes, 5 << 20) == expected


def test_an_upload_has_no_more_parts_than_a_store_takes() -> None:
    parts = plan_parts(5 << 40, 5 << 20)
    assert len(parts) <= 10_000
    assert sum(parts) == 5 << 40


def test_etags_that_are_none_of_the_bytes_are_not_expected() -> None:
    assert expected_etag([UploadPart(1, 3, "an etag of an encrypting store")]) is None
