"""The client of a running service, for commands: requests of its REST API, and its problems as errors."""

import json
import os
import time
import uuid
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, urlencode

import urllib3

from gobblin_assets.errors import (
    ConflictError,
    CorruptionError,
    GobblinError,
    OutcomeUnknownError,
    RejectedError,
    RetryableError,
)

URL_VARIABLE: Final = "GOBBLIN_SERVICE_URL"
TOKEN_VARIABLE: Final = "GOBBLIN_SERVICE_TOKEN"  # noqa: S105  the variable's name
DEFAULT_URL: Final = "http://127.0.0.1:8080"

_API: Final = "/api/v1"
_TRIES_MAX: Final = 4
_WAIT_S: Final = 0.5
_CONNECT_TIMEOUT_S: Final = 5.0
_READ_TIMEOUT_S: Final = 60.0
_SERVER_FAILED: Final = 500
_UNAVAILABLE: Final = 503


class ServiceClient:
    """Requests of one service. A request that may have been lost is sent again, with the same key."""

    def __init__(self, url: str, token: str | None) -> None:
        if not url.startswith(("http://", "https://")):
            raise RejectedError(f"expected a URL, found {url[:200]!a}", field="--url", hint=f"Such as {DEFAULT_URL}.")
        self._url = url.rstrip("/")
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        timeout = urllib3.Timeout(connect=_CONNECT_TIMEOUT_S, read=_READ_TIMEOUT_S)
        self._pool = urllib3.PoolManager(retries=False, timeout=timeout)

    def get(self, path: str, **parameters: object) -> Any:
        given = {name: value for name, value in parameters.items() if value not in (None, False)}
        return self._send("GET", f"{path}?{urlencode(given)}" if given else path, None, {})

    def post(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        return self._send("POST", path, body, {"Idempotency-Key": str(uuid.uuid4())})

    def put(self, path: str, body: Mapping[str, Any], *, etag: str | None = None) -> Any:
        return self._send("PUT", path, body, {} if etag is None else {"If-Match": etag})

    def delete(self, path: str) -> None:
        self._send("DELETE", path, None, {})

    def _send(self, method: str, path: str, body: Mapping[str, Any] | None, headers: Mapping[str, str]) -> Any:
        data = None if body is None else json.dumps(body, default=str).encode()
        tries_left = _TRIES_MAX
        while True:
            tries_left -= 1
            try:
                answer = self._pool.request(
                    method,
                    f"{self._url}{_API}{path}",
                    body=data,
                    headers={"Content-Type": "application/json", **self._headers, **headers},
                )
                if answer.status != _UNAVAILABLE or not tries_left:
                    return _read_answer(answer.status, answer.data)
            except urllib3.exceptions.HTTPError as error:
                if not tries_left:
                    raise self._explain(method, error) from None
            time.sleep(_WAIT_S)

    def _explain(self, method: str, error: urllib3.exceptions.HTTPError) -> GobblinError:
        if method == "GET" or isinstance(error, urllib3.exceptions.NewConnectionError):
            return RetryableError(
                f"the service at {self._url} does not answer",
                hint=f"Look whether `gobblin-assets service serve` runs, and at {URL_VARIABLE}.",
            )
        return OutcomeUnknownError(
            f"the service at {self._url} did not answer: {error}", hint="Look at the flow before you ask again."
        )


def flow_path(group: str, name: str) -> str:
    return f"/flows/{quote(group, safe='')}/{quote(name, safe='')}"


def open_client(url: str | None) -> ServiceClient:
    """A client of ``url``, else of GOBBLIN_SERVICE_URL, with the token of GOBBLIN_SERVICE_TOKEN."""
    return ServiceClient(url or os.environ.get(URL_VARIABLE) or DEFAULT_URL, os.environ.get(TOKEN_VARIABLE) or None)


def _read_answer(status: int, data: bytes) -> Any:
    try:
        answer = json.loads(data) if data else None
    except ValueError:
        answer = None
    if status < 400:
        return answer
    problem = answer if isinstance(answer, Mapping) else {}
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
