"""File systems, object stores and trees of copies, and the path of a place in them, by the scheme of its URI.

A package offers another file system by an entry point of the group ``gobblin_assets.file_systems``, whose value is a
``FileSystemFactory``, and another object store by the group ``gobblin_assets.object_stores``, whose value is an
``ObjectStoreFactory``. A tree that can only be read, by copies, is registered in the group
``gobblin_assets.source_trees``, as a ``SourceFactory``. The entry point's name is the scheme.
"""

import os
import re
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Final

from gobblin_assets.errors import RejectedError
from gobblin_assets.extensions import Extensions
from gobblin_assets.fs.file_system import FileSystem
from gobblin_assets.fs.network_files import RangedFiles
from gobblin_assets.fs.object_tree import ObjectTree
from gobblin_assets.fs.object_work import ObjectWorkFiles
from gobblin_assets.fs.objects import ObjectFiles
from gobblin_assets.fs.posix_named import PosixNamedFiles
from gobblin_assets.fs.tree import ListedFiles, Tree

_START: Final = re.compile(r"\s*(?:[A-Za-z][A-Za-z0-9+.-]*:)?/*")
_PATH: Final = re.compile(r"/(?!/)")
_PARAMETERS: Final = re.compile(r"[?#]")

FileSystemFactory = Callable[[str, int | None], tuple[FileSystem, str]]
"""Takes the whole URI and the umask for what is published; gives the file system and the root's path in it."""

ObjectStoreFactory = Callable[[str, str], tuple[ObjectFiles, str]]
"""Takes the whole URI and the option in which it was written, for errors; gives the store and the path in it."""

SourceFactory = Callable[[str, str], tuple[ListedFiles, str]]
"""The same of places that copies read and nobody writes: their trees are ``network_files.RangedFiles``."""

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_EXPANDED_BY_SPARK: Final = frozenset("*?[]{}\\")

REQUESTS_AT_ONCE: Final = 16
"""To one store, while many objects are published."""

FILE_SYSTEMS: Final = Extensions[FileSystemFactory](
    group="gobblin_assets.file_systems",
    noun="scheme",
    option="destination",
    accepts=callable,
    built_in={
        "file": "gobblin_assets.fs.registry:open_posix",
        "hdfs": "gobblin_assets.fs.hdfs.file_system:open_hdfs",
        "s3": "gobblin_assets.fs.registry:open_objects",
    },
)

OBJECT_STORES: Final = Extensions[ObjectStoreFactory](
    group="gobblin_assets.object_stores",
    noun="scheme",
    option="source",
    accepts=callable,
    built_in={"s3": "gobblin_assets.fs.s3.object_files:open_s3"},
)

SOURCE_TREES: Final = Extensions[SourceFactory](
    group="gobblin_assets.source_trees",
    noun="scheme",
    option="source",
    accepts=callable,
    built_in={
        "abfs": "gobblin_assets.fs.clouds.opening:open_azure",
        "abfss": "gobblin_assets.fs.clouds.opening:open_azure",
        "gs": "gobblin_assets.fs.clouds.opening:open_gcs",
        "sftp": "gobblin_assets.fs.sftp.tree:open_sftp",
    },
)

_MEANT_SCHEMES: Final = MappingProxyType({"s3a": "s3", "s3n": "s3", "webhdfs": "hdfs", "viewfs": "hdfs"})
"""Hadoop's words for what has one scheme here."""

CLUSTERS_KEPT_MAX: Final = 16

_URI: Final = re.compile(r"(?P<store>[a-z][a-z0-9+.-]*://(?P<authority>[^/]+))(?P<path>/.*)?", re.DOTALL)


def show_uri(uri: str) -> str:
    """The URI as a person wrote it, for errors. ``…`` stands for what may be a secret: a login, a query, a fragment.

    An absolute path keeps all but a query.
    """
    if _PATH.match(uri) and "://" not in uri:
        path, mark, query = uri.partition("?")
        return f"{path}{mark}{'…' if query else ''}"
    start = _START.match(uri)
    begin = start[0] if start else ""
    rest = uri[len(begin) :]
    found = _PARAMETERS.search(rest)
    end = found.start() if found else len(rest)
    if "@" in rest[end:]:
        # A login with such a character, or parameters with an @: nobody can tell.
        return f"{begin}…"
    login, at, place = rest[:end].rpartition("@")
    return f"{begin}{'…@' if login else at}{place}{rest[end : end + 1]}{'…' if rest[end + 1 :] else ''}"


def register_file_system(scheme: str, factory: FileSystemFactory) -> None:
    """Make URIs of another scheme usable in this process. RejectedError if the scheme is known already."""
    FILE_SYSTEMS.register(scheme, factory)


def scheme_of(uri: str) -> str:
    """The scheme of a URI; ``file`` for an absolute path."""
    scheme = _SCHEME.match(uri)
    return scheme[1].lower() if scheme else "file"


def open_file_system(uri: str, *, umask: int | None = None) -> tuple[FileSystem, str]:
    """The file system of a destination, and the path of its root there. Nothing is connected to or made.

    ``uri`` is ``<scheme>://…`` of a registered scheme, or an absolute path, which means ``file``. Characters
    stand for themselves, as Spark reads them: a percent sign is not decoded.
    """
    if not uri.isprintable():
        raise _refuse(uri, "no control characters", "Remove them.")
    if "${" in uri:
        raise _refuse(uri, "a path as it is", "Variables are not filled in: write what they stand for.")
    if found := sorted(set(uri) & _EXPANDED_BY_SPARK):
        raise _refuse(uri, f"none of {' '.join(found)}", "Choose another folder: Spark would take these as patterns.")
    name = scheme_of(uri)
    if SOURCE_TREES.has(name):
        raise RejectedError(
            f"copies read from {name}, and nothing is published there",
            field="destination",
            hint="Publish to a disk, a mounted file system, HDFS or a bucket.",
        )
    if not FILE_SYSTEMS.has(name):
        known = ", ".join(FILE_SYSTEMS.list_names())
        meant = _MEANT_SCHEMES.get(name)
        fix = f"Write {meant}://…." if meant else "Correct it, or install the package that offers it."
        raise _refuse(uri, f"one of the schemes {known}", fix)
    return FILE_SYSTEMS.get(name)(uri, umask)


def is_only_source(uri: str) -> bool:
    """Whether copies read there, and nothing can be published."""
    return SOURCE_TREES.has(scheme_of(uri))


def open_listed_source(uri: str, option: str) -> tuple[ListedFiles, str]:
    """A place that copies only read, and the path of its root there. Nothing is connected to.

    RejectedError names ``option``.
    """
    if not uri.isprintable():
        raise RejectedError("expected no control characters", field=option, hint="Remove them.")
    return SOURCE_TREES.get(scheme_of(uri))(uri, option)


def is_object_store(uri: str) -> bool:
    """Whether objects lie there, and no files."""
    return OBJECT_STORES.has(scheme_of(uri))


def open_object_store(uri: str, option: str) -> tuple[ObjectFiles, str]:
    """The store of a place, and its path there: ``/<bucket>/<prefix>``. Nothing is connected to or made.

    RejectedError names ``option``.
    """
    if not uri.isprintable():
        raise RejectedError("expected no control characters", field=option, hint="Remove them.")
    return OBJECT_STORES.get(scheme_of(uri))(uri, option)


def open_posix(uri: str, umask: int | None) -> tuple[FileSystem, str]:
    """The ``FileSystemFactory`` of absolute paths and of file:/// URIs."""
    scheme = _SCHEME.match(uri)
    text = uri[scheme.end() :] if scheme else uri
    if text.startswith("//") and scheme:
        host, slash, rest = text.removeprefix("//").partition("/")
        if host:
            raise _refuse(uri, "file:/// and an absolute path", _offer(uri, f"file:///{host}{slash}{rest}"))
        text = slash + rest
    if not text.startswith("/"):
        raise _refuse(uri, "an absolute path", _offer(uri, _absolute(text)))
    parts = [part for part in text.split("/") if part not in {"", "."}]
    if ".." in parts:
        raise _refuse(uri, "a path without '..'", _offer(uri, os.path.normpath(text)))
    if not parts:
        raise _refuse(uri, "a folder", "Name a folder of its own: the root of the file system is not one.")
    return PosixNamedFiles(umask), "/" + "/".join(parts)


def open_objects(uri: str, umask: int | None) -> tuple[FileSystem, str]:
    """The ``FileSystemFactory`` of object stores, for the small files of the protocol. Objects have no modes."""
    del umask
    objects, path = open_object_store(uri, "destination")
    return ObjectWorkFiles(objects, REQUESTS_AT_ONCE), path


def _absolute(text: str) -> str:
    try:
        return os.path.normpath(Path(text).expanduser().absolute())
    except RuntimeError:  # ~somebody: there is no such user here
        return os.path.normpath(Path(text).absolute())


def _offer(uri: str, meant: str) -> str:
    """``meant`` is made of the URI, and so of the secrets in it."""
    return f"Write {meant} if that was meant." if show_uri(uri) == uri else "Write file:/// and the path."


def _refuse(uri: str, expected: str, fix: str) -> RejectedError:
    return RejectedError(f"expected {expected}, found {show_uri(uri)!r}", field="destination", hint=fix)


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
    """The tree that holds a file of ``RangedFiles.to_uri``, and its path there. Names may have any characters.

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
