"""The port by which rows become files: new files below one place, each whole once it is finished.

``FilesInDirectory`` makes them in a directory of an attempt, which is published as a whole. ``rows.attempt_files``
makes them as uploads to a store, or as files that are renamed one by one. ``plan_file_rows_max`` says how many rows a
file gets, and ``reading_parquet`` opens the footer of one.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, BinaryIO, Final, Protocol

from pyarrow import ArrowException
from pyarrow import parquet as pq

from gobblin_assets.commit.steps import CommitStep
from gobblin_assets.errors import RetryableError
from gobblin_assets.fs.file_system import FileSystem
from gobblin_assets.model.files import DataFile, FileFormat, format_of


@contextmanager
def reading_parquet(fs: FileSystem, path: str) -> Iterator[pq.ParquetFile]:
    """In the block, an error of Arrow or of the file system is a RetryableError: the file can't be read."""
    try:
        with fs.open_input(path) as stream, pq.ParquetFile(stream) as file:
            yield file
    except (ArrowException, OSError) as error:
        raise RetryableError(f"{path} is no readable Parquet file: {error}", path=path) from error


def count_rows(fs: FileSystem, path: str) -> int:
    """The rows of one Parquet file, by its footer. RetryableError if it can't be read."""
    with reading_parquet(fs, path) as file:
        return int(file.metadata.num_rows)


@dataclass(frozen=True, slots=True)
class FinishedRows:
    """``step``: what publishes the file by itself; None: it is published with its directory."""

    file: DataFile
    step: CommitStep | None = None


class NewFile(Protocol):
    """A file that is being written. Call ``finish`` or ``discard`` at the end, once."""

    @property
    def path(self) -> str:
        """For errors."""
        ...

    @property
    def stream(self) -> BinaryIO: ...

    def finish(self, row_count: int, size_bytes: int) -> FinishedRows:
        """``row_count``: by the footer that was written, or as counted. ``size_bytes``: what the stream was given."""
        ...

    def discard(self) -> None:
        """Give the file up, and raise nothing. What is left of it is removed with its attempt."""
        ...


class NewFiles(Protocol):
    """A maker of files. ``partition_path`` is relative to the place, or ""; a name is unique in the attempt."""

    def create(self, partition_path: str, name: str) -> NewFile: ...


@dataclass(frozen=True, slots=True)
class FilesInDirectory:
    """``NewFiles`` below ``directory`` of ``fs``, which exists."""

    fs: FileSystem
    directory: str

    def create(self, partition_path: str, name: str) -> NewFile:
        directory = "/".join(filter(None, (self.directory, partition_path)))
        if partition_path:
            self.fs.make_directories(directory)
        path = f"{directory}/{name}"
        return _FileInDirectory(self.fs, path, self.fs.create_file(path))


@dataclass(frozen=True, slots=True)
class _FileInDirectory:
    fs: FileSystem
    path: str
    stream: BinaryIO

    def finish(self, row_count: int, size_bytes: int) -> FinishedRows:
        return FinishedRows(finish_file(self.fs, self.path, self.stream, row_count, size_bytes))

    def discard(self) -> None:
        # An error is being raised already: on a full disk, the close fails as well.
        with suppress(OSError):
            self.stream.close()


def finish_file(fs: FileSystem, path: str, stream: BinaryIO, row_count: int, size_bytes: int) -> DataFile:
    """Close the file, and look at what is there now. RetryableError if it is gone, or is not what was written.

    The rows of a Parquet file are those of its footer. A text file has no such place: its bytes are counted as they are
    written, and a file of as many bytes has as many rows. Reading all of it again would cost as much as the write.
    """
    stream.close()
    identity = fs.find_identity(path)
    if identity is None:
        raise RetryableError(f"{path} is gone, and it was written just now", path=path)
    if format_of(path) is not FileFormat.PARQUET:
        if identity.size_bytes != size_bytes:
            raise RetryableError(
                f"{path} has {identity.size_bytes:,} bytes, and {size_bytes:,} were written", path=path
            )
    elif (found := count_rows(fs, path)) != row_count:
        raise RetryableError(f"{path} holds {found:,} rows, and {row_count:,} were written", path=path)
    return DataFile(path.rpartition("/")[2], identity, row_count)


# Bytes of a value in Parquet before compression; for texts and the like, the guesses of Spark's own planner.
_FIXED_BYTES: Final = MappingProxyType(
    {
        "boolean": 0.125,
        "byte": 1.0,
        "short": 2.0,
        "integer": 4.0,
        "date": 4.0,
        "float": 4.0,
        "long": 8.0,
        "double": 8.0,
        "timestamp": 8.0,
        "timestamp_ntz": 8.0,
    }
)
_TEXT_BYTES: Final = 20.0
_DECIMAL_BYTES: Final = 16.0
_ELEMENTS: Final = 4


def plan_file_rows_max(schema: Mapping[str, Any], *, file_bytes_max: int, file_rows_max: int | None = None) -> int:
    """How many rows a file may have, so that it has about ``file_bytes_max`` at most.

    Computed from the widths of the types in ``schema``, Spark's JSON, before compression, which makes smaller files;
    only a column of long texts makes larger ones. Spark offers a bound by rows only. ``file_rows_max`` is a further
    bound, where it is given.
    """
    planned = max(1, int(file_bytes_max / max(_width(schema), 1.0)))
    return planned if file_rows_max is None else min(planned, file_rows_max)


def _width(data_type: Any) -> float:
    match data_type:
        case {"type": "struct", "fields": fields}:
            return sum(_width(column["type"]) for column in fields)
        case {"type": "array", "elementType": element}:
            return _ELEMENTS * _width(element)
        case {"type": "map", "keyType": key, "valueType": value}:
            return _ELEMENTS * (_width(key) + _width(value))
        case str() as name:
            return _DECIMAL_BYTES if name.startswith("decimal") else _FIXED_BYTES.get(name, _TEXT_BYTES)
        case _:
            return _TEXT_BYTES
