"""``NamedFiles`` on HDFS.

A name is durable when the NameNode has answered: its log is synced before. Bytes are durable when a file was closed by
a stream of this package (``streams``). A rename replaces nothing (``rename2`` without OVERWRITE) but, where a directory
is moved, an empty directory; names can't be exchanged, so that a replacement is two renames.
"""

import io
import os
import posixpath
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from itertools import takewhile
from pathlib import PurePosixPath
from typing import Any, BinaryIO, Final, cast
from uuid import uuid4

from gobblin_assets.errors import ConflictError, GobblinError, RejectedError, RetryableError
from gobblin_assets.fs.file_system import (
    LEFT_BEHIND_S,
    PROBE_PREFIX,
    PROBE_TRIES_MAX,
    FileSystem,
    RenameOutcome,
    require_removable,
)
from gobblin_assets.fs.hdfs.hdfs_settings import HdfsSettings, read_hdfs_settings
from gobblin_assets.fs.hdfs.streams import (
    DIRECTORY_MODE,
    FILE_MODE,
    READ_AHEAD_BYTES,
    HdfsReader,
    HdfsStreams,
    HdfsWriter,
)
from gobblin_assets.fs.hdfs.tree import HdfsTree, list_pages
from gobblin_assets.fs.hdfs.web import (
    FORBIDDEN,
    MISSING,
    MS_NS,
    NO_DIRECTORY,
    NOT_EMPTY,
    STANDS,
    HdfsFailure,
    WebHdfs,
    entry_of_status,
    explain_failure,
    status_of,
)
from gobblin_assets.fs.named_files import ExchangeOutcome
from gobblin_assets.fs.tree import AS_GIVEN, EntryKind, Placement, TreeEntry
from gobblin_assets.model.files import FileIdentity, FileStat

_NOWHERE: Final = MISSING | NO_DIRECTORY
_MODE_BITS: Final = 0o1777
"""HDFS has no bits that change the user or the group."""

_CLOSED: Final = 0o555
_BY_FILE_ID: Final = "/.reserved/.inodes"
"""Below it, each file and directory has its file id for a name."""

_SETTING_MODE: Final = "set the mode of"

ListDirectory = Callable[[str, str], Iterator[TreeEntry]]
"""The entries of a directory that are listed behind a name, by their full paths."""

S_NS: Final = 1_000_000_000

RPC_PORT: Final = 8020
"""A NameNode's own default."""

CLUSTERS_KEPT_MAX: Final = 8

_URI: Final = re.compile(
    r"hdfs://(?P<host>[A-Za-z0-9.-]+|\[[0-9a-fA-F:]+\])(:(?P<port>[0-9]{1,5}))?(?P<path>/.*)?", re.IGNORECASE
)


class HdfsFileSystem:
    """The cluster whose NameNode is at ``address``. Safe to share between threads. ``umask``: for what is published."""

    def __init__(
        self, address: str, settings: HdfsSettings, umask: int | None = None, *, option: str = "destination"
    ) -> None:
        self._address = address
        self._umask = umask
        self._web = WebHdfs(address.rpartition(":")[0], settings, option)
        self._streams = HdfsStreams(address, settings, option)
        self._option = option

    @property
    def scheme(self) -> str:
        return "hdfs"

    def to_uri(self, path: str) -> str:
        return f"hdfs://{self._address}{path}"

    def open_tree(
        self, option: str, *, hidden: frozenset[str], follow_links: bool, order: Callable[[str], str] | None = None
    ) -> HdfsTree:
        """Nothing is followed: HDFS has no links, unless a cluster was told to have some."""
        del follow_links
        if order is not None:
            raise RejectedError("HDFS lists by names alone", field=option, hint="Copy its files as they are.")
        return HdfsTree(self._address, self._web.for_option(option), self._streams, hidden=hidden)

    def find_entry(self, path: str) -> TreeEntry | None:
        found = self._find(path)
        return None if found is None else entry_of_status(path, found)

    def find_files(self, directory: str, names: Sequence[str]) -> Sequence[FileIdentity | None]:
        """By listings: a NameNode answers for a thousand names as fast as for one."""
        found = {entry.path: entry.identity for entry in self._walk(directory) if entry.kind is EntryKind.FILE}
        return [found.get(f"{directory}/{name}") for name in names]

    def find_identity(self, path: str) -> FileIdentity | None:
        entry = self.find_entry(path)
        if entry is None:
            return None
        if entry.kind is not EntryKind.FILE:
            raise _unexpected(entry, "a regular file")
        return entry.identity

    def is_directory(self, path: str) -> bool:
        entry = self.find_entry(path)
        if entry is not None and entry.kind is EntryKind.LINK:
            raise _unexpected(entry, "a directory")
        return entry is not None and entry.kind is EntryKind.DIRECTORY

    def is_empty(self, directory: str) -> bool:
        found = self._find(directory)
        if found is None or entry_of_status(directory, found).kind is not EntryKind.DIRECTORY:
            return False
        return found.get("childrenNum") == 0

    def list_files(self, directory: str) -> Sequence[FileStat]:
        entries = (entry for entry in self._walk(directory) if entry.kind is EntryKind.FILE)
        files = [FileStat(entry.path, entry.identity) for entry in entries]
        return sorted(files, key=lambda file: file.path)

    def open_input(self, path: str) -> BinaryIO:
        return cast("BinaryIO", io.BufferedReader(HdfsReader(self._streams, path), READ_AHEAD_BYTES))

    def create_file(self, path: str) -> BinaryIO:
        return cast("BinaryIO", self._streams.create(path, self._mode_of(FILE_MODE)))

    def create_staged(self, path: str, mode: int | None, placement: Placement | None = None) -> HdfsWriter:
        bits = FILE_MODE if mode is None else mode & _MODE_BITS
        with _gone_parent(path):
            return self._streams.create(path, bits, placement or AS_GIVEN)

    def make_staged_directory(self, path: str, mode: int | None) -> None:
        with _gone_parent(path):
            is_made = self._make_new(path, DIRECTORY_MODE if mode is None else mode & _MODE_BITS)
        if not is_made:
            raise ConflictError(f"{path} is there already", hint="Each staged name is made once.", path=path)

    def set_attributes(
        self, path: str, mode: int | None, mtime_ns: int | None, placement: Placement | None = None
    ) -> TreeEntry:
        """A time is cut to milliseconds. RejectedError for one before 1970."""
        if mtime_ns is not None and mtime_ns < 0:
            raise RejectedError(
                f"{path} is to have a time before 1970, and WebHDFS takes none",
                field="preserve",
                hint="Give its origin a later time, or leave t out of preserve.",
                path=path,
            )
        if mtime_ns is not None:
            action, time_ms = "set the time of", str(mtime_ns // MS_NS)
            self._web.put(path, "SETTIMES", action=action, modificationtime=time_ms, accesstime="-1")
        if mode is not None:
            # It may take the right to set a time.
            self._set_mode(path, mode)
        entry = self.find_entry(path)
        if entry is None:
            raise RetryableError(f"{path} disappeared while it was being written", path=path)
        if placement is not None:
            self._give_owner(path, placement, entry.placement or AS_GIVEN)
        return entry

    def _give_owner(self, path: str, wanted: Placement, found: Placement) -> None:
        """What it has already is not asked for: HDFS refuses even that to a user who is not of the group."""
        pairs = {"owner": (wanted.owner, found.owner), "group": (wanted.group, found.group)}
        changes = {name: new for name, (new, old) in pairs.items() if new is not None and new != old}
        if not changes:
            return
        action = f"give the {' and the '.join(f'{name} {value}' for name, value in changes.items())} to"
        answer = self._web.change("PUT", path, "SETOWNER", action=action, **changes)
        if isinstance(answer, HdfsFailure) and answer.kind in FORBIDDEN:
            raise RejectedError(
                f"can't {action} {path}: {answer}",
                field="preserve",
                hint="Run as a superuser of HDFS, or take u and g out of preserve.",
                path=path,
            )
        self._web.require(answer, action, path, changes=True)

    def make_directories(self, directory: str) -> None:
        mode = f"{self._mode_of(DIRECTORY_MODE):o}"
        answer = self._web.change("PUT", directory, "MKDIRS", action="make", permission=mode)
        if isinstance(answer, HdfsFailure) and answer.kind in STANDS | NO_DIRECTORY:
            raise ConflictError(f"can't make {directory}: {answer}", path=directory)
        self._web.require(answer, "make", directory, changes=True)

    def make_destination(self, root: str) -> None:
        self.make_directories(root)

    def make_directory(self, path: str) -> bool:
        return self._make_new(path, self._mode_of(DIRECTORY_MODE))

    def _make_new(self, path: str, mode: int) -> bool:
        """Made under another name and renamed: a call that makes a directory does not say whether it was there."""
        parent, _, name = path.rpartition("/")
        unfinished = f"{parent}/.{name}.{uuid4().hex}"
        self._streams.make_directory(unfinished, mode)
        outcome = self.rename_no_replace(unfinished, path)
        if outcome is not RenameOutcome.RENAMED:
            self._delete(unfinished, recursive=False)
        return outcome is RenameOutcome.RENAMED

    def rename_no_replace(self, source: str, target: str) -> RenameOutcome:
        return self._rename(source, target, "NONE")

    def rename_onto_empty(self, source: str, target: str) -> RenameOutcome:
        """``rename2`` with OVERWRITE replaces an empty directory by a directory; it would replace a file by a file."""
        found = self.find_entry(source)
        if found is None:
            return RenameOutcome.SOURCE_MISSING
        if found.kind is not EntryKind.DIRECTORY:
            raise RejectedError(f"{source} is no directory", field=self._option, hint="Nothing was changed.")
        return self._rename(source, target, "OVERWRITE")

    def exchange(self, one: str, other: str) -> ExchangeOutcome:
        del other
        raise RejectedError(f"HDFS can't exchange two names ({one})", field=self._option, hint="Nothing was changed.")

    def can_exchange(self, directory: str) -> bool:
        del directory
        return False

    def can_change_closed(self, directory: str) -> bool:
        """Superusers may, and all users of a cluster that looks at no modes."""
        place = f"{directory}/.gobblin-closed-{uuid4().hex}"
        self._streams.make_directory(place, DIRECTORY_MODE)
        self._set_mode(place, _CLOSED)
        answer = self._web.change("PUT", f"{place}/inside", "MKDIRS", action="make", permission=f"{DIRECTORY_MODE:o}")
        self._set_mode(place, DIRECTORY_MODE)
        self._delete(place, recursive=True)
        if isinstance(answer, HdfsFailure) and answer.kind in FORBIDDEN:
            return False
        self._web.require(answer, "make", f"{place}/inside", changes=True)
        return True

    def change_mode(self, path: str, inode: int, old: int, new: int, *, while_there: str | None = None) -> bool:
        """By its file id, so that another directory at the name is left alone.

        Looks and change are calls of their own: a process that stops between them, for longer than its lease, still
        changes the mode then.
        """
        entry = self.find_entry(path)
        if entry is None or (entry.kind, entry.identity.inode, entry.mode) != (EntryKind.DIRECTORY, inode, old):
            return False
        if while_there is not None and not self.is_directory(while_there):
            return False
        change = partial(self._web.change, "PUT", f"{_BY_FILE_ID}/{inode}", "SETPERMISSION", action=_SETTING_MODE)
        answer = change(permission=f"{new & _MODE_BITS:o}")
        if isinstance(answer, HdfsFailure) and answer.kind in MISSING:
            return False
        self._web.require(answer, _SETTING_MODE, path, changes=True)
        return True

    def can_rename_into(self, source: str, target: str) -> bool:
        """One NameNode has one tree. Only zones of encryption divide it, and an attempt would be needed to see them."""
        del source, target
        return True

    def write_new(self, contents: Mapping[str, bytes]) -> frozenset[str]:
        """Files are first written under hidden names beside them; a crash may leave such a name, which is ignored."""
        return frozenset(path for path, content in contents.items() if self._make_whole(path, content))

    def make_durable(self, files: Iterable[str]) -> None:
        """They are: the streams of this package sync at the end. A look proves that they are there."""
        for path in files:
            if self.find_identity(path) is None:
                raise RetryableError(f"{path} disappeared before it was durable", path=path)

    @contextmanager
    def durable_tree(self, directory: str, *, file_count: int) -> Iterator[None]:
        del file_count
        before = self.find_entry(directory)
        if before is None:
            raise RejectedError(
                f"can't list {directory}: ENOENT", field=self._option, hint="Make the directory.", path=directory
            )
        yield
        after = self.find_entry(directory)
        if after is None or after.identity.inode != before.identity.inode:
            raise RetryableError(f"{directory} disappeared before it was durable", path=directory)

    def sync_directories(self, directories: Iterable[str]) -> None:
        """Nothing is left to do: the NameNode's log is synced before it answers."""

    def remove_file(self, path: str, identity: FileIdentity) -> bool:
        """Looked at, then removed; two calls are safe because names are never used twice."""
        found = self.find_identity(path)
        require_removable(path, found, identity)
        if found is not None:
            self._delete(path, recursive=False)
        return True

    def remove_tree(self, directory: str) -> None:
        if self.is_directory(directory):
            remove = partial(self._web.change, "DELETE", directory, "DELETE", action="remove", recursive="true")
            answer = remove()
            if isinstance(answer, HdfsFailure) and answer.kind in FORBIDDEN and self._open_below(directory):
                answer = remove()
            self._web.require(answer, "remove", directory, changes=True)
        elif self.find_entry(directory) is not None:
            raise ConflictError(f"{directory} is not a directory", path=directory)

    def _open_below(self, directory: str) -> bool:
        """Whether there were directories from which a copied mode had taken their owner's right to write."""
        entries = (self.find_entry(directory), *self._walk(directory))
        found = (entry for entry in entries if entry is not None and entry.kind is EntryKind.DIRECTORY)
        closed = [entry for entry in found if not (entry.mode or 0) & stat.S_IWUSR]
        for entry in closed:
            self._set_mode(entry.path, DIRECTORY_MODE)
        return bool(closed)

    def remove_empty_directory(self, directory: str) -> bool:
        entry = self.find_entry(directory)
        if entry is None:
            return True
        if entry.kind is not EntryKind.DIRECTORY:
            raise ConflictError(f"{directory} is not a directory", path=directory)
        return self._delete(directory, recursive=False)

    def apply_modes(self, root: str) -> None:
        if self._umask is None:
            return
        found = self.find_entry(root)
        for entry in () if found is None else (found, *self._walk(root)):
            wanted = self._mode_of(0o777 if entry.kind is EntryKind.DIRECTORY else 0o666)
            if entry.mode != wanted:
                self._set_mode(entry.path, wanted)

    def probe(self, staging_root: str, final_root: str) -> None:
        rehearse_publication(self, self._list_entries, staging_root, final_root, self._option)

    def _set_mode(self, path: str, mode: int) -> None:
        self._web.put(path, "SETPERMISSION", action=_SETTING_MODE, permission=f"{mode & _MODE_BITS:o}")

    def _mode_of(self, default: int) -> int:
        """HDFS applies no umask to what a client says."""
        if self._umask is None:
            return default
        return (0o777 if default & 0o111 else 0o666) & ~self._umask

    def _find(self, path: str) -> Mapping[str, Any] | None:
        answer = self._web.ask(path, "GETFILESTATUS")
        if isinstance(answer, HdfsFailure) and answer.kind in _NOWHERE:
            return None
        return status_of(path, self._web.require(answer, "look at", path, changes=False))

    def find_directories(self, root: str, name: str) -> Iterator[str]:
        left = [root]
        while left:
            place = left.pop()
            for each in self._list_directory(place, passes=_NOWHERE | FORBIDDEN):
                entry = entry_of_status(posixpath.join(place, each["pathSuffix"]), each)
                if entry.kind is not EntryKind.DIRECTORY:
                    continue
                if entry.path.rpartition("/")[2] == name:
                    yield entry.path
                else:
                    left.append(entry.path)

    def _walk(self, directory: str) -> Iterator[TreeEntry]:
        """Every file and directory below, in no order, by full paths. What disappears meanwhile is left out."""
        pending = [directory]
        while pending:
            for entry in self._list_entries(pending.pop()):
                if entry.kind is EntryKind.DIRECTORY:
                    pending.append(entry.path)
                elif entry.kind is not EntryKind.FILE:
                    raise _unexpected(entry, "files and directories only")
                yield entry

    def _list_entries(self, directory: str, after: str = "") -> Iterator[TreeEntry]:
        """The entries directly below, behind the name ``after`` in the NameNode's order, by full paths."""
        for each in self._list_directory(directory, after, _NOWHERE):
            if not each["pathSuffix"]:
                raise ConflictError(f"{directory} is not a directory", path=directory)
            yield entry_of_status(posixpath.join(directory, each["pathSuffix"]), each)

    def _list_directory(
        self, directory: str, after: str = "", passes: frozenset[str] = MISSING
    ) -> Iterator[Mapping[str, Any]]:
        """Nothing if it is missing, and nothing more if it disappears, or fails otherwise as ``passes`` says."""
        for page in list_pages(self._web, directory, after):
            if not isinstance(page, HdfsFailure):
                yield from page
            elif page.kind not in passes:
                raise explain_failure(page, action="list", path=directory, option=self._option, changes=False)

    def _rename(self, source: str, target: str, option: str) -> RenameOutcome:
        action = f"rename {source} to"
        answer = self._web.change("PUT", source, "RENAME", action=action, destination=target, renameoptions=option)
        if not isinstance(answer, HdfsFailure):
            return RenameOutcome.RENAMED
        # The NameNode has refused, and calls most refusals by one name. A look tells which.
        if answer.kind in STANDS:
            return RenameOutcome.TARGET_EXISTS
        if answer.kind in MISSING and self.find_entry(source) is None:
            return RenameOutcome.SOURCE_MISSING
        if answer.kind == "IOException" and self.find_entry(target) is not None:
            return RenameOutcome.TARGET_EXISTS
        if answer.kind == "IOException":
            raise RejectedError(f"can't {action} {target}: {answer}", field=self._option, hint="Correct the path.")
        raise explain_failure(answer, action=action, path=target, option=self._option, changes=True)

    def _delete(self, path: str, *, recursive: bool) -> bool:
        """Whether it is gone now: False for a directory that is not empty."""
        answer = self._web.change("DELETE", path, "DELETE", action="remove", recursive=str(recursive).lower())
        if isinstance(answer, HdfsFailure) and answer.kind in NOT_EMPTY:
            return False
        self._web.require(answer, "remove", path, changes=True)
        return True

    def _make_whole(self, path: str, content: bytes) -> bool:
        parent, _, name = path.rpartition("/")
        unfinished = f"{parent}/.{name}.{uuid4().hex}"
        try:
            with self._streams.create(unfinished, self._mode_of(FILE_MODE)) as stream:
                stream.write(content)
            return self.rename_no_replace(unfinished, path) is RenameOutcome.RENAMED
        finally:
            with suppress(GobblinError):
                self._delete(unfinished, recursive=False)


@contextmanager
def _gone_parent(path: str) -> Iterator[None]:
    """A parent that is missing was taken by a new owner of the attempt."""
    try:
        yield
    except RejectedError as error:
        if error.fields.get("errno") != "ENOENT":
            raise
        raise RetryableError(
            f"can't make {path}: the writer's directory is gone",
            hint="Another run took the attempt over, or somebody removed it.",
            path=path,
        ) from error


def _unexpected(entry: TreeEntry, expected: str) -> ConflictError:
    return ConflictError(
        f"expected {expected} at {entry.path}, found a {entry.kind.value}",
        hint="gobblin-assets never changes one kind into another: move it away.",
        path=entry.path,
    )


def rehearse_publication(
    files: FileSystem, list_directory: ListDirectory, staging_root: str, final_root: str, option: str
) -> None:
    """Rehearse one publication with files of a few bytes, so that a bad destination is refused before a run writes.

    Both roots are made, a file and a directory are written and renamed, and neither is ever replaced.

    Removes what killed probes left in the roots more than ``LEFT_BEHIND_S`` ago by the cluster's clock. The directories
    that it made are removed, unless another probe uses them at that moment: then they may stay, empty.
    RejectedError names ``option``.
    """
    roots = (staging_root, final_root)
    for tries in range(1, PROBE_TRIES_MAX + 1):
        made = {path for root in roots for path in _list_missing(files, root)}
        name = PROBE_PREFIX + uuid4().hex
        staged, final = f"{staging_root}/{name}-staged", f"{final_root}/{name}-final"
        try:
            for root in roots:
                _make_root(files, root, option)
            _prove(files, staged, final, option)
            for root in dict.fromkeys(roots):
                _remove_left_behind(files, list_directory(root, PROBE_PREFIX))
        except GobblinError:
            # Where directories were missing, another first probe may have removed them: it takes what it made.
            if tries == PROBE_TRIES_MAX or not made:
                raise
        else:
            return
        finally:
            # A person needs the error that stopped the probe, not the error of the removal after it.
            with suppress(GobblinError):
                for place in (staged, final):
                    files.remove_tree(place)
                for path in sorted(made, key=len, reverse=True):
                    files.remove_empty_directory(path)


def _remove_left_behind(files: FileSystem, entries: Iterator[TreeEntry]) -> None:
    """What can't be listed or removed stays: another probe may be removing it, and no probe needs it gone."""
    with suppress(GobblinError):
        found = list(takewhile(lambda each: PurePosixPath(each.path).name.startswith(PROBE_PREFIX), entries))
        # The own probe is among them, and has just been written.
        now_ns = max((each.identity.mtime_ns or 0 for each in found), default=0)
        for each in found:
            if now_ns - (each.identity.mtime_ns or 0) > LEFT_BEHIND_S * S_NS:
                with suppress(GobblinError):
                    files.remove_tree(each.path)


def _make_root(files: FileSystem, root: str, option: str) -> None:
    try:
        files.make_directories(root)
    except ConflictError as error:
        hint = "Correct the path: something on the way to it is a file."
        raise RejectedError(error.message, field=option, hint=hint) from error


def _list_missing(files: FileSystem, root: str) -> Iterator[str]:
    """The directories on the way to ``root`` that are not there."""
    for path in (root, *(str(each) for each in PurePosixPath(root).parents)):
        try:
            if files.is_directory(path):
                return
        except GobblinError:
            # Whatever is wrong there is said when the directory is to be made.
            continue
        yield path


def _prove(files: FileSystem, staged: str, final: str, option: str) -> None:
    files.make_directories(final)
    for kind, inside in {"file": "", "directory": "/inside"}.items():
        target = f"{final}/{kind}"
        for number, expected in enumerate((RenameOutcome.RENAMED, RenameOutcome.TARGET_EXISTS)):
            source = f"{staged}/{kind}-{number}"
            files.make_directories(source if inside else staged)
            with files.create_file(source + inside) as stream:
                stream.write(b"probe\n")
            found = files.rename_no_replace(source, target)
            if found is not expected:
                raise RejectedError(
                    f"expected a rename to {target} to answer {expected.value!r}, it answered {found.value!r}",
                    field=option,
                    hint="Use a NameNode that keeps the rules of rename2.",
                )


def open_hdfs(uri: str, umask: int | None) -> tuple[HdfsFileSystem, str]:
    """The ``FileSystemFactory`` of the scheme ``hdfs``. Nothing is connected to."""
    found = _URI.fullmatch(uri)
    if found is None:
        raise _refuse("expected hdfs://<host>:<port>/<path>", "Correct it; the user is named by GOBBLIN_HDFS_USER.")
    parts = [part for part in (found["path"] or "").split("/") if part not in {"", "."}]
    if ".." in parts:
        raise _refuse("expected a path without '..'", "Write the path that was meant.")
    if not parts:
        raise _refuse("expected a folder", "Name a folder of its own: the root of the file system is not one.")
    address = f"{found['host'].lower()}:{found['port'] or RPC_PORT}"
    return _open(address, read_hdfs_settings(os.environ), umask), "/" + "/".join(parts)


@lru_cache(CLUSTERS_KEPT_MAX)
def _open(address: str, settings: HdfsSettings, umask: int | None) -> HdfsFileSystem:
    """One for each way to reach a cluster: clients keep connections."""
    return HdfsFileSystem(address, settings, umask)


def _refuse(message: str, hint: str) -> RejectedError:
    return RejectedError(message, field="destination", hint=hint)
