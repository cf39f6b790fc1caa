"""``NamedFiles`` on local disks and mounted network file systems."""

import errno
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final
from uuid import uuid4

from gobblin_assets.errors import RejectedError
from gobblin_assets.fs.file_system import RenameOutcome
from gobblin_assets.fs.named_files import ExchangeOutcome, NameLimits
from gobblin_assets.fs.posix import UNSUPPORTED, KernelRename, PosixFileSystem, find_exchange, find_exclusive_rename
from gobblin_assets.fs.posix_errors import families, translate_error
from gobblin_assets.fs.posix_tree import PosixTree, entry_of
from gobblin_assets.fs.tree import EntryKind, TreeEntry
from gobblin_assets.model.files import FileIdentity

_EXCHANGE: Final = find_exchange()

_TIME_NS: Final = 1_700_000_001_387_654_321
"""Cut off or rounded to one of the steps, it is a multiple of no larger one."""

_TIME_STEPS_NS: Final = (1, 100, 1_000, 1_000_000, 10_000_000, 1_000_000_000, 2_000_000_000)
"""Of Linux's own file systems, NTFS and SMB, microseconds, milliseconds, exFAT, old ext4 and servers, FAT."""

_CLOSED: Final = 0o555
_STANDS: Final = frozenset({errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR})
_LOOK_AT_DIRECTORY: Final = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NOT_THERE: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})
_DESCRIPTORS: Final = "/proc/self/fd"


class PosixNamedFiles(PosixFileSystem):
    """``NamedFiles`` on local disks and mounted file systems.

    ``exchange`` None: files are moved aside and then replaced, in two renames.
    """

    def __init__(
        self,
        umask: int | None = None,
        *,
        exclusive_rename: KernelRename | None = find_exclusive_rename(),  # noqa: B008  found once, as in the parent
        exchange: KernelRename | None = _EXCHANGE,
    ) -> None:
        super().__init__(umask, exclusive_rename=exclusive_rename)
        self._exchange = exchange

    def open_tree(
        self, option: str, *, hidden: frozenset[str], follow_links: bool, order: Callable[[str], str] | None = None
    ) -> PosixTree:
        return PosixTree(option, hidden=hidden, follow_links=follow_links, order=order)

    def find_entry(self, path: str) -> TreeEntry | None:
        try:
            found = os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise translate_error(error, action="look at", path=path, changes=False) from error
        return entry_of(path, found)

    def find_files(self, directory: str, names: Sequence[str]) -> Sequence[FileIdentity | None]:
        place = directory
        found: list[FileIdentity | None] = []
        try:
            for name in names:
                place = f"{directory}/{name}"
                try:
                    entry = os.lstat(place)
                except (FileNotFoundError, NotADirectoryError):
                    found.append(None)
                else:
                    is_file = stat.S_ISREG(entry.st_mode)
                    found.append(FileIdentity(entry.st_size, entry.st_ino, entry.st_mtime_ns) if is_file else None)
        except OSError as error:
            raise translate_error(error, action="look at", path=place, changes=False) from error
        return found

    def find_name_limits(self, directory: str) -> NameLimits:
        while True:
            try:
                name_max, path_max = (os.pathconf(directory, name) for name in ("PC_NAME_MAX", "PC_PATH_MAX"))
            except (FileNotFoundError, NotADirectoryError):
                directory = os.path.dirname(directory)  # noqa: PTH120  texts in, texts out
                continue
            except OSError as error:
                raise translate_error(error, action="look at", path=directory, changes=False) from error
            # The kernel counts a NUL behind the path.
            return NameLimits(name_max if name_max > 0 else None, path_max - 1 if path_max > 0 else None)

    def find_directories(self, root: str, name: str) -> Iterator[str]:
        left = [root]
        while left:
            place = left.pop()
            try:
                with os.scandir(place) as entries:
                    # Only a link of this very name is followed.
                    found = [each.name for each in entries if each.is_dir(follow_symlinks=each.name == name)]
            except (FileNotFoundError, NotADirectoryError, PermissionError):
                continue
            except OSError as error:
                raise translate_error(error, action="list", path=place, changes=False) from error
            if name in found:
                yield f"{place}/{name}"
            left += [f"{place}/{each}" for each in found if each != name]

    def is_empty(self, directory: str) -> bool:
        with families("list", directory):
            try:
                with os.scandir(directory) as entries:
                    return next(entries, None) is None
            except (FileNotFoundError, NotADirectoryError):
                return False

    def exchange(self, one: str, other: str) -> ExchangeOutcome:
        if self._exchange is None:
            raise _cannot_exchange(one)
        try:
            self._exchange(one, other)
        except FileNotFoundError:
            return ExchangeOutcome.ONE_MISSING
        except OSError as error:
            if error.errno in UNSUPPORTED:
                raise _cannot_exchange(one) from error
            raise translate_error(error, action=f"exchange {one} with", path=other, changes=True) from error
        return ExchangeOutcome.EXCHANGED

    def find_time_step(self, directory: str) -> int:
        """By a file that is given a time, where one can be made; where not, nothing is copied anyway."""
        place = f"{directory}/.gobblin-time-{uuid4().hex}"
        try:
            descriptor = os.open(place, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        except OSError:
            return 1
        try:
            os.unlink(place)  # noqa: PTH108  a text in
            os.utime(descriptor, ns=(_TIME_NS, _TIME_NS))
            kept_ns = os.fstat(descriptor).st_mtime_ns
        except OSError as error:
            raise translate_error(error, action="set the time of", path=place, changes=False) from error
        finally:
            os.close(descriptor)
        return max(step for step in _TIME_STEPS_NS if kept_ns % step == 0)

    def can_change_closed(self, directory: str) -> bool:
        """Tried, since a server of NFS or FUSE may allow less than the kernel does."""
        place = f"{directory}/.gobblin-closed-{uuid4().hex}"
        closed, moved = f"{place}/from/closed", f"{place}/to/closed"
        with families("write to", directory):
            try:
                for path in (place, f"{place}/from", f"{place}/to", closed):
                    os.mkdir(path)  # noqa: PTH102  never a parent
                os.chmod(closed, _CLOSED)  # noqa: PTH101  a text in
                os.mkdir(f"{closed}/inside")  # noqa: PTH102  as above
                os.rename(closed, moved)  # noqa: PTH104  as above
            except PermissionError:
                if not os.path.isdir(closed):  # noqa: PTH112  as above
                    raise
                return False
            finally:
                for path in (
                    f"{moved}/inside",
                    moved,
                    f"{closed}/inside",
                    closed,
                    f"{place}/to",
                    f"{place}/from",
                    place,
                ):
                    with suppress(OSError):
                        os.rmdir(path)  # noqa: PTH106  as above
        return True

    def change_mode(self, path: str, inode: int, old: int, new: int, *, while_there: str | None = None) -> bool:
        """By a descriptor, so that another directory, or a link, that comes to the name meanwhile is left alone.

        One call changes the mode and finds ``while_there``: its path leads to the descriptor through that directory.
        """
        try:
            descriptor = os.open(path, _LOOK_AT_DIRECTORY)
        except OSError as error:
            if error.errno in _NOT_THERE:
                return False
            raise translate_error(error, action="look at", path=path, changes=False) from error
        try:
            found = os.fstat(descriptor)
            if found.st_ino != inode or stat.S_IMODE(found.st_mode) != old:
                return False
            if new & stat.S_ISGID and os.geteuid() and found.st_gid not in {os.getegid(), *os.getgroups()}:
                raise RejectedError(
                    f"can't change the mode of {path} and keep that it hands on its group, which is not this user's",
                    field="destination",
                    hint="Run as a user of that group, or give the owner the right to write there.",
                    path=path,
                )
            way = _DESCRIPTORS if while_there is None else _lead_through(while_there, _DESCRIPTORS)
            os.chmod(f"{way}/{descriptor}", new)  # noqa: PTH101  as above
        except (FileNotFoundError, NotADirectoryError) as error:
            if while_there is not None and not self.is_directory(while_there):
                return False
            raise RejectedError(
                f"can't change the mode of {path}: {_DESCRIPTORS} is not there",
                field="destination",
                hint="Mount /proc for this process.",
            ) from error
        except OSError as error:
            raise translate_error(error, action="change the mode of", path=path, changes=True) from error
        finally:
            os.close(descriptor)
        return True

    def can_exchange(self, directory: str) -> bool:
        if self._exchange is None:
            return False
        name = f"{directory}/.gobblin-exchange-{uuid4().hex}"
        one, other = f"{name}-1", f"{name}-2"
        with families("write to", directory):
            try:
                for path in (one, other):
                    Path(path).touch(exist_ok=False)
                self._exchange(one, other)
            except OSError as error:
                if error.errno in UNSUPPORTED:
                    return False
                raise
            finally:
                for path in (one, other):
                    with suppress(OSError):
                        Path(path).unlink(missing_ok=True)
        return True

    def can_rename_into(self, source: str, target: str) -> bool:
        """The rename of a missing name tells: Linux looks at the mounts, which share their numbers if they are bound,
        before it looks for the name. Parts of one mount, such as subvolumes, have numbers of their own.
        """
        name = f".gobblin-missing-{uuid4().hex}"
        with families("look at", target):
            if os.stat(source).st_dev != os.stat(target).st_dev:  # noqa: PTH116  a Path costs as much as the call
                return False
            try:
                os.rename(f"{source}/{name}", f"{target}/{name}")  # noqa: PTH104  as above
            except OSError as error:
                return error.errno != errno.EXDEV
        return True

    def rename_onto_empty(self, source: str, target: str) -> RenameOutcome:
        """rename(2) of a directory replaces an empty directory, and nothing else."""
        found = self.find_entry(source)
        if found is None:
            return RenameOutcome.SOURCE_MISSING
        if found.kind is not EntryKind.DIRECTORY:
            raise RejectedError(f"{source} is no directory", field="destination", hint="Nothing was changed.")
        try:
            Path(source).rename(target)
        except FileNotFoundError as error:
            if self.find_entry(source) is None:
                return RenameOutcome.SOURCE_MISSING
            raise translate_error(error, action=f"rename {source} to", path=target, changes=True) from error
        except OSError as error:
            if error.errno in _STANDS and self.find_entry(target) is not None:
                return RenameOutcome.TARGET_EXISTS
            raise translate_error(error, action=f"rename {source} to", path=target, changes=True) from error
        return RenameOutcome.RENAMED

    def make_directory(self, path: str) -> bool:
        with families("make", path, changes=True):
            try:
                os.mkdir(path)  # noqa: PTH102  the mode's default, and never a parent
            except FileExistsError:
                return False
        return True


def _lead_through(directory: str, target: str) -> str:
    """A path to ``target`` that leads nowhere once the directory is gone."""
    up = "/".join([".."] * os.path.realpath(directory).count("/"))
    return f"{directory}/{up}{target}"


def _cannot_exchange(path: str) -> RejectedError:
    return RejectedError(
        f"the file system of {path} can't exchange two names",
        field="destination",
        hint="It could when the publication was sealed: mount the same file system again.",
    )
