"""The port of file systems on which a copy's writers make files over a network, and not by descriptors."""

from typing import Protocol, runtime_checkable

from gobblin_assets.fs.placement import Placement
from gobblin_assets.fs.tree import TreeEntry


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
    """Every path is below a directory that exists and is its caller's own. A missing parent is never made.

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
