"""Errors that nobody expected, as failures of the work in which they came up."""

import traceback
from collections.abc import Callable
from typing import Final

from gobblin_assets.errors import CorruptionError, GobblinError, RetryableError

_TRACEBACK: Final = "traceback"


def explain_exception(label: str, error: Exception, say: Callable[[str], None]) -> GobblinError:
    """The failure of ``label`` by ``error``; other work goes on beside it.

    An error of a family is itself. What the operating system refused may succeed later. All else is a defect, whose
    traceback is said and kept.

    Raises AssertionError as it is: where the program contradicts itself, no other work goes on.
    """
    if isinstance(error, GobblinError):
        return error
    if isinstance(error, AssertionError):
        raise error
    if isinstance(error, OSError):
        return RetryableError(f"{label}: {error}")
    defect = _explain_defect(label, error)
    say(traceback_of(defect))
    return defect


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
