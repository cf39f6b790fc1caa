"""An object store in memory: all conditions, the ETags of a real one, and answers that prove as little as a real one's.

``ObjectStore`` is what lasts, and is shared by all processes; ``MemoryObjects`` is a client of it.
"""

import datetime as dt
import hashlib
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field, replace
from io import BufferedReader
from typing import BinaryIO, Final, cast

import google_crc32c

from gobblin_assets.errors import ConflictError, RejectedError, RetryableError
from gobblin_assets.fs.object_rehearsal import rehearse
from gobblin_assets.fs.objects import (
    KEPT_HEADERS,
    SPOILED,
    Ability,
    Absent,
    Condition,
    ObjectEntry,
    ObjectStream,
    PendingUpload,
    RemoveOutcome,
    UploadId,
    UploadPart,
    WriteOutcome,
)

PART_BYTES_MIN: Final = 16
BUCKET: Final = "bucket"
"""The only one there is."""


@dataclass(frozen=True)
class StoredObject:
    content: bytes
    etag: str
    metadata: Mapping[str, str]
    number: int
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass
class StoredUpload:
    path: str
    metadata: Mapping[str, str]
    number: int
    parts: dict[int, bytes] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass
class ObjectStore:
    """``changes`` counts the writes, and is the store's clock. ``answers_used_up``: that of versitygw and AWS."""

    objects: dict[str, StoredObject] = field(default_factory=dict)
    uploads: dict[UploadId, StoredUpload] = field(default_factory=dict)
    changes: int = 0
    answers_used_up: bool = True
    opened_at: dt.datetime = field(default_factory=lambda: dt.datetime.now(dt.UTC))
    lock: threading.Lock = field(default_factory=threading.Lock)

    def copy(self) -> "ObjectStore":
        uploads = {
            upload: StoredUpload(each.path, each.metadata, each.number, dict(each.parts), each.headers)
            for upload, each in self.uploads.items()
        }
        return ObjectStore(dict(self.objects), uploads, self.changes, self.answers_used_up, self.opened_at)

    def time_of(self, number: int) -> dt.datetime:
        return self.opened_at + dt.timedelta(milliseconds=number)

    def put(
        self,
        path: str,
        content: bytes,
        metadata: Mapping[str, str] | None = None,
        etag: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Whatever is there gives way."""
        self.changes += 1
        self.objects[path] = StoredObject(content, etag or _md5(content), metadata or {}, self.changes, headers or {})

    def remove(self, path: str) -> None:
        self.changes += 1
        del self.objects[path]

    def read(self, path: str) -> bytes:
        return self.objects[path].content


@dataclass(frozen=True)
class MemoryObjects:
    """``ObjectFiles``. ``honours``: what the store does not ignore."""

    store: ObjectStore
    honours: frozenset[Ability] = frozenset(Ability)

    @property
    def scheme(self) -> str:
        return "mem"

    def to_uri(self, path: str) -> str:
        return f"mem:/{path}"

    @property
    def part_bytes_min(self) -> int:
        return PART_BYTES_MIN

    def find_object(self, path: str) -> ObjectEntry | None:
        with self.store.lock:
            found = self.store.objects.get(path)
            return None if found is None else replace(self._entry(path, found, found.metadata), headers=found.headers)

    def list_objects(self, directory: str, after: str = "") -> Iterator[ObjectEntry]:
        if directory.split("/")[1] != BUCKET:
            raise RejectedError(f"there is no bucket at {directory}", field="destination", hint="Make it.")
        with self.store.lock:
            found = [self._entry(path, each, None) for path, each in self.store.objects.items()]
        inside = (each for each in found if each.path.startswith(f"{directory}/") and each.path > after)
        yield from sorted(inside, key=lambda each: each.path.encode())

    def read_range(self, path: str, etag: str, offset: int, size_bytes: int) -> bytes:
        with self.store.lock:
            found = self.store.objects.get(path)
        if found is None:
            raise RetryableError(f"{path} is gone")
        if found.etag != etag:
            raise RetryableError(f"{path} is another version now")
        content = found.content[offset : offset + size_bytes]
        if len(content) != size_bytes:
            raise RetryableError(f"{path} is another version now")
        return content

    def open_input(self, path: str) -> AbstractContextManager[BinaryIO]:
        found = self.find_object(path)
        if found is None:
            raise RetryableError(f"{path} is gone")
        return closing(cast("BinaryIO", BufferedReader(ObjectStream(self, found), ObjectStream.BUFFER_BYTES)))

    def put_if_absent(self, path: str, content: bytes) -> WriteOutcome:
        with self.store.lock:
            if Ability.PUT_IF_ABSENT in self.honours and path in self.store.objects:
                return WriteOutcome.CONDITION_FAILED
            self.store.put(path, content)
            return WriteOutcome.WRITTEN

    def begin_upload(
        self, path: str, metadata: Mapping[str, str], headers: Mapping[str, str] | None = None
    ) -> UploadId:
        assert set(headers or ()) <= set(KEPT_HEADERS)
        assert all(key == key.lower() and value.isascii() for key, value in metadata.items())
        with self.store.lock:
            self.store.changes += 1
            upload = UploadId(f"upload-{self.store.changes}")
            self.store.uploads[upload] = StoredUpload(
                path, dict(metadata), self.store.changes, headers=dict(headers or {})
            )
            return upload

    def write_part(self, path: str, upload: UploadId, number: int, content: bytes, crc32c: int) -> UploadPart:
        with self.store.lock:
            found = self._find(path, upload)
            if found is None:
                raise ConflictError(f"the upload of {path} was completed or aborted")
            if Ability.CHECKS_CRC32C in self.honours and google_crc32c.value(content) != crc32c:
                raise RetryableError(f"other bytes than sent came to {path}", **{SPOILED: True})
            found.parts[number] = content
            return UploadPart(number, len(content), _md5(content), crc32c)

    def complete_upload(
        self, path: str, upload: UploadId, parts: Sequence[UploadPart], condition: Condition
    ) -> WriteOutcome:
        with self.store.lock:
            occupant, found = self.store.objects.get(path), self._find(path, upload)
            if found is None:
                is_told = self.store.answers_used_up and occupant is not None
                return WriteOutcome.WRITTEN if is_told else WriteOutcome.SOURCE_MISSING
            asked = Ability.COMPLETE_IF_ABSENT if isinstance(condition, Absent) else Ability.COMPLETE_IF_MATCH
            if asked in self.honours and not _holds(condition, occupant):
                return WriteOutcome.CONDITION_FAILED
            assert [each.number for each in parts] == list(range(1, len(parts) + 1))
            assert all(each.size_bytes >= PART_BYTES_MIN for each in parts[:-1])
            contents = [found.parts[each.number] for each in parts]
            assert [_md5(content) for content in contents] == [each.etag for each in parts]
            digests = b"".join(hashlib.md5(content, usedforsecurity=False).digest() for content in contents)
            # Of a store that encrypts: it looks like the digest of the bytes, and differs each time.
            salt = b"" if Ability.FORESEEN_ETAGS in self.honours else str(found.number).encode()
            etag = f"{_md5(digests + salt)}-{len(parts)}"
            self.store.put(path, b"".join(contents), found.metadata, etag, found.headers)
            del self.store.uploads[upload]
            return WriteOutcome.WRITTEN

    def abort_upload(self, path: str, upload: UploadId) -> bool:
        with self.store.lock:
            if self._find(path, upload) is None:
                return False
            del self.store.uploads[upload]
            return True

    def has_upload(self, path: str, upload: UploadId) -> bool:
        with self.store.lock:
            return self._find(path, upload) is not None

    def list_uploads(self, directory: str) -> Iterator[PendingUpload]:
        with self.store.lock:
            found = [
                PendingUpload(each.path, upload, self.store.time_of(each.number))
                for upload, each in self.store.uploads.items()
            ]
        yield from (each for each in sorted(found, key=lambda each: each.path) if each.path.startswith(f"{directory}/"))

    def copy_object(self, source: str, target: str, etag: str) -> WriteOutcome:
        with self.store.lock:
            found = self.store.objects.get(source)
            if found is None or (Ability.COPY_IF_MATCH in self.honours and found.etag != etag):
                return WriteOutcome.SOURCE_MISSING
            self.store.put(target, found.content, found.metadata, headers=found.headers)
            return WriteOutcome.WRITTEN

    def remove_object(self, path: str, etag: str) -> RemoveOutcome:
        with self.store.lock:
            found = self.store.objects.get(path)
            if found is None:
                return RemoveOutcome.MISSING
            if Ability.REMOVE_IF_MATCH in self.honours and found.etag != etag:
                return RemoveOutcome.CONDITION_FAILED
            self.store.remove(path)
            return RemoveOutcome.REMOVED

    def rehearse(self, directory: str, asked: Collection[Ability]) -> frozenset[Ability]:
        return rehearse(self, directory, asked)

    def _entry(self, path: str, found: StoredObject, metadata: Mapping[str, str] | None) -> ObjectEntry:
        return ObjectEntry(path, len(found.content), found.etag, self.store.time_of(found.number), metadata)

    def _find(self, path: str, upload: UploadId) -> StoredUpload | None:
        found = self.store.uploads.get(upload)
        return found if found is not None and found.path == path else None


def _holds(condition: Condition, occupant: StoredObject | None) -> bool:
    if isinstance(condition, Absent):
        return occupant is None
    return occupant is not None and occupant.etag == condition.etag


def _md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()
