"""Segments: the steps of one dataset partition and role, compressed into one value.

An Arrow IPC stream with Zstandard. One row a file: (step number, kind, source, target, name, size, inode,
mtime, tag, rows); a step of another kind is one row whose ``payload`` is its JSON. Paths are split into the
directory, which repeats and is dictionary-encoded, and the name, so that a million renames take about
25 bytes each.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from gobblin_assets.commit.steps import CommitStep, RenameDirectory, RenameFile, read_step
from gobblin_assets.errors import CorruptionError
from gobblin_assets.model.files import DataFile, FileIdentity
from gobblin_assets.model.urn import Role

# One segment stays a value that Postgres stores and sends in one piece.
STEPS_PER_SEGMENT_MAX: Final = 10_000

COMPRESSED_FILES_MIN: Final = 16
"""Each of a segment's columns is compressed by itself: of few files, that costs milliseconds and saves nothing."""

_DIRECTORY = pa.dictionary(pa.int32(), pa.string())
_SCHEMA: Final = pa.schema(
    [
        ("step", pa.int32()),
        ("kind", pa.dictionary(pa.int8(), pa.string())),
        ("source_directory", _DIRECTORY),
        ("source_name", pa.string()),
        ("target_directory", _DIRECTORY),
        ("target_name", pa.string()),
        ("size_bytes", pa.int64()),
        ("inode", pa.uint64()),
        ("mtime_ns", pa.int64()),
        ("tag", pa.string()),
        ("row_count", pa.int64()),
        ("payload", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class Segment:
    """Encoded steps with what the log keeps beside them. ``file_schema`` is Spark's JSON, or None.

    One without steps has no files: it says the schema that rows would have had, where there was none.
    ``version``: the newest version of the dataset that rows of its files were published with, where they were published
    before; None: the one that its sequence makes.
    """

    role: Role
    partition: str
    payload: bytes
    digest: bytes
    step_count: int
    file_count: int
    row_count: int
    file_bytes: int
    file_schema: object = None
    version: int | None = None


def encode_segments(
    steps: Sequence[CommitStep],
    *,
    role: Role,
    partition: str,
    file_schema: object = None,
    steps_max: int = STEPS_PER_SEGMENT_MAX,
) -> list[Segment]:
    """Cut ``steps`` into segments of bounded size, keeping their order."""
    return [
        _encode(steps[start : start + steps_max], role, partition, file_schema)
        for start in range(0, len(steps), steps_max)
    ]


def encode_empty(*, role: Role, partition: str, file_schema: object) -> Segment:
    """A segment without steps, for the sake of its schema."""
    return _encode([], role, partition, file_schema)


def decode_segment(payload: bytes, digest: bytes) -> list[CommitStep]:
    """Rebuild the steps. CorruptionError when the payload is not the one that was sealed."""
    return list(_steps_of(_open(payload, digest)))


def decode_sizes(payload: bytes, digest: bytes) -> Iterable[tuple[str, int]]:
    """Path and length of each file that the steps make visible, in their order: what readers ask for, column by column.

    CorruptionError as ``decode_segment``.
    """
    table = _open(payload, digest)
    if table.column("payload").null_count < len(table):
        published = (file for step in _steps_of(table) for file in step.published_files())
        return [(path, identity.size_bytes) for path, identity, _rows in published]
    directories = table.column("target_directory").cast(pa.string())
    paths = pc.binary_join_element_wise(directories, table.column("target_name"), "/")
    return zip(paths.to_pylist(), table.column("size_bytes").to_pylist(), strict=True)


def _open(payload: bytes, digest: bytes) -> pa.Table:
    if hashlib.sha256(payload).digest() != digest:
        raise CorruptionError("a segment of the commit log does not match its digest")
    try:
        with pa.ipc.open_stream(payload) as stream:
            return stream.read_all()
    except pa.ArrowInvalid as error:
        raise CorruptionError(f"a segment of the commit log can't be read: {error}") from error


def combine_digests(digests: Iterable[bytes]) -> bytes:
    """The digest that a seal fixes: over the digests of all segments, whatever their order."""
    return hashlib.sha256(b"".join(sorted(digests))).digest()


def _encode(steps: Sequence[CommitStep], role: Role, partition: str, file_schema: object) -> Segment:
    columns = _columns_of(steps)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, _SCHEMA, strict=True)]
    row_count = file_bytes = file_count = 0
    for step in steps:
        for _path, identity, rows in step.published_files():
            file_count += 1
            row_count += rows
            file_bytes += identity.size_bytes
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd" if file_count >= COMPRESSED_FILES_MIN else None)
    with pa.ipc.new_stream(sink, _SCHEMA, options=options) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA))
    payload = sink.getvalue().to_pybytes()
    return Segment(
        role=role,
        partition=partition,
        payload=payload,
        digest=hashlib.sha256(payload).digest(),
        step_count=len(steps),
        file_count=file_count,
        row_count=row_count,
        file_bytes=file_bytes,
        file_schema=file_schema,
    )


def _columns_of(steps: Sequence[CommitStep]) -> list[Sequence[object]]:
    """The rows of all steps, column by column. Segments of files alone, the longest ones, need no rows for it."""
    files = [step for step in steps if isinstance(step, RenameFile)]
    if len(files) == len(steps):
        sources = [step.source.rpartition("/") for step in files]
        targets = [step.target.rpartition("/") for step in files]
        identities = [step.identity for step in files]
        return [
            range(len(files)),
            [step.kind for step in files],
            [directory for directory, _, _ in sources],
            [name for _, _, name in sources],
            [directory for directory, _, _ in targets],
            [name for _, _, name in targets],
            [identity.size_bytes for identity in identities],
            [identity.inode for identity in identities],
            [identity.mtime_ns for identity in identities],
            [identity.tag for identity in identities],
            [step.row_count for step in files],
            [None] * len(files),
        ]
    rows = [row for number, step in enumerate(steps) for row in _rows_of(number, step)]
    return [list(column) for column in zip(*rows, strict=True)]


def _rows_of(number: int, step: CommitStep) -> Iterator[tuple[object, ...]]:
    if isinstance(step, RenameFile):
        source_directory, _, source_name = step.source.rpartition("/")
        target_directory, _, target_name = step.target.rpartition("/")
        i = step.identity
        yield (
            number, step.kind, source_directory, source_name, target_directory, target_name,
            i.size_bytes, i.inode, i.mtime_ns, i.tag, step.row_count, None,
        )  # fmt: skip
    elif isinstance(step, RenameDirectory):
        for file in step.files:
            i = file.identity
            yield (
                number, step.kind, step.source, file.name, step.target, file.name,
                i.size_bytes, i.inode, i.mtime_ns, i.tag, file.row_count, None,
            )  # fmt: skip
    else:
        payload = json.dumps(step.to_json(), sort_keys=True)
        yield (number, step.kind, None, None, None, None, None, None, None, None, None, payload)


def _steps_of(table: pa.Table) -> Iterator[CommitStep]:
    directory: tuple[int, str, str] | None = None
    files: list[DataFile] = []
    for row in _tuples(table):
        (number, kind, source_dir, source_name, target_dir, target_name, size, inode, mtime, tag, rows, payload) = row
        if directory is not None and (kind != "rename_directory" or number != directory[0]):
            yield RenameDirectory(directory[1], directory[2], tuple(files))
            directory, files = None, []
        if payload is not None:
            yield read_step(kind, json.loads(payload))
            continue
        identity = FileIdentity(size, inode, mtime, tag)
        if kind == "rename_directory":
            directory = (number, source_dir, target_dir)
            files.append(DataFile(source_name, identity, rows))
        else:
            yield RenameFile(f"{source_dir}/{source_name}", f"{target_dir}/{target_name}", identity, rows)
    if directory is not None:
        yield RenameDirectory(directory[1], directory[2], tuple(files))


def _tuples(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    return zip(*(table.column(name).to_pylist() for name in _SCHEMA.names), strict=True)
