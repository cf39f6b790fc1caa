"""Files as the protocol sees them: an identity that survives a rename, and entries of a published directory."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """Shows whether a file is still the staged file, whatever its name is now.

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
