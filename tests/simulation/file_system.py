"""The FileSystem port over a disk in memory. For power cuts and lag see ``tests.simulation.disk``.

    disk = SimDisk()                          the storage, shared, outlives processes
    fs = SimFileSystem(disk)                  the port; as many as there are processes
    fs, path = fs.open("sim:///lake")         fits ``OpenFileSystem``
    disk.write_file(path, b"...")             like a writer: volatile, missing parents are made
    disk.read(path), disk.files()             the state that programs see
    disk.durable_files()                      the files left if the power is cut now
    disk.pending                              changes that are not durable, in order: ``PendingChange``
    disk.power_cut()                          nothing unsynced survives
    disk.power_cut(lambda change: True)       every change survives; without a cut it is like a killed process
    disk.power_cut(lambda change: change.number != lost)     exactly one change is lost
    disk.copy(), disk.fingerprint()           to fork a world, and to recognise one
    disk.read_only, disk.capacity_bytes, disk.listing_lag_calls     switches, which can be set at any time

A rename takes effect in one moment and never leaves both names. Directories that were given a mode without the owner's
right to write let nobody change names in them, nor move them: no process may write everywhere. ``apply_modes`` changes
nothing and is noted in ``modes_applied``. ``probe`` checks whether the disk would accept a publication, and writes
nothing for it.
"""

import errno
import functools
import io
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import BinaryIO, Concatenate, Final, ParamSpec, TypeVar

from gobblin_assets.errors import ConflictError, RejectedError, RetryableError
from gobblin_assets.fs.file_system import FileSystem, RenameOutcome
from gobblin_assets.fs.named_files import ExchangeOutcome
from gobblin_assets.fs.tree import EntryKind, TreeEntry
from gobblin_assets.model.files import FileIdentity, FileStat
from tests.simulation.disk import DIRECTORY_BYTES, SimDisk
from tests.simulation.pending_changes import ChangeKind, PendingChange, Unsynced

__all__ = ["ChangeKind", "PendingChange", "SimDisk", "SimFileSystem", "Unsynced", "path_of"]

SCHEME: Final = "sim"
PROBE_BYTES: Final = 6
OWNER: Final = 1

P = ParamSpec("P")
R = TypeVar("R")


def path_of(uri: str) -> str:
    """The path that ``to_uri`` turned into this URI."""
    prefix = f"{SCHEME}://"
    if not uri.startswith(f"{prefix}/"):
        raise RejectedError(f"expected {prefix}/…, found {uri!r}", field="destination")
    return uri.removeprefix(prefix)


def _below(disk: SimDisk, directory: str) -> list[str]:
    """The directory, and all that is in it."""
    found = [directory]
    for path in found:
        if disk.is_directory(path):
            found += [f"{path}/{name}" for name in disk.list_names(path)]
    return found


def _one_moment(
    call: Callable[Concatenate["SimFileSystem", P], R],
) -> Callable[Concatenate["SimFileSystem", P], R]:
    """A call of the port: it is counted, and no other call happens during it."""

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
    """Adapters have no state except ``modes_applied``: the disk has all other state."""

    def __init__(self, disk: SimDisk) -> None:
        self.disk = disk
        self.modes_applied: list[str] = []

    @property
    def scheme(self) -> str:
        return SCHEME

    def to_uri(self, path: str) -> str:
        return f"{SCHEME}://{path}"

    def open(self, uri: str) -> tuple[FileSystem, str]:
        """Like ``OpenFileSystem``."""
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
    def find_directories(self, root: str, name: str) -> Iterator[str]:
        below = [root] if self.disk.is_directory(root) else []
        found = []
        while below:
            place = below.pop()
            inside = [f"{place}/{each}" for each in self.disk.list_names(place)]
            directories = [each for each in inside if self.disk.is_directory(each)]
            found += [each for each in directories if each.endswith(f"/{name}")]
            below += [each for each in directories if not each.endswith(f"/{name}")]
        return iter(found)

    @_one_moment
    def open_input(self, path: str) -> BinaryIO:
        """The bytes of this moment: later writes are not seen."""
        try:
            return io.BytesIO(self.disk.read(path))
        except OSError as error:
            raise self.disk.failure(error.errno or 0, "open", path) from error

    def create_file(self, path: str) -> BinaryIO:
        """Written at the moment at which it is closed, so that no crash falls into the write."""
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
        self._demand_right_to_move(source, target)
        self.disk.rename(source, target)
        return RenameOutcome.RENAMED

    def write_new(self, contents: Mapping[str, bytes]) -> frozenset[str]:
        return frozenset(path for path, content in contents.items() if self._make_whole(path, content))

    @_one_moment
    def _make_whole(self, path: str, content: bytes) -> bool:
        """One moment, so that no crash falls between its halves: the port promises the whole file or nothing.

        An existing file that is pending stays pending.
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

    @contextmanager
    def durable_tree(self, directory: str, *, file_count: int) -> Iterator[None]:
        if not self.disk.is_directory(directory):
            raise self.disk.failure(errno.ENOENT, "open", directory)
        yield
        if not self.disk.is_directory(directory):
            raise RetryableError(f"{directory} disappeared before it was durable", path=directory)
        self._sync_tree(directory)

    @_one_moment
    def _sync_tree(self, directory: str) -> None:
        for path in _below(self.disk, directory):
            if self.disk.is_directory(path):
                self.disk.sync_directory(path)
            else:
                self.disk.sync_file(path)

    @_one_moment
    def sync_directories(self, directories: Iterable[str]) -> None:
        for directory in directories:
            if self.disk.is_directory(directory):
                self.disk.sync_directory(directory)

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
    def find_entry(self, path: str) -> TreeEntry | None:
        inode = self.disk.find(path)
        if inode is None:
            return None
        if self.disk.is_directory(path):
            mode = self.disk.find_mode(path)
            return TreeEntry(path, EntryKind.DIRECTORY, FileIdentity(DIRECTORY_BYTES, inode), mode, OWNER)
        identity = self.disk.find_identity(path)
        return None if identity is None else TreeEntry(path, EntryKind.FILE, identity)

    @_one_moment
    def find_files(self, directory: str, names: Sequence[str]) -> Sequence[FileIdentity | None]:
        return [self.disk.find_identity(f"{directory}/{name}") for name in names]

    @_one_moment
    def is_empty(self, directory: str) -> bool:
        return self.disk.is_directory(directory) and not self.disk.list_names(directory)

    @_one_moment
    def exchange(self, one: str, other: str) -> ExchangeOutcome:
        if not self.disk.exists(one) or not self.disk.exists(other):
            return ExchangeOutcome.ONE_MISSING
        self._demand_right_to_move(one, other)
        self.disk.exchange(one, other)
        return ExchangeOutcome.EXCHANGED

    def can_exchange(self, directory: str) -> bool:
        del directory
        return self.disk.exchanges

    def can_rename_into(self, source: str, target: str) -> bool:
        """There is one mount."""
        del source, target
        return True

    @_one_moment
    def can_change_closed(self, directory: str) -> bool:
        del directory
        return False

    @_one_moment
    def change_mode(self, path: str, inode: int, old: int, new: int, *, while_there: str | None = None) -> bool:
        is_held = while_there is None or self.disk.is_directory(while_there)
        if not is_held or self.disk.find(path) != inode or not self.disk.is_directory(path):
            return False
        if self.disk.find_mode(path) != old:
            return False
        self.disk.change_mode(path, new)
        return True

    def _demand_right_to_move(self, source: str, target: str) -> None:
        parents = [path.rpartition("/")[0] or "/" for path in (source, target)]
        moved = [source] if self.disk.is_directory(source) and parents[0] != parents[1] else []
        for directory in (*parents, *moved):
            mode = self.disk.find_mode(directory)
            if mode is not None and not mode & stat.S_IWUSR:
                raise self.disk.failure(errno.EACCES, f"rename {source} to", target)

    @_one_moment
    def rename_onto_empty(self, source: str, target: str) -> RenameOutcome:
        if not self.disk.exists(source):
            return RenameOutcome.SOURCE_MISSING
        if self.disk.exists(target):
            if not self.disk.is_directory(target) or self.disk.list_names(target):
                return RenameOutcome.TARGET_EXISTS
            self.disk.remove(target)
        if not self.disk.is_directory(target.rpartition("/")[0] or "/"):
            raise self.disk.failure(errno.ENOENT, "rename to", target)
        self._demand_right_to_move(source, target)
        self.disk.rename(source, target)
        return RenameOutcome.RENAMED

    @_one_moment
    def make_directory(self, path: str) -> bool:
        if self.disk.exists(path):
            return False
        if not self.disk.is_directory(path.rpartition("/")[0] or "/"):
            raise self.disk.failure(errno.ENOENT, "make", path)
        self.disk.mkdir(path)
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
