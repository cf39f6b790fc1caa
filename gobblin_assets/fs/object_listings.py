"""Listings of many names of an object store: one request for many names, instead of one for each.

A listing has no metadata, so it can't say who wrote an object. It gives the length and the ETag of the object at a
name, or shows that the name is free. A free name needs no proof, since a publication writes there only under the
condition that the name is free.
"""

from collections.abc import Collection, Iterable
from os.path import commonpath
from typing import Final

from gobblin_assets.fs.file_system import FileSystem
from gobblin_assets.fs.object_work import identity_of
from gobblin_assets.fs.objects import HoldsObjects, ObjectEntry, ObjectFiles, call_side_by_side
from gobblin_assets.model.files import FileIdentity

LISTING_WORTH: Final = 16
"""With fewer names, a look at each is cheaper."""

PAGE_ENTRIES: Final = 1_000
"""Entries that a store gives by one request."""

ENTRIES_PER_NAME_MAX: Final = 50
"""Where more objects than this lie between two names, a look at each name is cheaper."""


def find_free_names(files: ObjectFiles, paths: Iterable[str]) -> frozenset[str]:
    """Names at which a listing found nothing. Of the others nothing is known."""
    return frozenset(name for name, entry in _list_names(files, paths).items() if entry is None)


def look_at_files(fs: FileSystem, paths: Collection[str]) -> dict[str, FileIdentity | None]:
    """The identity of what is at each path, or None. In a store, what no listing told is asked for side by side."""
    found: dict[str, FileIdentity | None] = {}
    if isinstance(fs, HoldsObjects):
        listed = _list_names(fs.objects, paths)
        found = {path: None if entry is None else identity_of(entry) for path, entry in listed.items()}
    left = [path for path in paths if path not in found]
    found.update(zip(left, call_side_by_side(fs, fs.find_identity, left), strict=True))
    return found


def _list_names(files: ObjectFiles, paths: Iterable[str]) -> dict[str, ObjectEntry | None]:
    """What a listing found at names; of those that are not among the answers nothing is known."""
    names = sorted(set(paths), key=_spell)
    found: dict[str, ObjectEntry | None] = {}
    if len(names) < LISTING_WORTH:
        return found
    directory = commonpath(name.rpartition("/")[0] for name in names)
    # The listing begins behind the first name, of which nothing is known then.
    done = 1
    for count, entry in enumerate(files.list_objects(directory, after=names[0])):
        if count > PAGE_ENTRIES + ENTRIES_PER_NAME_MAX * done:
            return found
        spelled = _spell(entry.path)
        while done < len(names) and _spell(names[done]) < spelled:
            found[names[done]] = None
            done += 1
        if done < len(names) and names[done] == entry.path:
            found[entry.path] = entry
            done += 1
        if done == len(names):
            return found
    found.update(dict.fromkeys(names[done:]))
    return found


def _spell(path: str) -> bytes:
    """In whose order stores list."""
    return path.encode("utf-8", "surrogateescape")
