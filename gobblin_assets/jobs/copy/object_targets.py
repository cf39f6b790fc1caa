"""The objects at a copy's destination, as a tree whose files have the times of their origins.

A store tells the time of the upload, and a listing tells no metadata. So the time of a file's origin comes from the
log: it is that of the publication whose ETag the object still has. An object that the job did not publish has the
store's own time.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from gobblin_assets.fs.object_tree import ObjectTree
from gobblin_assets.fs.objects import ObjectFiles
from gobblin_assets.fs.ranged import RangedFile
from gobblin_assets.fs.tree import Descend, EntryKind, TreeEntry
from gobblin_assets.model.files import FileIdentity

FindPublished = Callable[[str], FileIdentity | None]
"""For a full path: the identity of what the job published there last."""

FindKnown = Callable[[str], FindPublished]
"""For the root of a listing, whose paths are asked for in order."""


@dataclass(frozen=True, slots=True)
class ObjectTargets:
    """``RangedFiles`` over the objects of ``files``."""

    files: ObjectFiles
    find_known: FindKnown

    @property
    def mtime_precision_ns(self) -> int:
        """Times come from the log."""
        return 1

    @property
    def has_owners(self) -> bool:
        return False

    def to_uri(self, path: str) -> str:
        return self.files.to_uri(path)

    def find_file(self, path: str) -> FileIdentity | None:
        return ObjectTree(self.files, "destination").find_file(path)

    def open_ranged(self, path: str, identity: FileIdentity) -> RangedFile:
        return ObjectTree(self.files, "destination").open_ranged(path, identity)

    def list_tree(self, root: str, descend: Descend | None = None) -> Iterator[TreeEntry]:
        # Before the first copy there is nothing at all, which is no error at a destination.
        if next(iter(self.files.list_objects(root)), None) is None:
            return
        find_published = self.find_known(root)
        for entry in ObjectTree(self.files, "destination").list_tree(root, descend):
            ours = find_published(f"{root}/{entry.path}")
            if entry.kind is EntryKind.FILE and ours is not None and _is_version(entry.identity, ours):
                yield replace(entry, identity=replace(entry.identity, mtime_ns=ours.mtime_ns))
            else:
                yield entry


def _is_version(found: FileIdentity, ours: FileIdentity) -> bool:
    return found.size_bytes == ours.size_bytes and found.tag == ours.tag is not None
