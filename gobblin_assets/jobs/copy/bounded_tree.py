"""A tree whose listings end: for searches that must not take long."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from gobblin_assets.errors import RejectedError
from gobblin_assets.fs.tree import Descend, Tree, TreeEntry, list_without_files


@dataclass(slots=True)
class BoundedTree:
    """``Tree`` that gives at most ``entries_max`` entries in all of its listings together; then a RejectedError."""

    tree: Tree
    entries_max: int
    _given: int = field(default=0, init=False)

    @property
    def mtime_precision_ns(self) -> int:
        return self.tree.mtime_precision_ns

    def list_tree(self, root: str, descend: Descend | None = None) -> Iterator[TreeEntry]:
        return self._count(root, self.tree.list_tree(root, descend))

    def list_without_files(self, root: str, descend: Descend | None = None) -> Iterator[TreeEntry]:
        return self._count(root, list_without_files(self.tree, root, descend))

    def _count(self, root: str, entries: Iterator[TreeEntry]) -> Iterator[TreeEntry]:
        for entry in entries:
            self._given += 1
            if self._given > self.entries_max:
                raise RejectedError(
                    f"the search for datasets has looked at {self.entries_max:,} entries of {root}, and is not over",
                    field="finder",
                    hint="Let the pattern begin with names that have no globs, or leave old dates out: lookback_s.",
                )
            yield entry
