"""Stores that fail: busy, broken after the effect, answers that are lost, bytes that change on the way; and others."""

import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import google_crc32c
import pytest

from demo.s3.gateway import REGION
from gobblin_assets.errors import OutcomeUnknownError, RejectedError, RetryableError
from gobblin_assets.fs.objects import (
    FOR_GIVEN_NAMES,
    FOR_NEW_NAMES,
    Ability,
    Absent,
    HasEtag,
    ObjectFiles,
    RemoveOutcome,
    UploadId,
    UploadPart,
    WriteOutcome,
)
from gobblin_assets.fs.s3 import object_files
from gobblin_assets.fs.s3.client import S3Client
from gobblin_assets.fs.s3.object_files import S3ObjectFiles
from gobblin_assets.fs.s3.requests import Repeat, S3Request
from gobblin_assets.fs.s3.s3_settings import S3Settings
from gobblin_assets.fs.servers import BUSY_TRIES_MAX
from tests.support.faulty_store import FaultyStore, Message, StoreFault, faulty_store
from tests.support.s3_servers import SECRET, S3Server, make_certificate, run_versitygw


@dataclass(frozen=True)
class Fault:
    """``files`` reach the store through the proxy, ``straight`` without it."""

    proxy: FaultyStore
    files: ObjectFiles
    straight: ObjectFiles
    bucket: str
    waits: list[float]

    def upload(self, name: str, content: bytes) -> tuple[UploadId, list[UploadPart]]:
        path = f"{self.bucket}/{name}"
        upload = self.straight.begin_upload(path, {})
        return upload, [self.straight.write_part(path, upload, 1, content, google_crc32c.value(content))]


@pytest.fixture
def fault(versitygw: S3Server) -> Iterator[Fault]:
    waits: list[float] = []
    with faulty_store(versitygw.address) as proxy:
        settings = replace(versitygw.settings, endpoint_url=proxy.endpoint_url)
        files = S3ObjectFiles(S3Client(settings, "destination", sleep=waits.append))
        yield Fault(proxy, files, versitygw.open(), f"/{versitygw.make_bucket()}", waits)


OF_SOME_REQUESTS = {StoreFault.TOO_LARGE, StoreFault.UNMET, StoreFault.OVERLAPPED}


@pytest.mark.parametrize("kind", sorted(set(StoreFault) - OF_SOME_REQUESTS))
def test_what_may_be_repeated_is_repeated(fault: Fault, kind: StoreFault) -> None:
    path = f"{fault.bucket}/a"
    upload = fault.straight.begin_upload(path, {})
    fault.proxy.fault_once(kind, "PUT", "partNumber")
    part = fault.files.write_part(path, upload, 1, b"bytes", google_crc32c.value(b"bytes"))
    assert (fault.proxy.counts("PUT"), len(fault.waits)) == (2, 1)
    assert fault.straight.complete_upload(path, upload, [part], Absent()) is WriteOutcome.WRITTEN
    fault.proxy.fault_once(kind, "HEAD")
    found = fault.files.find_object(path)
    assert found is not None
    fault.proxy.fault_once(kind, "GET")
    assert fault.files.read_range(path, found.etag, 0, 5) == b"bytes"
    fault.proxy.fault_once(kind, "GET", "list-type")
    assert [each.path for each in fault.files.list_objects(fault.bucket)] == [path]


def test_a_conditional_request_that_another_overlapped_is_sent_again(fault: Fault) -> None:
    """A condition that is not met is an answer, and is not asked for again."""
    path = f"{fault.bucket}/a"
    fault.proxy.fault_once(StoreFault.OVERLAPPED, "PUT")
    assert fault.files.put_if_absent(path, b"old") is WriteOutcome.WRITTEN
    old = fault.straight.find_object(path)
    assert old is not None
    for kind, replaced, removed in (
        (StoreFault.UNMET, WriteOutcome.CONDITION_FAILED, RemoveOutcome.CONDITION_FAILED),
        (StoreFault.OVERLAPPED, WriteOutcome.WRITTEN, RemoveOutcome.REMOVED),
    ):
        fault.waits.clear()
        fault.proxy.fault_once(kind, "POST", "uploadId")
        assert fault.files.complete_upload(path, *fault.upload("a", b"new!"), HasEtag(old.etag)) is replaced
        found = fault.straight.find_object(path)
        assert found is not None
        fault.proxy.fault_once(kind, "DELETE")
        assert fault.files.remove_object(path, found.etag) is removed
        assert len(fault.waits) == (0 if kind is StoreFault.UNMET else 2)
    assert fault.straight.find_object(path) is None


def test_a_store_that_stays_busy_is_given_up_within_bounds(fault: Fault) -> None:
    """One that is busy gets more time than one that fails."""
    fault.proxy.choose = lambda request: StoreFault.BUSY if request.method == "PUT" else StoreFault.BROKEN
    with pytest.raises(RetryableError, match="503 SlowDown"):
        fault.files.put_if_absent(f"{fault.bucket}/a", b"bytes")
    assert fault.proxy.counts("PUT") == BUSY_TRIES_MAX
    assert 30 < sum(fault.waits) < 75
    assert fault.straight.find_object(f"{fault.bucket}/a") is None
    fault.waits.clear()
    with pytest.raises(RetryableError):
        fault.files.begin_upload(f"{fault.bucket}/a", {})
    assert sum(fault.waits) < 5
    assert fault.straight.find_object(f"{fault.bucket}/a") is None


@pytest.mark.parametrize("kind", [StoreFault.LOST, StoreFault.BROKEN, StoreFault.CUT])
def test_an_effect_that_nobody_confirmed_is_unknown_and_not_repeated(fault: Fault, kind: StoreFault) -> None:
    """The same error with the effect and without: only the object tells."""
    happened = kind is not StoreFault.CUT
    path = f"{fault.bucket}/a"
    fault.proxy.fault_always(kind, "PUT")
    with pytest.raises(OutcomeUnknownError, match="whether this happened"):
        fault.files.put_if_absent(path, b"old")
    assert fault.proxy.counts("PUT") == 1
    assert (fault.straight.find_object(path) is not None) is happened
    fault.straight.put_if_absent(path, b"old")
    old = fault.straight.find_object(path)
    assert old is not None
    with pytest.raises(OutcomeUnknownError):
        fault.files.copy_object(path, f"{fault.bucket}/b", old.etag)
    assert (fault.straight.find_object(f"{fault.bucket}/b") is not None) is happened
    fault.proxy.fault_always(kind, "POST", "uploadId")
    with pytest.raises(OutcomeUnknownError):
        fault.files.complete_upload(path, *fault.upload("a", b"new!"), HasEtag(old.etag))
    new = fault.straight.find_object(path)
    assert new is not None
    assert (new.size_bytes == 4) is happened
    fault.proxy.fault_always(kind, "DELETE")
    with pytest.raises(OutcomeUnknownError):
        fault.files.remove_object(path, new.etag)
    assert (fault.straight.find_object(path) is None) is happened


def test_a_store_that_fails_has_not_proved_that_it_compares(fault: Fault) -> None:
    """Bytes and checksum of a part differ: only the store's word about that counts."""
    path = f"{fault.bucket}/place"
    fault.proxy.choose = lambda request: StoreFault.BUSY if "/checked?partNumber" in request.target else None
    with pytest.raises(RetryableError, match="503 SlowDown"):
        fault.files.rehearse(path, FOR_NEW_NAMES)
    fault.proxy.choose = lambda _request: None
    assert Ability.CHECKS_CRC32C in fault.files.rehearse(path, FOR_NEW_NAMES)


def test_bytes_that_change_on_the_way_are_not_published(fault: Fault) -> None:
    fault.proxy.fault_always(StoreFault.SPOILED, "PUT")
    with pytest.raises(RetryableError):
        fault.files.put_if_absent(f"{fault.bucket}/a", b"bytes")
    assert fault.straight.find_object(f"{fault.bucket}/a") is None


def test_an_object_that_is_too_large_for_one_copy_is_copied_by_parts(
    fault: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    part_bytes = fault.straight.part_bytes_min
    monkeypatch.setattr(object_files, "COPY_BYTES_MAX", part_bytes)
    monkeypatch.setattr(object_files, "PART_BYTES", part_bytes)
    source, target = f"{fault.bucket}/a", f"{fault.bucket}/d/copy"
    content = os.urandom(2 * part_bytes + 3)
    upload = fault.straight.begin_upload(source, {"gobblin-id": "1"}, {"content-type": "text/csv"})
    part = fault.straight.write_part(source, upload, 1, content, google_crc32c.value(content))
    fault.straight.complete_upload(source, upload, [part], Absent())
    found = fault.straight.find_object(source)
    assert found is not None
    fault.proxy.choose = lambda request: (
        StoreFault.TOO_LARGE if request.method == "PUT" and "?" not in request.target else None
    )
    assert fault.files.copy_object(source, target, found.etag) is WriteOutcome.WRITTEN
    copied = fault.straight.find_object(target)
    assert copied is not None
    assert (copied.size_bytes, copied.metadata, copied.headers) == (found.size_bytes, found.metadata, found.headers)
    assert copied.headers == {"content-type": "text/csv"}
    with fault.straight.open_input(target) as stream:
        assert stream.read() == content
    with pytest.raises(RejectedError, match="larger than the maximum"):
        fault.files.copy_object(source, target, "0" * 32)
    fault.proxy.choose = lambda request: (
        StoreFault.TOO_LARGE if request.method == "PUT" and "?" not in request.target else replace_at(request, "=2&")
    )

    def replace_at(request: Message, part: str) -> None:
        if part in request.target:
            fault.straight.remove_object(source, found.etag)

    assert fault.files.copy_object(source, f"{target}2", found.etag) is WriteOutcome.SOURCE_MISSING
    assert fault.straight.find_object(f"{target}2") is None
    assert list(fault.straight.list_uploads(fault.bucket)) == []


@pytest.mark.parametrize("part", ["partNumber=2", "uploadId="], ids=["amid the parts", "at the end"])
def test_a_copy_by_parts_that_fails_leaves_no_upload(fault: Fault, monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    part_bytes = fault.straight.part_bytes_min
    monkeypatch.setattr(object_files, "COPY_BYTES_MAX", part_bytes)
    monkeypatch.setattr(object_files, "PART_BYTES", part_bytes)
    source, target = f"{fault.bucket}/a", f"{fault.bucket}/d/copy"
    upload, parts = fault.upload("a", os.urandom(2 * part_bytes))
    fault.straight.complete_upload(source, upload, parts, Absent())
    found = fault.straight.find_object(source)
    assert found is not None

    def choose(request: Message) -> StoreFault | None:
        if request.method == "PUT" and "?" not in request.target:
            return StoreFault.TOO_LARGE
        return StoreFault.CUT if part in request.target and request.method in {"PUT", "POST"} else None

    fault.proxy.choose = choose
    with pytest.raises((RetryableError, OutcomeUnknownError)):
        fault.files.copy_object(source, target, found.etag)
    assert list(fault.straight.list_uploads(fault.bucket)) == []
    assert fault.straight.find_object(target) is None


def test_a_store_that_is_not_there(versitygw: S3Server) -> None:
    with faulty_store(versitygw.address) as proxy:
        settings = replace(versitygw.settings, endpoint_url=proxy.endpoint_url)
    files = S3ObjectFiles(S3Client(settings, "source", sleep=lambda _s: None))
    with pytest.raises(RetryableError, match="can't reach the store"):
        files.put_if_absent("/bucket/a", b"bytes")


@pytest.mark.parametrize(
    ("changes", "field", "said", "fix"),
    [
        (
            {"secret_access_key": "another"},
            "GOBBLIN_S3_SECRET_ACCESS_KEY",
            "SignatureDoesNotMatch",
            "It is not the secret of this access key. Correct it.",
        ),
        (
            {"access_key_id": "nobody"},
            "GOBBLIN_S3_ACCESS_KEY_ID",
            "XAdminUserNotFound",
            "The store knows no such key. Correct it.",
        ),
        (
            {"session_token": "another"},
            "GOBBLIN_S3_SESSION_TOKEN",
            "InvalidToken",
            "It does not belong to these keys. Correct it.",
        ),
        (
            {"region": "eu-west-3"},
            "GOBBLIN_S3_REGION",
            "AuthorizationHeaderMalformed",
            f"Set GOBBLIN_S3_REGION={REGION}.",
        ),
    ],
)
def test_what_is_not_accepted_is_named_by_its_variable(
    versitygw: S3Server, changes: dict[str, str], field: str, said: str, fix: str
) -> None:
    settings: S3Settings = replace(versitygw.settings, **changes)
    files = S3ObjectFiles(S3Client(settings, "source"))
    with pytest.raises(RejectedError, match=said) as refused:
        list(files.list_objects(f"/{versitygw.make_bucket()}"))
    assert refused.value.field == field
    assert str(refused.value).endswith(f" {fix}")
    if said != "XAdminUserNotFound":
        # Of an unknown user versitygw says that the object is missing.
        with pytest.raises(RejectedError, match=said) as looked:
            files.find_object(f"/{versitygw.make_bucket()}/a")
        assert looked.value.field == refused.value.field
    assert SECRET not in str(refused.value) + repr(refused.value.fields)
    assert "another" not in str(refused.value)


def test_a_bucket_that_is_not_there_is_named(versitygw: S3Server) -> None:
    files = versitygw.open()
    said = "destination: there is no bucket nowhere. Correct the name, or make the bucket."
    with pytest.raises(RejectedError) as listed:
        list(files.list_objects("/nowhere/lake"))
    with pytest.raises(RejectedError) as written:
        files.put_if_absent("/nowhere/lake/a", b"bytes")
    assert (str(listed.value), str(written.value)) == (said, said)


def test_a_store_is_reached_by_tls_if_its_certificate_is_trusted(tmp_path: Path) -> None:
    """There the bodies of parts are not signed, but compared by their CRC32C."""
    certificate = make_certificate(tmp_path)
    with run_versitygw(certificate) as server:
        trusting = replace(server.settings, ca_file=str(certificate.file))
        files = S3ObjectFiles(S3Client(trusting, "destination"))
        S3Client(trusting, "destination").send(S3Request("make", "PUT", "bucket", "", Repeat.ANY))
        upload = files.begin_upload("/bucket/a", {})
        with pytest.raises(RetryableError, match="other bytes"):
            files.write_part("/bucket/a", upload, 1, b"sent", google_crc32c.value(b"read"))
        part = files.write_part("/bucket/a", upload, 1, b"sent", google_crc32c.value(b"sent"))
        assert files.complete_upload("/bucket/a", upload, [part], Absent()) is WriteOutcome.WRITTEN
        with files.open_input("/bucket/a") as stream:
            assert stream.read() == b"sent"
        with pytest.raises(RejectedError, match="no TLS with the store") as refused:
            server.open().find_object("/bucket/a")
        assert refused.value.field == "GOBBLIN_S3_ENDPOINT_URL"
        assert "GOBBLIN_S3_CA_FILE" in str(refused.value)


@pytest.mark.rotating
@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("moto", {Ability.PUT_IF_ABSENT, Ability.COMPLETE_IF_ABSENT, Ability.REMOVE_IF_MATCH}),
        ("s3proxy", set[Ability]()),
    ],
)
def test_a_rehearsal_tells_what_other_stores_lack(
    name: str, kept: set[Ability], request: pytest.FixtureRequest
) -> None:
    server: S3Server = request.getfixturevalue(name)
    files, place = server.open(), f"/{server.make_bucket()}/{uuid.uuid4().hex}"
    assert files.rehearse(place, FOR_GIVEN_NAMES) == kept
