"""Files as the protocol sees them: identities that survive a rename, files of a published directory, their formats.

A file's name ends in its format, so that every reader can tell it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final, Self

from gobblin_assets.errors import RejectedError


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """The identity of a file: whether it is still the staged file, whatever its name is now.

    ``inode`` and ``mtime_ns`` are None where the file system has none; an HDFS file id is the inode of the
    cluster's namespace. ``tag`` is an object's ETag. The device number is left out on purpose: a remount changes it.
    """

    size_bytes: int
    inode: int | None = None
    mtime_ns: int | None = None
    tag: str | None = None

    def matches(self, other: "FileIdentity") -> bool:
        """Compare size, then each of the others that both sides know."""
        return (
            self.size_bytes == other.size_bytes
            and _agree(self.inode, other.inode)
            and _agree(self.mtime_ns, other.mtime_ns)
            and _agree(self.tag, other.tag)
        )


def _agree(mine: int | str | None, theirs: int | str | None) -> bool:
    return mine == theirs or mine is None or theirs is None


@dataclass(frozen=True, slots=True)
class FileStat:
    """One regular file found by a listing: its full path and identity."""

    path: str
    identity: FileIdentity


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file inside a directory that is published as one; ``name`` is relative to that directory."""

    name: str
    identity: FileIdentity
    row_count: int


@dataclass(frozen=True, slots=True)
class IdentityColumns:
    """The fields of ``FileIdentity``; the same place of each column is the same file."""

    sizes_bytes: Sequence[int]
    inodes: Sequence[int | None]
    mtimes_ns: Sequence[int | None]
    tags: Sequence[str | None]

    @classmethod
    def of(cls, identities: Sequence[FileIdentity]) -> Self:
        return cls(
            [each.size_bytes for each in identities],
            [each.inode for each in identities],
            [each.mtime_ns for each in identities],
            [each.tag for each in identities],
        )

    @property
    def columns(self) -> tuple[Sequence[object], ...]:
        return self.sizes_bytes, self.inodes, self.mtimes_ns, self.tags


class FileFormat(StrEnum):
    """The format of a file of rows. ``JSON``: lines of one object each. ``CSV``: RFC 4180, with a header line."""

    PARQUET = "parquet"
    JSON = "json"
    CSV = "csv"


GZIP_ENDING: Final = ".gz"

TEXT_COMPRESSIONS: Final = MappingProxyType({"gzip": GZIP_ENDING, "none": ""})
"""What text files may be compressed by, and the last ending of their names.

Every reader of text knows gzip, and a gzip file carries a checksum of its content. Spark decompresses zstd only through
Hadoop's native library, which most installations lack.
"""


def format_of(path: str) -> FileFormat:
    """The format of a published file, by its name's ending. A file without a known ending is Parquet."""
    name = path.removesuffix(GZIP_ENDING)
    return next((each for each in FileFormat if name.endswith(f".{each}")), FileFormat.PARQUET)


def name_ending(file_format: FileFormat, compression: str) -> str:
    """What the names of such files end in, such as ``.zstd.parquet`` or ``.json.gz``.

    RejectedError for a compression that text files can't have.
    """
    if file_format is FileFormat.PARQUET:
        return f".{compression}.{file_format}"
    if compression not in TEXT_COMPRESSIONS:
        raise RejectedError(
            f"files of {file_format} can't be compressed by {compression!r}",
            field="writer.compression",
            hint=f"Choose {' or '.join(TEXT_COMPRESSIONS)}: not every reader of text knows another.",
        )
    return f".{file_format}{TEXT_COMPRESSIONS[compression]}"
