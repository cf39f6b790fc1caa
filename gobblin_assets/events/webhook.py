"""A sink that posts batches of events: ``{"events": [...]}``; any 2xx answer says that the receiver has them.

The URL and the token may be secrets. So neither is ever a part of an error or a line, except the host of a URL that the
job itself names.

A request has a limit on its total time. A socket's time limits are for each piece that it reads, so an answer that
comes byte by byte could go on for hours.
"""

import json
import os
import socket
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import urlsplit

from urllib3 import HTTPConnectionPool, HTTPSConnectionPool, Timeout
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import HTTPError, LocationValueError
from urllib3.util import parse_url

from gobblin_assets.errors import RejectedError, RetryableError
from gobblin_assets.events.sinks import Event
from gobblin_assets.spec.job_options import EventSinkSpec

CONNECT_S_MAX: Final = 5.0
READ_S_MAX: Final = 10.0

TRIES_MAX: Final = 2
TRY_S_MAX: Final = 15.0
"""Of one try, from the connection to the end of the answer's headers."""


def post(url: str, body: bytes, headers: Mapping[str, str], *, whole_s_max: float) -> int:
    """The status of the answer. What it says besides, it may say slowly, and nobody reads it.

    No redirect is followed: it could take a token elsewhere. Any error is urllib3's ``HTTPError``. An answer whose
    status came is one, whatever of it is missing when the time is over.
    """
    parts = parse_url(url)
    kind = _TlsPool if parts.scheme == "https" else _Pool
    with _Deadline(whole_s_max) as deadline:
        pool = kind(
            parts.host or "",
            parts.port,
            timeout=Timeout(connect=CONNECT_S_MAX, read=READ_S_MAX),
            retries=False,
            deadline=deadline,
        )
        try:
            answer = pool.request(
                *("POST", parts.request_uri), body=body, headers=headers, redirect=False, preload_content=False
            )
            answer.close()
            return answer.status
        finally:
            pool.close()


class _Deadline:
    """Ends the connections of a block when its time is over: whoever waits for them finds their end."""

    def __init__(self, seconds: float) -> None:
        self._timer = threading.Timer(seconds, self._end)
        self._timer.daemon = True
        self._lock = threading.Lock()
        self._is_over = False
        self._watched: list[socket.socket] = []

    def watch(self, connection: socket.socket) -> None:
        # TLS takes the socket itself over; another descriptor of it stays good.
        with self._lock:
            self._watched.append(connection.dup())
            if self._is_over:
                _shut_down(connection)

    def _end(self) -> None:
        with self._lock:
            self._is_over = True
            for each in self._watched:
                _shut_down(each)

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        with self._lock:
            for each in self._watched:
                each.close()
            self._watched.clear()


def _shut_down(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


class _Connection(HTTPConnection):
    def __init__(self, *arguments: Any, deadline: _Deadline, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._deadline = deadline

    def _new_conn(self) -> socket.socket:
        made = super()._new_conn()
        self._deadline.watch(made)
        return made


class _TlsConnection(_Connection, HTTPSConnection):
    pass


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _TlsPool(HTTPSConnectionPool):
    ConnectionCls = _TlsConnection


@dataclass(frozen=True, slots=True)
class Webhook:
    """A sink at a URL. ``label``: its name in errors."""

    url: str = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    label: str

    def send(self, events: Sequence[Event]) -> None:
        body = json.dumps({"events": list(events)}).encode()
        said = "no answer"
        for _try in range(TRIES_MAX):
            try:
                status = post(self.url, body, self.headers, whole_s_max=TRY_S_MAX)
            except LocationValueError:
                raise _is_no_url(self.label) from None
            except HTTPError as error:
                # Without its text, which has the URL.
                said = type(error).__name__
                continue
            if 200 <= status < 300:
                return
            said = f"status {status}"
            if status < 500:
                break
        raise RetryableError(f"{self.label} does not take events ({said})", hint="Look at the receiver.")


def open_webhook(spec: EventSinkSpec) -> Webhook:
    """RejectedError for a variable that is not set."""
    url = spec.url if spec.url_env is None else _read(spec.url_env, "url_env")
    token = None if spec.token_env is None else _read(spec.token_env, "token_env")
    headers = {"Content-Type": "application/json"}
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    label = f"the webhook of {spec.url_env}" if spec.url_env else f"the webhook at {urlsplit(str(url)).hostname}"
    if not _is_url(str(url)):
        raise _is_no_url(label)
    return Webhook(str(url), headers, label)


def _read(variable: str, option: str) -> str:
    found = os.environ.get(variable, "").strip()
    if not found:
        raise RejectedError(f"the environment variable {variable} is not set", field=f"events.{option}", hint="Set it.")
    if not found.isascii() or not found.isprintable() or " " in found:
        raise RejectedError(
            f"the environment variable {variable} has a character that no request can carry",
            field=f"events.{option}",
            hint="Set it to printable ASCII characters without spaces.",
        )
    return found


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _is_no_url(label: str) -> RejectedError:
    return RejectedError(f"{label} is no URL", field="events.url", hint="Write an http:// or https:// URL.")
