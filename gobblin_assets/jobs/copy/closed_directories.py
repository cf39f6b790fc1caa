"""Directories whose mode takes the right to write from their owner: they are closed, and copies keep such modes.

A directory is published by a move, for which its owner needs that right, and so does whoever publishes below it later.
So a publication opens them first, and closes them at last, by steps of its own (``fixed_names.named_directory_steps``).
A process that may write everywhere, as root's may, needs no steps for it. Entries inside of a directory that is
published as a whole are staged with their own modes.

Directories above a dataset's own are not among them: other datasets of the job publish in them at the same time, and
one would close what another needs. Those that a plan makes have the right to write added to their mode.
"""

import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from gobblin_assets.destinations.fixed_names.named_outputs import ClosedDirectory, published_place
from gobblin_assets.errors import RetryableError
from gobblin_assets.fs.named_files import ClosedDirectories, NamedFiles
from gobblin_assets.fs.tree import EntryKind, TreeEntry
from gobblin_assets.jobs.copy.copy_plan import CopyPlan
from gobblin_assets.jobs.copy.copyable import Attributes
from gobblin_assets.jobs.copy.targets import list_paths


def find_closed(files: NamedFiles | None, place: str, plan: CopyPlan) -> tuple[TreeEntry, ...]:
    """The closed directories of the dataset, at ``place``, in which the plan changes names, or which it clears."""
    if not isinstance(files, ClosedDirectories):
        return ()
    cleared = [path for _number, path in plan.cleared_directories]
    changed = {path.rpartition("/")[0] for path in (*list_paths(plan), *cleared) if path and not _is_above(path)}
    new = {path for _number, path, _desired in plan.directories}
    found = ((path, files.find_entry(published_place(place, path))) for path in sorted(changed.union(cleared) - new))
    return tuple(replace(entry, path=path) for path, entry in found if entry is not None and _is_closed_entry(entry))


def open_closed(plan: CopyPlan, attempt: TreeEntry | None, can_change_closed: Callable[[], bool]) -> CopyPlan:
    """The plan with the owner's right to write in the modes of all that is moved, where this process needs the right.

    Without closed directories where it doesn't, and without those whose owner is not that of ``attempt``, which this
    process made: nobody else's mode can be changed, nor does it keep anybody else from writing.
    ``can_change_closed`` is asked once, and only if the plan has any.
    """
    closed = tuple(each for each in plan.closed if attempt is not None and _owner_of(each) == _owner_of(attempt))
    moved = {number: desired for number, _path, desired in plan.directories}
    moved |= {item.number: item.desired for item in plan.items if item.is_directory}
    opened = {number: _open(desired) for number, desired in moved.items() if _is_closed(desired)}
    if not (opened or closed) or can_change_closed():
        return replace(plan, closed=())
    return replace(
        plan,
        closed=closed,
        items=tuple(
            item._replace(desired=opened[item.number]) if item.number in opened else item for item in plan.items
        ),
        directories=tuple((number, path, opened.get(number, desired)) for number, path, desired in plan.directories),
    )


def list_closed(
    plan: CopyPlan, opened: CopyPlan, files: NamedFiles, staged: Mapping[int, str]
) -> Iterator[ClosedDirectory]:
    """All that the publication opens and closes. ``opened``: what ``open_closed`` made of the plan. ``staged``: where
    its new directories are, by number, with the modes that the file system gave them.
    """
    for entry in opened.closed:
        yield _describe(entry.path, entry)
    for (number, path, desired), (_number, _path, given) in zip(plan.directories, opened.directories, strict=True):
        if given != desired and not _is_above(path):
            # Any directory at the name will do, once it is ensured.
            yield replace(_look_at(files, path, staged[number]), inode=None)
    for item, copied in zip(plan.items, opened.items, strict=True):
        if copied is not item:
            yield _look_at(files, item.path, staged[item.number])


def _look_at(files: NamedFiles, path: str, staged: str) -> ClosedDirectory:
    entry = files.find_entry(staged)
    if entry is None:
        raise RetryableError(f"{staged} is gone, and only this attempt has it", path=staged)
    return _describe(path, entry)


def _describe(path: str, entry: TreeEntry) -> ClosedDirectory:
    return ClosedDirectory(path, (entry.mode or 0) & ~stat.S_IWUSR, entry.identity.inode)


def _owner_of(entry: TreeEntry) -> tuple[int | None, str | None]:
    return entry.owner, None if entry.placement is None else entry.placement.owner


def _is_closed_entry(entry: TreeEntry) -> bool:
    return entry.kind is EntryKind.DIRECTORY and entry.mode is not None and not entry.mode & stat.S_IWUSR


def _is_above(path: str) -> bool:
    """Whether it is that of a directory above the dataset's own."""
    return path == ".." or path.startswith("../")


def _is_closed(desired: Attributes) -> bool:
    return desired.mode is not None and not desired.mode & stat.S_IWUSR


def _open(desired: Attributes) -> Attributes:
    return desired._replace(mode=(desired.mode or 0) | stat.S_IWUSR)
