"""Arrow batches into Parquet files like Spark's, with the same bound of rows."""

from types import TracebackType
from typing import Final, Self

import pyarrow as pa

from gobblin_assets.model.files import FileFormat, name_ending
from gobblin_assets.rows.new_files import FinishedRows, NewFiles
from gobblin_assets.rows.open_files import OpenFile

# The bytes of a file that are held in memory before they are encoded: one row group.
_ROW_GROUP_BYTES: Final = 64 << 20


class RollingWriter:
    """Writes new files below ``partition_path``, each of up to ``rows_max`` rows. A block that fails may leave files.

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
