"""Trees of HDFS, in the byte order of their paths, and their files, read by ranges.

A NameNode orders the names of a directory by their bytes as signed numbers, so that every letter outside of ASCII
comes before those inside.
"""

import heapq
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final

from gobblin_assets.errors import RejectedError, RetryableError
from gobblin_assets.fs.hdfs.streams import HdfsReader, HdfsStreams
from gobblin_assets.fs.hdfs.web import (
    MISSING,
    MS_NS,
    NO_DIRECTORY,
    HdfsFailure,
    WebHdfs,
    entry_of_status,
    explain_failure,
    status_of,
)
from gobblin_assets.fs.tree import Descend, EntryKind, TreeEntry, is_hidden, sort_key, walk_levels
from gobblin_assets.model.files import FileIdentity

_SIGNED: Final = bytes(byte ^ 0x80 for byte in range(256))
"""Bytes that compare as the signed ones do."""

_GONE: Final = MISSING | NO_DIRECTORY


def list_pages(web: WebHdfs, directory: str, after: str = "") -> Iterator[Sequence[Mapping[str, Any]] | HdfsFailure]:
    """Pages of a directory's entries behind the name ``after``, in the NameNode's order; a failure ends them.

    RejectedError if the order is another one: names would be left out between two pages.
    """
    last, is_last = after.encode().translate(_SIGNED), False
    while not is_last:
        page = web.list_page(directory, after)
        if isinstance(page, HdfsFailure):
            yield page
            return
        for each in page.statuses:
            after = each["pathSuffix"]
            name = after.encode().translate(_SIGNED)
            if name <= last and after:
                raise RejectedError(
                    f"the names in {directory} don't come in the order of a NameNode: {after!a}",
                    field=web.option,
                    hint="Use the NameNode's own WebHDFS, of a Hadoop that lists in pages.",
                    path=directory,
                )
            last = name
        yield page.statuses
        is_last = page.is_last


@dataclass(slots=True)
class _Level:
    """A directory whose entries are being given. ``prefix``: its path below the root, and a slash.

    ``looks_again``: something was asked for after its first page.
    """

    place: str
    prefix: str
    file_id: int | None
    entries: Iterator[TreeEntry] = field(default_factory=lambda: iter(()))
    looks_again: bool = False


class HdfsListing:
    """A listing of a tree. ``hidden``, ``descend``: as in ``fs.tree``. For one thread, once."""

    def __init__(self, web: WebHdfs, root: str, hidden: frozenset[str], descend: Descend | None) -> None:
        self._web = web
        self._root = root
        self._hidden = hidden
        self._descend = descend
        self._levels: list[_Level] = []

    def list_entries(self) -> Iterator[TreeEntry]:
        self._levels.append(self._open_root())
        yield from walk_levels(self._levels, self._list_level)

    def _list_level(self, level: _Level) -> Generator[TreeEntry, None, _Level | None]:
        for entry in level.entries:
            if not level.prefix and is_hidden(entry, self._hidden):
                continue
            if entry.kind is not EntryKind.DIRECTORY:
                yield entry
                continue
            if self._descend is not None and not self._descend(entry.path):
                yield entry
                continue
            if level.prefix and entry.path.rpartition("/")[2] in self._hidden:
                raise self._refuse(
                    f"another copy's destination lies inside: {entry.path} is its working directory",
                    "Exclude the directory that holds it, or choose another root.",
                )
            level.looks_again = True
            below = self._open_below(entry)
            if below is not None:
                yield entry
                return below
            self._require_unmoved()
        if level.looks_again:
            self._require_unmoved()
        return None

    def _open_root(self) -> _Level:
        found = self._look_at(self._root)
        if found is None:
            raise self._refuse(f"{self._root} is missing", "Correct the path, or make the directory.")
        if found.kind is not EntryKind.DIRECTORY:
            raise self._refuse(f"expected a directory, found another kind of file: {self._root}", "Correct the path.")
        level = _Level(self._root, "", found.identity.inode, looks_again=True)
        level.entries = in_byte_order("", chain.from_iterable(self._list_pages(level)))
        return level

    def _open_below(self, directory: TreeEntry) -> _Level | None:
        """None if it has disappeared."""
        level = _Level(f"{self._root}/{directory.path}", f"{directory.path}/", directory.identity.inode)
        pages = self._list_pages(level)
        first = next(pages, None)
        if first is None:
            return None
        level.entries = in_byte_order(level.prefix, chain(first, chain.from_iterable(pages)))
        return level

    def _list_pages(self, level: _Level) -> Iterator[Sequence[TreeEntry]]:
        """Nothing if the directory is missing, and nothing more if it disappears."""
        for number, page in enumerate(list_pages(self._web, level.place)):
            level.looks_again = level.looks_again or number > 0
            if isinstance(page, HdfsFailure):
                if page.kind in MISSING:
                    return
                if page.kind in NO_DIRECTORY:
                    raise _changed(level.place)
                raise explain_failure(page, action="list", path=level.place, option=self._web.option, changes=False)
            if any(not each["pathSuffix"] for each in page):
                raise _changed(level.place)
            yield [entry_of_status(f"{level.prefix}{each['pathSuffix']}", each) for each in page]

    def _require_unmoved(self) -> None:
        """What is below a root that was renamed away must not look as if somebody had removed it.

        A directory on the way may be removed; then the one above it counts, up to the root.
        """
        for level in reversed(self._levels):
            found = self._look_at(level.place)
            if found is not None and found.identity.inode == level.file_id:
                return
            if found is not None:
                raise RetryableError(f"{level.place} was replaced while it was being listed", path=level.place)
        raise RetryableError(f"{self._root} was removed while it was being listed", path=self._root)

    def _look_at(self, place: str) -> TreeEntry | None:
        answer = self._web.ask(place, "GETFILESTATUS")
        if isinstance(answer, HdfsFailure) and answer.kind in MISSING | NO_DIRECTORY:
            return None
        return entry_of_status(place, status_of(place, self._web.require(answer, "list", place, changes=False)))

    def _refuse(self, message: str, hint: str) -> RejectedError:
        return RejectedError(message, field=self._web.option, hint=hint, path=self._root)


def in_byte_order(prefix: str, entries: Iterable[TreeEntry]) -> Iterator[TreeEntry]:
    """The entries of the directory ``prefix``, ascending by ``sort_key`` instead of by a NameNode's order.

    An entry waits only while one may come that belongs before it: a directory ``a`` for ``a.b``, and a name with a
    letter outside of ASCII for the other names that begin as it does.
    """
    start = len(prefix)
    waiting: list[tuple[str, TreeEntry]] = []
    for entry in entries:
        name = entry.path[start:]
        while waiting and not _may_precede(name, waiting[0][1].path[start:]):
            yield heapq.heappop(waiting)[1]
        if entry.kind is not EntryKind.DIRECTORY and name.isascii():
            yield entry
        else:
            heapq.heappush(waiting, (sort_key(entry), entry))
    while waiting:
        yield heapq.heappop(waiting)[1]


def _may_precede(name: str, waiting: str) -> bool:
    """Whether ``name``, or one behind it in a NameNode's order, may belong before the entry that is waiting."""
    if not waiting.isascii():
        length = next(index for index, letter in enumerate(waiting) if not letter.isascii())
        return name.startswith(waiting[:length])
    return name.startswith(waiting) and (name[len(waiting)] < "/" or not name[len(waiting)].isascii())


def _changed(place: str) -> RetryableError:
    return RetryableError(f"{place} changed its kind while it was being listed", path=place)


class HdfsTree:
    """``RangedFiles`` and ``PlacedEntries`` over one cluster. Safe to share between threads.

    ``hidden``: as in ``PosixTree``.
    """

    def __init__(
        self, address: str, web: WebHdfs, streams: HdfsStreams, *, hidden: frozenset[str] = frozenset()
    ) -> None:
        self._address = address
        self._web = web
        self._streams = streams
        self._hidden = hidden

    @property
    def mtime_precision_ns(self) -> int:
        return MS_NS

    @property
    def has_owners(self) -> bool:
        return False

    @property
    def has_placements(self) -> bool:
        return True

    def to_uri(self, path: str) -> str:
        return f"hdfs://{self._address}{path}"

    def list_tree(self, root: str, descend: Descend | None = None) -> Iterator[TreeEntry]:
        """Pages of the directories on the way are held, not the directories."""
        return HdfsListing(self._web, root, self._hidden, descend).list_entries()

    def find_file(self, path: str) -> FileIdentity | None:
        answer = self._web.ask(path, "GETFILESTATUS")
        if isinstance(answer, HdfsFailure) and answer.kind in _GONE:
            return None
        entry = entry_of_status(path, status_of(path, self._web.require(answer, "look at", path, changes=False)))
        return entry.identity if entry.kind is EntryKind.FILE else None

    def open_ranged(self, path: str, identity: FileIdentity) -> "_RangedHdfsFile":
        """Looked at through both ways: a WebHDFS of another cluster would tell of other files."""
        opened = _RangedHdfsFile(self, HdfsReader(self._streams, path), path, identity)
        if not self._streams.has_version(path, identity):
            raise opened.changed("since it was planned")
        if opened.reader.size_bytes != identity.size_bytes:
            opened.require_planned("since it was planned")
            told_bytes, found_bytes = identity.size_bytes, opened.reader.size_bytes
            raise RetryableError(
                f"{path} says {told_bytes:,} bytes, and {found_bytes:,} can be read: it is still being written",
                hint="The next run copies it once it is closed.",
                path=path,
            )
        if not identity.size_bytes:
            opened.require_planned("since it was planned")
        return opened


@dataclass(frozen=True, slots=True)
class _RangedHdfsFile:
    """A file whose name must have the planned identity when the last byte was read: the reader holds its blocks."""

    tree: HdfsTree
    reader: HdfsReader
    path: str
    identity: FileIdentity

    def read_at(self, offset: int, size_bytes: int) -> bytes:
        content = self.reader.read_at(offset, size_bytes)
        if len(content) != size_bytes or offset + size_bytes >= self.identity.size_bytes:
            self.require_planned("while it was read")
        return content

    def close(self) -> None:
        self.reader.close()

    def require_planned(self, when: str) -> None:
        found = self.tree.find_file(self.path)
        if found is None or not found.matches(self.identity):
            raise self.changed(when)

    def changed(self, when: str) -> RetryableError:
        return RetryableError(
            f"{self.path} changed {when}", hint="The next plan sees it as it is then.", path=self.path
        )
