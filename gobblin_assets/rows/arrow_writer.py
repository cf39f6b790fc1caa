"""Arrow batches into Parquet files like Spark's: the same types, compression, checksums and bound of rows."""

from contextlib import ExitStack
from types import TracebackType
from typing import Final, Self

import pyarrow as pa
from pyarrow import parquet as pq

from gobblin_assets.fs.posix_errors import families
from gobblin_assets.rows.new_files import FinishedRows, NewFile, NewFiles
from gobblin_assets.spark.settings import SPARK_VERSION

# The bytes of a file that are held in memory before they are encoded: one row group.
_ROW_GROUP_BYTES: Final = 64 << 20
# By this, Spark knows that dates and times are in the calendar that it uses itself, and shifts none.
_METADATA: Final = {"org.apache.spark.version": SPARK_VERSION}


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
        self._open: _OpenFile | None = None
        self._finished: list[FinishedRows] = []
        self.files: tuple[FinishedRows, ...] = ()

    def write(self, batch: pa.RecordBatch) -> None:
        while batch.num_rows:
            if self._open is None:
                self._open = self._begin()
                self._rows_left = self._rows_max
            count = min(batch.num_rows, self._rows_left)
            self._open.add(batch.slice(0, count))
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
                self._open.file.discard()

    def _begin(self) -> "_OpenFile":
        name = f"{self._name}-c{len(self._finished):03d}.{self._compression}.parquet"
        return _OpenFile(self._files.create(self._partition_path, name), self._schema, self._compression)

    def _end(self) -> None:
        if self._open is not None:
            self._finished.append(self._open.close())
        self._open = None


class _OpenFile:
    """Errors of the disk are families of the destination's, and never blamed on the source."""

    def __init__(self, file: NewFile, schema: pa.Schema, compression: str) -> None:
        self.file = file
        self._held: list[pa.RecordBatch] = []
        self._held_bytes = 0
        self._footers: list[pq.FileMetaData] = []
        with families("write", file.path), ExitStack() as stack:
            stack.callback(file.discard)
            self.writer = pq.ParquetWriter(
                file.stream,
                schema,
                compression=compression,
                store_decimal_as_integer=True,
                store_schema=False,
                write_page_checksum=True,
                metadata_collector=self._footers,
            )
            stack.pop_all()

    def add(self, batch: pa.RecordBatch) -> None:
        self._held.append(batch)
        self._held_bytes += batch.nbytes
        if self._held_bytes >= _ROW_GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._held:
            group = pa.Table.from_batches(self._held)
            with families("write", self.file.path):
                self.writer.write_table(group, row_group_size=group.num_rows)
        self._held, self._held_bytes = [], 0

    def close(self) -> FinishedRows:
        self._flush()
        with families("write", self.file.path):
            self.writer.add_key_value_metadata(_METADATA)
            self.writer.close()
            return self.file.finish(self._footers[-1].num_rows)
