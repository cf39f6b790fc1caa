"""Files of rows as uploads to an object store: invisible until a step of the commit log completes them.

The bytes of a file are sent in parts while the next rows are encoded. Each part carries its CRC32C, which the store
compares. An upload is written down in the attempt before its first part, so that whoever cleans up after a dead process
finds it.
"""

import io
import uuid
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, BinaryIO, Final, cast

import google_crc32c

from gobblin_assets.commit.object_attempts import ID_KEY, PART_BYTES, aborted_on_error, write_uploads
from gobblin_assets.commit.object_steps import PublishObject, object_id
from gobblin_assets.fs.object_etags import expected_etag
from gobblin_assets.fs.objects import ObjectFiles, UploadId, UploadPart
from gobblin_assets.model.files import DataFile, FileIdentity
from gobblin_assets.model.urn import Role
from gobblin_assets.rows.new_files import FinishedRows, NewFile
from gobblin_assets.run.job_kind import OutputNames

PARTS_ON_THE_WAY_MAX: Final = 2
"""Of one file. With the part that is filled, and the row group that is encoded, this bounds the memory of a writer."""


@dataclass(frozen=True, slots=True)
class UploadedFiles:
    """``NewFiles`` as uploads of the attempt whose staging is ``staging``, to the places that ``names`` has for it."""

    objects: ObjectFiles
    staging: str
    names: OutputNames
    role: Role = Role.DATA

    def create(self, partition_path: str, name: str) -> NewFile:
        path = f"{self.names.directory_of(self.role, partition_path)}/{name}"
        number = uuid.uuid4().hex
        upload = self.objects.begin_upload(path, {ID_KEY: object_id(self.staging, number)})
        begun = [(path, upload)]
        with aborted_on_error(self.objects, begun):
            write_uploads(self.objects, self.staging, number, begun)
        return _UploadedFile(self.objects, self.staging, path, number, upload, self.names.foresees_etags)


@dataclass(slots=True)
class _UploadedFile:
    objects: ObjectFiles
    staging: str
    path: str
    number: str
    upload: UploadId
    foresees_etags: bool
    _stream: "_PartStream" = field(init=False)

    def __post_init__(self) -> None:
        part_bytes = max(PART_BYTES, self.objects.part_bytes_min)
        self._stream = _PartStream(partial(self.objects.write_part, self.path, self.upload), part_bytes)

    @property
    def stream(self) -> BinaryIO:
        # RawIOBase has all that BinaryIO asks for, and is no subclass.
        return cast("BinaryIO", self._stream)

    def finish(self, row_count: int, size_bytes: int) -> FinishedRows:  # noqa: ARG002  the parts have sizes
        parts = self._stream.finish()
        etag = expected_etag(parts) if self.foresees_etags else None
        identity = FileIdentity(sum(each.size_bytes for each in parts), tag=etag)
        step = PublishObject(
            self.staging, self.path, self.number, self.upload, parts, identity=identity, row_count=row_count
        )
        return FinishedRows(DataFile(self.path.rpartition("/")[2], identity, row_count), step)

    def discard(self) -> None:
        """The upload is aborted with its attempt."""
        self._stream.discard()


_WritePart = Callable[[int, bytes, int], UploadPart]


class _PartStream(io.RawIOBase):
    """Sends what is written to it as parts of ``part_bytes``, in threads of its own. The last part may be smaller."""

    def __init__(self, write_part: _WritePart, part_bytes: int) -> None:
        super().__init__()
        self._write_part = write_part
        self._part_bytes = part_bytes
        self._held = bytearray()
        self._sent_bytes = 0
        self._pool = ThreadPoolExecutor(PARTS_ON_THE_WAY_MAX, thread_name_prefix="upload-part")
        self._on_the_way: deque[Future[UploadPart]] = deque()
        self._parts: list[UploadPart] = []

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._sent_bytes + len(self._held)

    def write(self, content: Any) -> int:
        size = len(self._held)
        self._held += content
        written = len(self._held) - size
        while len(self._held) >= self._part_bytes:
            self._send(bytes(self._held[: self._part_bytes]))
            del self._held[: self._part_bytes]
        return written

    def finish(self) -> tuple[UploadPart, ...]:
        """All parts, which the store has."""
        if self._held or not self._sent_bytes:
            self._send(bytes(self._held))
        while self._on_the_way:
            self._parts.append(self._on_the_way.popleft().result())
        self._pool.shutdown()
        self.close()
        return tuple(self._parts)

    def discard(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)
        self.close()

    def _send(self, content: bytes) -> None:
        if len(self._on_the_way) == PARTS_ON_THE_WAY_MAX:
            self._parts.append(self._on_the_way.popleft().result())
        number = len(self._parts) + len(self._on_the_way) + 1
        self._sent_bytes += len(content)
        crc32c = google_crc32c.value(content)
        self._on_the_way.append(self._pool.submit(self._write_part, number, content, crc32c))
