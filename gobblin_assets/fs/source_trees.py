"""Trees of copies, by the scheme of their URIs: of file systems, and of object stores."""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from gobblin_assets.errors import RejectedError
from gobblin_assets.fs.object_tree import ObjectTree
from gobblin_assets.fs.ranged import RangedFiles
from gobblin_assets.fs.registry import (
    FILE_SYSTEMS,
    OBJECT_STORES,
    SOURCE_TREES,
    is_object_store,
    is_only_source,
    open_file_system,
    open_listed_source,
    open_object_store,
    scheme_of,
)
from gobblin_assets.fs.tree import ListedFiles, Tree

CLUSTERS_KEPT_MAX: Final = 16

_URI: Final = re.compile(r"(?P<store>[a-z][a-z0-9+.-]*://(?P<authority>[^/]+))(?P<path>/.*)?", re.DOTALL)


def open_tree(
    uri: str, option: str, *, hidden: frozenset[str], follow_links: bool, order: Callable[[str], str] | None = None
) -> tuple[Tree, str]:
    """The tree and its root's path in it, for an absolute path or the URI of a file system or an object store.

    ``hidden``, ``follow_links``, ``order``: as in ``ListedFiles``; stores have no links, and one order.
    RejectedError names ``option``.
    """
    if is_object_store(uri):
        objects, root = open_object_store(uri, option)
        return ObjectTree(objects, option, hidden=hidden), root
    if is_only_source(uri):
        listed, root = open_listed_source(uri, option)
        return listed.open_tree(option, hidden=hidden, follow_links=follow_links, order=order), root
    if FILE_SYSTEMS.has(scheme_of(uri)):
        files, root = open_file_system(uri)
        if isinstance(files, ListedFiles):
            return files.open_tree(option, hidden=hidden, follow_links=follow_links, order=order), root
    known = ", ".join(sorted({*FILE_SYSTEMS.list_names(), *OBJECT_STORES.list_names(), *SOURCE_TREES.list_names()}))
    raise RejectedError(
        f"expected one of the schemes {known}; found {scheme_of(uri)!a}",
        field=option,
        hint="Mount it, and name the directory, or install the package that offers such trees.",
    )


def open_ranged(uri: str, option: str, *, follow_links: bool = False) -> tuple[RangedFiles, str]:
    """What holds a file of ``RangedFiles.to_uri``, and its path there. Names may have any characters.

    ``follow_links``: the file may be reached by a link, as in the tree that listed it.
    """
    found = _URI.fullmatch(uri)
    if found is None:
        raise ValueError("expected a URI with a host or a bucket")
    path = found["path"] or ""
    if not is_object_store(uri):
        # Sources are asked each time, as the environment is now: they keep their connections themselves. So do stores.
        open_listed = _open_ranged_tree if is_only_source(uri) else _open_cluster
        tree, top = open_listed(found["store"], option, follow_links)
        return tree, f"{top}{path}"
    files, _root = open_object_store(found["store"], option)
    return ObjectTree(files, option), f"/{found['authority']}{path}"


@lru_cache(CLUSTERS_KEPT_MAX)
def _open_cluster(uri: str, option: str, follow_links: bool) -> tuple[RangedFiles, str]:  # noqa: FBT001  of this module only
    return _open_ranged_tree(uri, option, follow_links)


def _open_ranged_tree(uri: str, option: str, follow_links: bool) -> tuple[RangedFiles, str]:  # noqa: FBT001  of this module only
    """The tree, and what its paths begin with before those of the URI."""
    tree, root = open_tree(f"{uri}/any", option, hidden=frozenset(), follow_links=follow_links)
    if not isinstance(tree, RangedFiles):
        raise RejectedError("its files can't be read by ranges", field=option, hint="Mount it, and name the directory.")
    return tree, root.removesuffix("/any")
