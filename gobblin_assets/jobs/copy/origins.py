"""Whether files of the source are still those that a plan names."""

import os

from gobblin_assets.fs.posix_tree import entry_of
from gobblin_assets.fs.source_trees import open_ranged
from gobblin_assets.fs.tree import EntryKind
from gobblin_assets.jobs.copy.copy_plan import CopyPlan
from gobblin_assets.jobs.copy.copyable import CopyItem


def has_changed(plan: CopyPlan, item: CopyItem) -> bool:
    """Whether the origin of an item of one file is gone, or another version now."""
    (file,) = item.files
    place = f"{plan.source_root}/{file.origin.path}"
    if not place.startswith("/"):
        files, path = open_ranged(place, "source", follow_links=plan.follows_links)
        found = files.find_file(path)
        return found is None or not found.matches(file.origin.identity)
    try:
        entry = entry_of(file.origin.path, os.stat(place, follow_symlinks=plan.follows_links))  # noqa: PTH116  one call
    except (FileNotFoundError, NotADirectoryError):
        return True
    return entry.kind is not EntryKind.FILE or not entry.identity.matches(file.origin.identity)
