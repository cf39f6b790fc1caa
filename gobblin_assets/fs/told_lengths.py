"""Files that are longer or shorter than their file system says: in ``/proc`` all have 0 bytes, in ``/sys`` 4,096.

A length is where a reader expects the end. Only a read behind it shows that it is there.
"""

import os

from gobblin_assets.errors import RejectedError


def wrong_length(path: str, told_bytes: int, *, has_more: bool) -> RejectedError:
    """Of a source's file that is as it was planned, and has other bytes than it says."""
    return RejectedError(
        f"{path} says {told_bytes:,} bytes, and has {'more' if has_more else 'fewer'}",
        field="source",
        hint="Its file system does not tell lengths, as /proc: exclude the file, or copy it to a disk first.",
        path=path,
    )


def require_end(descriptor: int, path: str, told_bytes: int) -> None:
    """RejectedError if the file goes on behind the bytes that it says. OSError as the system gives it."""
    if os.pread(descriptor, 1, told_bytes):
        raise wrong_length(path, told_bytes, has_more=True)


def require_length(descriptor: int, path: str, told_bytes: int) -> None:
    """The same, and if it ends before."""
    require_end(descriptor, path, told_bytes)
    if told_bytes and not os.pread(descriptor, 1, told_bytes - 1):
        raise wrong_length(path, told_bytes, has_more=False)
