"""Guards in front of every request: the host it names, the page it comes from, its size, its path; and its time.

A page of another origin can send a form, and a name of another owner may resolve to this machine. Both are refused, so
that a browser on the same machine can be used for other things as well. The path reaches the routes as it was sent, so
that a name may contain a slash, which is sent as %2F.
"""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from typing import Any, Final
from urllib.parse import unquote_to_bytes, urlsplit

from gobblin_assets.errors import GobblinError, OutcomeUnknownError, RejectedError
from gobblin_assets.service.api.problems import (
    PROBLEM_TYPE,
    BodyTooLargeError,
    ForeignHostError,
    ForeignOriginError,
    MalformedRequestError,
    problem_of,
)

BODY_BYTES_MAX: Final = 2 << 20
_DISCARDED_BYTES_MAX: Final = 64 << 20
LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})

CHANGE_WAIT_S_MAX: Final = 12.0
"""So long a change is waited for: a network that swallows what is sent refuses nothing, and answers nothing."""

_UNANSWERED: Final = OutcomeUnknownError(
    f"the database did not answer within {CHANGE_WAIT_S_MAX:g} s: it may have been done",
    hint="Send the request again with the same Idempotency-Key, or look first.",
)

_UNSAFE: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_BAD_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")

_Message = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[_Message]]
_Send = Callable[[_Message], Awaitable[None]]
_Application = Callable[[_Message, _Receive, _Send], Awaitable[None]]


class RequestGuards:
    """An ASGI application in front of another. ``hosts``: the names by which this server may be asked."""

    def __init__(self, application: _Application, hosts: Collection[str]) -> None:
        self._application = application
        self._hosts = frozenset(hosts)

    async def __call__(self, scope: _Message, receive: _Receive, send: _Send) -> None:
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return
        try:
            headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
            check_host(headers.get("host", ""), self._hosts)
            if scope["method"] in _UNSAFE:
                check_origin(headers)
            refuse_nul(scope["query_string"])
            guarded = {**scope, "path": read_raw_path(scope["raw_path"])}
            body = await _read_body(headers.get("content-length", ""), receive)
        except RejectedError as error:
            await _answer(error, send)
            return
        if body is None:
            return
        if scope["method"] not in _UNSAFE or b"wait_s=" in scope["query_string"]:
            await self._application(guarded, _replay(body, receive), send)
            return
        answer = _FirstAnswer(send)
        answering = asyncio.ensure_future(self._application(guarded, _replay(body, receive), answer.send))
        await asyncio.wait({answering}, timeout=CHANGE_WAIT_S_MAX)
        if not answering.done() and not answer.has_begun:
            # What it asks for may still be done: whoever sends it again with its key makes no second one.
            answer.is_given_up = True
            await _answer(_UNANSWERED, send)
            return
        await answering


def check_host(host: str, hosts: Collection[str]) -> None:
    """ForeignHostError: the request is for another machine, whose name leads to this one."""
    try:
        name = urlsplit(f"//{host}").hostname
    except ValueError:
        name = None
    if name not in hosts:
        raise ForeignHostError(
            f"this server is not {host[:200]!a}", field="Host", hint=f"Ask for {' or '.join(sorted(hosts))}."
        )


def check_origin(headers: MutableMapping[str, str]) -> None:
    """ForeignOriginError: a browser sends this for a page of somebody else. Programs send neither header."""
    origin, site = headers.get("origin"), headers.get("sec-fetch-site")
    foreign_origin = origin is not None and urlsplit(origin).netloc != headers.get("host")
    if foreign_origin or site in {"cross-site", "same-site"}:
        raise ForeignOriginError(
            "a page of another origin sent this request",
            field="Origin",
            hint="Open this service's own pages, or send the request by a program.",
        )


def refuse_nul(query: bytes) -> None:
    """MalformedRequestError for NUL, which no database takes."""
    if b"%00" in query or b"\0" in query:
        raise MalformedRequestError("expected no NUL", field="query", hint="Take %00 out.")


def read_raw_path(raw_path: bytes) -> str:
    """The path with its escapes. MalformedRequestError where they are no UTF-8."""
    try:
        path = raw_path.decode("ascii")
        unquote_to_bytes(path).decode("utf-8")
    except UnicodeDecodeError:
        path = "%"
    if b"%00" in raw_path or b"\0" in raw_path:
        raise MalformedRequestError("expected no NUL", field="path", hint="Take %00 out.")
    if _BAD_ESCAPE.search(path):
        raise MalformedRequestError(
            "the path is no percent-encoded UTF-8", field="path", hint="Encode each name of the path by itself."
        )
    return path


async def _read_body(length: str, receive: _Receive) -> bytes | None:
    """The whole body; None if the client went away before its end.

    Of a body that is too large, the rest is read and thrown away within bounds: a client that still sends when the
    connection closes never sees the answer.
    """
    told = int(length) if length.isdecimal() else 0
    if told > _DISCARDED_BYTES_MAX:
        raise _too_large()
    is_too_large = told > BODY_BYTES_MAX
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            # What came may be the begin of another request: one without a body runs all that is due.
            return None
        part: bytes = message.get("body", b"")
        size += len(part)
        is_too_large = is_too_large or size > BODY_BYTES_MAX
        is_over = not message.get("more_body", False)
        if is_too_large and (is_over or size > _DISCARDED_BYTES_MAX):
            raise _too_large()
        if not is_too_large:
            parts.append(part)
        if is_over:
            return b"".join(parts)


def _too_large() -> BodyTooLargeError:
    return BodyTooLargeError(
        f"expected at most {BODY_BYTES_MAX:,} bytes", field="body", hint="A flow's parameters are names, not data."
    )


def _replay(body: bytes, receive: _Receive) -> _Receive:
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> _Message:
        return messages.pop() if messages else await receive()

    return replay


class _FirstAnswer:
    """Passes an answer on, unless another one was given meanwhile."""

    def __init__(self, send: _Send) -> None:
        self._send = send
        self.has_begun = False
        self.is_given_up = False

    async def send(self, message: _Message) -> None:
        if not self.is_given_up:
            self.has_begun = True
            await self._send(message)


async def _answer(error: GobblinError, send: _Send) -> None:
    problem = problem_of(error)
    body = json.dumps(problem.to_json()).encode()
    headers = [
        (b"content-type", PROBLEM_TYPE.encode()),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": problem.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
