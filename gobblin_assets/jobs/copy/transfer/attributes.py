"""Owner, group, mode, extended attributes and mtime of a staged file or directory, set through its descriptor.

A descriptor, not a name: whatever lies under the name meanwhile is left alone.
"""

import datetime as dt
import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from gobblin_assets.errors import GobblinError, RejectedError
from gobblin_assets.fs.posix_errors import translate_error
from gobblin_assets.jobs.copy.copyable import Attributes

ExtendedAttributes = tuple[tuple[str, bytes], ...]

ACCESS_LISTS: Final = ("system.posix_acl_access", "system.posix_acl_default")
"""The second is of directories only: what is made in them gets it."""

# Of ``security`` only what programs set: labels of SELinux are the destination's own, by its policy.
_EXTENDED: Final = ("user.", "trusted.", "security.capability")
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)

_TIME_STEP_NS_MAX: Final = 2_000_000_000
"""Of FAT."""

_NOT_ALLOWED: Final = frozenset({errno.EPERM, errno.EACCES, errno.EINVAL})
_NOT_KEPT_THERE: Final = frozenset(
    {errno.EOPNOTSUPP, errno.EPERM, errno.EACCES, errno.ERANGE, errno.E2BIG, errno.ENOSPC}
)


def read_extended(file: int | str, *, access_lists: bool, extended: bool) -> ExtendedAttributes:
    """The access list of a file, by its descriptor or path, and its extended attributes, in order of their names.

    OSError as the system gives it.
    """
    wanted = (*ACCESS_LISTS * access_lists, *_EXTENDED * extended)
    if not wanted:
        return ()
    try:
        names = sorted(name for name in os.listxattr(file) if name.startswith(wanted))
    except OSError as error:
        if error.errno == errno.EOPNOTSUPP:
            return ()
        raise
    return tuple((name, os.getxattr(file, name)) for name in names)


def apply_attributes(
    descriptor: int, path: str, desired: Attributes, extended: ExtendedAttributes = ()
) -> os.stat_result:
    """Give the open file or directory what is desired, and ``extended`` besides; returns its status after that.

    RejectedError names ``preserve``, the file, and the fix if this process may not set an attribute.
    """
    try:
        _set_mtime(descriptor, desired)
        found = os.fstat(descriptor)
        _require_time(found, path, desired)
        wanted = desired.xattrs + extended
        if not wanted and _is_as_desired(found, desired):
            return found
        # A new owner takes the set-user-id bit and file capabilities away, so that it comes first; and a mode after an
        # access list would change the list's mask.
        _set_owner(descriptor, path, found, desired)
        _set_mode(descriptor, path, desired)
        for name, value in wanted:
            with _refused("x", path, f"set the attribute {name} of", _NOT_KEPT_THERE):
                os.setxattr(descriptor, name, value)
        _set_mtime(descriptor, desired)
        return os.fstat(descriptor)
    except OSError as error:
        raise translate_error(error, action="set the attributes of", path=path, changes=False) from error


def _is_as_desired(found: os.stat_result, desired: Attributes) -> bool:
    """A file system may keep coarser times, so that they are not compared."""
    return (
        (desired.mode is None or stat.S_IMODE(found.st_mode) == desired.mode)
        and (desired.owner is None or found.st_uid == desired.owner)
        and (desired.group is None or found.st_gid == desired.group)
    )


def _set_mtime(descriptor: int, desired: Attributes) -> None:
    if desired.mtime_ns is not None:
        os.utime(descriptor, ns=(desired.mtime_ns, desired.mtime_ns))


def _require_time(found: os.stat_result, path: str, desired: Attributes) -> None:
    """A time out of a file system's range becomes another one, without an error, and would differ at each run."""
    if desired.mtime_ns is not None and abs(found.st_mtime_ns - desired.mtime_ns) >= _TIME_STEP_NS_MAX:
        raise RejectedError(
            f"can't set the time {_spell_time(desired.mtime_ns)} of {path}: its file system makes it "
            f"{_spell_time(found.st_mtime_ns)}",
            field="preserve",
            hint="Give the source's file a time that the destination can keep, or take 't' out of preserve.",
            path=path,
        )


def _spell_time(time_ns: int) -> str:
    return (_EPOCH + dt.timedelta(seconds=time_ns // 1_000_000_000)).isoformat()


def _set_owner(descriptor: int, path: str, found: os.stat_result, desired: Attributes) -> None:
    if desired.owner not in {None, found.st_uid}:
        with _refused("u", path, f"give the user {desired.owner}", _NOT_ALLOWED):
            os.fchown(descriptor, _or_same(desired.owner), -1)
    if desired.group not in {None, found.st_gid}:
        with _refused("g", path, f"give the group {desired.group}", _NOT_ALLOWED):
            os.fchown(descriptor, -1, _or_same(desired.group))


def _set_mode(descriptor: int, path: str, desired: Attributes) -> None:
    if desired.mode is not None:
        with _refused("p", path, f"set the mode {desired.mode:#o} of", _NOT_ALLOWED):
            os.fchmod(descriptor, desired.mode)


def _or_same(number: int | None) -> int:
    return -1 if number is None else number


@contextmanager
def _refused(letter: str, path: str, action: str, codes: frozenset[int]) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in codes:
            raise _refusal(letter, path, action, error) from error
        raise


def _refusal(letter: str, path: str, action: str, error: OSError) -> GobblinError:
    return RejectedError(
        f"can't {action} {path}: {errno.errorcode.get(error.errno or 0, error.errno)} ({error.strerror})",
        field="preserve",
        hint=f"Run as a user that may do this, name a file system that keeps it, or take {letter!r} out of preserve.",
        path=path,
    )
