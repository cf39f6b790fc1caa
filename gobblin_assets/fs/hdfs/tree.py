"""Trees of HDFS, listed in byte order by WebHDFS, and their files, read by ranges."""

from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from typing import Final

from gobblin_assets.errors import RejectedError, RetryableError
from gobblin_assets.fs.hdfs.answers import (
    MISSING,
    MS_NS,
    NO_DIRECTORY,
    HdfsFailure,
    entry_of_status,
    explain_failure,
    status_of,
)
from gobblin_assets.fs.hdfs.streams import HdfsReader, HdfsStreams
from gobblin_assets.fs.hdfs.web import WebHdfs
from gobblin_assets.fs.tree import Descend, EntryKind, TreeEntry, sort_key
from gobblin_assets.model.files import FileIdentity

_GONE: Final = MISSING | NO_DIRECTORY


class HdfsTree:
    """``RangedFiles`` over one cluster. Safe to share between threads. ``hidden``: as in ``PosixTree``."""

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

    def to_uri(self, path: str) -> str:
        return f"hdfs://{self._address}{path}"

    def list_tree(self, root: str, descend: Descend | None = None) -> Iterator[TreeEntry]:
        """One request for each directory, whose entries are held and sorted."""
        return _Listing(self._web, root, self._hidden, descend).list_entries()

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


@dataclass(slots=True)
class _Level:
    """A directory whose entries are being given. ``prefix``: its path below the root, and a slash."""

    prefix: str
    entries: Iterator[TreeEntry]


@dataclass(slots=True)
class _Listing:
    web: WebHdfs
    root: str
    hidden: frozenset[str]
    descend: Descend | None
    levels: list[_Level] = field(default_factory=list)

    def list_entries(self) -> Iterator[TreeEntry]:
        self.levels.append(self._open_root())
        while self.levels:
            below = yield from self._list_level(self.levels[-1])
            if below is None:
                self.levels.pop()
            else:
                self.levels.append(below)

    def _list_level(self, level: _Level) -> Generator[TreeEntry, None, _Level | None]:
        """The entries up to the next directory that is descended into, which is returned; None at the end."""
        for entry in level.entries:
            if entry.kind is not EntryKind.DIRECTORY:
                yield entry
                continue
            if self.descend is not None and not self.descend(entry.path):
                yield entry
                continue
            if level.prefix and entry.path.rpartition("/")[2] in self.hidden:
                raise self._refuse(
                    f"another copy's destination lies inside: {entry.path} is its working directory",
                    "Exclude the directory that holds it, or choose another root.",
                )
            below = self._open_below(entry)
            if below is not None:
                yield entry
                return below
        return None

    def _open_root(self) -> _Level:
        found = self.web.list_status(self.root)
        if isinstance(found, HdfsFailure):
            if found.kind in _GONE:
                raise self._refuse(f"{self.root} is missing", "Correct the path, or make the directory.")
            raise explain_failure(found, action="list", path=self.root, option=self.web.option, changes=False)
        entries = [entry_of_status(str(each["pathSuffix"]), each) for each in found]
        if any(not entry.path for entry in entries):
            raise self._refuse(f"expected a directory, found another kind of file: {self.root}", "Correct the path.")
        return _Level("", _in_order(entry for entry in entries if entry.path not in self.hidden))

    def _open_below(self, directory: TreeEntry) -> _Level | None:
        """None if it has disappeared."""
        place = f"{self.root}/{directory.path}"
        found = self.web.list_status(place)
        if isinstance(found, HdfsFailure):
            if found.kind in MISSING:
                return None
            raise explain_failure(found, action="list", path=place, option=self.web.option, changes=False)
        if any(not each["pathSuffix"] for each in found):
            raise RetryableError(f"{place} changed its kind while it was being listed", path=place)
        prefix = f"{directory.path}/"
        return _Level(prefix, _in_order(entry_of_status(f"{prefix}{each['pathSuffix']}", each) for each in found))

    def _refuse(self, message: str, hint: str) -> RejectedError:
        return RejectedError(message, field=self.web.option, hint=hint, path=self.root)


def _in_order(entries: Iterator[TreeEntry]) -> Iterator[TreeEntry]:
    return iter(sorted(entries, key=sort_key))
