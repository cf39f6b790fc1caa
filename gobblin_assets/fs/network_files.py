"""The ports of file systems over a network: sources of copies, read by ranges, and places where writers make files."""

from typing import Protocol, runtime_checkable

from gobblin_assets.fs.tree import Placement, Tree, TreeEntry
from gobblin_assets.model.files import FileIdentity


class RangedFile(Protocol):
    """One version of a file."""

    def read_at(self, offset: int, size_bytes: int) -> bytes:
        """These bytes, at least one and none behind the end. RetryableError if the file is another version now.

        The read that reaches the end proves it: RejectedError if the version goes on, or has ended before.
        """
        ...

    def close(self) -> None: ...


@runtime_checkable
class RangedFiles(Tree, Protocol):
    """A listed tree whose files can be read by ranges. Writers in other processes open it again by its URI."""

    @property
    def has_owners(self) -> bool:
        """Whether its entries have numbers of owners and groups."""
        ...

    def to_uri(self, path: str) -> str:
        """The URI as ``registry.open_ranged`` takes it; characters stand for themselves."""
        ...

    def find_file(self, path: str) -> FileIdentity | None:
        """The identity of the file; None if there is none."""
        ...

    def open_ranged(self, path: str, identity: FileIdentity) -> RangedFile:
        """The file of this identity. RetryableError if it is missing or another version, at the latest when it is read.

        An empty file, of which nothing is read, is proved here, and its end too.
        """
        ...


class StagedStream(Protocol):
    """A new file that is being written. It counts once ``finish`` has returned."""

    def write(self, content: bytes, /) -> int: ...

    def finish(self) -> None:
        """Return once all bytes survive a power cut."""
        ...

    def abandon(self) -> None:
        """Write no more. What is there stays as it is."""
        ...


@runtime_checkable
class StagingFiles(Protocol):
    """A file system on which a copy's writers make files by streams, and not by descriptors.

    Every path is below a directory that exists and is its caller's own. A missing parent is never made.

    RetryableError if the parent is gone: another owner took it. ConflictError if something is at the path.
    """

    def to_uri(self, path: str) -> str: ...

    def create_staged(self, path: str, mode: int | None, placement: Placement | None = None) -> StagedStream:
        """``mode``: the permission bits; None: as the file system gives them. ``placement``: how bytes are stored."""
        ...

    def make_staged_directory(self, path: str, mode: int | None) -> None: ...

    def set_attributes(
        self, path: str, mode: int | None, mtime_ns: int | None, placement: Placement | None = None
    ) -> TreeEntry:
        """Give what is at ``path`` these permission bits, this time, and the owner and the group of ``placement``.

        Returns its entry. RejectedError names ``preserve`` if this user may not give it its owner.
        """
        ...
