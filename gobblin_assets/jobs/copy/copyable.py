"""What a copy moves: Gobblin's CopyableFile, and the items that one rename publishes."""

from dataclasses import dataclass

from gobblin_assets.fs.tree import TreeEntry


@dataclass(frozen=True, slots=True)
class Attributes:
    """What a staged file or directory gets before it is durable; None leaves what the system gives.

    ``mtime_ns`` in nanoseconds since 1970. ``xattrs``: extended attributes by name; access control lists are among
    them, as ``system.posix_acl_access``.
    """

    mode: int | None = None
    owner: int | None = None
    group: int | None = None
    mtime_ns: int | None = None
    xattrs: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class CopyableFile:
    """One file to copy. ``path``: its place below the dataset's destination. ``origin.path``: below the source's root.

    ``origin`` is the file as it was planned: one that differs when it is read has changed, and fails.
    """

    path: str
    origin: TreeEntry
    desired: Attributes = Attributes()


@dataclass(frozen=True, slots=True)
class CopyItem:
    """What one rename publishes: a file, or a directory that is new as a whole.

    ``number`` is unique within the attempt and names the staged item. Of a file, ``files`` has that one. Of a
    directory, ``path`` is the directory's place, ``files`` are all files below it, and ``directories`` its
    subdirectories, parents first, by their paths relative to it; ``desired`` are the directory's own attributes.
    """

    number: int
    path: str
    files: tuple[CopyableFile, ...]
    is_directory: bool = False
    directories: tuple[tuple[str, Attributes], ...] = ()
    desired: Attributes = Attributes()
