"""Listed entries in byte order, one at a time, with the names checked that no file system could hold beside others."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from gobblin_assets.destinations.claims import WORK_NAME
from gobblin_assets.errors import ConflictError, RejectedError
from gobblin_assets.fs.tree import EntryKind, TreeEntry, sort_key


class SortedEntries:
    """A cursor over a listing. ``key`` is the sort key of ``entry``; both are None behind the last.

    ``has_file``: whether a file was met so far. Links and special files are none: they may be left out.

    ConflictError: the listing is not ascending, and what is missing from it can't be told. RejectedError: one name is a
    file's and a directory's. Object stores may hold both; no directory can.
    """

    def __init__(self, entries: Iterable[TreeEntry], side: str) -> None:
        self._entries: Iterator[TreeEntry] = iter(entries)
        self._side = side
        self._again: list[TreeEntry] = []
        self._last_key = ""
        # Keys that directories would have beside the files at hand. Each begins with the one below it, so that they are
        # never more than a path has letters.
        self._taken: list[str] = []
        self.entry: TreeEntry | None = None
        self.key: str | None = None
        self.has_file = False
        self.advance()

    def advance(self) -> None:
        """Go to the next entry."""
        if self._again:
            self.entry = self._again.pop()
            self.key = sort_key(self.entry)
            return
        found = next(self._entries, None)
        if found is None:
            self.entry = self.key = None
            return
        path, key = found.path, sort_key(found)
        if key <= self._last_key:
            raise ConflictError(
                f"the listing of the {self._side} gives {key!a} behind {self._last_key!a}",
                hint="Its file system does not list in byte order; compare nothing by it.",
                path=path,
            )
        taken = self._taken
        while taken and taken[-1] < key:
            taken.pop()
        if found.kind is not EntryKind.DIRECTORY:
            taken.append(f"{path}/")
            self.has_file = self.has_file or found.kind is EntryKind.FILE
        elif taken and taken[-1] == key:
            raise RejectedError(
                f"{path!a} is the name of a file, and of a directory with other files",
                field=self._side,
                hint="Rename one of them, or exclude it: no directory can hold both.",
                path=path,
            )
        self.entry, self.key, self._last_key = found, key, key

    def go_back(self, entries: Iterable[TreeEntry]) -> None:
        """Give these entries, which came directly before the present one, once more."""
        if self.entry is not None:
            self._again.append(self.entry)
        self._again += reversed(list(entries))
        self.advance()

    def skip_below(self, prefix: str) -> None:
        """Go on to the first entry whose key does not begin with ``prefix``."""
        while self.key is not None and self.key.startswith(prefix):
            self.advance()


@dataclass(slots=True)
class CaseNames:
    """The names of the directories on the way to the last path, for destinations that ignore case.

    Memory is bounded by the largest directory and the depth.
    """

    _levels: list[tuple[str, dict[str, str]]] = field(default_factory=list)

    def add(self, path: str) -> None:
        """Paths of both sides, in byte order. RejectedError: another name of its directory differs by case only, or it
        is that of work directories.
        """
        directory, slash, name = path.rpartition("/")
        if name.casefold() == WORK_NAME:
            raise RejectedError(
                f"the destination ignores case, and would take {path!a} for a work directory {WORK_NAME}",
                field="source",
                hint="Rename it, or exclude it.",
                path=path,
            )
        prefix = directory + slash
        levels = self._levels
        while levels and not prefix.startswith(levels[-1][0]):
            levels.pop()
        if not levels or levels[-1][0] != prefix:
            levels.append((prefix, {}))
        known = levels[-1][1].setdefault(name.casefold(), name)
        if known != name:
            raise RejectedError(
                f"the names {prefix + known!a} and {path!a} differ by case only, and the destination ignores case",
                field="source",
                hint="Rename one of them on both sides, or exclude it.",
                path=path,
            )
