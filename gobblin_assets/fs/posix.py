"""Local disks and mounted network file systems, by POSIX calls and Linux's additions.

``posix_sync`` describes when files are durable, and the meaning of a failed fsync.
"""

import ctypes
import errno
import os
import platform
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, Final
from uuid import uuid4

from gobblin_assets.errors import ConflictError, GobblinError, OutcomeUnknownError, RejectedError, RetryableError
from gobblin_assets.fs.file_system import (
    LEFT_BEHIND_S,
    PROBE_PREFIX,
    PROBE_TRIES_MAX,
    FileSystem,
    RenameOutcome,
    require_removable,
)
from gobblin_assets.fs.posix_errors import families, translate_error
from gobblin_assets.fs.posix_sync import OPEN_FILE, for_all, sync_directory, sync_file, watched_file_system
from gobblin_assets.model.files import FileIdentity, FileStat

KernelRename = Callable[[str, str], None]
"""Takes two names as absolute paths; raises the OSError that the kernel gave."""

UNSUPPORTED: Final = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP})
"""Error codes that mean "not supported". EINVAL is also the error of moving a directory into itself."""

# renameat2(2) refuses to replace anything, or exchanges two names. Python does not offer it, so it is called by ctypes.
# File systems that do not know a flag answer EINVAL, old kernels ENOSYS.
_AT_FDCWD: Final = -100
_RENAME_NOREPLACE: Final = 1
_RENAME_EXCHANGE: Final = 2
# From the kernel's tables, for C libraries that have the kernel's call but no function for it.
_SYSTEM_CALLS: Final = {"x86_64": 316, "aarch64": 276, "riscv64": 276, "ppc64le": 357, "s390x": 347}

RACE_TRIES_MAX: Final = 5
"""Another process may remove an empty parent, or add to a tree that is being removed, between two calls."""

SYNC_TOGETHER_FILES_MIN: Final = 64
"""Fewer files are synced one by one: that waits for nobody else's writes."""

_OPEN_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_CREATE_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_NOT_EMPTY: Final = frozenset({errno.ENOTEMPTY, errno.EEXIST})
_TAKES_FROM_OWNER: Final = 0o700

_KINDS: Final = {"file": "", "directory": "/inside"}


def find_exclusive_rename() -> KernelRename | None:
    """The rename that never replaces; None off Linux."""
    return _find_rename(_RENAME_NOREPLACE)


def find_exchange() -> KernelRename | None:
    """The exchange of two existing names in one moment; None off Linux."""
    return _find_rename(_RENAME_EXCHANGE)


def _find_rename(flag: int) -> KernelRename | None:
    """The kernel's call, by the C library's function or by its number."""
    if platform.system() != "Linux":
        return None
    library = ctypes.CDLL(None, use_errno=True)
    if hasattr(library, "renameat2"):
        function: Any = library.renameat2
        leading: tuple[ctypes.c_long, ...] = ()
    elif platform.machine() in _SYSTEM_CALLS:
        function = library.syscall
        leading = (ctypes.c_long(_SYSTEM_CALLS[platform.machine()]),)
    else:
        return None

    def rename(source: str, target: str) -> None:
        result = function(
            *leading,
            ctypes.c_int(_AT_FDCWD),
            ctypes.c_char_p(os.fsencode(source)),
            ctypes.c_int(_AT_FDCWD),
            ctypes.c_char_p(os.fsencode(target)),
            ctypes.c_uint(flag),
        )
        if result != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), source, None, target)

    return rename


_KERNEL_RENAME: Final = find_exclusive_rename()


class PosixFileSystem:
    """The FileSystem port over the operating system's calls. Safe to share between threads.

    ``umask`` is for published files and directories (None: the process's own). Without ``exclusive_rename``, or
    where a file system does not support it, files are linked and unlinked, and directories are renamed after a
    look at the target; ``_rename_by_link`` says which gap this leaves.
    """

    def __init__(self, umask: int | None = None, *, exclusive_rename: KernelRename | None = _KERNEL_RENAME) -> None:
        if umask is not None and (not 0 <= umask <= 0o777 or umask & _TAKES_FROM_OWNER):
            raise RejectedError(
                f"expected a umask from 0o000 to 0o077, found {umask:#o}",
                field="umask",
                hint="Write it in octal, as 0o027; the owner must keep all rights.",
            )
        self._umask = umask
        self._exclusive_rename = exclusive_rename

    @property
    def scheme(self) -> str:
        return "file"

    def to_uri(self, path: str) -> str:
        """Spark takes everything after ``file://`` as it stands, percent signs and spaces included."""
        return f"file://{path}"

    def find_identity(self, path: str) -> FileIdentity | None:
        found = _find_stat(path)
        if found is None:
            return None
        if not stat.S_ISREG(found.st_mode):
            raise _unexpected(path, found.st_mode, expected="a regular file")
        return _identity_of(found)

    def real_path(self, path: str) -> str:
        return os.path.realpath(path)

    def is_directory(self, path: str) -> bool:
        """ConflictError for a symbolic link to a directory, as for any link in the protocol's directories."""
        found = _find_stat(path)
        if found is not None and stat.S_ISLNK(found.st_mode):
            raise _unexpected(path, found.st_mode, expected="a directory")
        return found is not None and stat.S_ISDIR(found.st_mode)

    def list_files(self, directory: str) -> Sequence[FileStat]:
        """Only ``directory`` itself may be reached through a link: a person may have put the destination behind one."""
        with families("list", directory):
            files = [
                FileStat(path, _identity_of(found)) for path, found in _walk(directory) if stat.S_ISREG(found.st_mode)
            ]
        return sorted(files, key=lambda file: file.path)

    def open_input(self, path: str) -> BinaryIO:
        with families("open", path):
            return os.fdopen(os.open(path, OPEN_FILE), "rb")

    def create_file(self, path: str) -> BinaryIO:
        try:
            with families("make", path):
                return os.fdopen(os.open(path, _CREATE_FILE, 0o666), "wb")
        except RetryableError as error:
            if isinstance(error.__cause__, FileExistsError):
                raise ConflictError(f"{path} is there already", path=path) from error
            raise

    def make_directories(self, directory: str) -> None:
        refused = Path(directory)
        for _ in range(RACE_TRIES_MAX):
            not_made = self._make_missing(directory)
            if not_made is None:
                return
            refused = not_made
        if refused.parent.is_dir():
            raise RejectedError(
                f"can't make {refused}: the file system of {refused.parent} makes no directories",
                field="destination",
                hint="Name a destination on a disk.",
                path=str(refused),
            )
        raise RetryableError(f"the parents of {directory} are removed while it is being made", path=directory)

    def make_destination(self, root: str) -> None:
        self.make_directories(root)
        parents = [str(path) for path in Path(root).parents]
        self.sync_directories(path for path in parents if os.access(path, os.R_OK | os.W_OK | os.X_OK))

    def rename_no_replace(self, source: str, target: str) -> RenameOutcome:
        found = _find_stat(source)
        if found is None:
            return RenameOutcome.SOURCE_MISSING
        if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
            raise _unexpected(source, found.st_mode, expected="a file or a directory")
        if self._exclusive_rename is not None:
            try:
                return _outcome_of(self._exclusive_rename, source, target)
            except OSError as error:
                if error.errno not in UNSUPPORTED:
                    raise translate_error(error, action=f"rename {source} to", path=target, changes=True) from error
        by_other_means = _rename_directory if stat.S_ISDIR(found.st_mode) else _rename_by_link
        try:
            return _outcome_of(by_other_means, source, target)
        except OSError as error:
            raise translate_error(error, action=f"rename {source} to", path=target, changes=True) from error

    def write_new(self, contents: Mapping[str, bytes]) -> frozenset[str]:
        """Files are first written under hidden names beside them; a crash may leave such a name, which is ignored."""
        made: set[str] = set()

        def write(path: str) -> None:
            if self._make_whole(path, contents[path]):
                made.add(path)

        for_all(contents, write)
        return frozenset(made)

    def _make_whole(self, path: str, content: bytes) -> bool:
        parent, _, name = path.rpartition("/")
        unfinished = f"{parent}/.{name}.{uuid4().hex}"
        try:
            with families("write", path):
                descriptor = os.open(unfinished, _CREATE_FILE, 0o666)
                with os.fdopen(descriptor, "wb") as out:
                    if self._umask is not None:
                        os.fchmod(descriptor, _mode_of(os.fstat(descriptor).st_mode, self._umask))
                    out.write(content)
                    out.flush()
                    os.fsync(descriptor)
            return self.rename_no_replace(unfinished, path) is RenameOutcome.RENAMED
        finally:
            with suppress(OSError):
                Path(unfinished).unlink(missing_ok=True)

    def make_durable(self, files: Iterable[str]) -> None:
        """All files first, then each file's own directory; directories further up are for ``sync_directories``."""
        directories: set[str] = set()

        def paths() -> Iterator[str]:
            for path in files:
                directories.add(path.rpartition("/")[0])
                yield path

        for_all(paths(), sync_file)
        for_all(sorted(directories), sync_directory)

    @contextmanager
    def durable_tree(self, directory: str, *, file_count: int) -> Iterator[None]:
        """Many files by one call for their file system, which also waits for what other programs wrote there."""
        with watched_file_system(directory) as sync_all:
            yield
            if sync_all is not None and file_count >= SYNC_TOGETHER_FILES_MIN:
                sync_all()
                return
            with families("list", directory):
                entries = [(path, stat.S_ISDIR(found.st_mode)) for path, found in _walk(directory)]
            if not self.is_directory(directory):
                raise RetryableError(f"{directory} disappeared before it was durable", path=directory)
            for_all((path for path, is_directory in entries if not is_directory), sync_file)
            for_all([directory, *(path for path, is_directory in entries if is_directory)], sync_directory)

    def sync_directories(self, directories: Iterable[str]) -> None:
        for_all(dict.fromkeys(directories), sync_directory)

    def remove_file(self, path: str, identity: FileIdentity) -> bool:
        """POSIX cannot compare and unlink in one call; two calls are safe because names are never used twice."""
        require_removable(path, self.find_identity(path), identity)
        with families("remove", path, changes=True):
            Path(path).unlink(missing_ok=True)
        return True

    def remove_tree(self, directory: str) -> None:
        """Others may remove the same tree at the same time. Links inside are removed, not followed."""
        for _ in range(RACE_TRIES_MAX):
            if not self.is_directory(directory):
                if _find_stat(directory) is None:
                    return
                raise ConflictError(f"{directory} is not a directory", path=directory)
            with families("remove", directory):
                try:
                    is_gone = _remove_below(directory)
                except PermissionError:
                    _open_below(directory)
                    is_gone = _remove_below(directory)
                if is_gone:
                    return
        raise RetryableError(f"{directory} keeps filling while it is being removed", path=directory)

    def remove_empty_directory(self, directory: str) -> bool:
        with families("remove", directory, changes=True):
            try:
                Path(directory).rmdir()
            except FileNotFoundError:
                return True
            except NotADirectoryError as error:
                raise ConflictError(f"{directory} is not a directory", path=directory) from error
            except OSError as error:
                if error.errno in _NOT_EMPTY:
                    return False
                raise
        return True

    def apply_modes(self, root: str) -> None:
        """Call it before ``make_durable``, which then covers the modes too."""
        found = _find_stat(root)
        if self._umask is None or found is None:
            return
        if stat.S_ISLNK(found.st_mode):
            raise _unexpected(root, found.st_mode, expected="a file or a directory")
        below = _walk(root) if stat.S_ISDIR(found.st_mode) else ()
        with families("change the mode of", root):
            for path, entry in chain([(root, found)], below):
                wanted = _mode_of(entry.st_mode, self._umask)
                if stat.S_IMODE(entry.st_mode) != wanted:
                    Path(path).chmod(wanted)

    def probe(self, staging_root: str, final_root: str) -> None:
        prove_publication(self, staging_root, final_root)

    def _make_missing(self, directory: str) -> Path | None:
        """What could not be made: a parent that was there has gone meanwhile, or takes no directories."""
        missing: list[Path] = []
        with families("make", directory):
            for ancestor in (Path(directory), *Path(directory).parents):
                if ancestor.is_dir():
                    break
                missing.append(ancestor)
            for ancestor in reversed(missing):
                try:
                    ancestor.mkdir()
                except FileExistsError as error:
                    if not ancestor.is_dir():
                        raise ConflictError(f"{ancestor} is not a directory", path=str(ancestor)) from error
                except FileNotFoundError:
                    return ancestor
                else:
                    if self._umask is not None:
                        ancestor.chmod(_mode_of(ancestor.stat().st_mode, self._umask))
        return None


def _find_stat(path: str) -> os.stat_result | None:
    with families("look at", path):
        try:
            return os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None


def _identity_of(found: os.stat_result) -> FileIdentity:
    return FileIdentity(size_bytes=found.st_size, inode=found.st_ino, mtime_ns=found.st_mtime_ns)


def _mode_of(mode: int, umask: int) -> int:
    """A directory keeps its set-group-id bit: it is how a shared folder hands its group on."""
    if stat.S_ISDIR(mode):
        return 0o777 & ~umask | mode & stat.S_ISGID
    return 0o666 & ~umask


def _unexpected(path: str, mode: int, *, expected: str) -> ConflictError:
    return ConflictError(
        f"expected {expected} at {path}, found {stat.filemode(mode)}",
        hint="gobblin-assets makes no links or special files, and never changes one kind into another: move it away.",
        path=path,
    )


def _walk(directory: str) -> Iterator[tuple[str, os.stat_result]]:
    """Every file and directory below, in no order. Files that disappear meanwhile were renamed, and are left out."""
    pending = [directory]
    while pending:
        current = pending.pop()
        try:
            entries = os.scandir(current)
        except FileNotFoundError:
            continue
        except NotADirectoryError as error:
            if not os.path.lexists(current):
                continue  # a file stands on the way to it
            raise ConflictError(f"{current} is not a directory", path=current) from error
        with entries:
            for entry in entries:
                try:
                    found = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                if stat.S_ISDIR(found.st_mode):
                    pending.append(entry.path)
                elif not stat.S_ISREG(found.st_mode):
                    raise _unexpected(entry.path, found.st_mode, expected="files and directories only")
                yield entry.path, found


def _remove_below(directory: str) -> bool:
    """Remove the tree; False if something was added to it meanwhile."""

    def complain(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            raise error

    for current, directories, files in os.walk(directory, topdown=False, onerror=complain):
        for name in files:
            Path(current, name).unlink(missing_ok=True)
        for name in directories:
            if (link := Path(current, name)).is_symlink():
                link.unlink(missing_ok=True)
        try:
            Path(current).rmdir()
        except FileNotFoundError:
            continue  # another remover was faster
        except OSError as error:
            if error.errno in _NOT_EMPTY:
                return False
            raise
    return True


def _open_below(directory: str) -> None:
    """Give the owner all rights on directories: a copied mode may have taken the right to write in them."""
    for current, _directories, _files in os.walk(directory):
        try:
            descriptor = os.open(current, _OPEN_DIRECTORY)
        except (FileNotFoundError, NotADirectoryError):
            continue  # another remover was faster
        try:
            mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
            if mode & stat.S_IRWXU != stat.S_IRWXU:
                os.fchmod(descriptor, mode | stat.S_IRWXU)
        finally:
            os.close(descriptor)


def _outcome_of(rename: KernelRename, source: str, target: str) -> RenameOutcome:
    try:
        rename(source, target)
    except FileNotFoundError:
        if _find_stat(source) is None:
            return RenameOutcome.SOURCE_MISSING
        raise  # the target's parent is what is missing
    except OSError as error:
        if error.errno in _NOT_EMPTY:
            return RenameOutcome.TARGET_EXISTS
        raise
    return RenameOutcome.RENAMED


def _rename_by_link(source: str, target: str) -> None:
    """Rename by link and unlink; a link never replaces.

    A crash before the unlink leaves both names with one identity; the next verification then removes the source.
    Unlike a rename, two callers with *different* targets may both succeed.
    """
    os.link(source, target, follow_symlinks=False)
    try:
        Path(source).unlink(missing_ok=True)
    except OSError as error:
        raise OutcomeUnknownError(
            f"{target} is there, but {source} could not be removed: {error.strerror}",
            hint="Both names are the same file; remove only the source.",
            path=source,
        ) from error


def _rename_directory(source: str, target: str) -> None:
    """Rename a directory; a rename refuses a file, or a directory with entries, at the target.

    One gap is left: an *empty* directory that is made between the look and the rename is replaced. Nothing is lost by
    that.
    """
    if _find_stat(target) is not None:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), source, None, target)
    Path(source).rename(target)


def prove_publication(file_system: FileSystem, staging_root: str, final_root: str) -> None:
    """Rehearse one publication with files of a few bytes, so that a bad destination is refused before a run writes.

    Both roots are made, a file and a directory are written, synced and renamed, and neither is ever replaced.
    Removes files that killed probes left in the roots more than ``LEFT_BEHIND_S`` ago by the file system's clock.
    The probe leaves nothing behind, and removes the directories that it made, unless another probe uses them at that
    moment: then they may stay, empty. RejectedError names the destination.
    """
    roots = (staging_root, final_root)
    for tries in range(1, PROBE_TRIES_MAX + 1):
        missing = [path for root in roots for path in _missing_directories(root)]
        name = PROBE_PREFIX + uuid4().hex
        probes = [f"{root}/{name}-{kind}" for root in roots for kind in _KINDS]
        try:
            for root in roots:
                _make_root(file_system, root)
            _prove(file_system, Path(staging_root, name), Path(final_root, name))
            for root in dict.fromkeys(roots):
                _remove_left_behind(file_system, Path(root), now_s=_moment_of(root))
        except BaseException as error:
            # The other probe may have made the roots again by now, so a look at the roots alone is not enough.
            vanished = isinstance(error, GobblinError) and (
                error.fields.get("errno") == "ENOENT" or not all(Path(root).is_dir() for root in roots)
            )
            # A person needs the error that stopped the probe, not the error of the removal after it.
            with suppress(GobblinError):
                _clean_up(file_system, probes, missing)
            if tries == PROBE_TRIES_MAX or not vanished:
                raise
        else:
            _clean_up(file_system, probes, missing)
            return


def _make_root(file_system: FileSystem, root: str) -> None:
    try:
        file_system.make_directories(root)
    except ConflictError as error:
        raise RejectedError(
            f"can't make {root}: ENOTDIR ({error.fields['path']} is not a directory)",
            field="destination",
            hint="Correct the path: something on the way to it is a file.",
        ) from error


def _prove(file_system: FileSystem, staged: Path, final: Path) -> None:
    for kind, written in _KINDS.items():
        source, target = f"{staged}-{kind}", f"{final}-{kind}"
        for expected in (RenameOutcome.RENAMED, RenameOutcome.TARGET_EXISTS):
            if kind == "directory":
                file_system.make_directories(source)
            with families("write", source):
                Path(source + written).write_bytes(b"probe\n")
            file_system.make_durable([source + written])
            found = file_system.rename_no_replace(source, target)
            if found is not expected:
                raise RejectedError(
                    f"expected a rename to {target} to answer {expected.value!r}, it answered {found.value!r}",
                    field="destination",
                    hint="Use a file system that keeps POSIX's rules for rename and link.",
                )
            file_system.sync_directories([str(final.parent), str(staged.parent)])


def _moment_of(directory: str) -> float:
    """Now, by the clock of the file system: the probe has just changed the directory."""
    with families("look at", directory):
        return Path(directory).stat().st_mtime


def _remove_left_behind(file_system: FileSystem, root: Path, *, now_s: float) -> None:
    """Files that can't be read or removed stay: another probe may be removing them, and no probe needs them gone."""
    with suppress(OSError), os.scandir(root) as entries:
        for entry in entries:
            if entry.name.startswith(PROBE_PREFIX):
                with suppress(OSError, GobblinError):
                    if now_s - entry.stat(follow_symlinks=False).st_mtime > LEFT_BEHIND_S:
                        _remove(file_system, entry)


def _remove(file_system: FileSystem, entry: os.DirEntry[str]) -> None:
    if entry.is_dir(follow_symlinks=False):
        file_system.remove_tree(entry.path)
    else:
        Path(entry.path).unlink(missing_ok=True)


def _missing_directories(root: str) -> list[str]:
    path = Path(root)
    with families("look at", root):
        return [str(ancestor) for ancestor in (path, *path.parents) if not ancestor.exists()]


def _clean_up(file_system: FileSystem, probes: list[str], made: list[str]) -> None:
    for path in probes:
        if Path(path).is_dir():
            file_system.remove_tree(path)
        else:
            with families("remove", path):
                Path(path).unlink(missing_ok=True)
    for path in sorted(made, key=len, reverse=True):
        file_system.remove_empty_directory(path)
