"""The files of one write, for one attempt or several: directories say to which dataset and role each file belongs.

In an object store, a file is an upload: invisible until a step of the commit log completes it. In a file system, a step
renames each file by itself.

The bytes of a file are sent in parts while the next rows are encoded. Each part carries its CRC32C, which the store
compares. An upload is written down in the attempt before its first part, so that whoever cleans up after a dead process
finds it.
"""

import io
import uuid
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, BinaryIO, Final, cast

import google_crc32c
import pyarrow as pa

from gobblin_assets.commit.object_attempts import ID_KEY, PART_BYTES, aborted_on_error, write_uploads
from gobblin_assets.destinations.files.rename_steps import RenameFile
from gobblin_assets.destinations.files.upload_step import PublishObject, object_id
from gobblin_assets.errors import GobblinError
from gobblin_assets.fs.file_system import FileSystem
from gobblin_assets.fs.objects import HoldsObjects, ObjectFiles, UploadId, UploadPart, expected_etag
from gobblin_assets.fs.registry import open_file_system
from gobblin_assets.model.files import DataFile, FileIdentity, format_of
from gobblin_assets.model.urn import Role
from gobblin_assets.rows.hidden_columns import parse_role_path, parse_share_path, published_path
from gobblin_assets.rows.new_files import FinishedRows, NewFile, NewFiles, finish_file
from gobblin_assets.rows.row_samples import SAMPLES_MAX, RowSampler
from gobblin_assets.run.job_kind import OutputNames
from gobblin_assets.spec.job_spec import WriterSpec


@dataclass(frozen=True, slots=True)
class RenamedFiles:
    """``NewFiles`` in ``staging``, which exists, to the places that ``names`` has for them."""

    fs: FileSystem
    staging: str
    names: OutputNames
    role: Role = Role.DATA

    def create(self, partition_path: str, name: str) -> NewFile:
        source = f"{self.staging}/{uuid.uuid4().hex}.{format_of(name)}"
        target = f"{self.names.directory_of(self.role, partition_path)}/{name}"
        return _RenamedFile(self.fs, source, target, self.fs.create_file(source))


@dataclass(frozen=True, slots=True)
class _RenamedFile:
    fs: FileSystem
    path: str
    target: str
    stream: BinaryIO

    def finish(self, row_count: int, size_bytes: int) -> FinishedRows:
        found = finish_file(self.fs, self.path, self.stream, row_count, size_bytes)
        file = replace(found, name=self.target.rpartition("/")[2])
        return FinishedRows(file, RenameFile(self.path, self.target, file.identity, file.row_count))

    def discard(self) -> None:
        with suppress(GobblinError, OSError):
            self.stream.close()


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
    """A stream that sends its bytes as parts of ``part_bytes``, in threads of its own. The last part may be smaller."""

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


ALONE: Final = ""
"""The name of the only share, where an order is read alone."""


@dataclass(frozen=True, slots=True)
class AttemptPlace:
    """The place of one attempt's rows. A value that can be pickled. ``sampler``: of rows that are set aside."""

    staging: str
    names: OutputNames
    writer: WriterSpec
    sampler: RowSampler | None = None


def open_role_files(fs: FileSystem, staging: str, names: OutputNames, role: Role = Role.DATA) -> NewFiles:
    """New files of one role of an attempt, in the way of the destination's file system."""
    if isinstance(fs, HoldsObjects):
        return UploadedFiles(fs.objects, staging, names, role)
    return RenamedFiles(fs, staging, names, role)


@dataclass(frozen=True, slots=True)
class AttemptFiles:
    """``TaskFiles`` of a write for several attempts, whose outermost directory is the share; or of one, without it.

    ``_shown``: how many rows of a share were shown.
    """

    fs: FileSystem
    places: Mapping[str, AttemptPlace]
    is_shared: bool
    _shown: Counter[str] = field(default_factory=Counter)

    def create(self, partition_path: str, name: str) -> NewFile:
        share, role, inner = self._parse(partition_path)
        place = self.places[share]
        files = open_role_files(self.fs, place.staging, place.names, role)
        return files.create(published_path(role, inner, place.writer), name)

    def sample(self, partition_path: str, first: pa.RecordBatch) -> Sequence[str]:
        """Rows that were set aside; of one share as many as people are shown."""
        share, role, _inner = self._parse(partition_path)
        sampler = self.places[share].sampler
        if sampler is None or role is not Role.QUARANTINE:
            return ()
        texts = sampler.show(first, SAMPLES_MAX - self._shown[share])
        self._shown[share] += len(texts)
        return texts

    def _parse(self, partition_path: str) -> tuple[str, Role, str]:
        share, rest = parse_share_path(partition_path) if self.is_shared else (ALONE, partition_path)
        return share, *parse_role_path(rest)


def open_attempt_files(
    uri: str, umask: int | None, places: Mapping[str, AttemptPlace], *, is_shared: bool
) -> AttemptFiles:
    """In the process that writes, by its own environment: no secret travels there. ``uri``: below the destination."""
    return AttemptFiles(open_file_system(uri, umask=umask)[0], places, is_shared)
