"""Rows as data files of a table. Nothing refers to them until a commit does.

pyiceberg's own file systems don't sync. A catalog that survives a power cut would then name files that are empty or
gone. So each file is synced, with the directories above it, before it counts as written.
"""

import os
import posixpath
import uuid
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from io import BufferedWriter, FileIO
from types import MappingProxyType
from typing import Final

import pyarrow as pa
from pyiceberg.catalog import WAREHOUSE_LOCATION
from pyiceberg.io import InputFile, OutputFile, OutputStream
from pyiceberg.io.pyarrow import ParquetFormatWriter, PyArrowFileIO, schema_to_pyarrow
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table, TableProperties
from pyiceberg.typedef import Record
from pyiceberg.utils.properties import property_as_int

from gobblin_assets.errors import RejectedError, RetryableError
from gobblin_assets.fs.posix_sync import sync_directory
from gobblin_assets.model.path_names import list_upwards

_GROUP_BYTES: Final = 64 << 20
"""Rows in memory before they are written."""


@dataclass(slots=True)
class DataFiles:
    """The files that one try has written. ``row_count``: of all of them."""

    table: Table
    files: list[DataFile] = field(default_factory=list)
    row_count: int = 0
    _paths: list[str] = field(default_factory=list)
    _writer: ParquetFormatWriter | None = None
    _size_bytes: int = 0

    def write(self, rows: Iterable[pa.RecordBatch]) -> None:
        """Write all rows. Files are cut at the table's target size, which pyiceberg counts in memory, too."""
        bytes_max = property_as_int(
            self.table.properties,
            TableProperties.WRITE_TARGET_FILE_SIZE_BYTES,
            TableProperties.WRITE_TARGET_FILE_SIZE_BYTES_DEFAULT,
        )
        columns = schema_to_pyarrow(self.table.schema())
        for group in _gather(rows):
            writer = self._writer = self._writer or self._open()
            writer.write(_fit(str(self.table.name()[-1]), group, columns))
            self.row_count += group.num_rows
            self._size_bytes += group.nbytes
            if self._size_bytes >= (bytes_max or 0):
                self._end()
        self._end()

    def _open(self) -> ParquetFormatWriter:
        name = f"{len(self._paths):05}-0-{uuid.uuid4()}.parquet"
        path = self.table.location_provider().new_data_location(name)
        output = self.table.io.new_output(path)
        self._paths.append(path)
        return ParquetFormatWriter(output, self.table.schema(), self.table.properties)

    def _end(self) -> None:
        if self._writer is None:
            return
        statistics = self._writer.close()
        self._writer, self._size_bytes = None, 0
        path = self._paths[-1]
        self.files.append(
            DataFile.from_args(
                content=DataFileContent.DATA,
                file_path=path,
                file_format=FileFormat.PARQUET,
                partition=Record(),
                file_size_in_bytes=len(self.table.io.new_output(path)),
                sort_order_id=None,
                spec_id=self.table.metadata.default_spec_id,
                equality_ids=None,
                key_metadata=None,
                **statistics.to_serialized_dict(),
            )
        )

    def remove(self) -> None:
        """Remove the files, to which surely nothing refers."""
        with suppress(Exception):
            if self._writer is not None:
                self._writer.close()
        for path in self._paths:
            with suppress(OSError):
                self.table.io.delete(path)


def _gather(rows: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The same rows in larger pieces: each piece becomes a row group."""
    waiting: list[pa.RecordBatch] = []
    for batch in rows:
        # Staged files of one publication may have different columns.
        if waiting and (
            batch.schema != waiting[0].schema or sum(each.nbytes for each in waiting) + batch.nbytes > _GROUP_BYTES
        ):
            yield pa.Table.from_batches(waiting)
            waiting = []
        if batch.num_rows:
            waiting.append(batch)
    if waiting:
        yield pa.Table.from_batches(waiting)


def _fit(name: str, rows: pa.Table, columns: pa.Schema) -> pa.Table:
    """The rows with the table's columns, types and field ids; a column that they lack is null."""
    if lacking := set(rows.schema.names) - set(columns.names):
        raise RetryableError(f"{name} has lost the columns {', '.join(sorted(map(ascii, lacking)))}")
    fitted = []
    for column in columns:
        at = rows.schema.get_field_index(column.name)
        try:
            values = pa.nulls(rows.num_rows, column.type) if at < 0 else rows.column(at).cast(column.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
            # Without Arrow's text, which may hold a value.
            raise RejectedError(
                f"{name} has the column {column.name!a} as {column.type}, which does not hold a value of the rows' "
                f"{rows.schema.field(at).type}",
                field="into",
                hint="Give the column another name or type, or cast the rows by a converter.",
            ) from None
        fitted.append(values)
    return pa.Table.from_arrays(fitted, schema=columns)


_FILE: Final = "file"
_ALIASES: Final = MappingProxyType({"s3a": "s3", "s3n": "s3"})


class DurableFiles(PyArrowFileIO):
    """Files on a disk, and objects of a store, which are durable once they are there."""

    def new_output(self, location: str) -> OutputFile:  # type: ignore[override]  # pyiceberg promises its own class
        scheme, path = self._parse(location)
        home_scheme, home = self._parse(self.properties[WAREHOUSE_LOCATION])
        if scheme != home_scheme or not path.startswith(f"{home}/"):
            raise RejectedError(
                f"the table has files at {scheme}:{path}, outside of the warehouse",
                field="into",
                hint="Name a namespace in which the table stands in the warehouse, or does not exist yet.",
            )
        if scheme != _FILE:
            return super().new_output(location)
        # Also the directories that were perhaps made for the file, up to that of all tables.
        return _DurableFile(location, self, path, list_upwards([posixpath.dirname(path)], home))

    def _parse(self, location: str) -> tuple[str, str]:
        scheme, _netloc, path = self.parse_location(location, self.properties)
        return _ALIASES.get(scheme, scheme), posixpath.normpath(path)


class _DurableFile(OutputFile):
    def __init__(self, location: str, files: DurableFiles, path: str, directories: list[str]) -> None:
        super().__init__(location)
        self._files, self._path, self._directories = files, path, directories

    def __len__(self) -> int:
        return os.stat(self._path).st_size  # noqa: PTH116  a text, as Iceberg has it

    def exists(self) -> bool:
        return os.path.exists(self._path)  # noqa: PTH110  the same

    def to_input_file(self) -> InputFile:
        return self._files.new_input(self.location)

    def create(self, overwrite: bool = False) -> OutputStream:  # noqa: FBT001, FBT002  pyiceberg's signature
        os.makedirs(self._directories[0], exist_ok=True)  # noqa: PTH103  the same
        return _DurableStream(FileIO(self._path, "wb" if overwrite else "xb"), self._directories)


class _DurableStream(BufferedWriter):
    def __init__(self, raw: FileIO, directories: list[str]) -> None:
        super().__init__(raw)
        self._directories = directories

    def close(self) -> None:
        if self.closed:
            return
        try:
            self.flush()
            os.fsync(self.fileno())
        finally:
            super().close()
        for directory in self._directories:
            sync_directory(directory)
