"""Errors that nobody expected, as failures of the work in which they came up."""

import errno
import traceback
from collections.abc import Callable
from typing import Final

from gobblin_assets.errors import CorruptionError, GobblinError, RetryableError

_TRACEBACK: Final = "traceback"

_PASSING: Final = frozenset({
    errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.EBUSY, errno.EINTR,
    errno.ETXTBSY, errno.ETIMEDOUT, errno.ESTALE, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENETDOWN,
    errno.ENETUNREACH, errno.ECONNREFUSED, errno.ECONNRESET, errno.ECONNABORTED, errno.EPIPE, errno.ENOTCONN,
})  # fmt: skip
"""No room, no handles, no server: what ends without a change of the job."""


def is_passing(error: OSError) -> bool:
    """Whether the operating system refused what it will take later."""
    return error.errno in _PASSING or isinstance(error, ConnectionError | TimeoutError)


def find_family(label: str, error: Exception) -> GobblinError:
    """The failure of ``label`` by ``error``; other work goes on beside it.

    An error of a family is itself. What the operating system refused, and memory that there was not, may be there
    later. All else is a defect, which keeps its traceback (``traceback_of``).

    Raises AssertionError as it is: where the program contradicts itself, no other work goes on.
    """
    if isinstance(error, GobblinError):
        return error
    if isinstance(error, AssertionError):
        raise error
    if isinstance(error, OSError):
        failure: GobblinError = RetryableError(f"{label}: {error}", passes=is_passing(error))
    elif isinstance(error, MemoryError):
        failure = RetryableError(f"{label}: not enough memory: {error}", passes=True)
    else:
        failure = _explain_defect(label, error)
    failure.__cause__ = error
    return failure


def explain_exception(label: str, error: Exception, say: Callable[[str], None]) -> GobblinError:
    """The same; the traceback of a defect is said."""
    failure = find_family(label, error)
    if failure is not error and traceback_of(failure):
        say(traceback_of(failure))
    return failure


def _explain_defect(label: str, error: Exception) -> CorruptionError:
    lines = traceback.format_exception(error)
    return CorruptionError(
        f"{label}: an unexpected {type(error).__name__}: {error}",
        hint="A defect of the program or of a package: the log has its traceback. Nothing of it is published.",
        **{_TRACEBACK: "".join(lines)},
    )


def traceback_of(error: GobblinError) -> str:
    """Of a defect; empty for any other error."""
    return str(error.fields.get(_TRACEBACK, ""))
