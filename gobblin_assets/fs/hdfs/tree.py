"""Trees of HDFS, and their files, read by ranges."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from gobblin_assets.errors import RetryableError
from gobblin_assets.fs.hdfs.answers import (
    MISSING,
    MS_NS,
    NO_DIRECTORY,
    HdfsFailure,
    entry_of_status,
    status_of,
)
from gobblin_assets.fs.hdfs.listing import HdfsListing
from gobblin_assets.fs.hdfs.streams import HdfsReader, HdfsStreams
from gobblin_assets.fs.hdfs.web import WebHdfs
from gobblin_assets.fs.tree import Descend, EntryKind, TreeEntry
from gobblin_assets.model.files import FileIdentity

_GONE: Final = MISSING | NO_DIRECTORY


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
