"""Changes of names: what each holds after the steps of a segment, and folds of such changes.

A fold of publications at given names says so in the stream's metadata. Its rows are in order of the path, and have the
publishing sequence in the place of the source.
"""

import hashlib
from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from gobblin_assets.commit.arrow_arrays import make_array
from gobblin_assets.commit.segment import Segment
from gobblin_assets.commit.segment_stream import (
    IDENTITY_COLUMNS,
    SEGMENT_SCHEMA,
    read_stream,
    target_paths,
    tuples_of,
    write_stream,
)
from gobblin_assets.commit.step_kinds import find_built_in
from gobblin_assets.commit.steps import StepKind
from gobblin_assets.model.files import FileIdentity
from gobblin_assets.model.urn import Role

_FOLD: Final = b"gobblin_assets.fold"
_PARTS: Final = ("target_directory", "target_name")


def has_given_names(payload: bytes, digest: bytes) -> bool:
    """Whether the steps publish at names that other publications use too. CorruptionError as ``decode_segment``."""
    return any(kind.at_given_names for kind in _kinds_in(read_stream(payload, digest).column("kind")).values())


def _kinds_in(names: pa.ChunkedArray) -> dict[str, StepKind]:
    """The built-in kinds of a column: a log that folds changes of names knows what each kind does to them."""
    found = {name: find_built_in(name) for name in pc.unique(names).to_pylist()}
    return {name: kind for name, kind in found.items() if kind is not None}


def _removes_files(names: pa.ChunkedArray) -> pa.ChunkedArray:
    """Of each row, by its kind."""
    removing = [name for name, kind in _kinds_in(names).items() if kind.removes_files]
    return pc.is_in(names, value_set=make_array(removing, pa.string()))


def list_changes(payload: bytes, digest: bytes) -> Iterator[tuple[str, FileIdentity | None, str | None]]:
    """What each name holds after the steps, in order: the identity of a published file, None for a removed one.

    Then, if this is a fold, the sequence that published it; else None. Only for steps at given names. CorruptionError
    as ``decode_segment``.
    """
    table = changes_table(payload, digest)
    for path, publisher, size, *others in tuples_of(table, ("path", "publisher", *IDENTITY_COLUMNS)):
        yield path, None if size is None else FileIdentity(size, *others), publisher


def list_removed(payload: bytes, digest: bytes) -> Iterator[str]:
    """The names whose files the steps remove, in order. CorruptionError as ``decode_segment``."""
    table = read_stream(payload, digest)
    yield from target_paths(table.filter(_removes_files(table.column("kind").cast(pa.string())))).to_pylist()


def changes_table(payload: bytes, digest: bytes) -> pa.Table:
    """``list_changes`` as columns: the path, its parts, and the fields of its identity, whose size is NULL for a
    removed file. ``publisher``: of a fold, the sequence that published the change; else NULL.
    """
    table = read_stream(payload, digest)
    kinds = table.column("kind").cast(pa.string())
    is_change = pc.or_(_removes_files(kinds), pc.is_valid(table.column("size_bytes")))
    is_fold = _FOLD in (table.schema.metadata or {})
    publishers = table.column("source_directory").cast(pa.string()) if is_fold else pa.nulls(len(table), pa.string())
    whole = pa.Table.from_arrays(
        [
            target_paths(table),
            table.column("target_directory").cast(pa.string()),
            table.column("target_name"),
            kinds,
            publishers,
            *(table.column(name) for name in IDENTITY_COLUMNS),
        ],
        names=["path", *_PARTS, "kind", "publisher", *IDENTITY_COLUMNS],
    )
    return whole.filter(is_change)


def encode_fold(changes: pa.Table, *, role: Role, partition: str, version: int) -> Segment:
    """A segment of rows of ``changes_table``, whose publishers are known. No step of it is ever executed."""
    count = len(changes)
    sizes = changes.column("size_bytes")
    is_file = pc.is_valid(sizes)
    columns = {
        "step": make_array(range(count), pa.int32()),
        "kind": pc.if_else(is_file, _fold_kinds(changes.column("kind")), changes.column("kind")),
        "source_directory": changes.column("publisher"),
        "row_count": pc.if_else(is_file, pa.scalar(0, pa.int64()), pa.scalar(None, pa.int64())),
        **{name: changes.column(name) for name in (*_PARTS, *IDENTITY_COLUMNS)},
    }
    arrays = [_fit(columns.get(field.name, pa.nulls(count, field.type)), field.type) for field in SEGMENT_SCHEMA]
    payload = write_stream(arrays, {_FOLD: "1"})
    return Segment(
        role=role,
        partition=partition,
        payload=payload,
        digest=hashlib.sha256(payload).digest(),
        step_count=count,
        file_count=count - sizes.null_count,
        row_count=0,
        file_bytes=pc.sum(sizes).as_py() or 0,
        version=version,
    )


def _fold_kinds(names: pa.ChunkedArray) -> pa.ChunkedArray:
    """The kind as which a fold keeps the file of each row."""
    kinds = _kinds_in(names)
    folded = make_array([kind.folded_as or name for name, kind in kinds.items()], pa.string())
    return folded.take(pc.index_in(names, value_set=make_array(list(kinds), pa.string())))


def _fit(values: pa.Array | pa.ChunkedArray, data_type: pa.DataType) -> pa.Array:
    """One array of the type, whose texts may become a dictionary."""
    whole = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    if pa.types.is_dictionary(data_type) and not pa.types.is_dictionary(whole.type):
        whole = whole.dictionary_encode()
    return whole.cast(data_type)
