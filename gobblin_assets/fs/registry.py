"""From a destination as a person writes it to the file system and the path that the protocol works with."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from gobblin_assets.errors import RejectedError
from gobblin_assets.fs.port import FileSystem
from gobblin_assets.fs.posix import PosixFileSystem

FileSystemFactory = Callable[[str, int | None], tuple[FileSystem, str]]
"""Takes the whole URI and the umask for what is published; gives the file system and the root's path in it."""

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_USER: Final = re.compile(r"//[^/]*@")
_EXPANDED_BY_SPARK: Final = frozenset("*?[]{}\\")

_factories: Final[dict[str, FileSystemFactory]] = {}


def register_file_system(scheme: str, factory: FileSystemFactory) -> None:
    """Make URIs of another scheme usable. A scheme that is known already is a RejectedError."""
    if scheme in _factories:
        raise RejectedError(
            f"expected a new scheme, found {scheme!r}, which is registered",
            field="scheme",
            hint=f"Known: {', '.join(sorted(_factories))}.",
        )
    _factories[scheme] = factory


def open_file_system(uri: str, *, umask: int | None = None) -> tuple[FileSystem, str]:
    """The file system of a destination, and the path of its root there. Nothing is connected to or made.

    ``uri`` is ``<scheme>://…`` of a registered scheme, or an absolute path, which means ``file``. Characters
    stand for themselves, as Spark reads them: a percent sign is not decoded.
    """
    if not uri.isprintable():
        raise _refuse(uri, "no control characters", "Remove them.")
    if found := sorted(set(uri) & _EXPANDED_BY_SPARK):
        raise _refuse(uri, f"none of {' '.join(found)}", "Choose another folder: Spark would take these as patterns.")
    scheme = _SCHEME.match(uri)
    name = scheme[1].lower() if scheme else "file"
    if name not in _factories:
        raise _refuse(
            uri, f"one of the schemes {', '.join(sorted(_factories))}", "Correct it, or register that scheme."
        )
    return _factories[name](uri, umask)


def _open_posix(uri: str, umask: int | None) -> tuple[FileSystem, str]:
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
    return PosixFileSystem(umask), "/" + "/".join(parts)


def _absolute(text: str) -> str:
    try:
        return os.path.normpath(Path(text).expanduser().absolute())
    except RuntimeError:  # ~somebody: there is no such user here
        return os.path.normpath(Path(text).absolute())


def _refuse(uri: str, expected: str, fix: str) -> RejectedError:
    # What stands before an @ may be somebody's key.
    shown = _USER.sub("//…@", uri)
    return RejectedError(f"expected {expected}, found {shown!r}", field="destination", hint=fix)


register_file_system("file", _open_posix)
