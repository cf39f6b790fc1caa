"""The destination of a copy, as a plan looks at it: its tree, its objects, and the directories to publish into.

A listing leaves the job's own work out, and is refused where other jobs publish in it. It goes into each directory that
is on the way to a name that the plan may publish. So it comes to the work directory of every other copy in whose tree
this name would lie, unless filters exclude a directory above it.

A store tells the time of the upload, and a listing tells no metadata. So the time of a file's origin comes from the
log: it is that of the publication whose ETag the object still has. An object that the job did not publish has the
store's own time.

Every act of a publication is a rename between the work directory and a published name, so both must lie on one file
system, and below one mount.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath

from gobblin_assets.commit.destination import IDENTITY_NAME
from gobblin_assets.destinations.claims import WORK_NAME, find_claim, refuse_around, refuse_rows, work_root_of
from gobblin_assets.destinations.fixed_names.named_outputs import published_place
from gobblin_assets.errors import RejectedError
from gobblin_assets.fs.file_system import FileSystem
from gobblin_assets.fs.named_files import NamedFiles, SteppedTimes
from gobblin_assets.fs.network_files import RangedFile
from gobblin_assets.fs.object_tree import ObjectTree
from gobblin_assets.fs.objects import ObjectFiles
from gobblin_assets.fs.tree import DIRECTORIES_AND_LINKS, Descend, EntryKind, Tree, TreeEntry
from gobblin_assets.jobs.copy.copy_plan import CopyPlan
from gobblin_assets.model.files import FileIdentity


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


def find_missing_directories(files: NamedFiles, root: str, destination: str, directory: str) -> list[str]:
    """The missing directories from the root to the file set, relative to the dataset's, outermost first.
    The dataset's own directory is "", those above it begin with ``..``.
    """
    missing = []
    of_dataset = destination.count("/") + 1 if destination else 0
    parts = "/".join(filter(None, (destination, directory))).split("/") if destination or directory else []
    for depth in range(1, len(parts) + 1):
        place = "/".join((root, *parts[:depth]))
        entry = files.find_entry(place)
        if entry is None:
            below = parts[of_dataset:depth]
            missing.append("/".join(below) if depth >= of_dataset else "/".join([".."] * (of_dataset - depth)))
        elif entry.kind is not EntryKind.DIRECTORY:
            raise RejectedError(
                f"{place} is a {entry.kind.value}, and a directory is to be there",
                field="destination",
                hint="Move it away, or choose another destination.",
            )
    return missing


def require_one_mount(files: NamedFiles | None, root: str, place: str, plan: CopyPlan) -> None:
    """RejectedError if something is to be published where no rename from the work directory leads.

    ``place``: the dataset's directory, a full path. Directories that are new are renamed into their own parents first.
    """
    start = None
    if files is not None:
        start = next((each for each in (work_root_of(root), root) if files.find_entry(each) is not None), None)
    if files is None or start is None:
        return
    new = {published_place(place, path) for _number, path, _desired in plan.directories}
    parents = {published_place(place, path).rpartition("/")[0] for path in list_paths(plan)}
    for parent in sorted(parents - new):
        if not files.can_rename_into(start, parent):
            raise RejectedError(
                f"no file can be renamed from {start} to {parent}: there is another file system, or another mount",
                field="destination",
                hint="Mount it at the destination's root, or give what lies there a job of its own, whose destination "
                "is that mount. Nothing was copied.",
                path=parent,
            )


def finds_any_case(files: NamedFiles, root: str) -> bool:
    """Whether the destination takes names that differ by case only for one name.

    The work directory's own name tells, and nothing is written. Before a first run it is not there: then False.
    """
    work = files.find_entry(work_root_of(root))
    same = None if work is None else files.find_entry(f"{root.rstrip('/')}/{WORK_NAME.upper()}")
    return work is not None and same is not None and same.identity.inode == work.identity.inode


def find_time_step(files: NamedFiles, root: str) -> int:
    """The steps in which the destination keeps modification times, in nanoseconds; 1 for exact ones.

    Before a first run there is no work directory to try it in, and no file that could have a coarse time: then 1.
    """
    work = work_root_of(root)
    if not isinstance(files, SteppedTimes) or files.find_entry(work) is None:
        return 1
    return files.find_time_step(work)


def list_paths(plan: CopyPlan) -> Iterator[str]:
    """The paths of all that is published or removed, below the dataset's directory; one may come twice."""
    yield from (item.path for item in plan.items)
    yield from (path for _number, path, _identity in (*plan.removals, *plan.cleared_files))
    yield from (path for _number, path, _desired in plan.directories)
