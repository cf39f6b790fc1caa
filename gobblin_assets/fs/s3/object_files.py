"""Stores of ``s3://<bucket>/<prefix>``: the port of object stores, by S3's requests."""

import os
from base64 import b64encode
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from functools import lru_cache
from io import BufferedReader
from typing import BinaryIO, Final, cast

import google_crc32c

from gobblin_assets.errors import ConflictError, GobblinError, RejectedError, RetryableError
from gobblin_assets.fs.object_rehearsal import rehearse
from gobblin_assets.fs.objects import (
    SPOILED,
    Ability,
    Absent,
    Condition,
    ObjectEntry,
    ObjectFiles,
    ObjectStream,
    PendingUpload,
    RemoveOutcome,
    UploadId,
    UploadPart,
    WriteOutcome,
)
from gobblin_assets.fs.s3.answers import (
    S3Answer,
    read_entry,
    read_objects,
    read_part_etag,
    read_upload_id,
    read_uploads,
)
from gobblin_assets.fs.s3.client import S3Client
from gobblin_assets.fs.s3.requests import CHECKSUM, Repeat, S3Request, describe_object, encode, split_key, split_uri
from gobblin_assets.fs.s3.s3_settings import S3Settings, read_s3_settings

COPY_BYTES_MAX: Final = 5 << 30
"""By one request, at S3."""

PART_BYTES: Final = 1 << 30

Send = Callable[[S3Request, tuple[int | str, ...]], S3Answer]
"""A request, and the failures that are answers to it."""

PART_BYTES_MIN: Final = 5 << 20
PAGE_MAX: Final = 1_000
"""Entries of a listing by one request: the most that S3 gives."""

_PRECONDITION: Final = 412
_NOT_FOUND: Final = 404
_RANGE_WRONG: Final = 416
_WHOLE: Final = 200
_SPOILED: Final = ("BadDigest", "XAmzContentChecksumMismatch")

CLIENTS_KEPT_MAX: Final = 8


def copy_headers(source: str, etag: str) -> dict[str, str]:
    """The headers of a request that copies this version."""
    bucket, key = split_key(source)
    return {
        "x-amz-copy-source": f"/{encode(bucket)}/{encode(key, safe='/')}",
        "x-amz-copy-source-if-match": f'"{etag}"',
    }


def copy_by_parts(send: Send, source: ObjectEntry, target: str) -> bool:
    """Copy an object that is too large for one request, by an upload whose parts the store copies itself.

    Whether the version was there to the end. Metadata of its maker and ``KEPT_HEADERS`` are kept.

    The upload has no checksum of ours: the bytes don't come this way.
    """
    bucket, key = split_key(target)
    said = describe_object(source.metadata or {}, source.headers)
    begin = S3Request("begin a copy at", "POST", bucket, key, Repeat.ANY, {"uploads": ""}, said)
    upload = read_upload_id(target, send(begin, ()).body)
    try:
        etags = _copy_parts(send, source, target, upload)
        if etags is None:
            _abort(send, target, upload)
            return False
        body = describe_parts([(number, etag, None) for number, etag in enumerate(etags, start=1)])
        query, headers = {"uploadId": upload}, {"content-type": "application/xml"}
        send(S3Request("complete a copy at", "POST", bucket, key, Repeat.UNSENT, query, headers, body), ())
    except BaseException:
        # The store keeps its parts until somebody aborts it. Whoever discards the attempt does, should this fail.
        with suppress(GobblinError):
            _abort(send, target, upload)
        raise
    return True


def _copy_parts(send: Send, source: ObjectEntry, target: str, upload: UploadId) -> list[str] | None:
    """The ETags of all parts. None: the version is not there any more."""
    bucket, key = split_key(target)
    etags = []
    for number, position in enumerate(range(0, source.size_bytes, PART_BYTES), start=1):
        end = min(position + PART_BYTES, source.size_bytes) - 1
        headers = {**copy_headers(source.path, source.etag), "x-amz-copy-source-range": f"bytes={position}-{end}"}
        query = {"partNumber": str(number), "uploadId": upload}
        copied = send(
            S3Request("copy a part to", "PUT", bucket, key, Repeat.ANY, query, headers),
            (_PRECONDITION, "NoSuchKey"),
        )
        if copied.failure is not None:
            return None
        etags.append(read_part_etag(target, copied.body))
    return etags


def describe_parts(parts: list[tuple[int, str, str | None]]) -> bytes:
    """The body that completes an upload: number, ETag and checksum of each part, without a character to escape."""
    lines = [
        f"<Part><PartNumber>{number}</PartNumber><ETag>&quot;{etag}&quot;</ETag>"
        + ("" if checksum is None else f"<ChecksumCRC32C>{checksum}</ChecksumCRC32C>")
        + "</Part>"
        for number, etag, checksum in parts
    ]
    return (
        '<CompleteMultipartUpload xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
        + "".join(lines)
        + "</CompleteMultipartUpload>"
    ).encode()


def _abort(send: Send, target: str, upload: UploadId) -> None:
    bucket, key = split_key(target)
    request = S3Request("abort a copy at", "DELETE", bucket, key, Repeat.ANY, {"uploadId": upload})
    send(request, ("NoSuchUpload",))


class S3ObjectFiles:
    """``ObjectFiles`` by one client. Safe to share between threads."""

    def __init__(self, client: S3Client) -> None:
        self._client = client

    @property
    def scheme(self) -> str:
        return "s3"

    def to_uri(self, path: str) -> str:
        return f"s3:/{path}"

    @property
    def part_bytes_min(self) -> int:
        return PART_BYTES_MIN

    def find_object(self, path: str) -> ObjectEntry | None:
        answer = self._client.send(_read("look at", "HEAD", path), answers=[_NOT_FOUND])
        return None if answer.failure else read_entry(path, answer.headers)

    def list_objects(self, directory: str, after: str = "") -> Iterator[ObjectEntry]:
        bucket, prefix = _split_directory(directory)
        query = {"list-type": "2", "prefix": prefix, "encoding-type": "url", "max-keys": str(PAGE_MAX)}
        if after:
            query["start-after"] = split_key(after)[1]
        while True:
            page = read_objects(bucket, self._client.send(_list(bucket, query)).body)
            yield from page.entries
            if page.next_token is None:
                return
            query["continuation-token"] = page.next_token

    def read_range(self, path: str, etag: str, offset: int, size_bytes: int) -> bytes:
        headers = {"range": f"bytes={offset}-{offset + size_bytes - 1}", "if-match": f'"{etag}"'}
        request = _read("read", "GET", path, headers=headers)
        answer = self._client.send(request, answers=["NoSuchKey", _PRECONDITION, _RANGE_WRONG])
        if answer.failure is not None:
            state = "is gone" if answer.status == _NOT_FOUND else "is another version now"
            raise RetryableError(f"{self.to_uri(path)} {state}", hint="The next plan sees that.", path=path)
        # A store that ignores the range gives all.
        content = answer.body[offset : offset + size_bytes] if answer.status == _WHOLE else answer.body
        if len(content) != size_bytes or answer.headers.get("etag", f'"{etag}"').strip('"') != etag:
            raise RetryableError(f"{self.to_uri(path)} is another version now", path=path)
        return content

    def open_input(self, path: str) -> closing[BinaryIO]:
        found = self.find_object(path)
        if found is None:
            raise RetryableError(f"{self.to_uri(path)} is gone", path=path)
        # BufferedReader is all that BinaryIO asks for, and is no subclass.
        return closing(cast("BinaryIO", BufferedReader(ObjectStream(self, found), ObjectStream.BUFFER_BYTES)))

    def put_if_absent(self, path: str, content: bytes) -> WriteOutcome:
        headers = {"if-none-match": "*", CHECKSUM: _spell(google_crc32c.value(content))}
        answer = self._send("PUT", "write", path, headers=headers, body=content, answers=[_PRECONDITION])
        return WriteOutcome.CONDITION_FAILED if answer.failure else WriteOutcome.WRITTEN

    def begin_upload(
        self, path: str, metadata: Mapping[str, str], headers: Mapping[str, str] | None = None
    ) -> UploadId:
        said = {**describe_object(metadata, headers), "x-amz-checksum-algorithm": "CRC32C"}
        return read_upload_id(
            path, self._send("POST", "begin an upload of", path, Repeat.ANY, {"uploads": ""}, headers=said).body
        )

    def write_part(self, path: str, upload: UploadId, number: int, content: bytes, crc32c: int) -> UploadPart:
        answer = self._send(
            *("PUT", "write a part of", path, Repeat.ANY, {"partNumber": str(number), "uploadId": upload}),
            headers={CHECKSUM: _spell(crc32c)},
            body=content,
            answers=["NoSuchUpload", *_SPOILED],
        )
        if answer.failure is not None and answer.failure.code in _SPOILED:
            said = f"other bytes of {self.to_uri(path)} came to the store than were read"
            raise RetryableError(said, hint="They changed on the way.", path=path, **{SPOILED: True})
        if answer.failure is not None:
            raise ConflictError(f"the upload of {self.to_uri(path)} was completed or aborted", path=path)
        return UploadPart(number, len(content), answer.headers.get("etag", "").strip('"'), crc32c)

    def complete_upload(
        self, path: str, upload: UploadId, parts: Sequence[UploadPart], condition: Condition
    ) -> WriteOutcome:
        absent = isinstance(condition, Absent)
        answer = self._send(
            *("POST", "complete the upload of", path, Repeat.UNSENT, {"uploadId": upload}),
            headers={
                "content-type": "application/xml",
                **({"if-none-match": "*"} if isinstance(condition, Absent) else {"if-match": f'"{condition.etag}"'}),
            },
            body=describe_parts([(each.number, each.etag, _spell_any(each.crc32c)) for each in parts]),
            answers=[_PRECONDITION, "NoSuchUpload", *([] if absent else ["NoSuchKey"])],
        )
        if answer.failure is None:
            return WriteOutcome.WRITTEN
        is_gone = answer.failure.code == "NoSuchUpload"
        return WriteOutcome.SOURCE_MISSING if is_gone else WriteOutcome.CONDITION_FAILED

    def abort_upload(self, path: str, upload: UploadId) -> bool:
        query = {"uploadId": upload}
        answer = self._send("DELETE", "abort an upload of", path, Repeat.ANY, query, answers=["NoSuchUpload"])
        return answer.failure is None

    def has_upload(self, path: str, upload: UploadId) -> bool:
        query = {"uploadId": upload, "max-parts": "1"}
        gone = ["NoSuchUpload", "NoSuchKey"]
        return self._send("GET", "look at an upload of", path, Repeat.ANY, query, answers=gone).failure is None

    def list_uploads(self, directory: str) -> Iterator[PendingUpload]:
        bucket, prefix = _split_directory(directory)
        query = {"uploads": "", "prefix": prefix, "encoding-type": "url", "max-uploads": str(PAGE_MAX)}
        while True:
            page = read_uploads(bucket, self._client.send(_list(bucket, query)).body)
            yield from page.uploads
            if page.next_markers is None:
                return
            query["key-marker"], query["upload-id-marker"] = page.next_markers

    def copy_object(self, source: str, target: str, etag: str) -> WriteOutcome:
        request = S3Request("make a copy at", "PUT", *split_key(target), Repeat.UNSENT, {}, copy_headers(source, etag))
        try:
            answer = self._client.send(request, answers=[_PRECONDITION, "NoSuchKey"])
        except RejectedError:
            # A store that refuses large copies says so in words of its own.
            found = self.find_object(source)
            if found is None or found.etag != etag or found.size_bytes <= COPY_BYTES_MAX:
                raise
            is_copied = copy_by_parts(lambda each, answers: self._client.send(each, answers=answers), found, target)
            return WriteOutcome.WRITTEN if is_copied else WriteOutcome.SOURCE_MISSING
        return WriteOutcome.SOURCE_MISSING if answer.failure else WriteOutcome.WRITTEN

    def remove_object(self, path: str, etag: str) -> RemoveOutcome:
        headers = {"if-match": f'"{etag}"'}
        answer = self._send("DELETE", "remove", path, headers=headers, answers=[_PRECONDITION, "NoSuchKey"])
        if answer.failure is None:
            return RemoveOutcome.REMOVED
        return RemoveOutcome.CONDITION_FAILED if answer.status == _PRECONDITION else RemoveOutcome.MISSING

    def rehearse(self, directory: str, asked: Collection[Ability]) -> frozenset[Ability]:
        return rehearse(self, directory, asked)

    def _send(
        self,
        method: str,
        action: str,
        path: str,
        repeat: Repeat = Repeat.UNSENT,
        query: Mapping[str, str] | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        answers: Sequence[int | str] = (),
    ) -> S3Answer:
        request = S3Request(action, method, *split_key(path), repeat, query or {}, headers or {}, body)
        return self._client.send(request, answers=answers)


def _read(action: str, method: str, path: str, *, headers: Mapping[str, str] | None = None) -> S3Request:
    return S3Request(action, method, *split_key(path), Repeat.ANY, {}, headers or {})


def _list(bucket: str, query: Mapping[str, str]) -> S3Request:
    return S3Request("list", "GET", bucket, "", Repeat.ANY, dict(query))


def _split_directory(directory: str) -> tuple[str, str]:
    bucket, key = split_key(directory)
    return bucket, f"{key}/" if key else ""


def _spell(crc32c: int) -> str:
    return b64encode(crc32c.to_bytes(4, "big")).decode()


def _spell_any(crc32c: int | None) -> str | None:
    return None if crc32c is None else _spell(crc32c)


def open_s3(uri: str, option: str) -> tuple[ObjectFiles, str]:
    """The ``ObjectStoreFactory`` of the scheme ``s3``. Nothing is connected to."""
    path = split_uri(uri, option)
    return _open(read_s3_settings(os.environ), option), path


@lru_cache(CLIENTS_KEPT_MAX)
def _open(settings: S3Settings, option: str) -> S3ObjectFiles:
    """One for each way to reach a store: clients keep connections, and keys that were lent."""
    return S3ObjectFiles(S3Client(settings, option))
