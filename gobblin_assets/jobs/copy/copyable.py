"""Files to copy (Gobblin's CopyableFile), the items that one rename publishes, and the datasets that finders find.
A plan may have a million files. They are named tuples, which are small, quickly made, and quickly sent to writers.
"""

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol, Self

from gobblin_assets.fs.tree import EntryKind, Placement, Tree, TreeEntry
from gobblin_assets.model.files import FileIdentity
from gobblin_assets.model.partition import PartitionWindow

WHOLE_TREE: Final = "tree"
"""The name of a dataset that is all of the source's root."""


class Attributes(NamedTuple):
    """The attributes that a staged file or directory gets before it is durable; None leaves what the system gives.

    ``mtime_ns`` in nanoseconds since 1970. ``xattrs``: extended attributes by name; access control lists are among
    them, as ``system.posix_acl_access``. ``placement``: of a destination that takes one.
    """

    mode: int | None = None
    owner: int | None = None
    group: int | None = None
    mtime_ns: int | None = None
    xattrs: tuple[tuple[str, bytes], ...] = ()
    placement: Placement | None = None

    def over(self, others: "Attributes") -> "Attributes":
        """These, and of the others what is None here."""
        return Attributes(
            others.mode if self.mode is None else self.mode,
            others.owner if self.owner is None else self.owner,
            others.group if self.group is None else self.group,
            others.mtime_ns if self.mtime_ns is None else self.mtime_ns,
            self.xattrs or others.xattrs,
            self.placement or others.placement,
        )


NO_ATTRIBUTES: Final = Attributes()
"""All as the system gives it."""


class PackedOrigin(NamedTuple):
    """A file or directory of the source that is packed into an archive, as it was planned.

    ``path``: below the source's root. ``changed_ns``: its ctime; None where it is not known.
    """

    path: str
    is_directory: bool
    size_bytes: int
    inode: int | None = None
    mtime_ns: int | None = None
    changed_ns: int | None = None
    mode: int | None = None

    @classmethod
    def of(cls, entry: TreeEntry) -> Self:
        found = entry.identity
        is_directory = entry.kind is EntryKind.DIRECTORY
        return cls(
            entry.path, is_directory, found.size_bytes, found.inode, found.mtime_ns, entry.changed_ns, entry.mode
        )


class Conversion(NamedTuple):
    """The way on which the bytes of an origin become a file. ``size_bytes``: an estimate of the work.

    ``steps``: the numbers of the converters in the dataset's chain. ``member``: the path in the archive that the last
    of them unpacks; empty if none does. ``member_steps``: those that take the member. ``parts``: the files and
    directories that are packed into one archive before ``steps``; empty if the origin is one file.
    """

    size_bytes: int
    steps: tuple[int, ...] = ()
    member: str = ""
    member_steps: tuple[int, ...] = ()
    parts: tuple[PackedOrigin, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertedEntry(TreeEntry):
    """An entry of a source as it is after conversion, or with other attributes. ``origin``: what stands in the source.

    ``identity`` has the origin's time, or the chosen one. ``has_length``: whether its length is the file's.
    ``is_archive``: a directory that one archive fills, which is published whole. ``conversion``: of a file. ``chosen``:
    attributes that the copy gets whatever the origin has; None leaves those of the origin.
    """

    origin: TreeEntry
    conversion: Conversion | None = None
    has_length: bool = False
    is_archive: bool = False
    chosen: Attributes = NO_ATTRIBUTES


class PlannedFile(NamedTuple):
    """A file to copy. ``path``: its place below the dataset's destination. ``origin``: its path below the source.

    ``size_bytes`` to ``changed_ns``, which is the ctime: the origin as it was planned, None where something is not
    known. An origin that differs when it is read has changed, and fails. ``conversion``: what becomes of its bytes;
    None if they stay.
    """

    path: str
    origin: str
    size_bytes: int
    inode: int | None = None
    mtime_ns: int | None = None
    tag: str | None = None
    changed_ns: int | None = None
    desired: Attributes = NO_ATTRIBUTES
    conversion: Conversion | None = None

    @classmethod
    def of(
        cls,
        path: str,
        origin: TreeEntry,
        desired: Attributes = NO_ATTRIBUTES,
        conversion: Conversion | None = None,
    ) -> Self:
        """``origin``: what the source has."""
        found = origin.identity
        return cls(
            path,
            origin.path,
            found.size_bytes,
            found.inode,
            found.mtime_ns,
            found.tag,
            origin.changed_ns,
            desired,
            conversion,
        )

    @property
    def identity(self) -> FileIdentity:
        """The origin's."""
        return FileIdentity(self.size_bytes, self.inode, self.mtime_ns, self.tag)

    @property
    def work_bytes(self) -> int:
        """The bytes to copy; of a file that is converted, about."""
        return self.size_bytes if self.conversion is None else self.conversion.size_bytes

    @property
    def archive(self) -> str | None:
        """The path of the archive from which it is unpacked."""
        return self.origin if self.conversion is not None and self.conversion.member else None


class CopyItem(NamedTuple):
    """One name that is published by one rename: a file, or a directory that is new as a whole.

    ``number`` is unique within the attempt and names the staged item. Of a file, ``files`` has that one. Of a
    directory, ``path`` is the directory's place, ``files`` are all files below it, and ``directories`` its
    subdirectories, parents first, by their paths relative to it; ``desired`` are the directory's own attributes.
    """

    number: int
    path: str
    files: tuple[PlannedFile, ...]
    is_directory: bool = False
    directories: tuple[tuple[str, Attributes], ...] = ()
    desired: Attributes = NO_ATTRIBUTES

    def place_of(self, file: PlannedFile) -> str:
        """The path of a file of this directory, relative to it."""
        return file.path[len(self.path) + 1 :] if self.path else file.path


@dataclass(frozen=True, slots=True)
class NamedFile:
    """A file that a manifest names by its path below the dataset's source.

    ``attributes``: what the copy shall have, where they are not None. ``is_deleted``: it is removed at the destination.
    """

    path: str
    attributes: Attributes = field(default_factory=Attributes)
    is_deleted: bool = False


@dataclass(frozen=True, slots=True)
class FileSet:
    """Files that one sequence publishes: all below ``directory``, or those of ``files`` alone if there are any.

    ``key``: the partition's key, or a manifest's word; empty for a dataset that is one set. ``directory`` is relative
    to the dataset's source and to its destination alike; empty for all of it. ``window``: the time of a partition.
    """

    key: str
    directory: str = ""
    window: PartitionWindow | None = None
    files: tuple[NamedFile, ...] = ()


@dataclass(frozen=True, slots=True)
class CopyableDataset:
    """A dataset. ``source`` is relative to the root in which it was found, ``destination`` to the job's destination."""

    name: str
    source: str
    destination: str
    file_sets: tuple[FileSet, ...]


class DatasetFinder(Protocol):
    """A finder of a job's datasets; a package may offer more kinds of finders, see ``finders``."""

    def find_datasets(self, tree: Tree, root: str, now: dt.datetime) -> Sequence[CopyableDataset]:
        """The datasets below ``root``, ascending by name; their sources do not lie inside one another.

        ``now`` is aware. RejectedError says what a person must correct, and errors of the tree pass.
        """
        ...
