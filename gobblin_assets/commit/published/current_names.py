"""What each given name of a dataset holds now, sorted by name, in memory that does not grow with the dataset.

Segments come newest first, and the first that says something of a name decides. Of ``ROWS_AT_ONCE`` changes, the newest
of each name is kept. What is then too much for memory becomes a sorted run in a temporary file without a name. At the
end the runs are merged, block by block, and names whose files were removed are left out. A look-up reads the one block
in which its name would be: whoever asks in order reads each block once.
"""

import tempfile
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import IO, Final

import pyarrow as pa
import pyarrow.compute as pc

from gobblin_assets.commit.published.port import PublishedSegment
from gobblin_assets.commit.segment import IDENTITY_COLUMNS
from gobblin_assets.errors import RetryableError
from gobblin_assets.model.files import FileIdentity

ROWS_AT_ONCE: Final = 100_000
"""Changes that are sorted at once: some 15 MB."""

BLOCK_ROWS: Final = 4_096

_SEGMENT_ROWS_MIN: Final = 64
"""A table of a few rows takes as much memory as one of so many."""

_RANK: Final = "rank"
"""The place of a change's segment: the lowest is the newest."""

_ORDER: Final = (("path", "ascending"), (_RANK, "ascending"))

_Load = Callable[[int], pa.RecordBatch]


@dataclass(slots=True)
class CurrentNames:
    """The files, by full path. ``firsts``: the first path of each block that ``load`` gives."""

    firsts: Sequence[str]
    load: _Load
    _loaded: int = field(default=-1, init=False)
    _block: dict[str, tuple[int, int | None, int | None, str | None]] = field(default_factory=dict, init=False)

    def find(self, path: str) -> FileIdentity | None:
        """The identity of the file at ``path``; None: the publications left none there."""
        number = bisect_right(self.firsts, path) - 1
        if number < 0:
            return None
        if number != self._loaded:
            self._block, self._loaded = self._read(number), number
        found = self._block.get(path)
        return None if found is None else FileIdentity(*found)

    def _read(self, number: int) -> dict[str, tuple[int, int | None, int | None, str | None]]:
        block = self.load(number)
        columns = (block.column(name).to_pylist() for name in IDENTITY_COLUMNS)
        return dict(zip(block.column("path").to_pylist(), zip(*columns, strict=True), strict=True))


def sort_current(
    segments: Iterable[PublishedSegment], *, rows_at_once: int = ROWS_AT_ONCE, block_rows: int = BLOCK_ROWS
) -> CurrentNames:
    """``segments``: of given names, newest first. RetryableError: there is no room for the temporary files."""
    try:
        sorting = _Sorting(rows_at_once, block_rows)
        for rank, segment in enumerate(segments):
            sorting.add(segment.changes_table(), rank)
        return sorting.finish()
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
    runs: list["_Run"] = field(default_factory=list)

    def add(self, changes: pa.Table, rank: int) -> None:
        self.pending.append(changes.append_column(_RANK, pa.repeat(pa.scalar(rank, pa.int64()), len(changes))))
        self.row_count += max(len(changes), _SEGMENT_ROWS_MIN)
        if self.row_count < self.rows_at_once:
            return
        newest = _keep_newest(self.pending)
        if len(newest) > self.rows_at_once // 2:
            self.runs.append(_Run.write([newest], self.block_rows))
            self.pending, self.row_count = [], 0
        else:
            self.pending, self.row_count = [newest], len(newest)

    def finish(self) -> CurrentNames:
        rest = [_keep_newest(self.pending)] if self.pending else []
        if not self.runs:
            blocks = [block for table in rest for block in _drop_removed(table).to_batches(self.block_rows)]
            return CurrentNames([_first(block) for block in blocks], blocks.__getitem__)
        merged = _Run.write(
            map(_drop_removed, _merge([*(run.blocks() for run in self.runs), iter(rest)])), self.block_rows
        )
        return CurrentNames(merged.firsts, merged.load)


@dataclass(frozen=True, slots=True)
class _Run:
    """Sorted rows in a file, each path once. The file goes with the last who reads it."""

    firsts: Sequence[str]
    load: _Load

    @classmethod
    def write(cls, tables: Iterable[pa.Table], block_rows: int) -> "_Run":
        file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  it stays open as long as the run is read
        writer: pa.RecordBatchFileWriter | None = None
        firsts: list[str] = []
        for table in tables:
            if writer is None:
                options = pa.ipc.IpcWriteOptions(compression="zstd")
                writer = pa.ipc.new_file(file, table.schema, options=options)
            for block in table.to_batches(block_rows):
                writer.write_batch(block)
                firsts.append(_first(block))
        if writer is None:
            return cls((), [].__getitem__)
        writer.close()
        file.flush()
        return cls(firsts, pa.ipc.open_file(file).get_batch)

    def blocks(self) -> Iterator[pa.Table]:
        return (pa.Table.from_batches([self.load(number)]) for number in range(len(self.firsts)))


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


def _drop_removed(table: pa.Table) -> pa.Table:
    return table.filter(pc.is_valid(table.column("size_bytes")))


def _first(block: pa.RecordBatch) -> str:
    path: str = block.column("path")[0].as_py()
    return path


def _last(table: pa.Table) -> str:
    path: str = table.column("path")[len(table) - 1].as_py()
    return path
