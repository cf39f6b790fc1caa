"""Unsynced changes of a disk, one by one, and the content of a file whose content was lost."""

from dataclasses import replace
from enum import StrEnum
from typing import NamedTuple

from gobblin_assets.model.files import FileIdentity

Entry = tuple[int, str]
"""A directory's inode and a name in it."""


class ChangeKind(StrEnum):
    CREATE = "create"
    REMOVE = "remove"
    RENAME = "rename"
    EXCHANGE = "exchange"
    WRITE = "write"
    MODE = "mode"


class Unsynced(StrEnum):
    """The content of a file that lost it while its name survived; the last two only if it was never synced."""

    OLD = "old"
    """The content that was synced last, or nothing."""
    HALF = "half"
    ZEROS = "zeros"
    """Other content of the right length; an identity can't tell it from the right content."""


class PendingChange(NamedTuple):
    """A change that a power cut may undo. ``after``: the numbers of pending changes that it can't survive without.

    ``other``: the inode that an exchange moves the other way, from ``come`` to ``gone``.
    """

    number: int
    kind: ChangeKind
    inode: int
    path: str
    """The path at the time; for a rename, the new path."""
    gone: Entry | None = None
    come: Entry | None = None
    after: frozenset[int] = frozenset()
    old_path: str = ""
    other: int | None = None

    @property
    def moves(self) -> bool:
        """Whether a name that was there goes to another place."""
        return self.kind in (ChangeKind.RENAME, ChangeKind.EXCHANGE)

    def __str__(self) -> str:
        return f"{self.kind} {self.old_path + ' -> ' if self.old_path else ''}{self.path}"

    def is_about(self, entry: Entry | None) -> bool:
        return entry is not None and entry in (self.gone, self.come)

    def touches(self, directory: int) -> bool:
        gone, come = self.gone, self.come
        return (gone is not None and gone[0] == directory) or (come is not None and come[0] == directory)


class SimFile(NamedTuple):
    data: bytes
    synced: bytes | None
    identity: FileIdentity


def file_after_cut(file: SimFile, unsynced: Unsynced) -> SimFile:
    """The file after a power cut. Its inode and mtime stay, also with other content."""
    if file.synced == file.data:
        return file
    if file.synced is not None or unsynced is Unsynced.OLD:
        data = file.synced or b""
    elif unsynced is Unsynced.HALF:
        data = file.data[: len(file.data) // 2]
    else:
        data = bytes(len(file.data))
    return SimFile(data, data, replace(file.identity, size_bytes=len(data)))
