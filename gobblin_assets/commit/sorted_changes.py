"""Changes of names, sorted by name, in memory that does not grow with their number.

Changes come newest first, as tables of ``name_changes.changes_table``. The first that says something of a name decides.
Of ``ROWS_AT_ONCE`` changes, the newest of each name is kept. What is then too much for memory becomes a sorted run in a
temporary file without a name. At the end the runs are merged, block by block.
"""

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import IO, Final

import pyarrow as pa
import pyarrow.compute as pc

from gobblin_assets.errors import RetryableError

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
