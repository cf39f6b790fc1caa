"""The port of file systems on which files can be published at given names, beside and over what is there.

``fs.file_system`` is enough for names that are always new. At given names, each act moves a file between its name and a
place of the attempt's own directory, so that a process which was overtaken finds its places gone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, runtime_checkable

from gobblin_assets.errors import RejectedError
from gobblin_assets.fs.file_system import FileSystem, RenameOutcome
from gobblin_assets.fs.tree import TreeEntry
from gobblin_assets.model.files import FileIdentity


class ExchangeOutcome(StrEnum):
    """The result of an exchange. ONE_MISSING: one of the two names is not there, and nothing happened."""

    EXCHANGED = "exchanged"
    ONE_MISSING = "one_missing"


@dataclass(frozen=True, slots=True)
class NameLimits:
    """The limits of names, in bytes of UTF-8. None: there is no limit, or none is known."""

    name_bytes_max: int | None
    path_bytes_max: int | None


@runtime_checkable
class LimitedNames(Protocol):
    """A file system that says how long names may be."""

    def find_name_limits(self, directory: str) -> NameLimits:
        """The limits of names in ``directory``, which need not be there yet, and of full paths."""
        ...


@runtime_checkable
class SteppedTimes(Protocol):
    """A file system whose times may have coarser steps than those that it is given."""

    def find_time_step(self, directory: str) -> int:
        """The steps of modification times in ``directory``, in nanoseconds: 1 for exact ones. Leaves nothing behind."""
        ...


@runtime_checkable
class ClosedDirectories(Protocol):
    """A file system whose directories may have modes by which their owner has no right to write: they are closed."""

    def can_change_closed(self, directory: str) -> bool:
        """Whether this process may make entries in a closed directory of its own, and move it. Tried below
        ``directory``; leaves nothing behind.
        """
        ...

    def change_mode(self, path: str, inode: int, old: int, new: int, *, while_there: str | None = None) -> bool:
        """Give the directory at ``path`` the mode ``new``; whether it happened. Links are not followed.

        Nothing happens unless it has this inode and the mode ``old``, nor once the directory ``while_there`` is gone.
        Who else changes the mode between the look at it and the change is not noticed. The mode survives a power cut
        after ``sync_directories`` of the directory itself.
        """
        ...


@runtime_checkable
class NamedFiles(FileSystem, Protocol):
    """A ``FileSystem`` with the acts that given names need. Each has one effect, in one moment."""

    def find_entry(self, path: str) -> TreeEntry | None:
        """Whatever is at ``path``, a link or a directory too; None if nothing is. Links are not followed."""
        ...

    def find_files(self, directory: str, names: Sequence[str]) -> Sequence[FileIdentity | None]:
        """The regular file at each name below ``directory``; None if nothing is there, or something else.

        ``names`` may have slashes. Links are not followed.
        """
        ...

    def is_empty(self, directory: str) -> bool:
        """Whether a directory is there that holds nothing."""
        ...

    def exchange(self, one: str, other: str) -> ExchangeOutcome:
        """Let two files, or two directories, have each other's name.

        RejectedError where the file system can't do it; ``can_exchange`` asks before.
        """
        ...

    def can_exchange(self, directory: str) -> bool:
        """Whether names in ``directory`` can be exchanged. Leaves nothing behind."""
        ...

    def can_rename_into(self, source: str, target: str) -> bool:
        """Whether what is in the directory ``source`` can be renamed to names in ``target``. Changes nothing."""
        ...

    def rename_onto_empty(self, source: str, target: str) -> RenameOutcome:
        """Rename a directory to a name that is free, or whose directory is empty and gives way.

        TARGET_EXISTS for a file, a link or a directory with entries. The target's parent must exist.
        """
        ...

    def make_directory(self, path: str) -> bool:
        """Make one directory, whose parent exists; False if something is there. A missing parent is an error."""
        ...


def require_named_files(fs: FileSystem) -> NamedFiles:
    """RejectedError for a file system that has only the calls that new names need."""
    if isinstance(fs, NamedFiles):
        return fs
    raise RejectedError(
        f"the file system {fs.scheme} can't publish files at given names",
        field="destination",
        hint="Name a destination on a local disk or a mounted file system.",
    )


def require_closed_directories(fs: FileSystem) -> ClosedDirectories:
    """RejectedError for a file system on which no directory can be closed."""
    if isinstance(fs, ClosedDirectories):
        return fs
    raise RejectedError(
        f"the file system {fs.scheme} can't change the modes of directories",
        field="destination",
        hint="It could when the publication was sealed: use the same release for all processes.",
    )
