"""The destination's tree as a plan lists it: without the job's own work, and refused where other jobs publish in it.

A listing goes into each directory that is on the way to a name that the plan may publish. So it comes to the work
directory of every other copy in whose tree this name would lie, unless filters exclude a directory above it.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from gobblin_assets.commit.destination import IDENTITY_NAME
from gobblin_assets.destinations.claims import WORK_NAME, find_claim, refuse_around, refuse_rows, work_root_of
from gobblin_assets.errors import RejectedError
from gobblin_assets.fs.port import FileSystem
from gobblin_assets.fs.tree import DIRECTORIES_AND_LINKS, Descend, EntryKind, Tree, TreeEntry


@dataclass(frozen=True, slots=True)
class TargetTree:
    """``Tree`` of the destination ``root``: RejectedError if other jobs publish in what is listed.

    So is a listing of the job's own work directory, whose identity file is no other job's.

    ``is_ours`` says of an entry, whose path is relative to the listed root, whether the job itself published it: a copy
    of a destination of rows has its identity file, too.
    """

    tree: Tree
    root: str
    is_ours: Callable[[str, TreeEntry], bool]

    @property
    def mtime_precision_ns(self) -> int:
        return self.tree.mtime_precision_ns

    def list_tree(self, root: str, descend: Descend | None = None) -> Iterator[TreeEntry]:
        if PurePosixPath(root).is_relative_to(work_root_of(self.root)):
            raise RejectedError(
                f"{root} lies in the job's own work directory, where nothing is published",
                field="destination",
                hint="Let the dataset be copied to another directory.",
                path=root,
            )

        def goes_on(path: str) -> bool:
            return path != WORK_NAME and (descend is None or descend(path))

        for entry in self.tree.list_tree(root, goes_on if root == self.root else descend):
            if entry.path.endswith(WORK_NAME) and self._is_work(entry):
                if root == self.root and entry.path == WORK_NAME:
                    continue
                raise refuse_around(f"{root}/{entry.path}".rpartition("/")[0], is_listed=True)
            if entry.path.endswith(IDENTITY_NAME) and self._is_strange(root, entry):
                place = f"{root}/{entry.path}".rpartition("/")[0]
                raise RejectedError(
                    f"a job publishes rows in {place}, whose identity file {IDENTITY_NAME} is there",
                    field="destination",
                    hint="Exclude the directory, or copy to another one. If it is a copy of such a directory, remove "
                    "this file there: it is copied again.",
                    path=place,
                )
            yield entry

    def admit(self, root: str, entries: Iterable[TreeEntry]) -> Iterator[TreeEntry]:
        """Entries that are to be published in ``root``. RejectedError: a file has the name of the work directory."""
        return self._refuse_work_name(root, entries) if root == self.root else iter(entries)

    def _refuse_work_name(self, root: str, entries: Iterable[TreeEntry]) -> Iterator[TreeEntry]:
        for entry in entries:
            if entry.path == WORK_NAME and entry.kind is EntryKind.FILE:
                raise RejectedError(
                    f"the file {WORK_NAME} would be published as {root}/{WORK_NAME}, the job's own work directory",
                    field="source",
                    hint=f"Exclude it (`exclude: [/{WORK_NAME}]`), rename it, or copy to a directory below: `to`.",
                    path=WORK_NAME,
                )
            yield entry

    def _is_work(self, entry: TreeEntry) -> bool:
        is_named = entry.path.rpartition("/")[2] == WORK_NAME
        return is_named and entry.kind in DIRECTORIES_AND_LINKS

    def _is_strange(self, root: str, entry: TreeEntry) -> bool:
        return entry.path.rpartition("/")[2] == IDENTITY_NAME and not self.is_ours(root, entry)


@dataclass(frozen=True, slots=True)
class WayToSets:
    """The directories between a dataset's and those of its file sets, which no listing comes to.

    Each is looked at once: ``seen`` has those in which no other job publishes.
    """

    seen: set[str] = field(default_factory=set)

    def require_free(self, files: FileSystem, place: str, directory: str) -> None:
        """RejectedError if another job publishes on the way from ``place``, a dataset's, to ``directory`` in it."""
        names = directory.split("/") if directory else []
        for depth in range(1, len(names)):
            between = "/".join((place, *names[:depth]))
            if between in self.seen:
                continue
            if files.is_directory(work_root_of(between)):
                raise refuse_around(between, find_claim(files, between))
            refuse_rows(files, f"{place}/{directory}", between)
            self.seen.add(between)
