"""Answers of a store: pages of listings, and errors, in XML; entries, in headers."""

import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Final
from urllib.parse import unquote_plus
from xml.etree import ElementTree as ET

from gobblin_assets.errors import RetryableError
from gobblin_assets.fs.objects import KEPT_HEADERS, ObjectEntry, PendingUpload, UploadId, mark_lost
from gobblin_assets.fs.s3.requests import METADATA_PREFIX

_MESSAGE_CHARACTERS_MAX: Final = 300


@dataclass(frozen=True, slots=True)
class S3Failure:
    """A failure that a store reports. ``code`` is its word, such as ``NoSuchKey``; empty if it gave none."""

    status: int
    code: str = ""
    message: str = ""

    def __str__(self) -> str:
        said = f"{self.code}: {self.message}" if self.message else self.code
        return f"{self.status} {said}".rstrip()


@dataclass(frozen=True, slots=True)
class S3Answer:
    """An answer. ``headers`` have small letters. ``failure`` is None for a success."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    failure: S3Failure | None = None


@dataclass(frozen=True, slots=True)
class ObjectPage:
    """A page of a listing. ``next_token``: asks for the page behind this one; None at the end."""

    entries: tuple[ObjectEntry, ...]
    next_token: str | None


@dataclass(frozen=True, slots=True)
class UploadPage:
    """A page of pending uploads.

    ``next_markers``: the key and the upload behind which the next page begins; None at the end.
    """

    uploads: tuple[PendingUpload, ...]
    next_markers: tuple[str, str] | None


def read_failure(method: str, status: int, body: bytes) -> S3Failure | None:
    """The failure that an answer reports; None for a success. A change's success may be a failure by its text.

    Only the code and the message: an answer to a wrong signature repeats what was signed.
    """
    if status < 300 and (method == "GET" or b"<Error" not in body):
        return None
    try:
        # While an upload is completed, a store sends spaces.
        root = ET.fromstring(body.strip()) if body else None  # noqa: S314  of the store that holds the files; expat bounds growth
    except ET.ParseError:
        return S3Failure(status)
    if root is None or _name(root) != "Error":
        return S3Failure(status) if status >= 300 else None
    text = " ".join(_text(root, "Message").split())
    return S3Failure(status, _text(root, "Code"), text[:_MESSAGE_CHARACTERS_MAX])


def read_entry(path: str, headers: Mapping[str, str]) -> ObjectEntry:
    """The object that a HEAD describes."""
    try:
        return ObjectEntry(
            path,
            int(headers["content-length"]),
            headers["etag"].strip('"'),
            parsedate_to_datetime(headers["last-modified"]),
            {
                name.removeprefix(METADATA_PREFIX): value
                for name, value in headers.items()
                if name.startswith(METADATA_PREFIX)
            },
            {name: headers[name] for name in KEPT_HEADERS if name in headers},
        )
    except (KeyError, ValueError) as error:
        raise _senseless(f"HEAD of {path}") from error


def read_objects(bucket: str, body: bytes) -> ObjectPage:
    root = _parse(body, "ListBucketResult")
    decode = _decoder_of(root)
    try:
        entries = tuple(
            ObjectEntry(
                f"/{bucket}/{decode(found['Key'])}",
                int(found["Size"]),
                found["ETag"].strip('"'),
                dt.datetime.fromisoformat(found["LastModified"]),
            )
            for found in map(_fields, _children(root, "Contents"))
        )
    except (KeyError, ValueError) as error:
        raise _senseless(f"a listing of {bucket}") from error
    is_cut = _text(root, "IsTruncated") == "true"
    token = _text(root, "NextContinuationToken")
    if is_cut and not token:
        raise _senseless(f"a listing of {bucket}")
    return ObjectPage(entries, token if is_cut else None)


def read_uploads(bucket: str, body: bytes) -> UploadPage:
    root = _parse(body, "ListMultipartUploadsResult")
    decode = _decoder_of(root)
    try:
        uploads = tuple(
            PendingUpload(
                f"/{bucket}/{decode(found['Key'])}",
                UploadId(found["UploadId"]),
                dt.datetime.fromisoformat(found["Initiated"]),
            )
            for found in map(_fields, _children(root, "Upload"))
        )
    except (KeyError, ValueError) as error:
        raise _senseless(f"the uploads of {bucket}") from error
    is_cut = _text(root, "IsTruncated") == "true"
    markers = decode(_text(root, "NextKeyMarker")), _text(root, "NextUploadIdMarker")
    if is_cut and not all(markers):
        raise _senseless(f"the uploads of {bucket}")
    return UploadPage(uploads, markers if is_cut else None)


def read_upload_id(path: str, body: bytes) -> UploadId:
    found = _text(_parse(body, "InitiateMultipartUploadResult"), "UploadId")
    if not found:
        raise _senseless(f"a begun upload of {path}")
    return UploadId(found)


def read_part_etag(path: str, body: bytes) -> str:
    """The ETag of a part that the store copied."""
    found = _text(_parse(body, "CopyPartResult"), "ETag").strip('"')
    if not found:
        raise _senseless(f"a copied part of {path}")
    return found


def _parse(body: bytes, name: str) -> ET.Element:
    try:
        root = ET.fromstring(body)  # noqa: S314  of the store that holds the files; expat bounds growth
    except ET.ParseError as error:
        raise _senseless(name) from error
    if _name(root) != name:
        raise _senseless(name)
    return root


def _senseless(what: str) -> RetryableError:
    return RetryableError(f"the store's answer about {what} makes no sense", hint="Is it a store that speaks S3?")


def _decoder_of(root: ET.Element) -> Callable[[str], str]:
    """Keys are asked for in percent-encoding, because XML can't carry every character; not every store obeys.

    Bytes that are no UTF-8 become lone surrogates, as in names of files.
    """
    if _text(root, "EncodingType") == "url":
        return partial(unquote_plus, errors="surrogateescape")
    return mark_lost


def _children(root: ET.Element, name: str) -> list[ET.Element]:
    return [child for child in root if _name(child) == name]


def _fields(element: ET.Element) -> dict[str, str]:
    return {_name(child): child.text or "" for child in element}


def _text(root: ET.Element, name: str) -> str:
    return next((child.text or "" for child in root if _name(child) == name), "")


def _name(element: ET.Element) -> str:
    """The name without the namespace, which not every store gives."""
    return element.tag.rpartition("}")[2]
