"""Arrow batches into Parquet files like Spark's, with the same bound of rows.

Batches are prefetched while others are written: both release Python's lock while they work. The highest position of the
rows is found by the rules that ``observation`` has for rows in Spark.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import TracebackType
from typing import Final, Self

import pyarrow as pa
import pyarrow.compute as pc

from gobblin_assets.errors import RejectedError
from gobblin_assets.model.files import FileFormat, name_ending
from gobblin_assets.model.watermark import Watermark, WatermarkType, from_micros
from gobblin_assets.rows.new_files import FinishedRows, NewFiles
from gobblin_assets.rows.open_files import OpenFile


@contextmanager
def prefetching(batches: Iterator[pa.RecordBatch], *, ahead: int = 1) -> Iterator[Iterator[pa.RecordBatch]]:
    """The same batches; up to ``ahead`` are read while the caller works on the one before.

    The block waits for the read that is under way, so that the caller may close the source of the batches next.
    """
    pool = ThreadPoolExecutor(1, thread_name_prefix="arrow-prefetch")
    try:
        yield _prefetch(batches, pool, ahead)
    finally:
        pool.shutdown(cancel_futures=True)


def _prefetch(batches: Iterator[pa.RecordBatch], pool: ThreadPoolExecutor, ahead: int) -> Iterator[pa.RecordBatch]:
    coming = deque(pool.submit(next, batches, None) for _batch in range(ahead))
    while (batch := coming.popleft().result()) is not None:
        coming.append(pool.submit(next, batches, None))
        yield batch


class HighestPosition:
    """The highest position of the batches that were added.

    ``columns``: none (no position), one, or two compared in turn.
    """

    def __init__(self, columns: Sequence[str]) -> None:
        self._columns = columns
        self.value: Watermark | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        """Rows with a NULL position have none. RejectedError names a column that can't be a position."""
        if not self._columns:
            return
        lead = batch.column(self._columns[0])
        kinds = [_kind_of(name, batch.column(name).type) for name in self._columns]
        if len(kinds) == 1:
            self._raise_to(_as_watermark(kinds[0], pc.max(lead)))
            return
        key = batch.column(self._columns[1])
        present = pc.is_valid(key)
        highest = pc.max(pc.filter(lead, present))
        if not highest.is_valid:
            return
        first = _as_watermark(kinds[0], highest)
        second = _as_watermark(kinds[1], pc.max(pc.filter(key, pc.and_(present, pc.equal(lead, highest)))))
        if first is not None and second is not None:
            self._raise_to(Watermark(WatermarkType.COMPOSITE, (first, second)))

    def _raise_to(self, found: Watermark | None) -> None:
        if found is not None and (self.value is None or found > self.value):
            self.value = found


def highest_of(positions: Sequence[HighestPosition]) -> Watermark | None:
    return max((each.value for each in positions if each.value is not None), default=None)


def _as_watermark(kind: WatermarkType, found: pa.Scalar) -> Watermark | None:
    if not found.is_valid:
        return None
    match kind:
        case WatermarkType.TIMESTAMP | WatermarkType.LOCAL_TIMESTAMP:
            return Watermark(kind, from_micros(found.value, local=kind is WatermarkType.LOCAL_TIMESTAMP))
        case WatermarkType.LONG:
            return Watermark(kind, int(found.as_py()))
        case _:
            return Watermark(kind, found.as_py())


def _kind_of(name: str, held_as: pa.DataType) -> WatermarkType:
    if pa.types.is_integer(held_as) or (pa.types.is_decimal(held_as) and held_as.scale == 0):
        return WatermarkType.LONG
    if pa.types.is_timestamp(held_as):
        return WatermarkType.LOCAL_TIMESTAMP if held_as.tz is None else WatermarkType.TIMESTAMP
    if pa.types.is_date(held_as):
        return WatermarkType.DATE
    if pa.types.is_string(held_as):
        return WatermarkType.STRING
    raise RejectedError(
        f"expected a whole number, time, date or text, found {held_as}",
        field=f"watermark.column.{name}",
        hint="Choose another column, or cast this one in the query.",
    )


# The bytes of a file that are held in memory before they are encoded: one row group.
_ROW_GROUP_BYTES: Final = 64 << 20


class RollingWriter:
    """A writer of new files below ``partition_path``, each of up to ``rows_max`` rows.

    A block that fails may leave files.

    ``name`` begins the files' names. ``files`` are set when the block is over, with rows counted by their footers;
    without rows there is no file.
    """

    def __init__(
        self,
        files: NewFiles,
        partition_path: str,
        name: str,
        schema: pa.Schema,
        *,
        rows_max: int,
        compression: str,
    ) -> None:
        self._files = files
        self._partition_path = partition_path
        self._name = name
        self._schema = schema
        self._rows_max = rows_max
        self._compression = compression
        self._rows_left = 0
        self._open: OpenFile | None = None
        self._finished: list[FinishedRows] = []
        self.files: tuple[FinishedRows, ...] = ()

    def write(self, batch: pa.RecordBatch) -> None:
        while batch.num_rows:
            if self._open is None:
                self._open = self._begin()
                self._rows_left = self._rows_max
            count = min(batch.num_rows, self._rows_left)
            self._open.add(batch.slice(0, count))
            if self._open.held_bytes >= _ROW_GROUP_BYTES:
                self._open.flush()
            batch = batch.slice(count)
            self._rows_left -= count
            if self._rows_left == 0:
                self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._end()
                self.files = tuple(self._finished)
        finally:
            if self._open is not None:
                self._open.discard()

    def _begin(self) -> OpenFile:
        ending = name_ending(FileFormat.PARQUET, self._compression)
        file = self._files.create(self._partition_path, f"{self._name}-c{len(self._finished):03d}{ending}")
        return OpenFile(file, self._schema, FileFormat.PARQUET, self._compression)

    def _end(self) -> None:
        if self._open is not None:
            self._finished.append(self._open.finish())
        self._open = None
