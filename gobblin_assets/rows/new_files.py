"""The port by which rows become files: new files below one place, each whole once it is finished.

``FilesInDirectory`` makes them in a directory of an attempt, which is published as a whole. ``rows.uploads`` makes them
as uploads to a store, and ``rows.renamed_files`` as files that are renamed one by one.
"""

from contextlib import suppress
from dataclasses import dataclass
from typing import BinaryIO, Protocol

from gobblin_assets.commit.steps import CommitStep
from gobblin_assets.errors import RetryableError
from gobblin_assets.fs.file_system import FileSystem
from gobblin_assets.model.files import DataFile, FileFormat, format_of
from gobblin_assets.rows.footers import count_rows


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
    """Makes files. ``partition_path`` is relative to the place, or ""; a name is unique in the attempt."""

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
