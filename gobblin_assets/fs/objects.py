"""The port of object stores: whole objects under keys, conditional writes, and uploads that become visible at once.

A store has no rename and no directories. A condition that the store checks makes a write safe: an upload is invisible
until it is completed, its completion may require a version at the key, and it can be completed once. Paths are
``/<bucket>/<key>``. Every method succeeds or raises one of the families of ``errors``, as in ``fs.file_system``.
"""

import datetime as dt
import hashlib
import io
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from typing import BinaryIO, Final, NewType, Protocol, TypeVar, runtime_checkable

from gobblin_assets.errors import RejectedError

UploadId = NewType("UploadId", str)

UNSUPPORTED: Final = "unsupported"
"""A field, and true, of a RejectedError that says that the store does not know what it was asked to do."""

LOST: Final = "\udcff"
"""In a key: a character that the listing could not give. A name of a tree never has it."""

SPOILED: Final = "spoiled"
"""A field, and true, of a RetryableError that says that other bytes than sent came to the store."""


KEPT_HEADERS: Final = (
    "cache-control", "content-disposition", "content-encoding", "content-language", "content-type", "expires",
)  # fmt: skip
"""What an object says of itself to whoever reads it, besides its metadata."""

T = TypeVar("T")
R = TypeVar("R")

_MD5: Final = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class ObjectEntry:
    """An object as the store describes it. ``metadata`` and ``headers`` are None in listings, which have neither.

    ``headers``: those of ``KEPT_HEADERS`` that it has.
    """

    path: str
    size_bytes: int
    etag: str
    modified_at: dt.datetime
    metadata: Mapping[str, str] | None = None
    headers: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class UploadPart:
    """A part that the store has. ``number`` counts from 1. ``crc32c``: of its bytes, which the store compared."""

    number: int
    size_bytes: int
    etag: str
    crc32c: int | None = None


@dataclass(frozen=True, slots=True)
class PendingUpload:
    """An upload that was begun and is neither completed nor aborted."""

    path: str
    upload: UploadId
    begun_at: dt.datetime


@dataclass(frozen=True, slots=True)
class Absent:
    """The condition that nothing is at the key: ``If-None-Match: *``."""


@dataclass(frozen=True, slots=True)
class HasEtag:
    """The condition that the object at the key is this one: ``If-Match``."""

    etag: str


Condition = Absent | HasEtag


class WriteOutcome(StrEnum):
    """SOURCE_MISSING: the upload was completed or aborted before, or the object to copy is another one or none."""

    WRITTEN = "written"
    CONDITION_FAILED = "condition_failed"
    SOURCE_MISSING = "source_missing"


class RemoveOutcome(StrEnum):
    """CONDITION_FAILED: another object is there now, and stays."""

    REMOVED = "removed"
    MISSING = "missing"
    CONDITION_FAILED = "condition_failed"


class Ability(StrEnum):
    """A condition that a store enforces, or ignores; a rehearsal with scratch keys finds out.

    FORESEEN_ETAGS is needed by nothing: without it, nobody knows the ETag of an object before it is there.
    """

    PUT_IF_ABSENT = "If-None-Match on PUT"
    COMPLETE_IF_ABSENT = "If-None-Match on completing an upload"
    COMPLETE_IF_MATCH = "If-Match on completing an upload"
    REMOVE_IF_MATCH = "If-Match on DELETE"
    COPY_IF_MATCH = "x-amz-copy-source-if-match"
    CHECKS_CRC32C = "CRC32C of a part"
    FORESEEN_ETAGS = "ETags that follow from the parts"


FOR_GIVEN_NAMES: Final = frozenset(Ability) - {Ability.FORESEEN_ETAGS}
"""What publishing at names needs that other publications use too."""

FOR_NEW_NAMES: Final = frozenset({
    Ability.PUT_IF_ABSENT, Ability.COMPLETE_IF_ABSENT, Ability.REMOVE_IF_MATCH, Ability.CHECKS_CRC32C,
})  # fmt: skip
"""What publishing at names needs that are new with each publication: nothing is replaced there."""


class ReadableObjects(Protocol):
    """One store that is read, with one set of credentials."""

    def to_uri(self, path: str) -> str: ...

    def find_object(self, path: str) -> ObjectEntry | None:
        """The object, with its metadata; None if there is none."""
        ...

    def list_objects(self, directory: str, after: str = "") -> Iterator[ObjectEntry]:
        """All objects below ``<directory>/``, ascending by the UTF-8 bytes of their keys; page by page.

        ``after``: only those whose path is greater than this one. RejectedError if there is no such bucket.
        """
        ...

    def read_range(self, path: str, etag: str, offset: int, size_bytes: int) -> bytes:
        """These bytes of the version ``etag``, at least one; RetryableError if another one is there, or none."""
        ...


class ObjectFiles(ReadableObjects, Protocol):
    """One store, reached with one set of credentials. Each call has one effect, in one moment."""

    @property
    def scheme(self) -> str: ...

    @property
    def part_bytes_min(self) -> int:
        """Each part but the last has at least this size."""
        ...

    def open_input(self, path: str) -> AbstractContextManager[BinaryIO]:
        """A seekable stream of one version of the object: a change meanwhile is a RetryableError."""
        ...

    def put_if_absent(self, path: str, content: bytes) -> WriteOutcome:
        """Make a small object unless one is there."""
        ...

    def begin_upload(
        self, path: str, metadata: Mapping[str, str], headers: Mapping[str, str] | None = None
    ) -> UploadId:
        """Begin an upload that becomes the object at ``path`` with this metadata. A lost answer leaves an upload.

        Keys are in small letters, values of ``metadata`` printable ASCII. ``headers``: some of ``KEPT_HEADERS``.
        """
        ...

    def write_part(self, path: str, upload: UploadId, number: int, content: bytes, crc32c: int) -> UploadPart:
        """ConflictError if the upload is over; RetryableError, with ``SPOILED``, if other bytes came there."""
        ...

    def complete_upload(
        self, path: str, upload: UploadId, parts: Sequence[UploadPart], condition: Condition
    ) -> WriteOutcome:
        """Make the upload the object at ``path``, if the condition holds; afterwards the upload is used up.

        WRITTEN is no proof: stores say so again of an upload that was completed, and some of one that was aborted,
        while any object is at ``path``. Nothing happens then; what the object's metadata say is what happened.
        """
        ...

    def abort_upload(self, path: str, upload: UploadId) -> bool:
        """Discard the upload; False if it was completed or aborted before, which of both the object shows."""
        ...

    def has_upload(self, path: str, upload: UploadId) -> bool:
        """Whether the upload is pending: neither completed nor aborted."""
        ...

    def list_uploads(self, directory: str) -> Iterator[PendingUpload]:
        """All pending uploads whose key lies below ``<directory>/``."""
        ...

    def copy_object(self, source: str, target: str, etag: str) -> WriteOutcome:
        """Copy the version ``etag`` inside the store, with metadata and headers, and replace what is at ``target``."""
        ...

    def remove_object(self, path: str, etag: str) -> RemoveOutcome:
        """Remove the object if it is the version ``etag``."""
        ...

    def rehearse(self, directory: str, asked: Collection[Ability]) -> frozenset[Ability]:
        """The abilities among ``asked`` that the store has, by scratch keys below ``directory``, which are removed."""
        ...


def mark_lost(key: str) -> str:
    """A key from XML: what XML can't carry came as U+FFFD, and so what came as that may be anything."""
    return key.replace("\ufffd", LOST)


@runtime_checkable
class HoldsObjects(Protocol):
    """A file system that is an object store underneath. ``calls_at_once``: requests that may be under way.

    ``foresees_etags``: whether an object's ETag is known before it is there; False until a probe has found out.
    """

    @property
    def objects(self) -> ObjectFiles: ...

    @property
    def calls_at_once(self) -> int: ...

    @property
    def foresees_etags(self) -> bool: ...


def require_objects(fs: object) -> ObjectFiles:
    """RejectedError for a file system that holds files."""
    if isinstance(fs, HoldsObjects):
        return fs.objects
    raise RejectedError(
        "objects can't be published to a file system that holds files",
        field="destination",
        hint="Name a destination in an object store, such as s3://bucket/prefix.",
    )


def call_side_by_side(fs: object, call: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """The results, in the order of ``items``. Calls go side by side, as many as the store takes: they mostly wait.

    The first error is raised, after those that were begun have ended.
    """
    threads = min(len(items), fs.calls_at_once if isinstance(fs, HoldsObjects) else 1)
    if threads <= 1:
        return [call(each) for each in items]
    with ThreadPoolExecutor(threads, thread_name_prefix="store") as pool:
        return list(pool.map(call, items))


def expected_etag(parts: Sequence[UploadPart]) -> str | None:
    """The ETag of the object that these parts become; None where those of the parts look otherwise.

    As most stores make them: an MD5 of a part's bytes, and of the parts' MD5s for an object. Stores that encrypt by
    keys of their own have others, which may look the same; a rehearsal finds out (``Ability.FORESEEN_ETAGS``).
    """
    if not all(_MD5.fullmatch(each.etag) for each in parts):
        return None
    digests = b"".join(bytes.fromhex(each.etag) for each in parts)
    return f"{hashlib.md5(digests, usedforsecurity=False).hexdigest()}-{len(parts)}"


class ObjectStream(io.RawIOBase):
    """A seekable stream over one version of an object, read by ranges. To be buffered: each read is a request."""

    BUFFER_BYTES: Final = 1 << 20
    READ_BYTES: Final = 8 << 20
    """Of one request, where all is read."""

    def __init__(self, files: ObjectFiles, entry: ObjectEntry) -> None:
        super().__init__()
        self._files = files
        self._entry = entry
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        begin = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._entry.size_bytes}[whence]
        self._position = max(0, begin + offset)
        return self._position

    def readall(self) -> bytes:
        """By requests of bounded size; the default would make one for each 8 KiB."""
        parts = []
        while (left := self._entry.size_bytes - self._position) > 0:
            parts.append(self.read(min(left, self.READ_BYTES)))
        return b"".join(parts)

    def readinto(self, buffer: "memoryview[int]") -> int:  # type: ignore[override]  # a buffer is whatever has bytes
        count = min(len(buffer), self._entry.size_bytes - self._position)
        if count <= 0:
            return 0
        entry = self._entry
        buffer[:count] = memoryview(self._files.read_range(entry.path, entry.etag, self._position, count))
        self._position += count
        return count
