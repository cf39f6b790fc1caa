"""Both sides of a copy, as its plans look at them: the trees, and single places of the source."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Protocol

from gobblin_assets.destinations.claims import WORK_NAME
from gobblin_assets.errors import RejectedError
from gobblin_assets.fs.file_system import FileSystem
from gobblin_assets.fs.named_files import require_named_files
from gobblin_assets.fs.registry import is_object_store, is_only_source, open_file_system, open_tree
from gobblin_assets.fs.tree import EntryKind, FoundEntries, LinkedPlaces, Tree, TreeEntry, list_without_files
from gobblin_assets.jobs.copy.copy_spec import CopyDatasetSpec, CopySpec
from gobblin_assets.jobs.copy.difference import LinkPolicy
from gobblin_assets.jobs.copy.parsing import open_source_tree
from gobblin_assets.jobs.copy.targets import ObjectTargets


def place_of_origin(source: str, destination: str, path: str) -> str | None:
    """The source's like of a directory of the destination, below the source's root; None if it has none.

    ``source`` and ``destination``: a dataset's directories, below both roots. ``path`` is relative to the latter, and
    begins with ``..`` above it. Directories above a dataset correspond as long as they have the same names.
    """
    while path == ".." or path.startswith("../"):
        source, destination, path = source.rpartition("/")[0], destination.rpartition("/")[0], path[3:]
        if not source or source.rpartition("/")[2] != destination.rpartition("/")[2]:
            return None
    return "/".join(filter(None, (source, path)))


def find_source_directory(source: str, place: str) -> TreeEntry | None:
    """The directory at the full path ``place`` of the job's source, by a link too; None if there is none.

    None also where directories have no attributes, as in object stores.
    """
    if is_object_store(source):
        return None
    try:
        entry = _find(source, place)
    except RejectedError as error:
        if error.field != "destination":
            raise
        # File systems take every path for one of a destination.
        said = error.message.removeprefix(f"{error.field}: ")
        raise RejectedError(said, field="source", hint=error.hint, path=place) from error
    return entry if entry is not None and entry.kind is EntryKind.DIRECTORY else None


def _find(source: str, place: str) -> TreeEntry | None:
    if is_only_source(source):
        tree, _root = open_tree(source, "source", hidden=frozenset(), follow_links=True)
        return tree.find_entry(place) if isinstance(tree, FoundEntries) else None
    files = require_named_files(open_file_system(source)[0])
    entry = files.find_entry(place)
    if entry is not None and entry.kind is EntryKind.LINK:
        return files.find_entry(os.path.realpath(place))
    return entry


def require_inside(tree: Tree, root: str, place: str, links: LinkPolicy) -> None:
    """Look at each name from ``root``, the job's source, to the directory ``place`` below it.

    ``root`` itself may be a link, as a mount often is. RejectedError for a link that the policy does not follow, or
    that leads out of the source or into a work directory. So none leads to the destination, which lies apart.
    """
    if not isinstance(tree, LinkedPlaces):
        return
    for path in _list_ways(root, place):
        target = tree.find_link_target(path)
        if target is None:
            continue
        if links is not LinkPolicy.FOLLOW:
            raise RejectedError(
                f"{path} is a link, on the way to what is copied",
                field="links",
                hint="Write `links: follow` to copy what it leads to inside the source, or name that directory itself.",
                path=path,
            )
        _check_target(path, target, tree.find_real_path(root))


def _list_ways(root: str, place: str) -> Iterator[str]:
    names = place.split("/") if place else []
    for count in range(1, len(names) + 1):
        yield "/".join((root.rstrip("/"), *names[:count]))


def _check_target(path: str, target: str, real_root: str) -> None:
    def refuse(where: str) -> RejectedError:
        return RejectedError(
            f"the link {path} leads to {target}, which {where}",
            field="source",
            hint="Links are followed inside the source only: put a copy in its place, or name another directory.",
            path=path,
        )

    names = PurePosixPath(target)
    if target == real_root or not names.is_relative_to(real_root):
        raise refuse(f"is not below the source {real_root}")
    if WORK_NAME in names.relative_to(real_root).parts:
        raise refuse("lies in a work directory")


def require_source(tree: Tree, root: str) -> None:
    """RejectedError unless the job's source is a directory that can be listed. Nothing below it is looked at."""
    next(list_without_files(tree, root, lambda _path: False), None)


class CopyTrees(Protocol):
    """Both sides of a copy: full paths of roots, and how their trees are listed."""

    def open_source(self, spec: CopyDatasetSpec) -> tuple[Tree, str]:
        """A tree that lists in byte order of the names that the dataset's converters give."""
        ...

    def require_inside(self, spec: CopyDatasetSpec, place: str) -> None:
        """RejectedError if a link on the way from the source's root to ``place`` below it may not be followed."""
        ...

    def find_source_entry(self, place: str) -> TreeEntry | None:
        """The entry at a full path of the source; links are not followed."""
        ...

    def find_source_directory(self, place: str) -> TreeEntry | None:
        """The directory at a full path of the source, by a link too; None if none is there, or has attributes."""
        ...

    def open_destination(self) -> Tree: ...
    def open_destination_files(self) -> FileSystem: ...


@dataclass(frozen=True, slots=True)
class CopyTreesByUri:
    """``CopyTrees``, as a job names both sides. ``objects``: of a destination in an object store."""

    job: CopySpec
    objects: ObjectTargets | None = None

    def open_source(self, spec: CopyDatasetSpec) -> tuple[Tree, str]:
        return open_source_tree(self.job.source, spec)

    def require_inside(self, spec: CopyDatasetSpec, place: str) -> None:
        require_inside(*self.open_source(spec), place, spec.links)

    def find_source_entry(self, place: str) -> TreeEntry | None:
        return require_named_files(open_file_system(self.job.source)[0]).find_entry(place)

    def find_source_directory(self, place: str) -> TreeEntry | None:
        return find_source_directory(self.job.source, place)

    def open_destination(self) -> Tree:
        if self.objects is not None:
            return self.objects
        return open_tree(self.job.destination, "destination", hidden=frozenset(), follow_links=False)[0]

    def open_destination_files(self) -> FileSystem:
        return open_file_system(self.job.destination)[0]
