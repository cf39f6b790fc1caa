"""A disk in memory that knows its state after a power cut. Several file systems may share one disk.

Inodes. A name is an entry of a directory's inode and points to another inode, so that a directory which is
renamed keeps its entries, durable or not. Every directory has two sets of entries: those that programs see, and those
on the platter. In the same way, every file has two contents.

Pending changes. The difference between the two is a list of unsynced changes, in order: an entry that was added, an
entry that was removed, a rename (one change over both directories, as a journal writes it), a file's content, a
directory's mode.
``power_cut`` asks ``keep`` about each, in order; then programs see what is on the platter. ``keep`` can't break rules
that no disk breaks. A change is lost, whatever ``keep`` says, if
- an earlier change of the same name is lost (a rename of a file whose own entry was lost);
- it removes a directory of which an earlier removal or rename is lost (that directory is not empty);
- it is a rename into a directory that the power cut takes away: the file stays under its old name;
- it is a rename of a directory into one that, without the changes lost before, is below it.
Any other entry in a lost directory is lost. A file whose entry survives without its content holds what
``Unsynced`` says. So a durable file is always under its old name or its new one, never under neither.

Syncs promise as little as they can. ``sync_directory`` makes the entries of that inode durable, not the
directory's own name. A rename between two directories is durable once both were synced after it and the target's
own name and those of its parents are durable; that may happen after its own sync. A sync of one side alone
promises nothing. ``sync_file`` covers the content and the name of one file, and no other names.
Changes that a synced change depends on go to the platter with it. If one of them is a rename whose target is not
reachable there yet, then all earlier changes go too, as from a journal that is written in order.

Lag. With ``listing_lag_calls`` = N, a new name is missing in listings during the next N calls of the file
systems on this disk, and so are all names below it; a look at the name itself is always current.

This module reads no clock and draws no number: inodes and mtimes come from one counter of the disk.
"""

import errno
import os
import threading
from collections.abc import Callable, Iterator
from hashlib import blake2b
from typing import Final

from gobblin_assets.errors import ConflictError, GobblinError
from gobblin_assets.fs.posix_errors import translate_error
from gobblin_assets.model.files import FileIdentity, FileStat
from tests.simulation.inodes import ROOT, Inodes
from tests.simulation.pending_changes import ChangeKind, Entry, PendingChange, Unsynced

DIRECTORY_BYTES: Final = 4_096
"""The size of a directory, counted against ``capacity_bytes``."""
NAME_BYTES_MAX: Final = 255


def _lose_all(_change: PendingChange) -> bool:
    return False


class SimDisk:
    """The storage of one world; it outlives the processes that use it. Paths are absolute.

    Direct changes by a person, a writer or a test are no calls of a file system: they are as volatile, but no
    lag counts them. ``lock`` makes each call of a file system one moment.
    """

    def __init__(
        self,
        *,
        listing_lag_calls: int = 0,
        capacity_bytes: int | None = None,
        read_only: bool = False,
        exchanges: bool = True,
    ) -> None:
        self.listing_lag_calls = listing_lag_calls
        self.exchanges = exchanges
        self.capacity_bytes = capacity_bytes
        self.read_only = read_only
        self.calls = 0
        self.lock = threading.RLock()
        self._inodes = Inodes()
        self._appeared: dict[Entry, int] = {}
        self._found: dict[str, int] = {}  # directories by path, until one of them is renamed or removed

    # --- the whole

    @property
    def pending(self) -> tuple[PendingChange, ...]:
        """The changes that a power cut may undo now, in the order in which they were made."""
        return tuple(self._inodes.pending)

    def copy(self) -> "SimDisk":
        """A disk of its own in the same state."""
        other = SimDisk(
            listing_lag_calls=self.listing_lag_calls,
            capacity_bytes=self.capacity_bytes,
            read_only=self.read_only,
            exchanges=self.exchanges,
        )
        other.calls = self.calls
        other._inodes = self._inodes.copy()
        other._appeared = self._appeared.copy()
        return other

    def fingerprint(self) -> str:
        """Equal for disks that behave in the same way from now on, whichever process made them.

        Inodes and mtimes count, since a commit log may know them; the counters behind them do not.
        """
        hidden = {entry: call + self.listing_lag_calls - self.calls for entry, call in self._appeared.items()}
        found = (
            self._inodes.describe(),
            sorted((entry, calls) for entry, calls in hidden.items() if calls > 0),
            (self.listing_lag_calls, self.capacity_bytes, self.read_only),
        )
        return blake2b(repr(found).encode(), digest_size=16).hexdigest()

    def power_cut(
        self, keep: Callable[[PendingChange], bool] = _lose_all, *, unsynced: Unsynced = Unsynced.OLD
    ) -> None:
        """Go back to the durable state, plus the pending changes that ``keep`` lets survive."""
        self._inodes.power_cut(keep, unsynced)
        self._appeared.clear()
        self._found.clear()

    # --- looking

    def find(self, path: str) -> int | None:
        """The inode at ``path``; None when nothing is there."""
        parent, slash, name = path.rpartition("/")
        if not slash:
            raise ValueError(f"expected an absolute path, found the name {path!r}")
        directory = self._found.get(parent)
        if directory is None:
            directory = self.find(parent) if parent else ROOT
            if directory is None or directory not in self._inodes.seen:
                return None
            self._found[parent] = directory
        return self._inodes.seen[directory].get(name) if name else directory

    def exists(self, path: str) -> bool:
        return self.find(path) is not None

    def is_directory(self, path: str) -> bool:
        return self.find(path) in self._inodes.seen

    def list_names(self, directory: str) -> list[str]:
        """The names in a directory, in order."""
        return sorted(self._inodes.seen[self._get_directory(directory)])

    def find_mode(self, directory: str) -> int | None:
        """The mode that the directory was given; None: none, so that everybody may write."""
        return self._inodes.modes.get(self._get_directory(directory))

    def find_identity(self, path: str) -> FileIdentity | None:
        """The identity of the file at ``path``, None when nothing is there. A directory there: ConflictError."""
        inode = self.find(path)
        if inode is None:
            return None
        if inode in self._inodes.seen:
            raise ConflictError(f"expected a regular file at {path}, found a directory", path=path)
        return self._inodes.files[inode].identity

    def read(self, path: str) -> bytes:
        """The bytes that programs see. FileNotFoundError, IsADirectoryError."""
        inode = self.find(path)
        if inode is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if inode in self._inodes.seen:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return self._inodes.files[inode].data

    def files(self) -> dict[str, bytes]:
        """Every file that programs see, by its path, in path order. No listing, so it never lags."""
        return {path: self._inodes.files[inode].data for path, inode in sorted(self._walk("", ROOT, lagging=False))}

    def durable_files(self) -> dict[str, bytes]:
        """Every file that is left if the power is cut now and no unsynced change survives."""
        other = self.copy()
        other.power_cut()
        return other.files()

    def list_files(self, directory: str) -> list[FileStat]:
        """The listing that the port promises, which may lag. A file at ``directory``: ConflictError."""
        inode = self.find(directory)
        if inode is None or (self.listing_lag_calls and self._is_hidden_path(directory)):
            return []
        if inode not in self._inodes.seen:
            raise ConflictError(f"{directory} is not a directory", path=directory)
        prefix = "" if directory == "/" else directory
        below = sorted(self._walk(prefix, inode, lagging=self.listing_lag_calls > 0))
        return [FileStat(path, self._inodes.files[child].identity) for path, child in below]

    def used_bytes(self) -> int:
        inodes, directories = self._inodes, [ROOT]
        files = 0
        for directory in directories:
            for child in inodes.seen[directory].values():
                if child in inodes.seen:
                    directories.append(child)
                else:
                    files += len(inodes.files[child].data)
        return files + DIRECTORY_BYTES * (len(directories) - 1)

    # --- changing, volatile

    def mkdir(self, path: str) -> None:
        """Make a directory and its missing parents; it may exist already."""
        inode, made = ROOT, ""
        for name in path[1:].split("/") if path != "/" else ():
            entries = self._inodes.seen.get(inode)
            if entries is None:
                break
            made = f"{made}/{name}"
            child = entries.get(name)
            if child is None:
                self.demand("make", made, further_bytes=DIRECTORY_BYTES)
                child = self._inodes.new_directory((inode, name), made)
                self._note((inode, name))
            inode = child
        if inode not in self._inodes.seen:
            raise ConflictError(f"{made} is not a directory", path=path)

    def write_file(self, path: str, content: bytes, *, mtime_ns: int | None = None) -> None:
        """Write a file, and make its missing parents. An existing file keeps its inode and gets a new mtime.

        ``mtime_ns``: set after the write, as part of it.
        """
        self.mkdir(path.rpartition("/")[0] or "/")
        old = self.find_identity(path)
        self.demand("write", path, further_bytes=len(content) - (old.size_bytes if old else 0))
        inode = self.find(path)
        if inode is None:
            entry = self._entry(path)
            inode = self._inodes.new_file(entry, path)
            self._note(entry)
        self._inodes.write(inode, path, content, mtime_ns)

    def change_mode(self, directory: str, mode: int) -> None:
        self.demand("change the mode of", directory)
        self._inodes.change_mode(self._get_directory(directory), directory, mode)

    def link(self, source: str, target: str) -> None:
        """A second name of a file, as a rename by link and unlink leaves it if it is cut in the middle."""
        entry, inode = self._entry(target), self.find(source)
        if inode is None or self.exists(target):
            raise ValueError(f"expected a file at {source} and nothing at {target}")
        self.demand("link", target)
        self._inodes.change(ChangeKind.CREATE, inode, target, come=entry)
        self._note(entry)

    def rename(self, source: str, target: str) -> None:
        """One change over both directories. The source and the target's parent exist, the target does not."""
        gone, come = self._entry(source), self._entry(target)
        self.demand("rename to", target)
        if target.startswith(f"{source}/"):
            raise self.failure(errno.EINVAL, "rename to", target)
        inode = self._inodes.seen[gone[0]][gone[1]]
        if inode in self._inodes.seen:
            self._found.clear()
        self._inodes.change(ChangeKind.RENAME, inode, target, gone=gone, come=come, old_path=source)
        self._note(come)

    def exchange(self, one: str, other: str) -> None:
        """One change over both directories. Both names are those of files."""
        gone, come = self._entry(one), self._entry(other)
        self.demand("exchange with", other)
        seen = self._inodes.seen
        inodes = seen[gone[0]][gone[1]], seen[come[0]][come[1]]
        if seen.keys() & set(inodes):
            raise ValueError(f"{one} or {other} is a directory: the simulated disk exchanges files only")
        self._inodes.change(ChangeKind.EXCHANGE, inodes[0], other, gone=gone, come=come, old_path=one, other=inodes[1])
        self._note(come)

    def remove(self, path: str) -> None:
        """Remove a file, or a directory without entries."""
        self.demand("remove", path)
        entry = self._entry(path)
        inode = self._inodes.seen[entry[0]][entry[1]]
        if self._inodes.seen.get(inode):
            raise self.failure(errno.ENOTEMPTY, "remove", path)
        if inode in self._inodes.seen:
            self._found.clear()
        self._inodes.change(ChangeKind.REMOVE, inode, path, gone=entry)

    def remove_tree(self, path: str) -> None:
        """Remove a file or directory with all below it, the deepest first."""
        if self.is_directory(path):
            for name in self.list_names(path):
                self.remove_tree(f"{path}/{name}")
        self.remove(path)

    # --- syncs

    def sync_content(self, path: str) -> None:
        """Make the content of a file durable, whatever becomes of its name."""
        directory, name = self._entry(path)
        self._inodes.sync_content(self._inodes.seen[directory][name])

    def sync_file(self, path: str) -> None:
        """Make the content of a file durable, and its name in its own directory."""
        self.sync_content(path)
        self.sync_name(path)

    def sync_name(self, path: str) -> None:
        """Make one name durable, of a file or of a directory; if it came by a rename, its old name is gone as well."""
        self._inodes.sync_names(*self._entry(path))

    def sync_directory(self, path: str) -> None:
        """Make the names in a directory durable, and its mode."""
        self._inodes.sync_names(self._get_directory(path))

    # --- refusals

    def demand(self, action: str, path: str, *, further_bytes: int = 0) -> None:
        """Refuse what a read-only disk, a full disk, or any file system's limit on names would refuse."""
        if self.read_only:
            raise self.failure(errno.EROFS, action, path)
        if len(path) > NAME_BYTES_MAX // 4 and len(path.rpartition("/")[2].encode()) > NAME_BYTES_MAX:
            raise self.failure(errno.ENAMETOOLONG, action, path)
        if self.capacity_bytes is not None and further_bytes > max(0, self.capacity_bytes - self.used_bytes()):
            raise self.failure(errno.ENOSPC, action, path)

    def failure(self, code: int, action: str, path: str) -> GobblinError:
        """The family that a local disk reports for this errno."""
        return translate_error(OSError(code, os.strerror(code)), action=action, path=path, changes=True)

    # --- inside

    def _get_directory(self, path: str) -> int:
        inode = self.find(path)
        if inode is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if inode not in self._inodes.seen:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return inode

    def _entry(self, path: str) -> Entry:
        parent, _slash, name = path.rpartition("/")
        return self._get_directory(parent or "/"), name

    def _note(self, entry: Entry) -> None:
        if self.listing_lag_calls:
            self._appeared[entry] = self.calls

    def _is_hidden(self, entry: Entry) -> bool:
        appeared = self._appeared.get(entry)
        return appeared is not None and self.calls <= appeared + self.listing_lag_calls

    def _is_hidden_path(self, path: str) -> bool:
        parts = path.split("/")
        return any(self._is_hidden(self._entry("/".join(parts[:depth]))) for depth in range(2, len(parts) + 1))

    def _walk(self, prefix: str, inode: int, *, lagging: bool) -> Iterator[tuple[str, int]]:
        """Paths and inodes of the files below a directory, in no order."""
        seen = self._inodes.seen
        waiting = [(prefix, inode)]
        while waiting:
            path, directory = waiting.pop()
            for name, child in seen[directory].items():
                if lagging and self._is_hidden((directory, name)):
                    continue
                if child in seen:
                    waiting.append((f"{path}/{name}", child))
                else:
                    yield f"{path}/{name}", child
