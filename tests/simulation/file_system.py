"""The FileSystem port over a disk in memory. What a power cut leaves, and lag: see ``tests.simulation.disk``.

    disk = SimDisk()                          the storage, shared, outlives processes
    fs = SimFileSystem(disk)                  the port; as many as there are processes
    fs, path = fs.open("sim:///lake")         fits ``OpenFileSystem``
    disk.write_file(path, b"...")             as a writer does it: volatile, parents included
    disk.read(path), disk.files()             what programs see
    disk.durable_files()                      what is left if the power is cut now
    disk.pending                              what is not durable, in order: ``PendingChange``
    disk.power_cut()                          nothing unsynced survives
    disk.power_cut(lambda change: True)       everything does; no cut at all is a killed process
    disk.power_cut(lambda change: change.number != lost)     exactly one change is lost
    disk.copy(), disk.fingerprint()           to fork a world, and to recognise one
    disk.read_only, disk.capacity_bytes, disk.listing_lag_calls     switches, to be set at any time

A rename takes effect in one moment and never leaves both names. ``apply_modes`` changes nothing and is noted in
``modes_applied``. ``probe`` looks whether the disk would take a publication, and writes nothing for it.
"""

import errno
import functools
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import BinaryIO, Concatenate, Final, ParamSpec, TypeVar

from gobblin_assets.errors import ConflictError, RejectedError, RetryableError
from gobblin_assets.fs.port import FileSystem, RenameOutcome
from gobblin_assets.model.files import FileIdentity, FileStat
from tests.simulation.disk import DIRECTORY_BYTES, SimDisk
from tests.simulation.pending_changes import ChangeKind, PendingChange, Unsynced

__all__ = ["ChangeKind", "PendingChange", "SimDisk", "SimFileSystem", "Unsynced", "path_of"]

SCHEME: Final = "sim"
PROBE_BYTES: Final = 6

P = ParamSpec("P")
R = TypeVar("R")


def path_of(uri: str) -> str:
    """The path that ``to_uri`` made this URI of."""
    prefix = f"{SCHEME}://"
    if not uri.startswith(f"{prefix}/"):
        raise RejectedError(f"expected {prefix}/…, found {uri!r}", field="destination")
    return uri.removeprefix(prefix)


def _one_moment(
    call: Callable[Concatenate["SimFileSystem", P], R],
) -> Callable[Concatenate["SimFileSystem", P], R]:
    """A call of the port: counted, and with no other in the middle of it."""

    @functools.wraps(call)
    def counted(self: "SimFileSystem", /, *arguments: P.args, **named: P.kwargs) -> R:
        with self.disk.lock:
            self.disk.calls += 1
            return call(self, *arguments, **named)

    return counted


class _Unwritten(io.BytesIO):
    def __init__(self, fs: "SimFileSystem", path: str) -> None:
        super().__init__()
        self._fs = fs
        self._path = path

    def close(self) -> None:
        if not self.closed:
            self._fs.write_closed(self._path, self.getvalue())
        super().close()


class SimFileSystem:
    """Adapters have no state of their own beside ``modes_applied``: all of it is on the disk."""

    def __init__(self, disk: SimDisk) -> None:
        self.disk = disk
        self.modes_applied: list[str] = []

    @property
    def scheme(self) -> str:
        return SCHEME

    def to_uri(self, path: str) -> str:
        return f"{SCHEME}://{path}"

    def open(self, uri: str) -> tuple[FileSystem, str]:
        """As ``OpenFileSystem`` has it."""
        return self, path_of(uri)

    @_one_moment
    def find_identity(self, path: str) -> FileIdentity | None:
        return self.disk.find_identity(path)

    @_one_moment
    def is_directory(self, path: str) -> bool:
        return self.disk.is_directory(path)

    @_one_moment
    def list_files(self, directory: str) -> Sequence[FileStat]:
        return self.disk.list_files(directory)

    @_one_moment
    def open_input(self, path: str) -> BinaryIO:
        """The bytes of this moment: what is written later is not seen."""
        try:
            return io.BytesIO(self.disk.read(path))
        except OSError as error:
            raise self.disk.failure(error.errno or 0, "open", path) from error

    def create_file(self, path: str) -> BinaryIO:
        """Written at the moment at which it is closed: no crash falls inside."""
        if self.disk.exists(path):
            raise ConflictError(f"{path} is there already", path=path)
        if not self.disk.is_directory(path.rpartition("/")[0] or "/"):
            raise self.disk.failure(errno.ENOENT, "make", path)
        return _Unwritten(self, path)

    @_one_moment
    def write_closed(self, path: str, content: bytes) -> None:
        self.disk.write_file(path, content)

    @_one_moment
    def make_directories(self, directory: str) -> None:
        self.disk.mkdir(directory)

    @_one_moment
    def make_destination(self, root: str) -> None:
        self.disk.mkdir(root)
        for parent in PurePosixPath(root).parents:
            self.disk.sync_directory(str(parent))

    @_one_moment
    def rename_no_replace(self, source: str, target: str) -> RenameOutcome:
        if not self.disk.exists(source):
            return RenameOutcome.SOURCE_MISSING
        if self.disk.exists(target):
            return RenameOutcome.TARGET_EXISTS
        parent = target.rpartition("/")[0] or "/"
        if not self.disk.is_directory(parent):
            code = errno.ENOTDIR if self.disk.exists(parent) else errno.ENOENT
            raise self.disk.failure(code, "rename to", target)
        self.disk.rename(source, target)
        return RenameOutcome.RENAMED

    def write_new(self, contents: Mapping[str, bytes]) -> frozenset[str]:
        return frozenset(path for path, content in contents.items() if self._make_whole(path, content))

    @_one_moment
    def _make_whole(self, path: str, content: bytes) -> bool:
        """One moment, so that no crash falls between its halves: the port promises the whole file or nothing.

        What is there already may be pending, and stays it.
        """
        if self.disk.exists(path):
            return False
        parent = path.rpartition("/")[0] or "/"
        if not self.disk.is_directory(parent):
            code = errno.ENOTDIR if self.disk.exists(parent) else errno.ENOENT
            raise self.disk.failure(code, "write", path)
        self.disk.write_file(path, content)
        self.disk.sync_content(path)
        return True

    @_one_moment
    def make_durable(self, files: Iterable[str]) -> None:
        for path in files:
            if self.disk.find_identity(path) is None:
                raise RetryableError(f"{path} disappeared before it was durable", path=path)
            self.disk.sync_file(path)

    @_one_moment
    def sync_directories(self, directories: Iterable[str]) -> None:
        for directory in directories:
            if self.disk.is_directory(directory):
                self.disk.sync_directory(directory)
            elif self.disk.exists(directory):
                raise self.disk.failure(errno.ENOTDIR, "sync", directory)

    @_one_moment
    def remove_file(self, path: str, identity: FileIdentity) -> bool:
        found = self.disk.find_identity(path)
        if found is not None and not found.matches(identity):
            raise ConflictError(f"{path} is not the file to be removed", path=path, expected=identity, found=found)
        self.disk.demand("remove", path)
        if found is not None:
            self.disk.remove(path)
        return True

    @_one_moment
    def remove_tree(self, directory: str) -> None:
        if self.disk.is_directory(directory):
            self.disk.remove_tree(directory)
        elif self.disk.exists(directory):
            raise ConflictError(f"{directory} is not a directory", path=directory)

    @_one_moment
    def remove_empty_directory(self, directory: str) -> bool:
        self.disk.demand("remove", directory)
        if not self.disk.exists(directory):
            return True
        if not self.disk.is_directory(directory):
            raise ConflictError(f"{directory} is not a directory", path=directory)
        if self.disk.list_names(directory):
            return False
        self.disk.remove(directory)
        return True

    @_one_moment
    def apply_modes(self, root: str) -> None:
        self.modes_applied.append(root)

    @_one_moment
    def probe(self, staging_root: str, final_root: str) -> None:
        further_bytes = PROBE_BYTES + 2 * DIRECTORY_BYTES
        for root in (staging_root, final_root):
            missing = root
            while not self.disk.exists(missing):
                further_bytes += DIRECTORY_BYTES
                missing = missing.rpartition("/")[0] or "/"
            if not self.disk.is_directory(missing):
                raise self.disk.failure(errno.ENOTDIR, "make", root)
        self.disk.demand("write", final_root, further_bytes=further_bytes)
