"""The six families of errors; the family says what the caller does next.

    GobblinError
    ├── RetryableError        repeat it, within bounds; what passes by itself, without
    ├── OutcomeUnknownError   it may have happened: read the log first, clean nothing
    ├── FencedError           another owner took over: stop, delete nothing
    ├── ConflictError         two facts contradict each other: report both
    ├── RejectedError         a person corrects the input
    └── CorruptionError       halt the dataset and alert

Code catches families, never single leaves; ``dagster.outcomes`` is the one place where families become
Dagster outcomes. Every error carries its facts as ``fields`` and, where there is one, the fix as ``hint``.
No field may hold a secret.
"""

from collections.abc import Mapping
from enum import StrEnum


class GobblinError(Exception):
    """The root. It is never raised itself: a caller could not tell what to do."""

    def __init__(self, message: str, *, hint: str = "", **fields: object) -> None:
        self.message = make_storable(message)
        super().__init__(self.message)
        self.hint = make_storable(hint)
        self.fields = fields

    def __str__(self) -> str:
        if not self.hint:
            return self.message
        end = "" if self.message.endswith((".", "!", "?", ":", "…")) else "."
        return f"{self.message}{end} {self.hint}"

    def __reduce__(self) -> tuple[object, ...]:
        """Keep all fields of errors of worker processes: the default would call ``__init__`` with the text alone."""
        return _restore, (type(self), self.args, self.__dict__)


def make_storable(text: str) -> str:
    """The text with escapes for what neither a database nor a terminal takes: names that are no UTF-8, and NUL."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8").replace("\0", "\\0")


def _restore(kind: type[GobblinError], arguments: tuple[object, ...], state: Mapping[str, object]) -> GobblinError:
    error = kind.__new__(kind)
    error.args = arguments
    error.__dict__.update(state)
    return error


class RetryableError(GobblinError):
    """Nothing happened, and the same call may succeed later (a busy server, a full disk).

    ``passes``: it ends by itself, or when a machine has room again, however long that takes. It is waited for, and is
    no failed try: nobody has to unblock anything.
    """

    def __init__(self, message: str, *, passes: bool = False, hint: str = "", **fields: object) -> None:
        super().__init__(message, hint=hint, **fields)
        self.passes = passes


class OutcomeUnknownError(GobblinError):
    """It may or may not have taken effect; only the log in Postgres can tell."""


class FencedError(GobblinError):
    """The lease was lost: somebody else may own the dataset now."""


class ConflictError(GobblinError):
    """A contradiction between the storage and the log; nothing may be overwritten."""


class RejectedError(GobblinError):
    """The input can't be accepted as it is. ``field`` names it, ``hint`` says the fix."""

    def __init__(self, message: str, *, field: str, hint: str = "", **fields: object) -> None:
        # It may be a key of an object that somebody sent.
        self.field = make_storable(field)
        super().__init__(f"{field}: {message}", hint=hint, field=self.field, **fields)


class CorruptionError(GobblinError):
    """Stored facts are impossible (an unknown state, a digest that does not match)."""


class ErrorFamily(StrEnum):
    """The family of an error, where the error itself has become a line of a report."""

    RETRYABLE = "RetryableError"
    OUTCOME_UNKNOWN = "OutcomeUnknownError"
    FENCED = "FencedError"
    CONFLICT = "ConflictError"
    REJECTED = "RejectedError"
    CORRUPTION = "CorruptionError"


def family_of(error: GobblinError) -> ErrorFamily:
    """The one that a caller would catch. The root itself has none: ValueError."""
    names = {family.value: family for family in ErrorFamily}
    found = next((names[each.__name__] for each in type(error).__mro__ if each.__name__ in names), None)
    if found is None:
        raise ValueError(f"{type(error).__name__} is of no family")
    return found


def error_of(family: ErrorFamily, text: str) -> GobblinError:
    """An error of the family, of which a report kept only that and the sentence."""
    if family is ErrorFamily.REJECTED:
        field, mark, said = text.partition(": ")
        return RejectedError(said, field=field) if mark else RejectedError(text, field="job")
    kinds = (RetryableError, OutcomeUnknownError, FencedError, ConflictError, CorruptionError)
    return next(kind for kind in kinds if kind.__name__ == family.value)(text)
