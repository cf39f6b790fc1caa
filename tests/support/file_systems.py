"""Every file system that the contract suites run over, and small makers of files for them."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

from gobblin_assets.fs.file_system import FileSystem
from gobblin_assets.fs.posix import PosixFileSystem
from gobblin_assets.model.files import FileIdentity


def _unknown_flag(source: str, target: str) -> None:
    """The error of a file system without RENAME_NOREPLACE: the adapter must use another way."""
    raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), source, None, target)


ADAPTERS: dict[str, Callable[[int | None], FileSystem]] = {
    "posix": PosixFileSystem,
    "posix-unknown-flag": lambda umask: PosixFileSystem(umask, exclusive_rename=_unknown_flag),
    "posix-no-such-call": lambda umask: PosixFileSystem(umask, exclusive_rename=None),
}


def write(path: Path, content: str = "content") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return path


def identity(fs: FileSystem, path: Path) -> FileIdentity:
    found = fs.find_identity(str(path))
    assert found is not None
    return found
