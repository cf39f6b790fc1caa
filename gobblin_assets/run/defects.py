"""Errors that nobody expected, as failures of the work in which they came up."""

import traceback
from typing import Final

from gobblin_assets.errors import CorruptionError, GobblinError

_TRACEBACK: Final = "traceback"


def explain_defect(label: str, error: Exception) -> CorruptionError:
    """The failure of ``label``, which other work goes on beside. It keeps the error's traceback as a field."""
    lines = traceback.format_exception(error)
    return CorruptionError(
        f"{label}: an unexpected {type(error).__name__}: {error}",
        hint="A defect of the program or of a package: the log has its traceback. Nothing of it is published.",
        **{_TRACEBACK: "".join(lines)},
    )


def traceback_of(error: GobblinError) -> str:
    """Of a defect; empty for any other error."""
    return str(error.fields.get(_TRACEBACK, ""))
