"""What of both sides a file set is: chosen by filters, named by a manifest, or made by converters."""

from collections.abc import Iterator
from dataclasses import replace

from gobblin_assets.fs.tree import Tree, TreeEntry
from gobblin_assets.jobs.copy.converters.listing import ConvertedListing
from gobblin_assets.jobs.copy.copyable import Attributes, ConvertedEntry
from gobblin_assets.jobs.copy.datasets import FileSet
from gobblin_assets.jobs.copy.filters import Filters, choose_entries, list_chosen, list_within
from gobblin_assets.jobs.copy.manifest import list_named


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
