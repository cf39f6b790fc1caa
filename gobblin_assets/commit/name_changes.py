"""Changes of names: what each holds after the steps of a segment, folds of such changes, and their order by name.

A fold of publications at given names says so in the stream's metadata. Its rows are in order of the path, and have the
publishing sequence in the place of the source.

Changes are sorted by name in memory that does not grow with their number. They come newest first, and the first that
says something of a name decides. Of ``ROWS_AT_ONCE`` changes, the newest of each name is kept. Changes that are too
many for memory become a sorted run in a temporary file without a name. At the end the runs are merged, block by block.
"""

import hashlib
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import IO, Final

import pyarrow as pa
import pyarrow.compute as pc

from gobblin_assets.commit.arrow_arrays import make_array
from gobblin_assets.commit.segment import (
    IDENTITY_COLUMNS,
    SEGMENT_SCHEMA,
    Segment,
    read_stream,
    target_paths,
    tuples_of,
    write_stream,
)
from gobblin_assets.commit.step_kinds import find_built_in
from gobblin_assets.commit.steps import StepKind
from gobblin_assets.errors import RetryableError
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


ROWS_AT_ONCE: Final = 100_000
"""Changes that are sorted at once: some 15 MB."""

BLOCK_ROWS: Final = 4_096

_SEGMENT_ROWS_MIN: Final = 64
"""A table of a few rows takes as much memory as one of so many."""

_RANK: Final = "rank"
"""The place of a change's table: the lowest is the newest."""

_ORDER: Final = (("path", "ascending"), (_RANK, "ascending"))


@dataclass(frozen=True, slots=True)
class SortedRun:
    """Sorted rows in blocks. ``firsts``: the first path of each block that ``load`` gives.

    Many are in a file, which goes with the last who reads it.
    """

    firsts: Sequence[str]
    load: Callable[[int], pa.RecordBatch]

    @classmethod
    def keep(cls, tables: Iterable[pa.Table], block_rows: int, rows_max: int) -> "SortedRun":
        """``rows_max``: more are written to a file."""
        left = iter(tables)
        held: list[pa.Table] = []
        for table in left:
            held.append(table)
            if sum(map(len, held)) > rows_max:
                return cls._write(chain(held, left), block_rows)
        blocks = [block for table in held for block in table.to_batches(block_rows)]
        return cls([_first(block) for block in blocks], blocks.__getitem__)

    @classmethod
    def _write(cls, tables: Iterable[pa.Table], block_rows: int) -> "SortedRun":
        file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  it stays open as long as the run is read
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        firsts: list[str] = []
        writer: pa.RecordBatchFileWriter | None = None
        for table in tables:
            writer = writer or pa.ipc.new_file(file, table.schema, options=options)
            for block in table.to_batches(block_rows):
                writer.write_batch(block)
                firsts.append(_first(block))
        if writer is not None:
            writer.close()
        file.flush()
        return cls(firsts, pa.ipc.open_file(file).get_batch)

    def tables(self) -> Iterator[pa.Table]:
        return (pa.Table.from_batches([self.load(number)]) for number in range(len(self.firsts)))


def sort_changes(
    newest_first: Iterable[pa.Table], *, rows_at_once: int = ROWS_AT_ONCE, block_rows: int = BLOCK_ROWS
) -> Iterator[pa.Table]:
    """The newest change of each path, ascending by path, some thousands at a time.

    RetryableError: there is no room for the temporary files.
    """
    try:
        sorting = _Sorting(rows_at_once, block_rows)
        for rank, changes in enumerate(newest_first):
            sorting.add(changes, rank)
        yield from sorting.finish()
    except OSError as error:
        raise RetryableError(
            f"can't sort the published names in {tempfile.gettempdir()}: {error.strerror or error}",
            hint="Free space there, or set TMPDIR to a directory with room; a name takes about 50 bytes.",
        ) from error


@dataclass(slots=True)
class _Sorting:
    rows_at_once: int
    block_rows: int
    pending: list[pa.Table] = field(default_factory=list)
    row_count: int = 0
    runs: list[SortedRun] = field(default_factory=list)

    def add(self, changes: pa.Table, rank: int) -> None:
        self.pending.append(changes.append_column(_RANK, pa.repeat(pa.scalar(rank, pa.int64()), len(changes))))
        self.row_count += max(len(changes), _SEGMENT_ROWS_MIN)
        if self.row_count < self.rows_at_once:
            return
        newest = _keep_newest(self.pending)
        if len(newest) > self.rows_at_once // 2:
            self.runs.append(SortedRun.keep([newest], self.block_rows, rows_max=0))
            self.pending, self.row_count = [], 0
        else:
            self.pending, self.row_count = [newest], len(newest)

    def finish(self) -> Iterator[pa.Table]:
        rest = [_keep_newest(self.pending)] if self.pending else []
        return _merge([*(run.tables() for run in self.runs), iter(rest)]) if self.runs else iter(rest)


def _keep_newest(tables: Sequence[pa.Table]) -> pa.Table:
    """Sorted by path, with the newest change of each."""
    ordered = pa.concat_tables(tables).sort_by(_ORDER).combine_chunks()
    if len(ordered) < 2:
        return ordered
    paths = ordered.column("path").combine_chunks()
    is_new = pc.not_equal(paths.slice(1), paths.slice(0, len(paths) - 1))
    return pa.concat_tables([ordered.slice(0, 1), ordered.slice(1).filter(is_new)]).combine_chunks()


def _merge(runs: Iterable[Iterator[pa.Table]]) -> Iterator[pa.Table]:
    """Of each path the newest change; a block of each run is in memory."""
    heads = [(head, run) for run in runs if (head := next(run, None)) is not None]
    while heads:
        # No run has anything up to here behind the block at hand.
        end = min(_last(head) for head, _run in heads)
        taken: list[pa.Table] = []
        left: list[tuple[pa.Table, Iterator[pa.Table]]] = []
        for head, run in heads:
            count = pc.sum(pc.less_equal(head.column("path"), end)).as_py()
            taken.append(head.slice(0, count))
            rest = head.slice(count) if count < len(head) else next(run, None)
            if rest is not None:
                left.append((rest, run))
        heads = left
        yield _keep_newest(taken)


def _first(block: pa.RecordBatch) -> str:
    path: str = block.column("path")[0].as_py()
    return path


def _last(table: pa.Table) -> str:
    path: str = table.column("path")[len(table) - 1].as_py()
    return path
