"""Errors as answers: a problem (RFC 9457) with a code of HTTP. The one place where families become codes."""

from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

from gobblin_assets.errors import (
    ConflictError,
    CorruptionError,
    FencedError,
    GobblinError,
    OutcomeUnknownError,
    RejectedError,
    RetryableError,
    family_of,
)
from gobblin_assets.service.access import AccessDeniedError, UnknownUserError
from gobblin_assets.service.flow_store import SpecNotFoundError, StaleVersionError

PROBLEM_TYPE: Final = "application/problem+json"
RETRY_AFTER_S: Final = 1


class MalformedRequestError(RejectedError):
    """The request can't be read: no JSON, no UTF-8, no key."""


class BodyTooLargeError(RejectedError):
    """The body has more bytes than a request may have."""


class ForeignOriginError(RejectedError):
    """A page of another origin sent the request."""


class ForeignHostError(RejectedError):
    """The request names a host that this server is not."""


# The first class that fits decides.
_CODES: Final[tuple[tuple[type[GobblinError], HTTPStatus], ...]] = (
    (MalformedRequestError, HTTPStatus.BAD_REQUEST),
    (UnknownUserError, HTTPStatus.UNAUTHORIZED),
    (AccessDeniedError, HTTPStatus.FORBIDDEN),
    (ForeignOriginError, HTTPStatus.FORBIDDEN),
    (SpecNotFoundError, HTTPStatus.NOT_FOUND),
    (BodyTooLargeError, HTTPStatus.REQUEST_ENTITY_TOO_LARGE),
    (ForeignHostError, HTTPStatus.MISDIRECTED_REQUEST),
    (RejectedError, HTTPStatus.UNPROCESSABLE_ENTITY),
    (ConflictError, HTTPStatus.CONFLICT),
    (RetryableError, HTTPStatus.SERVICE_UNAVAILABLE),
    (OutcomeUnknownError, HTTPStatus.SERVICE_UNAVAILABLE),
    (FencedError, HTTPStatus.SERVICE_UNAVAILABLE),
    (CorruptionError, HTTPStatus.INTERNAL_SERVER_ERROR),
)


@dataclass(frozen=True, slots=True)
class Problem:
    """What went wrong. ``field``: what the person must look at; ``hint``: what helps; either may be empty."""

    status: int
    detail: str
    field: str = ""
    hint: str = ""
    family: str = ""

    @property
    def title(self) -> str:
        return HTTPStatus(self.status).phrase

    def to_json(self) -> dict[str, Any]:
        return {
            "type": "about:blank",
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
            "field": self.field or None,
            "hint": self.hint or None,
            "family": self.family or None,
        }


def problem_of(error: GobblinError, *, has_condition: bool = False) -> Problem:
    """``has_condition``: the request said which version it changes, so that another version fails its condition."""
    status = next(code for kind, code in _CODES if isinstance(error, kind))
    if has_condition and isinstance(error, StaleVersionError):
        status = HTTPStatus.PRECONDITION_FAILED
    field = error.field if isinstance(error, RejectedError) else ""
    detail = error.message.removeprefix(f"{field}: ")
    return Problem(status.value, detail, field, error.hint, family_of(error).value)


def list_headers(problem: Problem) -> dict[str, str]:
    """The headers that HTTP asks for beside a code."""
    match problem.status:
        case HTTPStatus.UNAUTHORIZED:
            return {"WWW-Authenticate": 'Bearer realm="gobblin"'}
        case HTTPStatus.SERVICE_UNAVAILABLE:
            return {"Retry-After": str(RETRY_AFTER_S)}
        case _:
            return {}
