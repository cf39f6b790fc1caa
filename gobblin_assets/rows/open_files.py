"""A file of Parquet, JSON or CSV that is being written: rows are held as Arrow has them, and encoded in large pieces.

``RowEncoder`` is the port of formats: an encoder makes the bytes of one file.
"""

import io
from contextlib import ExitStack
from typing import Any, BinaryIO, Final, Protocol, cast

import pyarrow as pa
from pyarrow import parquet as pq

from gobblin_assets.fs.posix_errors import families
from gobblin_assets.model.files import FileFormat
from gobblin_assets.rows.new_files import FinishedRows, NewFile
from gobblin_assets.rows.text_rows import open_csv_rows, open_json_rows
from gobblin_assets.spark.spark_settings import SPARK_VERSION

# By this, Spark knows that dates and times are in the calendar that it uses itself, and shifts none.
_METADATA: Final = {"org.apache.spark.version": SPARK_VERSION}


class RowEncoder(Protocol):
    """A writer of rows to a stream that it does not close."""

    @property
    def kept_bytes(self) -> int:
        """Memory that the encoder keeps between writes, about."""
        ...

    def write(self, rows: pa.Table) -> None: ...

    def finish(self) -> int:
        """Write the end of the file; returns the number of rows that the file holds. Call it once."""
        ...


class ParquetRows:
    """Parquet like Spark's: the same types, compression and checksums. Each write is one row group."""

    def __init__(self, stream: BinaryIO, schema: pa.Schema, compression: str) -> None:
        self.kept_bytes = 0
        self._writer = pq.ParquetWriter(
            stream,
            schema,
            compression=compression,
            store_decimal_as_integer=True,
            store_schema=False,
            write_page_checksum=True,
        )

    def write(self, rows: pa.Table) -> None:
        self._writer.write_table(rows, row_group_size=rows.num_rows)
        # Arrow keeps the buffers of a row group until the next one begins, and they may grow by half.
        self.kept_bytes = rows.nbytes * 3 // 2

    def finish(self) -> int:
        self._writer.add_key_value_metadata(_METADATA)
        self._writer.close()
        # Not by a collector of metadata: a writer that is given up behind an error asks for them as well, and says so.
        return int(self._writer.writer.metadata.num_rows)


class CountedStream(io.RawIOBase):
    """A stream that counts bytes on their way to another one, which stays open when this one is closed."""

    def __init__(self, target: BinaryIO) -> None:
        super().__init__()
        self._target: BinaryIO | None = target
        self.size_bytes = 0

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        size_bytes = memoryview(content).nbytes
        if self._target is not None:
            self._target.write(content)
            self.size_bytes += size_bytes
        return size_bytes

    def detach(self) -> None:
        """Drop what is written from now on: pyarrow ends a Parquet file even when its writer is given up."""
        self._target = None


def open_encoder(file_format: FileFormat, stream: BinaryIO, schema: pa.Schema, compression: str) -> RowEncoder:
    match file_format:
        case FileFormat.PARQUET:
            return ParquetRows(stream, schema, compression)
        case FileFormat.JSON:
            return open_json_rows(stream, schema, compression)
        case FileFormat.CSV:
            return open_csv_rows(stream, schema, compression)


# A batch of one row takes far more memory than its values do: so many small ones are made one.
_SMALL_BATCHES_MAX: Final = 64
_SMALL_BYTES: Final = 64 << 10
# What Arrow and Python take for one column of a batch, beside its values.
_COLUMN_BYTES: Final = 512


class OpenFile:
    """A file of rows that is being written.

    Errors of the disk are families of the destination's, and never blamed on the source of the rows.
    """

    def __init__(self, file: NewFile, schema: pa.Schema, file_format: FileFormat, compression: str) -> None:
        self.row_count = 0
        self.held_bytes = 0
        self._file = file
        self._overhead_bytes = _COLUMN_BYTES * len(schema)
        self._held: list[pa.RecordBatch] = []
        self._small: list[pa.RecordBatch] = []
        self._stream = CountedStream(file.stream)
        with families("write", file.path), ExitStack() as stack:
            stack.callback(file.discard)
            # RawIOBase has all that BinaryIO asks for, and is no subclass.
            self._encoder = open_encoder(file_format, cast("BinaryIO", self._stream), schema, compression)
            stack.pop_all()

    @property
    def size_bytes(self) -> int:
        """The bytes of the file so far: those that are encoded, and those that are held as Arrow has them."""
        return self._stream.size_bytes + self.held_bytes

    @property
    def kept_bytes(self) -> int:
        """Memory beside ``held_bytes`` that is free only once the file is finished."""
        return self._encoder.kept_bytes

    def add(self, batch: pa.RecordBatch) -> None:
        """Hold the rows. They must have the file's columns."""
        owned = _without_unseen(batch)
        self.row_count += owned.num_rows
        self.held_bytes += owned.nbytes + self._overhead_bytes
        self._small.append(owned)
        if owned.nbytes >= _SMALL_BYTES:
            self._held += self._small
            self._small = []
        elif len(self._small) == _SMALL_BATCHES_MAX:
            self.held_bytes -= (_SMALL_BATCHES_MAX - 1) * self._overhead_bytes
            self._held.append(pa.concat_batches(self._small))
            self._small = []

    def flush(self) -> None:
        """Encode what is held."""
        held = [*self._held, *self._small]
        self._held, self._small, self.held_bytes = [], [], 0
        if held:
            with families("write", self._file.path):
                self._encoder.write(pa.Table.from_batches(held))

    def finish(self) -> FinishedRows:
        self.flush()
        with families("write", self._file.path):
            row_count = self._encoder.finish()
            return self._file.finish(row_count, self._stream.size_bytes)

    def discard(self) -> None:
        """Give the file up, and raise nothing."""
        self._held, self._small, self.held_bytes = [], [], 0
        self._stream.detach()
        self._file.discard()


def _without_unseen(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch; or a copy, if it is a small part of rows that it would keep in memory."""
    if batch.get_total_buffer_size() <= 2 * batch.nbytes + _SMALL_BYTES:
        return batch
    return pa.ipc.read_record_batch(batch.serialize(), batch.schema)
