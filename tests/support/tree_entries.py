"""Listed entries without a file system."""

from collections.abc import Iterable, Iterator, Sequence

from gobblin_assets.fs.tree import Descend, EntryKind, TreeEntry, sort_key
from gobblin_assets.model.files import FileIdentity

S_NS = 1_000_000_000


def file_entry(path: str, size_bytes: int = 1, mtime_ns: int | None = S_NS, mode: int | None = 0o644) -> TreeEntry:
    return TreeEntry(path, EntryKind.FILE, FileIdentity(size_bytes, 7, mtime_ns), mode, 1000, 1000)


def directory_entry(path: str) -> TreeEntry:
    return TreeEntry(path, EntryKind.DIRECTORY, FileIdentity(4096, 7, S_NS), 0o755, 1000, 1000)


def link_entry(path: str, kind: EntryKind = EntryKind.LINK) -> TreeEntry:
    return TreeEntry(path, kind, FileIdentity(3, 7, S_NS), 0o777, 1000, 1000)


def listing(*entries: TreeEntry | str) -> list[TreeEntry]:
    """The entries in a listing's order, with the directories on the way to them; a text is a file's path."""
    return with_parents([file_entry(entry) if isinstance(entry, str) else entry for entry in entries])


def with_parents(entries: Iterable[TreeEntry]) -> list[TreeEntry]:
    found = {sort_key(entry): entry for entry in entries}
    for entry in list(found.values()):
        parent = entry.path
        while parent := parent.rpartition("/")[0]:
            found.setdefault(f"{parent}/", directory_entry(parent))
    return sorted(found.values(), key=lambda entry: sort_key(entry).encode())


class ListedTree:
    """The Tree port over entries in memory."""

    def __init__(self, entries: Sequence[TreeEntry]) -> None:
        self._entries = entries

    @property
    def mtime_precision_ns(self) -> int:
        return 1

    def list_tree(self, root: str, descend: Descend | None = None) -> Iterator[TreeEntry]:
        closed: list[str] = []
        for entry in self._entries:
            if not any(entry.path.startswith(f"{path}/") for path in closed):
                if entry.kind is EntryKind.DIRECTORY and descend is not None and not descend(entry.path):
                    closed.append(entry.path)
                yield entry
