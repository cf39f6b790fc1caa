"""Trees of local disks and mounted file systems, listed in byte order by ``os.scandir``."""

import errno
import os
import re
import stat
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from gobblin_assets.errors import RejectedError, RetryableError
from gobblin_assets.fs.posix_errors import translate_error
from gobblin_assets.fs.tree import Descend, EntryKind, TreeEntry, is_utf8_name, walk_levels
from gobblin_assets.model.files import FileIdentity

_OPEN_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NOT_A_LINK: Final = os.O_NOFOLLOW
_KINDS: Final = {stat.S_IFREG: EntryKind.FILE, stat.S_IFDIR: EntryKind.DIRECTORY, stat.S_IFLNK: EntryKind.LINK}

MOUNTS: Final = Path("/proc/self/mountinfo")

_ESCAPED: Final = re.compile(r"\\([0-7]{3})")


class PosixTree:
    """The Tree port over the operating system's calls. Safe to share between threads.

    ``option``: where a person wrote the root, for errors. ``hidden``: names of directories directly below a root that
    are never listed, nor are links to them; files of such names are. A directory of such a name further down is a
    RejectedError, unless ``descend`` leaves it out.
    ``follow_links``: a link is given as what it leads to, which must be below the root and not hidden.
    ``mtime_precision_ns``: the steps in which the file system keeps times: Linux's own 1 ns, FAT 2 s. ``order``
    gives, for an entry's ``sort_key``, the text by which it is sorted in its directory; without it, that is the key.
    """

    def __init__(
        self,
        option: str,
        *,
        hidden: frozenset[str] = frozenset(),
        follow_links: bool = False,
        mtime_precision_ns: int = 1,
        order: Callable[[str], str] | None = None,
    ) -> None:
        self._option = option
        self._hidden = hidden
        self._follow_links = follow_links
        self._mtime_precision_ns = mtime_precision_ns
        self._order = order

    @property
    def mtime_precision_ns(self) -> int:
        return self._mtime_precision_ns

    def find_link_target(self, path: str) -> str | None:
        try:
            if not stat.S_ISLNK(os.lstat(path).st_mode):
                return None
            return os.path.realpath(path, strict=True)
        except (FileNotFoundError, NotADirectoryError) as error:
            if not os.path.islink(path):  # noqa: PTH114  a Path costs as much as the call
                return None
            raise self._refuse_link(path, "leads nowhere") from error
        except OSError as error:
            raise self._refuse_link(path, f"can't be followed: {error.strerror}") from error

    def find_real_path(self, path: str) -> str:
        return os.path.realpath(path)

    def find_mounts(self, root: str) -> Mapping[str, str]:
        return find_mounts(root)

    def _refuse_link(self, path: str, message: str) -> RejectedError:
        hint = "Remove it, or correct where it leads."
        return RejectedError(f"the link {path} {message}", field=self._option, hint=hint, path=path)

    def list_tree(self, root: str, descend: Descend | None = None) -> Iterator[TreeEntry]:
        """A directory's names are read at once and sorted; no directory stays open."""
        return self._list(root, descend, has_files=True)

    def list_without_files(self, root: str, descend: Descend | None = None) -> Iterator[TreeEntry]:
        return self._list(root, descend, has_files=False)

    def _list(self, root: str, descend: Descend | None, *, has_files: bool) -> Iterator[TreeEntry]:
        listing = _Listing(
            *(root, self._option, self._hidden, descend),
            follow_links=self._follow_links,
            order=self._order,
            has_files=has_files,
        )
        try:
            yield from listing.list_entries()
        except OSError as error:
            raise listing.explain(error) from error


@dataclass(frozen=True, slots=True)
class _Level:
    """A directory whose entries are being given.

    ``prefix``: its path below the root, and a slash; empty for the root. ``keys``: the names that are left, in order,
    a slash behind each that is a directory. Names alone take a third of the memory of scandir's entries.
    ``node``: device and inode.
    """

    full_path: str
    prefix: str
    keys: Iterator[str]
    found: os.stat_result

    @property
    def node(self) -> tuple[int, int]:
        return self.found.st_dev, self.found.st_ino


@dataclass(slots=True)
class _Listing:
    """One listing, with files or without. ``place``: the full path that is being looked at, for errors."""

    root: str
    option: str
    hidden: frozenset[str]
    descend: Descend | None
    follow_links: bool
    order: Callable[[str], str] | None
    has_files: bool
    place: str = ""
    levels: list[_Level] = field(default_factory=list)

    def list_entries(self) -> Iterator[TreeEntry]:
        self.levels.append(self._open_root())
        yield from walk_levels(self.levels, self._list_level)

    def _list_level(self, level: _Level) -> Generator[TreeEntry, None, _Level | None]:
        prefix, directory = level.prefix, level.full_path
        for key in level.keys:
            self.place = place = f"{directory}/{key}"
            try:
                if key[-1] != "/":
                    found = os.lstat(place)
                    if stat.S_ISLNK(found.st_mode) and self.follow_links:
                        found = self._stat_target(place)
                    if stat.S_ISDIR(found.st_mode):
                        raise self._changed()
                    yield entry_of(prefix + key, found)
                    continue
                below = self._open_below(level, key[:-1])
            except FileNotFoundError:
                continue
            if isinstance(below, TreeEntry):
                yield below
                continue
            yield entry_of(below.prefix[:-1], below.found)
            return below
        self._check_still_there(level)
        return None

    def _check_still_there(self, level: _Level) -> None:
        """After an unmount all names are missing. They must not look as if somebody had removed them one by one."""
        self.place = level.full_path
        try:
            found = os.stat(level.full_path)  # noqa: PTH116  a Path costs as much as the call
        except FileNotFoundError as error:
            if level.prefix:
                return
            raise RetryableError(f"{self.root} was removed while it was being listed", path=self.root) from error
        if (found.st_dev, found.st_ino) != level.node:
            raise RetryableError(f"{level.full_path} was replaced while it was being listed", path=level.full_path)

    def _open_root(self) -> _Level:
        self.place = self.root
        level = self._open(self.root, "", _OPEN_DIRECTORY)
        keys = (key for key in level.keys if not self._hides(key))
        return _Level(self.root, "", keys, level.found)

    def _hides(self, key: str) -> bool:
        """Of a key directly below the root: a directory's, or that of a link to one."""
        if key.removesuffix("/") not in self.hidden:
            return False
        return key[-1] == "/" or os.path.isdir(f"{self.root}/{key}")  # noqa: PTH112  a Path costs as much as the call

    def _open_below(self, above: _Level, name: str) -> _Level | TreeEntry:
        """The directory, opened; its entry alone where ``descend`` says no."""
        path, place = above.prefix + name, f"{above.full_path}/{name}"
        self.place = place
        is_link = self.follow_links and stat.S_ISLNK(os.lstat(place).st_mode)
        if is_link:
            self._check_target(place)
        if self.descend is not None and not self.descend(path):
            found = os.stat(place) if is_link else os.lstat(place)  # noqa: PTH116  a Path costs as much as the call
            if not stat.S_ISDIR(found.st_mode):
                raise self._changed()
            return entry_of(path, found)
        if above.prefix and name in self.hidden:
            hint = "Exclude the directory that holds it, or choose another root."
            raise self._refuse(f"another copy's destination lies inside: {place} is its working directory", hint)
        level = self._open(place, f"{path}/", _OPEN_DIRECTORY | (0 if is_link else _NOT_A_LINK))
        if is_link and level.node in [each.node for each in self.levels]:
            raise self._refuse(f"the link {place} leads to a directory that holds it", "Remove it, or exclude it.")
        return level

    def _open(self, place: str, prefix: str, flags: int) -> _Level:
        descriptor = os.open(place, flags)
        try:
            found = os.fstat(descriptor)
            with os.scandir(descriptor) as entries:
                keys = [
                    f"{each.name}/" if self._is_directory(each) else each.name
                    for each in entries
                    if self.has_files or not each.is_file(follow_symlinks=False)
                ]
        finally:
            os.close(descriptor)
        for key in keys:
            if not key.isascii() and not is_utf8_name(key):
                raise self._refuse(
                    f"expected names in UTF-8, found {os.fsencode(key)!r} in {place}", "Rename it, or remove it."
                )
        order = self.order
        keys.sort(key=None if order is None else lambda key: order(prefix + key))
        return _Level(place, prefix, iter(keys), found)

    def _is_directory(self, entry: "os.DirEntry[str]") -> bool:
        try:
            return entry.is_dir(follow_symlinks=self.follow_links)
        except OSError:
            if self.follow_links and entry.is_symlink():
                return False  # what is wrong with the link is said when it is followed, by its own name
            raise

    def _check_target(self, place: str) -> None:
        root, target = os.path.realpath(self.root), os.path.realpath(place)
        inside = target.removeprefix("/" if root == "/" else f"{root}/")
        if inside == target or inside.partition("/")[0] in self.hidden:
            raise self._refuse(
                f"the link {place} leads to {target}, which is not below the root {root}",
                "Links are followed inside the root only: exclude it, or put a copy in its place.",
            )

    def _stat_target(self, place: str) -> os.stat_result:
        self._check_target(place)
        try:
            return os.stat(place)  # noqa: PTH116  a Path costs as much as the call
        except OSError as error:
            if error.errno not in {errno.ENOENT, errno.ELOOP, errno.ENOTDIR}:
                raise
            os.lstat(place)  # a link that has disappeared is left out, as anything else
            raise self._refuse(f"the link {place} leads nowhere", "Remove it, or exclude it.") from error

    def explain(self, error: OSError) -> RejectedError | RetryableError:
        """The error's family; ``place`` is named."""
        if self.place == self.root and isinstance(error, FileNotFoundError):
            return self._refuse(f"{self.root} is missing", "Correct the path, or make the directory.")
        if self.place == self.root and isinstance(error, NotADirectoryError):
            return self._refuse(f"expected a directory, found another kind of file: {self.root}", "Correct the path.")
        if isinstance(error, PermissionError):
            hint = "Give the user that runs this the right to read and search there, or exclude it."
            return self._refuse(f"{self.place} can't be read: {error.strerror}", hint)
        if isinstance(error, NotADirectoryError) or (error.errno == errno.ELOOP and self.place != self.root):
            return self._changed()
        found = translate_error(error, action="list", path=self.place, changes=False)
        if isinstance(found, RejectedError):
            return self._refuse(f"can't list {self.place}: {error.strerror}", found.hint)
        return RetryableError(found.message, hint=found.hint, path=self.place)

    def _changed(self) -> RetryableError:
        return RetryableError(f"{self.place} changed its kind while it was being listed", path=self.place)

    def _refuse(self, message: str, hint: str) -> RejectedError:
        return RejectedError(message, field=self.option, hint=hint, path=self.place)


def entry_of(path: str, found: os.stat_result) -> TreeEntry:
    """The entry for a result of lstat, or of stat where a link was followed."""
    mode = found.st_mode
    return TreeEntry(
        path,
        _KINDS.get(stat.S_IFMT(mode), EntryKind.SPECIAL),
        FileIdentity(found.st_size, found.st_ino, found.st_mtime_ns),
        stat.S_IMODE(mode),
        found.st_uid,
        found.st_gid,
        None,
        found.st_ctime_ns,
    )


@dataclass(frozen=True, slots=True)
class _Mount:
    """A mount. ``device``: its numbers. ``directory``: of its file system, which is mounted at ``point``."""

    point: str
    device: str
    directory: str
    kind: str
    origin: str


def find_mounts(root: str) -> dict[str, str]:
    """The mounts by path below ``root``, as texts that the same file systems have again. "": root's own.

    Numbers of devices are given anew when a machine starts, and those of network mounts each time that they are
    mounted. So a file system is known by its own number where it has one, else by the server and path that it comes
    from. A directory that is mounted at a second place has the number of the first: the directory tells them apart.
    Where the system has no list of mounts, only the root's own is known.
    """
    place = os.path.realpath(root)
    mounts = _list_around(place)
    waiting = [each.point for each in mounts.values() if each.kind == "autofs"]
    for point in waiting:
        # It mounts what belongs there once somebody looks inside.
        with suppress(OSError):
            os.stat(f"{point}/.")  # noqa: PTH116  a Path would drop the dot
    found = _list_around(place) if waiting else mounts
    if not found:
        return {"": str(os.stat(place).st_dev)}  # noqa: PTH116  as the others of this package
    return {path: _name(each) for path, each in found.items()}


def _list_around(place: str) -> dict[str, _Mount]:
    """The mounts by path below ``place``; a later mount at a point hides those before it."""
    found: dict[str, _Mount] = {}
    below = "/" if place == "/" else f"{place}/"
    for each in _read():
        if each.point.startswith(below) and each.point != "/":
            found[each.point.removeprefix(below)] = each
        elif place == each.point or place.startswith(f"{each.point.rstrip('/')}/"):
            own = found.get("")
            if own is None or len(each.point) >= len(own.point):
                found[""] = each
    return found


def _read() -> Iterator[_Mount]:
    try:
        lines = MOUNTS.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return
    for line in lines:
        fields, _, rest = line.partition(" - ")
        _number, _parent, device, directory, point, *_options = fields.split(" ")
        kind, origin, *_others = rest.split(" ")
        yield _Mount(*(_unescape(each) for each in (point, device, directory, kind, origin)))


def _unescape(text: str) -> str:
    return _ESCAPED.sub(lambda found: chr(int(found[1], 8)), text)


def _name(mount: _Mount) -> str:
    number = 0
    with suppress(OSError):
        number = os.statvfs(mount.point).f_fsid
    is_remote = ":" in mount.origin or mount.origin.startswith("//")
    known = f"{number:x}" if number else mount.origin if is_remote else mount.device
    return f"{mount.kind} {known} {mount.directory}"
