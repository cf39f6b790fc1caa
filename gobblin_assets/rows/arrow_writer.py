"""Arrow batches into Parquet files like Spark's: the same types, compression, checksums and bound of rows."""

from collections.abc import Iterator
from contextlib import ExitStack, suppress
from types import TracebackType
from typing import BinaryIO, Final, Self

import pyarrow as pa
from pyarrow import parquet as pq

from gobblin_assets.errors import RetryableError
from gobblin_assets.fs.port import FileSystem
from gobblin_assets.fs.posix_errors import families
from gobblin_assets.model.files import DataFile
from gobblin_assets.rows.footers import count_rows
from gobblin_assets.spark.settings import SPARK_VERSION

# The bytes of a file that are held in memory before they are encoded: one row group.
_ROW_GROUP_BYTES: Final = 64 << 20
# By this, Spark knows that dates and times are in the calendar that it uses itself, and shifts none.
_METADATA: Final = {"org.apache.spark.version": SPARK_VERSION}


class RollingWriter:
    """Writes into new files of ``directory``, each of up to ``rows_max`` rows. A block that fails may leave files.

    ``name`` begins the files' names. ``files`` are set when the block is over, with rows counted by their footers;
    without rows there is no file.
    """

    def __init__(
        self, fs: FileSystem, directory: str, name: str, schema: pa.Schema, *, rows_max: int, compression: str
    ) -> None:
        self._fs = fs
        self._directory = directory
        self._name = name
        self._schema = schema
        self._rows_max = rows_max
        self._compression = compression
        self._paths: list[str] = []
        self._rows_left = 0
        self._open: _OpenFile | None = None
        self.files: tuple[DataFile, ...] = ()

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
        if kind is None:
            self._end()
            self.files = tuple(self._describe())
        elif self._open is not None:
            # The first error is being raised already: on a full disk, the close fails as well.
            with suppress(OSError):
                self._open.stream.close()

    def _begin(self) -> "_OpenFile":
        name = f"{self._name}-c{len(self._paths):03d}.{self._compression}.parquet"
        path = f"{self._directory}/{name}"
        self._paths.append(path)
        return _OpenFile(path, self._fs.create_file(path), self._schema, self._compression)

    def _end(self) -> None:
        if self._open is not None:
            self._open.close()
        self._open = None

    def _describe(self) -> Iterator[DataFile]:
        for path in self._paths:
            identity = self._fs.find_identity(path)
            if identity is None:
                raise RetryableError(f"{path} is gone, and it was written just now", path=path)
            yield DataFile(path.rpartition("/")[2], identity, count_rows(self._fs, path))


class _OpenFile:
    """Errors of the disk are families of the destination's, and never blamed on the source."""

    def __init__(self, path: str, stream: BinaryIO, schema: pa.Schema, compression: str) -> None:
        self._path = path
        self.stream = stream
        self._held: list[pa.RecordBatch] = []
        self._held_bytes = 0
        with families("write", path), ExitStack() as stack:
            stack.callback(stream.close)
            self.writer = pq.ParquetWriter(
                stream,
                schema,
                compression=compression,
                store_decimal_as_integer=True,
                store_schema=False,
                write_page_checksum=True,
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
            with families("write", self._path):
                self.writer.write_table(group, row_group_size=group.num_rows)
        self._held, self._held_bytes = [], 0

    def close(self) -> None:
        self._flush()
        with families("write", self._path):
            self.writer.add_key_value_metadata(_METADATA)
            self.writer.close()
            self.stream.close()
