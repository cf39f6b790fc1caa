"""The directories of a destination that a plan publishes into: those that are missing, and those that are out of reach.

Every act of a publication is a rename between the work directory and a published name, so both must lie on one file
system, and below one mount.
"""

from collections.abc import Iterator

from gobblin_assets.destinations.claims import WORK_NAME, work_root_of
from gobblin_assets.destinations.named_outputs import published_place
from gobblin_assets.errors import RejectedError
from gobblin_assets.fs.named_files import NamedFiles, SteppedTimes
from gobblin_assets.fs.tree import EntryKind
from gobblin_assets.jobs.copy.copy_plan import CopyPlan


def find_missing_directories(files: NamedFiles, root: str, destination: str, directory: str) -> list[str]:
    """Those that lead from the root to the file set and are not there, relative to the dataset's, outermost first.

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
    """Of all that is published or removed, by paths below the dataset's directory; a path may come twice."""
    yield from (item.path for item in plan.items)
    yield from (path for _number, path, _identity in (*plan.removals, *plan.cleared_files))
    yield from (path for _number, path, _desired in plan.directories)
