"""The client of a running service, for commands: requests of its REST API, and its problems as errors."""

import json
import os
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import quote, urlencode

import click
import urllib3

from gobblin_assets.errors import (
    ConflictError,
    CorruptionError,
    ErrorFamily,
    OutcomeUnknownError,
    RejectedError,
    RetryableError,
)

URL_VARIABLE: Final = "GOBBLIN_SERVICE_URL"
TOKEN_VARIABLE: Final = "GOBBLIN_SERVICE_TOKEN"  # noqa: S105  the variable's name
DEFAULT_URL: Final = "http://127.0.0.1:8080"

url_option: Final = click.option("--url", envvar=URL_VARIABLE, help=f"The service's address. Default: {DEFAULT_URL}.")
"""Of commands that ask a service."""

_API: Final = "/api/v1"
_TRIES_MAX: Final = 4
_WAIT_S: Final = 0.5
_CONNECT_TIMEOUT_S: Final = 5.0
_READ_TIMEOUT_S: Final = 60.0
_SERVER_FAILED: Final = 500
_NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class _Answer:
    """What the service answered. ``is_second``: a try before this one may have done what was asked."""

    status: int
    data: bytes
    etag: str | None
    is_second: bool


class ServiceClient:
    """Requests of one service. One whose answer was lost is sent again if that does the same thing once."""

    def __init__(self, url: str, token: str | None) -> None:
        if not url.startswith(("http://", "https://")):
            raise RejectedError(f"expected a URL, found {url[:200]!a}", field="--url", hint=f"Such as {DEFAULT_URL}.")
        self._url = url.rstrip("/")
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        timeout = urllib3.Timeout(connect=_CONNECT_TIMEOUT_S, read=_READ_TIMEOUT_S)
        self._pool = urllib3.PoolManager(retries=False, timeout=timeout)

    def get(self, path: str, **parameters: object) -> Any:
        given = {name: value for name, value in parameters.items() if value not in (None, False)}
        return _read_answer(self._send("GET", f"{path}?{urlencode(given)}" if given else path))

    def post(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """The service knows a request that is sent again by its key, or it changes nothing the second time."""
        return _read_answer(self._send("POST", path, _write_json(body), {"Idempotency-Key": str(uuid.uuid4())}))

    def post_file(self, path: str, content: bytes, kind: str) -> Any:
        """Send a file of this media type, which the service knows if it is sent again."""
        return _read_answer(self._send("POST", path, content, {"Content-Type": kind}))

    def post_once(self, path: str) -> Any:
        """OutcomeUnknownError: the answer was lost. A second request would do another thing, and is not sent."""
        return _read_answer(self._send("POST", path, repeats=False))

    def put(self, path: str, body: Mapping[str, Any]) -> Any:
        """Replace what is there now, and nothing that somebody else puts there meanwhile."""
        found = self._send("GET", path)
        _read_answer(found)
        answer = self._send("PUT", path, _write_json(body), {} if found.etag is None else {"If-Match": found.etag})
        if answer.is_second and answer.status == HTTPStatus.PRECONDITION_FAILED:
            raise _not_known("an answer was lost, and the flow has changed since")
        return _read_answer(answer)

    def delete(self, path: str) -> None:
        answer = self._send("DELETE", path)
        if not (answer.is_second and answer.status == HTTPStatus.NOT_FOUND):
            _read_answer(answer)

    def _send(
        self,
        method: str,
        path: str,
        data: bytes | None = None,
        headers: Mapping[str, str] = _NO_HEADERS,
        *,
        repeats: bool = True,
    ) -> _Answer:
        """``repeats``: False for what is sent again only if it was not done."""
        may_be_done, tries_left = False, _TRIES_MAX
        while True:
            tries_left -= 1
            try:
                answer = self._pool.request(
                    method,
                    f"{self._url}{_API}{path}",
                    body=data,
                    headers={"Content-Type": "application/json", **self._headers, **headers},
                )
            except urllib3.exceptions.HTTPError as error:
                may_be_done = may_be_done or not isinstance(error, urllib3.exceptions.ConnectTimeoutError)
                said = f"the service at {self._url} did not answer: {error}"
                if not tries_left and (method == "GET" or not may_be_done):
                    raise RetryableError(
                        f"the service at {self._url} does not answer",
                        hint=f"Look whether `gobblin-assets service serve` runs, and at {URL_VARIABLE}.",
                    ) from None
            else:
                if answer.status != HTTPStatus.SERVICE_UNAVAILABLE:
                    return _Answer(answer.status, answer.data, answer.headers.get("ETag"), may_be_done)
                problem = _read_problem(answer.data)
                may_be_done = may_be_done or problem.get("family") != ErrorFamily.RETRYABLE.value
                said = str(problem.get("detail") or f"the service at {self._url} is not available")
                if not tries_left and (method == "GET" or not may_be_done):
                    return _Answer(answer.status, answer.data, None, is_second=False)
            if not tries_left or (may_be_done and not repeats):
                raise _not_known(said)
            time.sleep(_WAIT_S)


def flow_path(group: str, name: str) -> str:
    return f"/flows/{quote(group, safe='')}/{quote(name, safe='')}"


def open_client(url: str | None) -> ServiceClient:
    """A client of ``url``, else of GOBBLIN_SERVICE_URL, with the token of GOBBLIN_SERVICE_TOKEN."""
    return ServiceClient(url or os.environ.get(URL_VARIABLE) or DEFAULT_URL, os.environ.get(TOKEN_VARIABLE) or None)


def _write_json(body: Mapping[str, Any] | None) -> bytes | None:
    return None if body is None else json.dumps(body, default=str).encode()


def _not_known(said: str) -> OutcomeUnknownError:
    return OutcomeUnknownError(said, hint="Look at the flow before you ask again.")


def _read_json(data: bytes) -> Any:
    try:
        return json.loads(data) if data else None
    except ValueError:
        return None


def _read_problem(data: bytes) -> Mapping[str, Any]:
    found = _read_json(data)
    return found if isinstance(found, Mapping) else {}


def _read_answer(answer: _Answer) -> Any:
    status = answer.status
    if status < 400:
        return _read_json(answer.data)
    problem = _read_problem(answer.data)
    said = str(problem.get("detail") or f"the service answered with the code {status}")
    hint = str(problem.get("hint") or "")
    match problem.get("family"):
        case "RejectedError":
            raise RejectedError(said, field=str(problem.get("field") or "request"), hint=hint)
        case "ConflictError":
            raise ConflictError(said, hint=hint)
        case "CorruptionError":
            raise CorruptionError(said, hint=hint)
        case None if status < _SERVER_FAILED:
            raise RejectedError(said, field="request", hint=hint)
        case _:
            raise RetryableError(said, hint=hint)
