"""A kept version as a new file of this machine, with the attributes that it had."""

import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final
from uuid import uuid4

from gobblin_assets.errors import ConflictError, RejectedError
from gobblin_assets.fs.file_system import RenameOutcome
from gobblin_assets.fs.posix import PosixFileSystem

_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_PRIVATE: Final = 0o600
_GIVES_IDENTITY: Final = 0o6000
"""The bits by which a program runs as the file's owner or group."""


@dataclass(frozen=True, slots=True)
class KeptAttributes:
    """The attributes of a kept version; None where the file system has none. ``owner`` and ``group`` are numbers."""

    mode: int | None = None
    owner: int | None = None
    group: int | None = None
    mtime_ns: int | None = None


def write_restored(target: Path, stream: BinaryIO, kept: KeptAttributes) -> None:
    """Write a new file, which gets its name once it is whole and has its attributes. The owner is given where allowed.

    ConflictError if something is at the name, which is never replaced.
    """
    target = target.absolute()
    unfinished = target.with_name(f".gobblin-{uuid4().hex}")
    try:
        with os.fdopen(os.open(unfinished, _NEW, 0o666 if kept.mode is None else _PRIVATE), "wb") as out:
            shutil.copyfileobj(stream, out)
            out.flush()
            _apply(out.fileno(), kept)
            os.fsync(out.fileno())
        if PosixFileSystem().rename_no_replace(str(unfinished), str(target)) is RenameOutcome.TARGET_EXISTS:
            raise ConflictError(f"{target} is there already", hint="Name another file.", path=str(target))
    except OSError as error:
        raise RejectedError(
            f"can't write {target}: {error.strerror}", field="--to", hint="Correct the path."
        ) from error
    finally:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)


def _apply(descriptor: int, kept: KeptAttributes) -> None:
    """The owner first, because a new owner takes bits of the mode away."""
    is_owned = _give(descriptor, owner=kept.owner) and _give(descriptor, group=kept.group)
    if kept.mode is not None:
        os.fchmod(descriptor, kept.mode if is_owned else kept.mode & ~_GIVES_IDENTITY)
    if kept.mtime_ns is not None:
        os.utime(descriptor, ns=(kept.mtime_ns, kept.mtime_ns))


def _give(descriptor: int, *, owner: int | None = None, group: int | None = None) -> bool:
    """Whether the file has this owner, or this group, now."""
    try:
        os.fchown(descriptor, -1 if owner is None else owner, -1 if group is None else group)
    except OSError:
        return False
    return True
