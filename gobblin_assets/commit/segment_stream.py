"""The stored form of a segment: an Arrow IPC stream with the columns of all steps."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from gobblin_assets.commit.steps import StepRow
from gobblin_assets.errors import CorruptionError

COMPRESSED_FILES_MIN: Final = 16
"""Compression works on each column by itself: for few files it costs milliseconds and saves nothing."""

_DIRECTORY = pa.dictionary(pa.int32(), pa.string())
SEGMENT_SCHEMA: Final = pa.schema(
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

COLUMNS: Final = tuple(SEGMENT_SCHEMA.names)
IDENTITY_COLUMNS: Final = ("size_bytes", "inode", "mtime_ns", "tag")
"""In the order of the fields of ``FileIdentity``."""


def read_stream(payload: bytes, digest: bytes) -> pa.Table:
    """CorruptionError if the payload is not what the digest was made of."""
    if hashlib.sha256(payload).digest() != digest:
        raise CorruptionError("a segment of the commit log does not match its digest")
    try:
        with pa.ipc.open_stream(payload) as stream:
            return stream.read_all()
    except pa.ArrowInvalid as error:
        raise CorruptionError(f"a segment of the commit log can't be read: {error}") from error


def write_stream(arrays: Sequence[pa.Array], metadata: Mapping[bytes, str]) -> bytes:
    """``arrays``: one for each column."""
    schema = SEGMENT_SCHEMA.with_metadata(metadata) if metadata else SEGMENT_SCHEMA
    file_count = len(arrays[0]) - arrays[COLUMNS.index("target_name")].null_count
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd" if file_count >= COMPRESSED_FILES_MIN else None)
    with pa.ipc.new_stream(sink, schema, options=options) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema))
    return bytes(sink.getvalue().to_pybytes())


def target_paths(table: pa.Table) -> pa.ChunkedArray:
    """The path of each row's target."""
    directories = table.column("target_directory").cast(pa.string())
    return pc.binary_join_element_wise(directories, table.column("target_name"), "/")


def tuples_of(table: pa.Table, names: Sequence[str]) -> Iterator[StepRow]:
    """The rows, of these columns."""
    return zip(*(table.column(name).to_pylist() for name in names), strict=True)
