"""Durability on POSIX file systems, by fsync. On a network mount it depends on the server: its export must be ``sync``.

A failed fsync is never repeated on the same file: the kernel reports a lost write once, and the next call would succeed
although the data is gone. The caller gets RetryableError and writes a new attempt.
"""

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
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
        except FileNotFoundError:
            return
        _sync_and_close(descriptor)


def _sync_and_close(descriptor: int) -> None:
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
