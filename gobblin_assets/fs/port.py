"""The port that every file system implements, and that the commit protocol and the writers use.

Paths are absolute, in the file system's own spelling, without a scheme. Every method either does what it
says or raises one of the families of ``errors``: ``RejectedError`` where a person must act (a read-only
or missing destination, no permission), ``RetryableError`` where the same call may succeed later (a full
disk, an I/O error before anything happened), ``OutcomeUnknownError`` where it may have taken effect.
Not being there, and being there already, are answers and not errors: see ``RenameOutcome``.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import BinaryIO, Protocol

from gobblin_assets.model.files import FileIdentity, FileStat


class RenameOutcome(StrEnum):
    """What a rename that never replaces found."""

    RENAMED = "renamed"
    SOURCE_MISSING = "source_missing"
    TARGET_EXISTS = "target_exists"


class FileSystem(Protocol):
    """Few primitives, each with one effect that a crash can fall before or after."""

    @property
    def scheme(self) -> str:
        """Such as ``file``; URIs of this file system start with ``<scheme>://``."""
        ...

    def to_uri(self, path: str) -> str:
        """The path as Spark and other readers take it. It is percent-encoded nowhere that they would not decode."""
        ...

    def find_identity(self, path: str) -> FileIdentity | None:
        """The identity of a regular file; None when nothing is there. A directory there: ConflictError."""
        ...

    def is_directory(self, path: str) -> bool:
        """Whether a directory is there now. A symbolic link there is a ConflictError."""
        ...

    def list_files(self, directory: str) -> Sequence[FileStat]:
        """All regular files below ``directory``, at any depth, in path order; empty when it isn't there.

        A symbolic link or a special file inside is a ConflictError: nothing of ours makes one.
        """
        ...

    def open_input(self, path: str) -> BinaryIO:
        """A seekable stream of the file's bytes, for footers and the like."""
        ...

    def create_file(self, path: str) -> BinaryIO:
        """A stream into a new file, whole once it is closed. Its parent must exist; a file there is a ConflictError."""
        ...

    def make_directories(self, directory: str) -> None:
        """Make it and its missing parents; being there already is fine (a file there is a ConflictError)."""
        ...

    def make_destination(self, root: str) -> None:
        """Make a destination's root, if it isn't there, and return after its name survives a power cut.

        Also if it is there: whoever made it may have died before that. Of the directories above it those are synced
        that this process may open; one that it may not open, it hasn't made anything in.
        """
        ...

    def rename_no_replace(self, source: str, target: str) -> RenameOutcome:
        """Rename a file or a directory, atomically, never replacing anything that is there.

        The target's parent must exist. An empty directory at the target also counts as TARGET_EXISTS. Where both
        answers would be true, either may be given. A crash, or an OutcomeUnknownError, may leave a file under both
        names with one identity: the source is then removed by ``remove_file``.
        """
        ...

    def write_new(self, contents: Mapping[str, bytes]) -> frozenset[str]:
        """Make small files, each whole or not at all, and leave what is there; gives the paths that were made.

        Their parents must exist. Nobody ever sees a part of a file under its name; when it returns, contents survive
        a power cut, and names do after ``sync_directories``. After an error each name holds the whole file or
        nothing, and all of it may be tried again.
        """
        ...

    def make_durable(self, files: Iterable[str]) -> None:
        """Return after the contents of these files, and their names in their own directories, survive a power cut.

        Not for a second try: after a failure the files are given up and written anew under other names, since an
        operating system may report a lost write only once.
        """
        ...

    def sync_directories(self, directories: Iterable[str]) -> None:
        """Return after the names in these directories survive a power cut. A missing one is skipped."""
        ...

    def remove_file(self, path: str, identity: FileIdentity) -> bool:
        """Remove it if it is there with this identity; True if it is gone now. Another identity: ConflictError."""
        ...

    def remove_tree(self, directory: str) -> None:
        """Remove the directory and all below it; not being there is fine. Only for our own captured staging."""
        ...

    def remove_empty_directory(self, directory: str) -> bool:
        """Remove it if it is empty; True if it is gone now."""
        ...

    def apply_modes(self, root: str) -> None:
        """Give ``root`` and all below it the modes that the configured umask asks for; before ``make_durable``."""
        ...

    def probe(self, staging_root: str, final_root: str) -> None:
        """Prove, before a run writes anything, that both exist or can be made, are writable, and that a rename
        from one to the other is possible and never replaces. RejectedError names the destination and the fix.
        """
        ...
