"""What a copy moves: Gobblin's CopyableFile, and the items that one rename publishes."""

from dataclasses import dataclass

from gobblin_assets.fs.placement import Placement
from gobblin_assets.fs.tree import TreeEntry


@dataclass(frozen=True, slots=True)
class Attributes:
    """What a staged file or directory gets before it is durable; None leaves what the system gives.

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


@dataclass(frozen=True, slots=True)
class Conversion:
    """How the bytes of an origin become a file. ``size_bytes``: an estimate of the work.

    ``steps``: the numbers of the converters in the dataset's chain. ``member``: the path in the archive that the last
    of them unpacks; empty if none does. ``member_steps``: those that take the member. ``parts``: the files and
    directories that are packed into one archive before ``steps``; empty if the origin is one file.
    """

    size_bytes: int
    steps: tuple[int, ...] = ()
    member: str = ""
    member_steps: tuple[int, ...] = ()
    parts: tuple[TreeEntry, ...] = ()


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
    chosen: Attributes = Attributes()


@dataclass(frozen=True, slots=True)
class CopyableFile:
    """One file to copy. ``path``: its place below the dataset's destination. ``origin.path``: below the source's root.

    ``origin`` is the file as it was planned: one that differs when it is read has changed, and fails. ``conversion``:
    what becomes of its bytes; None if they stay.
    """

    path: str
    origin: TreeEntry
    desired: Attributes = Attributes()
    conversion: Conversion | None = None

    @property
    def size_bytes(self) -> int:
        """The bytes to copy; of a file that is converted, about."""
        return self.origin.identity.size_bytes if self.conversion is None else self.conversion.size_bytes

    @property
    def archive(self) -> str | None:
        """The path of the archive from which it is unpacked."""
        return self.origin.path if self.conversion is not None and self.conversion.member else None


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
