"""The port of formats: what makes the bytes of one file of rows."""

import io
from typing import Any, BinaryIO, Final, Protocol

import pyarrow as pa
from pyarrow import parquet as pq

from gobblin_assets.model.files import FileFormat
from gobblin_assets.rows.text_rows import open_csv_rows, open_json_rows
from gobblin_assets.spark.spark_settings import SPARK_VERSION

# By this, Spark knows that dates and times are in the calendar that it uses itself, and shifts none.
_METADATA: Final = {"org.apache.spark.version": SPARK_VERSION}


class RowEncoder(Protocol):
    """Writes rows to a stream that it does not close."""

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
    """Counts the bytes on their way to another stream, which stays open when this one is closed."""

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
