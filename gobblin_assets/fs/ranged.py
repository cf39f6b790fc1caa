"""The port of file systems whose files are read by ranges, over a network: sources of copies."""

from typing import Protocol, runtime_checkable

from gobblin_assets.fs.tree import Tree
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
        """As ``source_trees.open_ranged`` takes it; characters stand for themselves."""
        ...

    def find_file(self, path: str) -> FileIdentity | None:
        """Of the file; None if there is none."""
        ...

    def open_ranged(self, path: str, identity: FileIdentity) -> RangedFile:
        """The file of this identity. RetryableError if it is missing or another version, at the latest when it is read.

        An empty file, of which nothing is read, is proved here, and its end too.
        """
        ...
