"""Which names of an object store are free, by listings: one request for many names, instead of one for each.

A listing tells no metadata, so it can't say whose an object is. That nothing stands at a name is all that it is asked
for, and no proof is needed of it: what is published there is written under the condition that the name is free.
"""

from collections.abc import Iterable
from os.path import commonpath
from typing import Final

from gobblin_assets.fs.objects import ObjectFiles

LISTING_WORTH: Final = 16
"""With fewer names, a look at each is cheaper."""

PAGE_ENTRIES: Final = 1_000
"""Entries that a store gives by one request."""

ENTRIES_PER_NAME_MAX: Final = 50
"""Where more objects than this lie between two names, a look at each name is cheaper."""


def find_free_names(files: ObjectFiles, paths: Iterable[str]) -> frozenset[str]:
    """Names at which a listing found nothing. Of the others nothing is known."""
    names = sorted(set(paths), key=_spell)
    if len(names) < LISTING_WORTH:
        return frozenset()
    free: set[str] = set()
    directory = commonpath(name.rpartition("/")[0] for name in names)
    # The listing begins behind the first name, of which nothing is known then.
    done = 1
    for count, entry in enumerate(files.list_objects(directory, after=names[0])):
        if count > PAGE_ENTRIES + ENTRIES_PER_NAME_MAX * done:
            return frozenset(free)
        found = _spell(entry.path)
        while done < len(names) and _spell(names[done]) < found:
            free.add(names[done])
            done += 1
        if done < len(names) and names[done] == entry.path:
            done += 1
        if done == len(names):
            return frozenset(free)
    return frozenset(free.union(names[done:]))


def _spell(path: str) -> bytes:
    """In whose order stores list."""
    return path.encode("utf-8", "surrogateescape")
