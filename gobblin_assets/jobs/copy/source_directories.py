"""Where a new directory of a destination comes from: its attributes are those of its like at the source."""

import os

from gobblin_assets.errors import RejectedError
from gobblin_assets.fs.named_files import require_named_files
from gobblin_assets.fs.registry import is_object_store, is_only_source, open_file_system
from gobblin_assets.fs.source_trees import open_tree
from gobblin_assets.fs.tree import EntryKind, FoundEntries, TreeEntry


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
