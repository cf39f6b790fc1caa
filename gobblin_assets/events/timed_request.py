"""One HTTP request within a total time, however slowly the other side answers.

The time limits of a socket are for each piece that it reads: an answer that comes byte by byte would go on for hours.
"""

import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self

from urllib3 import HTTPConnectionPool, HTTPSConnectionPool, Timeout
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.util import parse_url

CONNECT_S_MAX: Final = 5.0
READ_S_MAX: Final = 10.0


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
