"""The port that every file system implements, and that the commit protocol and the writers use.

Paths are absolute, in the file system's own spelling, without a scheme. Every method either succeeds or raises one of
the families of ``errors``: ``RejectedError``: a person must act (a read-only or missing destination, no permission).
``RetryableError``: the same call may succeed later (a full disk, an I/O error before anything happened).
``OutcomeUnknownError``: the call may have taken effect. A missing source and an existing target are answers, not
errors: see ``RenameOutcome``.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from enum import StrEnum
from typing import BinaryIO, Final, Protocol, runtime_checkable

from gobblin_assets.errors import ConflictError
from gobblin_assets.model.files import FileIdentity, FileStat

PROBE_PREFIX: Final = ".gobblin-probe-"
"""Hidden from readers; a killed probe leaves a few bytes under such a name, and a later probe removes them."""

LEFT_BEHIND_S: Final = 3_600.0
"""A probe takes seconds, so what is older belongs to no living probe."""

PROBE_TRIES_MAX: Final = 5
"""Two first runs may probe one destination at once, and one removes the directories that it made."""


class RenameOutcome(StrEnum):
    """The result of a rename that never replaces."""

    RENAMED = "renamed"
    SOURCE_MISSING = "source_missing"
    TARGET_EXISTS = "target_exists"


class FileSystem(Protocol):
    """Primitives with one effect each; a crash falls before or after that effect."""

    @property
    def scheme(self) -> str:
        """Such as ``file``; URIs of this file system start with ``<scheme>://``."""
        ...

    def to_uri(self, path: str) -> str:
        """The path as Spark and other readers take it; percent-encoded only where these readers decode it."""
        ...

    def find_identity(self, path: str) -> FileIdentity | None:
        """The identity of a regular file; None if nothing is there. ConflictError if a directory is there."""
        ...

    def is_directory(self, path: str) -> bool:
        """Whether a directory is there now. A symbolic link there is a ConflictError."""
        ...

    def list_files(self, directory: str) -> Sequence[FileStat]:
        """All regular files below ``directory``, at any depth, in path order; empty when it isn't there.

        ConflictError for a symbolic link or a special file inside: our code makes none.
        """
        ...

    def open_input(self, path: str) -> BinaryIO:
        """A seekable stream of the file's bytes, for footers and the like."""
        ...

    def create_file(self, path: str) -> BinaryIO:
        """A stream into a new file, whole once it is closed. Its parent must exist; a file there is a ConflictError."""
        ...

    def make_directories(self, directory: str) -> None:
        """Make the directory and its missing parents, unless it exists (ConflictError if a file is there)."""
        ...

    def make_destination(self, root: str) -> None:
        """Make a destination's root, unless it exists, and return once its name survives a power cut.

        An existing root is synced too, because the process that made it may have died before. Directories above the
        root are synced if this process may open them; it can't have made anything in the others.
        """
        ...

    def rename_no_replace(self, source: str, target: str) -> RenameOutcome:
        """Rename a file or a directory, atomically, never replacing anything that is there.

        The target's parent must exist. An empty directory at the target also counts as TARGET_EXISTS. If both answers
        are true, either may be given. A crash, or an OutcomeUnknownError, may leave a file under both names with one
        identity: ``remove_file`` then removes the source.
        """
        ...

    def write_new(self, contents: Mapping[str, bytes]) -> frozenset[str]:
        """Make small files, each whole or not at all, and leave existing files; returns the paths that were made.

        Their parents must exist. A part of a file is never visible under its name. After the return, contents survive a
        power cut; names survive it after ``sync_directories``. After an error each name holds the whole file or
        nothing, and the whole call may be repeated.
        """
        ...

    def make_durable(self, files: Iterable[str]) -> None:
        """Return once the contents of these files, and their names in their own directories, survive a power cut.

        Never repeat it after a failure: write new files under other names, since an operating system may report a lost
        write only once.
        """
        ...

    def durable_tree(self, directory: str, *, file_count: int) -> AbstractContextManager[None]:
        """Run the block, which writes about ``file_count`` files below the existing ``directory``.

        Once it is left without an error, the contents and names of all that is below the directory survive a power cut;
        the name of the directory itself does so after ``sync_directories``. RetryableError if writes were lost or the
        directory is gone; as with ``make_durable``, there is no second try. What was written before the block began is
        included, but its losses may have been reported to others only.
        """
        ...

    def sync_directories(self, directories: Iterable[str]) -> None:
        """Return once the names in these directories survive a power cut. A missing directory is skipped,
        also if something else has its name.
        """
        ...

    def remove_file(self, path: str, identity: FileIdentity) -> bool:
        """Remove the file if it has this identity; True if it is gone now. ConflictError for another identity."""
        ...

    def remove_tree(self, directory: str) -> None:
        """Remove the directory and all below it, if it exists. Only for our own captured staging."""
        ...

    def remove_empty_directory(self, directory: str) -> bool:
        """Remove the directory if it is empty; True if it is gone now."""
        ...

    def apply_modes(self, root: str) -> None:
        """Give ``root`` and all below it the modes of the configured umask; call it before ``make_durable``."""
        ...

    def probe(self, staging_root: str, final_root: str) -> None:
        """Prove that publications are possible, before a run writes anything.

        Both directories must exist or can be made, and are writable; a rename from one to the other is possible and
        never replaces. RejectedError names the destination and the fix.
        """
        ...


@runtime_checkable
class LinkedPaths(Protocol):
    """A file system on which links may stand in paths."""

    def real_path(self, path: str) -> str:
        """The same place without links; names that are not there stand as they are."""
        ...


@runtime_checkable
class SearchedDirectories(Protocol):
    """A file system whose directories can be found by name."""

    def find_directories(self, root: str, name: str) -> Iterator[str]:
        """The full paths of all directories of this name below ``root``, in any order, and links to such.

        What lies in them is not searched, links are not followed, and directories that this user may not list are
        passed over. Nothing, if there is no ``root``.
        """
        ...


def require_removable(path: str, found: FileIdentity | None, identity: FileIdentity) -> None:
    """ConflictError if what was found at the path is another file than the one that is to be removed."""
    if found is not None and not found.matches(identity):
        raise ConflictError(
            f"{path} is not the file to be removed",
            hint="Somebody put another file there; move it away.",
            path=path,
            expected=identity,
            found=found,
        )
