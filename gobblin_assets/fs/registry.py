"""Finds the file system and the path for a destination, as a person writes it, by the scheme of its URI.

A package offers another file system by an entry point of the group ``gobblin_assets.file_systems``. The entry point's
name is the scheme, its value a ``FileSystemFactory``.
"""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from gobblin_assets.errors import RejectedError
from gobblin_assets.extensions import Extensions
from gobblin_assets.fs.port import FileSystem
from gobblin_assets.fs.posix_named import PosixNamedFiles

FileSystemFactory = Callable[[str, int | None], tuple[FileSystem, str]]
"""Takes the whole URI and the umask for what is published; gives the file system and the root's path in it."""

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_USER: Final = re.compile(r"//[^/]*@")
_EXPANDED_BY_SPARK: Final = frozenset("*?[]{}\\")

FILE_SYSTEMS: Final = Extensions[FileSystemFactory](
    group="gobblin_assets.file_systems",
    noun="scheme",
    option="destination",
    accepts=callable,
    built_in={"file": "gobblin_assets.fs.registry:open_posix"},
)


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
    if found := sorted(set(uri) & _EXPANDED_BY_SPARK):
        raise _refuse(uri, f"none of {' '.join(found)}", "Choose another folder: Spark would take these as patterns.")
    name = scheme_of(uri)
    if not FILE_SYSTEMS.has(name):
        known = ", ".join(FILE_SYSTEMS.list_names())
        raise _refuse(uri, f"one of the schemes {known}", "Correct it, or install the package that offers it.")
    return FILE_SYSTEMS.get(name)(uri, umask)


def open_posix(uri: str, umask: int | None) -> tuple[FileSystem, str]:
    """The ``FileSystemFactory`` of absolute paths and of file:/// URIs."""
    scheme = _SCHEME.match(uri)
    text = uri[scheme.end() :] if scheme else uri
    if text.startswith("//") and scheme:
        host, slash, rest = text.removeprefix("//").partition("/")
        if host:
            raise _refuse(uri, "file:/// and an absolute path", f"Write file:///{host}{slash}{rest} if that was meant.")
        text = slash + rest
    if not text.startswith("/"):
        raise _refuse(uri, "an absolute path", f"Write {_absolute(text)} if that was meant.")
    parts = [part for part in text.split("/") if part not in {"", "."}]
    if ".." in parts:
        raise _refuse(uri, "a path without '..'", f"Write {os.path.normpath(text)} if that was meant.")
    if not parts:
        raise _refuse(uri, "a folder", "Name a folder of its own: the root of the file system is not one.")
    return PosixNamedFiles(umask), "/" + "/".join(parts)


def _absolute(text: str) -> str:
    try:
        return os.path.normpath(Path(text).expanduser().absolute())
    except RuntimeError:  # ~somebody: there is no such user here
        return os.path.normpath(Path(text).absolute())


def _refuse(uri: str, expected: str, fix: str) -> RejectedError:
    # The text before an @ may be a secret.
    shown = _USER.sub("//…@", uri)
    return RejectedError(f"expected {expected}, found {shown!r}", field="destination", hint=fix)
