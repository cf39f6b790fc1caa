"""Copies of objects that are too large for one request: an upload whose parts the store copies itself."""

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from gobblin_assets.errors import GobblinError
from gobblin_assets.fs.objects import ObjectEntry, UploadId
from gobblin_assets.fs.s3.answers import S3Answer, read_part_etag, read_upload_id
from gobblin_assets.fs.s3.requests import Repeat, S3Request, describe_object, encode, split_key

COPY_BYTES_MAX: Final = 5 << 30
"""By one request, at S3."""

PART_BYTES: Final = 1 << 30

PRECONDITION_FAILED: Final = 412

Send = Callable[[S3Request, tuple[int | str, ...]], S3Answer]
"""A request, and the failures that are answers to it."""


def copy_headers(source: str, etag: str) -> dict[str, str]:
    """Of a request that copies this version."""
    bucket, key = split_key(source)
    return {
        "x-amz-copy-source": f"/{encode(bucket)}/{encode(key, safe='/')}",
        "x-amz-copy-source-if-match": f'"{etag}"',
    }


def copy_by_parts(send: Send, source: ObjectEntry, target: str) -> bool:
    """Whether the version was there to the end. Metadata of its maker and ``KEPT_HEADERS`` are kept.

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
            (PRECONDITION_FAILED, "NoSuchKey"),
        )
        if copied.failure is not None:
            return None
        etags.append(read_part_etag(target, copied.body))
    return etags


def describe_parts(parts: list[tuple[int, str, str | None]]) -> bytes:
    """What completes an upload: number, ETag and checksum of each part; none of them has a character to escape."""
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
