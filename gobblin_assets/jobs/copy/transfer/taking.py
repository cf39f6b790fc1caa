"""Takes a file that an earlier attempt finished, instead of copying it again."""

import os
import stat
from typing import Final

import google_crc32c

from gobblin_assets.jobs.copy.copyable import Attributes
from gobblin_assets.jobs.copy.transfer.file_copy import StagedFile
from gobblin_assets.jobs.copy.transfer.journal import FinishedFile
from gobblin_assets.jobs.copy.transfer.moving import CHUNK_BYTES

_OPEN: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def take_file(finished: FinishedFile, desired: Attributes, target: str) -> StagedFile | None:
    """Move the file to the new name ``target``, if it is as it was finished. None: it is to be copied.

    It is read whole, and from the disk, as far as the system can be told so: pages in memory would hide what the disk
    has lost since. Its directory was synced before, so that no page has yet to be written.
    """
    try:
        descriptor = os.open(finished.path, _OPEN)
        try:
            found = os.fstat(descriptor)
            if not _is_as_finished(found, finished, desired) or _read_checksum(descriptor) != finished.checksum:
                return None
        finally:
            os.close(descriptor)
        _move(finished.path, target)
    except OSError:
        return None
    return found.st_size, found.st_ino, found.st_mtime_ns, finished.checksum


def _move(path: str, target: str) -> None:
    """The new name is this writer's alone, and free: it stands for one planned file."""
    try:
        os.rename(path, target)  # noqa: PTH104  no object for each of a million files
    except PermissionError:
        # A copied mode has taken the right to write in its directory, which is the attempt's own.
        os.chmod(path.rpartition("/")[0], stat.S_IRWXU)  # noqa: PTH101  the same
        os.rename(path, target)  # noqa: PTH104  the same


def _is_as_finished(found: os.stat_result, finished: FinishedFile, desired: Attributes) -> bool:
    return (
        stat.S_ISREG(found.st_mode)
        and found.st_nlink == 1
        and (found.st_size, found.st_ino, found.st_mtime_ns) == finished[1:4]
        and (desired.mode is None or stat.S_IMODE(found.st_mode) == desired.mode)
        and (desired.owner is None or found.st_uid == desired.owner)
        and (desired.group is None or found.st_gid == desired.group)
    )


def _read_checksum(descriptor: int) -> int:
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    crc = 0
    while content := os.read(descriptor, CHUNK_BYTES):
        crc = google_crc32c.extend(crc, content)
    return crc
