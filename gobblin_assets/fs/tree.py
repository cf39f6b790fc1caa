"""Directory trees as copies see them: every entry, of every kind, with its attributes.

A length is where a reader expects the end. Some file systems give another: in ``/proc`` all files have 0 bytes, in
``/sys`` 4,096. Only a read behind the length shows that the end is there.
"""

import os
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Final, Protocol, TypeVar, runtime_checkable

from gobblin_assets.errors import RejectedError
from gobblin_assets.model.files import FileIdentity

_Level = TypeVar("_Level")

PLACEMENTS_KEPT_MAX: Final = 1_024

Descend = Callable[[str], bool]
"""Whether a listing shall give what is below the directory of this path, relative to the tree's root."""


@dataclass(frozen=True, slots=True)
class Placement:
    """The placement of a file, which distributed file systems keep besides: owners by name, and how bytes are stored.

    ``replication``: how many copies there are of each block. ``block_bytes``: the size of all blocks but the last.

    None: it is not known, or shall be as the file system gives it.
    """

    owner: str | None = None
    group: str | None = None
    replication: int | None = None
    block_bytes: int | None = None

    def over(self, others: "Placement") -> "Placement":
        """The placement with what is None here taken from the others."""
        return make_placement(
            others.owner if self.owner is None else self.owner,
            others.group if self.group is None else self.group,
            others.replication if self.replication is None else self.replication,
            others.block_bytes if self.block_bytes is None else self.block_bytes,
        )


@lru_cache(PLACEMENTS_KEPT_MAX)
def make_placement(owner: str | None, group: str | None, replication: int | None, block_bytes: int | None) -> Placement:
    """One for all files that have the same: a listing may give a million."""
    return Placement(owner, group, replication, block_bytes)


AS_GIVEN: Final = make_placement(None, None, None, None)


@runtime_checkable
class PlacedEntries(Protocol):
    """A tree whose entries have placements."""

    @property
    def has_placements(self) -> bool: ...


class EntryKind(StrEnum):
    """SPECIAL: a device, a socket or a pipe."""

    FILE = "file"
    DIRECTORY = "directory"
    LINK = "link"
    SPECIAL = "special"


DIRECTORIES_AND_LINKS: Final = frozenset({EntryKind.DIRECTORY, EntryKind.LINK})


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """One entry of a listed tree. ``path`` is relative to the tree's root, with ``/`` between its names.

    ``mode``: the permission bits. ``owner`` and ``group`` are numbers. ``mode``, ``owner`` and ``group`` are None where
    a file system has none. ``placement``: what a distributed one gives besides, owners by name among it.
    ``changed_ns``: when bytes, attributes or links changed last, which nobody can set; None where it is unknown. It is
    no part of the identity, since a rename changes it.
    """

    path: str
    kind: EntryKind
    identity: FileIdentity
    mode: int | None = None
    owner: int | None = None
    group: int | None = None
    placement: Placement | None = None
    changed_ns: int | None = None


class Tree(Protocol):
    """A file system whose trees can be listed."""

    @property
    def mtime_precision_ns(self) -> int:
        """The steps in which the file system keeps modification times, in nanoseconds."""
        ...

    def list_tree(self, root: str, descend: Descend | None = None) -> Iterator[TreeEntry]:
        """All entries below ``root``, ascending by the UTF-8 bytes of ``sort_key``; links are not followed.

        So a directory stands directly before everything below it, and behind a file ``a.txt`` if its name is ``a``.
        ``descend`` is asked with the path of each directory: False leaves out what is below it, not the directory.

        Memory is bounded by the largest directory and the depth, not by the tree. An entry that disappears meanwhile is
        left out. RejectedError names ``root`` if it is missing, is no directory, or can't be read, and every entry
        below it that can't be read or whose name is not UTF-8. RetryableError: an entry changed its kind meanwhile.
        """
        ...


@runtime_checkable
class ListedFiles(Protocol):
    """A file system that has trees."""

    def open_tree(
        self, option: str, *, hidden: frozenset[str], follow_links: bool, order: Callable[[str], str] | None = None
    ) -> Tree:
        """``option``: where a person wrote the root, for errors. ``hidden``: names of directories directly below a root
        that are never listed, nor are links to them; files of such names are. A directory of such a name further down
        is a RejectedError, unless ``descend`` leaves it out.
        ``follow_links``: a link is given as what it leads to, which must be below the root and not hidden.
        ``order``: listings are ascending by what it gives for a path, and not by the path; RejectedError if they can't.
        """
        ...


@runtime_checkable
class ListedWithoutFiles(Protocol):
    """A tree that can be listed without a look at its files."""

    def list_without_files(self, root: str, descend: Descend | None = None) -> Iterator[TreeEntry]:
        """As ``list_tree``, but regular files may be left out, whatever their names are."""
        ...


@runtime_checkable
class FoundEntries(Protocol):
    """A tree that can look at single entries."""

    def find_entry(self, path: str) -> TreeEntry | None:
        """Whatever is at a full path, links as the tree takes them; None if nothing is."""
        ...


@runtime_checkable
class LinkedPlaces(Protocol):
    """A tree in which links may stand on the way to a place."""

    def find_link_target(self, path: str) -> str | None:
        """The place to which the link at a full path leads, through all others; None if no link is there.

        RejectedError if it leads nowhere, or can't be followed.
        """
        ...

    def find_real_path(self, path: str) -> str:
        """The same place by a path without links."""
        ...


@runtime_checkable
class MountedPlaces(Protocol):
    """A tree below which other file systems may be mounted."""

    def find_mounts(self, root: str) -> Mapping[str, str]:
        """By path below ``root``, "" for its own: which file system is mounted there, as a text to compare."""
        ...


def list_without_files(tree: Tree, root: str, descend: Descend | None = None) -> Iterator[TreeEntry]:
    """The directories of a tree, for those who want no files.

    Files come where the tree can't do without a look at them.
    """
    return (tree.list_without_files if isinstance(tree, ListedWithoutFiles) else tree.list_tree)(root, descend)


def walk_levels(
    levels: list[_Level], list_level: Callable[[_Level], Generator[TreeEntry, None, _Level | None]]
) -> Iterator[TreeEntry]:
    """The entries of the directories on the way to where a listing is; ``levels`` has the root at first.

    ``list_level``: the entries up to the next directory that is descended into, which is returned; None at the end.
    """
    while levels:
        below = yield from list_level(levels[-1])
        if below is None:
            levels.pop()
        else:
            levels.append(below)


def is_hidden(entry: TreeEntry, hidden: frozenset[str]) -> bool:
    """Whether an entry directly below a root is left out for its name: a directory, or a link to one."""
    return entry.path in hidden and entry.kind in DIRECTORIES_AND_LINKS


def sort_key(entry: TreeEntry) -> str:
    """The path, with ``/`` behind that of a directory. Python compares texts as their UTF-8 bytes compare."""
    return f"{entry.path}/" if entry.kind is EntryKind.DIRECTORY else entry.path


def is_utf8_name(name: str) -> bool:
    """Whether the name came from UTF-8: other bytes are lone surrogates in names of files, and in keys of stores."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def wrong_length(path: str, told_bytes: int, *, has_more: bool) -> RejectedError:
    """The refusal of a source's file that is as it was planned, and has other bytes than it says."""
    return RejectedError(
        f"{path} says {told_bytes:,} bytes, and has {'more' if has_more else 'fewer'}",
        field="source",
        hint="Its file system does not tell lengths, as /proc: exclude the file, or copy it to a disk first.",
        path=path,
    )


def require_end(descriptor: int, path: str, told_bytes: int) -> None:
    """RejectedError if the file goes on behind the bytes that it says. OSError as the system gives it."""
    if os.pread(descriptor, 1, told_bytes):
        raise wrong_length(path, told_bytes, has_more=True)


def require_length(descriptor: int, path: str, told_bytes: int) -> None:
    """The same, and if it ends before."""
    require_end(descriptor, path, told_bytes)
    if told_bytes and not os.pread(descriptor, 1, told_bytes - 1):
        raise wrong_length(path, told_bytes, has_more=False)
