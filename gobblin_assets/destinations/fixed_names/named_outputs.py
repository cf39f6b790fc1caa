"""Outputs that a copy stages for given names: the values from which ``given_names`` makes steps.

``number`` is unique within the attempt, and names the places of the output there. Paths are relative to the root of the
tree; those of objects to the dataset's place at the destination.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from gobblin_assets.fs.objects import UploadId, UploadPart
from gobblin_assets.model.files import DataFile, FileIdentity, IdentityColumns


@dataclass(frozen=True, slots=True)
class FilesAtNames:
    """Staged files, a place of each column for each. ``replaces``: the files that are at the names; None: the names
    are free.

    ``is_metadata``: they are published after the other files, because they say that these are there.
    """

    numbers: Sequence[int]
    paths: Sequence[str]
    writers: Sequence[str]
    identities: IdentityColumns
    replaces: IdentityColumns | None = None
    is_metadata: bool = False


@dataclass(frozen=True, slots=True)
class DirectoryAtName:
    """A staged directory that is new as a whole; ``files`` are all below it, by names relative to it.

    ``is_metadata``: as in ``FilesAtNames``, of all of them.
    """

    number: int
    path: str
    writer: str
    inode: int
    files: tuple[DataFile, ...]
    is_metadata: bool = False


@dataclass(frozen=True, slots=True)
class ParentDirectory:
    """A staged empty directory, for the case that none is at its name."""

    number: int
    path: str


@dataclass(frozen=True, slots=True)
class FilesToRemove:
    """Files to remove, by their identities. ``make_way``: something of another kind is published at their names, or at
    that of a directory above them.
    """

    numbers: Sequence[int]
    paths: Sequence[str]
    identities: IdentityColumns
    make_way: bool = False


@dataclass(frozen=True, slots=True)
class DirectoryToClear:
    """A directory that is empty once ``FilesToRemove`` made way, and all directories below it were cleared."""

    number: int
    path: str


@dataclass(frozen=True, slots=True)
class ClosedDirectory:
    """A directory whose mode lets its owner not write: it is opened before all else, and closed again behind it.

    ``mode``: the closed one. ``inode`` None: that of any directory at the name.
    """

    path: str
    mode: int
    inode: int | None = None


NamedOutput = FilesAtNames | DirectoryAtName | ParentDirectory | FilesToRemove | DirectoryToClear | ClosedDirectory


def published_place(root: str, path: str) -> str:
    """Full path of what is published at ``path`` of the dataset. Directories above the dataset's begin with ``..``.

    No call may walk over ``..``: while the dataset's directory is missing, such a path leads nowhere.
    """
    while path == ".." or path.startswith("../"):
        root, path = root.rpartition("/")[0], path[3:]
    return f"{root}/{path}" if path else root


@dataclass(frozen=True, slots=True)
class StagedUpload:
    """An upload with all of its parts. ``number`` is that of its output."""

    number: int
    upload: UploadId
    parts: tuple[UploadPart, ...]


@dataclass(frozen=True, slots=True)
class ObjectAtName:
    """A staged object. ``replaces``: the object that is at its name; None: the name is free.

    ``identity``: its length and the time of its origin. ``is_metadata``: it is published after the other objects.
    """

    path: str
    staged: StagedUpload
    identity: FileIdentity
    replaces: FileIdentity | None = None
    is_metadata: bool = False


@dataclass(frozen=True, slots=True)
class ObjectToRemove:
    """An object to remove, by its ETag. ``staged``: the mark that takes its place before."""

    path: str
    staged: StagedUpload
    identity: FileIdentity


NamedObject = ObjectAtName | ObjectToRemove
