"""What of both sides a file set is: chosen by filters, named by a manifest, or made by converters."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from gobblin_assets.commit.destination import IDENTITY_NAME
from gobblin_assets.errors import RejectedError
from gobblin_assets.fs.tree import Descend, Tree, TreeEntry
from gobblin_assets.jobs.copy.converters.listing import ConvertedListing
from gobblin_assets.jobs.copy.copyable import Attributes, ConvertedEntry
from gobblin_assets.jobs.copy.datasets import FileSet
from gobblin_assets.jobs.copy.filters import Filters, choose_entries, list_chosen, list_within
from gobblin_assets.jobs.copy.manifest import list_named


@dataclass(frozen=True, slots=True)
class TreeWithoutRows:
    """``Tree`` of a destination: RejectedError if jobs of rows publish in it.

    ``is_ours`` says of an entry, whose path is relative to the listed root, whether the job itself published it: a copy
    of such a destination has its identity file, too.
    """

    tree: Tree
    is_ours: Callable[[TreeEntry], bool]

    @property
    def mtime_precision_ns(self) -> int:
        return self.tree.mtime_precision_ns

    def list_tree(self, root: str, descend: Descend | None = None) -> Iterator[TreeEntry]:
        for entry in self.tree.list_tree(root, descend):
            if entry.path.endswith(IDENTITY_NAME) and self._is_strange(entry):
                place = f"{root}/{entry.path}".rpartition("/")[0]
                raise RejectedError(
                    f"a job publishes rows in {place}, whose identity file {IDENTITY_NAME} is there",
                    field="destination",
                    hint="Exclude the directory, or copy to another one. If it is a copy of such a directory, remove "
                    "this file there: it is copied again.",
                    path=place,
                )
            yield entry

    def _is_strange(self, entry: TreeEntry) -> bool:
        return entry.path.rpartition("/")[2] == IDENTITY_NAME and not self.is_ours(entry)


def list_side(tree: Tree, root: str, file_set: FileSet, filters: Filters, *, is_source: bool) -> Iterator[TreeEntry]:
    """The file set's entries of one side, as they are."""
    if not file_set.files:
        yield from list_chosen(tree, root, filters, bare_directories=not (is_source and filters.has_includes))
        return
    wanted = {each.path: each.attributes for each in file_set.files if not (is_source and each.is_deleted)}
    for entry in list_named(tree, root, wanted, required=is_source):
        chosen = wanted.get(entry.path)
        yield entry if not is_source or chosen in {None, Attributes()} else _with_attributes(entry, chosen)


def _with_attributes(entry: TreeEntry, chosen: Attributes) -> ConvertedEntry:
    found = entry.identity
    mtime_ns = found.mtime_ns if chosen.mtime_ns is None else chosen.mtime_ns
    return ConvertedEntry(
        *(entry.path, entry.kind, replace(found, mtime_ns=mtime_ns), entry.mode, entry.owner, entry.group),
        placement=entry.placement,
        origin=entry,
        has_length=True,
        chosen=chosen,
    )


def list_converted(listing: ConvertedListing, source: Tree) -> Iterator[TreeEntry]:
    """What is packed is chosen by its names before that; everything else by its names after conversion."""
    filters = listing.filters
    entries = list_within(source, listing.root, filters)
    if listing.chain.packer is not None:
        chosen = choose_entries(entries, filters, bare_directories=not filters.has_includes)
        return listing.list_entries(chosen)
    return choose_entries(listing.list_entries(entries), filters, bare_directories=not filters.has_includes)
