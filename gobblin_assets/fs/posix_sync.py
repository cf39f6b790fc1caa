"""Durability on POSIX file systems, by fsync. On a network mount it depends on the server: its export must be ``sync``.

A failed fsync is never repeated on the same file: the kernel reports a lost write once, and the next call would succeed
although the data is gone. The caller gets RetryableError and writes a new attempt.

``syncfs`` makes a whole file system durable by one call. Since Linux 5.8 it reports the writes that were lost after its
descriptor was opened, once for each descriptor. So the descriptor is opened before the first write: an error that
another process's ``syncfs`` saw before would not be told to a younger one. A failed one says that some file of the file
system is broken, which need not be one of ours: the whole attempt is given up, and nothing of it is synced again.
"""

import ctypes
import os
import platform
import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import Final

from gobblin_assets.errors import GobblinError, RejectedError, RetryableError
from gobblin_assets.fs.posix_errors import families

SYNC_THREADS_MAX: Final = 8
"""A journal commits waiting callers together, so a few more threads than cores help; many more would only queue."""

SYNC_BATCH_FILES: Final = 2_048
"""Files handed to the pool at once; this bounds the memory for a million files."""

OPEN_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC

_REPORTS_LOST_WRITES: Final = (5, 8)
# Elsewhere it may say nothing of lost writes (overlayfs keeps the errors of the layer below to itself), or not reach
# the server's disk (FUSE). By the kernel's numbers: ext2 to ext4, XFS, Btrfs, F2FS, tmpfs.
_SYNCED_AS_ONE: Final = frozenset({0xEF53, 0x58465342, 0x9123683E, 0xF2F52010, 0x01021994})
_STATFS_BYTES_MAX: Final = 512
# Where the first field of statfs, the file system's type, is a long.
_TYPE_IS_LONG: Final = frozenset({"x86_64", "aarch64", "riscv64", "ppc64le"})


def for_all(paths: Iterable[str], act: Callable[[str], None]) -> None:
    """Act on several paths at a time, since most of the time is waiting for the disk; a single path needs no thread.

    A failure of the disk is raised before an error of one path alone.
    """
    remaining = iter(paths)
    batch = list(islice(remaining, SYNC_BATCH_FILES))
    if len(batch) == 1:
        act(batch[0])
        return
    with ThreadPoolExecutor(SYNC_THREADS_MAX, thread_name_prefix="sync") as pool:
        while batch:
            errors = [error for error in pool.map(partial(_try, act), batch) if error is not None]
            for error in sorted(errors, key=lambda error: isinstance(error, RejectedError)):
                raise error
            batch = list(islice(remaining, SYNC_BATCH_FILES))


def _try(act: Callable[[str], None], path: str) -> Exception | None:
    try:
        act(path)
    except (GobblinError, OSError) as error:
        return error
    return None


def sync_file(path: str) -> None:
    with families("sync", path):
        try:
            descriptor = os.open(path, OPEN_FILE)
        except FileNotFoundError as error:
            raise RetryableError(f"{path} disappeared before it was durable", path=path) from error
        _sync_and_close(descriptor)


def sync_directory(path: str) -> None:
    with families("sync", path):
        try:
            descriptor = os.open(path, _OPEN_DIRECTORY)
        except (FileNotFoundError, NotADirectoryError):
            return
        _sync_and_close(descriptor)


def _sync_and_close(descriptor: int) -> None:
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def watched_file_system(directory: str) -> Iterator[Callable[[], None] | None]:
    """A call, for the block that writes below ``directory``, that makes the directory's whole file system durable.

    Call it once, at the end. It raises RetryableError if the file system has lost a write since the block began, by
    whichever process. None where no such call can be trusted: then each file is synced by itself.
    """
    with families("open", directory):
        descriptor = os.open(directory, _OPEN_DIRECTORY)
    try:
        yield _find_call(descriptor, directory)
    finally:
        os.close(descriptor)


def _find_call(descriptor: int, directory: str) -> Callable[[], None] | None:
    if platform.system() != "Linux" or platform.machine() not in _TYPE_IS_LONG:
        return None
    release = re.match(r"(\d+)\.(\d+)", platform.release())
    library = ctypes.CDLL(None, use_errno=True)
    if release is None or (int(release[1]), int(release[2])) < _REPORTS_LOST_WRITES or not hasattr(library, "syncfs"):
        return None
    found = ctypes.create_string_buffer(_STATFS_BYTES_MAX)
    if library.fstatfs(descriptor, found) or ctypes.c_ulong.from_buffer(found).value not in _SYNCED_AS_ONE:
        return None

    def sync() -> None:
        with families("sync the file system of", directory):
            if library.syncfs(descriptor):
                code = ctypes.get_errno()
                raise OSError(code, os.strerror(code), directory)

    return sync
