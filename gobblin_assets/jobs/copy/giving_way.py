"""What gives way at a name that is a file's at one side, and a directory's at the other.

A directory without a file gives way to a file, whoever made it: it says nothing. Files give way as they are deleted: of
the job's own all, where ``deletes`` says so. If anything else stands there, all of it stays.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from gobblin_assets.fs.tree import EntryKind, Tree, TreeEntry
from gobblin_assets.jobs.copy.difference import Deletes


@dataclass(frozen=True, slots=True)
class GivingWay:
    """``tree`` and ``root``: of the destination. ``is_ours``: whether the job published an entry below it."""

    tree: Tree
    root: str
    deletes: Deletes
    is_ours: Callable[[TreeEntry], bool] | None

    def find(self, standing: TreeEntry) -> tuple[TreeEntry, ...] | None:
        """``standing`` with all that is below it, if all of this may give way; filters do not count."""
        if standing.kind is not EntryKind.DIRECTORY:
            return (standing,) if self._may_go(standing) else None
        found = [standing]
        for entry in self.tree.list_tree(f"{self.root}/{standing.path}"):
            below = replace(entry, path=f"{standing.path}/{entry.path}")
            if entry.kind is not EntryKind.DIRECTORY and not self._may_go(below):
                return None
            found.append(below)
        return tuple(found)

    def _may_go(self, entry: TreeEntry) -> bool:
        if entry.kind is not EntryKind.FILE or self.deletes is Deletes.OFF:
            return False
        return self.deletes is Deletes.ALL or (self.is_ours is not None and self.is_ours(entry))
