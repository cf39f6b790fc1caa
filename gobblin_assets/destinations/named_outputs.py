"""What a copy stages for names that are given: the values from which ``named_tree`` makes steps.

``number`` is unique within the attempt, and names the places of the output there. Paths are relative to the root of the
tree.
"""

from dataclasses import dataclass

from gobblin_assets.model.files import DataFile, FileIdentity


@dataclass(frozen=True, slots=True)
class FileAtName:
    """A staged file. ``replaces``: the identity of the file that stands at its name; None: the name is free.

    ``is_metadata``: it is published after the other files, because it says that these are there.
    """

    number: int
    path: str
    writer: str
    identity: FileIdentity
    replaces: FileIdentity | None = None
    is_metadata: bool = False


@dataclass(frozen=True, slots=True)
class DirectoryAtName:
    """A staged directory that is new as a whole; ``files`` are all below it, by names relative to it."""

    number: int
    path: str
    writer: str
    inode: int
    files: tuple[DataFile, ...]


@dataclass(frozen=True, slots=True)
class ParentDirectory:
    """A staged empty directory, for the case that none is at its name."""

    number: int
    path: str


@dataclass(frozen=True, slots=True)
class FileToRemove:
    """A file to remove, by its identity."""

    number: int
    path: str
    identity: FileIdentity


NamedOutput = FileAtName | DirectoryAtName | ParentDirectory | FileToRemove


def published_place(root: str, path: str) -> str:
    """Full path of what is published at ``path`` of the dataset. Directories above the dataset's begin with ``..``.

    No call may walk over ``..``: while the dataset's directory is missing, such a path leads nowhere.
    """
    while path == ".." or path.startswith("../"):
        root, path = root.rpartition("/")[0], path[3:]
    return f"{root}/{path}" if path else root
