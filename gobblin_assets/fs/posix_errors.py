"""The error family of each errno, which says what the caller can do."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from gobblin_assets.errors import GobblinError, OutcomeUnknownError, RejectedError, RetryableError
from gobblin_assets.model.defects import is_passing

_FIXES: Final = {
    errno.EROFS: "Mount the file system for writing, or name another destination.",
    errno.EACCES: "Give the user that runs this the right to read, write and search there.",
    errno.EPERM: "Give the user that runs this the right to change what is there (see owners, ACLs, flags).",
    errno.ENOENT: "Make the missing parent directory, or correct the path.",
    errno.ENOTDIR: "Correct the path: something on the way to it is a file.",
    errno.ENAMETOOLONG: "Choose a shorter destination: one name may have 255 bytes, a path 4,095.",
    errno.ELOOP: "Remove the symbolic link: nothing below a destination may be one.",
    errno.EXDEV: "Put staging and destination on the same file system (two mounts of one count as two).",
    errno.EINVAL: "Use a file system that can sync directories and rename without replacing.",
    errno.EOPNOTSUPP: "Use a file system with hard links, or one that can rename without replacing.",
    errno.EMLINK: "Use a file system that allows more links, or one that can rename without replacing.",
}

_WAITS: Final = {
    errno.ENOSPC: "Free some space there; the next try goes on from here.",
    errno.EDQUOT: "Raise the quota or free some space; the next try goes on from here.",
    errno.EMFILE: "Raise the limit of open files (ulimit -n).",
    errno.ENFILE: "The machine has no file handles left.",
}

# After an I/O error, or if a server went away, the change may have been made.
_SILENT_ABOUT_EFFECT: Final = frozenset({errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EINTR})


def translate_error(error: OSError, *, action: str, path: str, changes: bool) -> GobblinError:
    """The error to raise instead; ``changes``: ``action`` changes the file system if it succeeds."""
    code = error.errno or 0
    name = errno.errorcode.get(code, str(code))
    message = f"can't {action} {path}: {name} ({os.strerror(code)})"
    if code in _FIXES:
        return RejectedError(message, field="destination", hint=_FIXES[code], path=path, errno=name)
    if changes and code in _SILENT_ABOUT_EFFECT:
        return OutcomeUnknownError(
            message, hint="Check what is there before you do anything else.", path=path, errno=name
        )
    return RetryableError(message, passes=is_passing(error), hint=_WAITS.get(code, ""), path=path, errno=name)


@contextmanager
def families(action: str, path: str, *, changes: bool = False) -> Iterator[None]:
    """Raise any OSError of the block as one of the families."""
    try:
        yield
    except OSError as error:
        raise translate_error(error, action=action, path=path, changes=changes) from error
