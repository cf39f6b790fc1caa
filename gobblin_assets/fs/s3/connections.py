"""Connections to stores, which are kept while nobody needs them. On each, one request is under way at a time.

A small file is four requests, and most of their cost is this process's time. urllib3 takes 0.25 ms of a processor for
each, this 0.09 ms. It also counts the time to connect while it sends, and a whole body as one wait.
"""

import select
import socket
import ssl
import threading
import weakref
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Final, NamedTuple

from gobblin_assets.fs.s3.http_answers import BrokenAnswerError, HttpAnswer, read_answer

BLOCK_BYTES: Final = 1 << 18
"""A body is sent in such blocks."""

SEND_WAIT_S: Final = 60.0
"""For each block."""

CONNECTIONS_KEPT_MAX: Final = 64
"""To one host, while nobody needs them."""

_HEADERS: Final = {"accept-encoding": "identity", "user-agent": "gobblin-assets"}


class StoreHost(NamedTuple):
    scheme: str
    name: str
    port: int


class NothingSentError(Exception):
    """The host can't be connected to, so that nothing of the request can have happened.

    ``is_distrusted``: because of its certificate.
    """

    def __init__(self, reason: str, *, is_distrusted: bool) -> None:
        super().__init__(reason)
        self.is_distrusted = is_distrusted


class NoAnswerError(Exception):
    """No whole answer came to what was sent."""


class StoreConnections:
    """Safe to share between threads. Connects to nothing before the first request."""

    def __init__(self, *, connect_wait_s: float, answer_wait_s: float, ca_file: str | None) -> None:
        self._connect_wait_s = connect_wait_s
        self._answer_wait_s = answer_wait_s
        self._ca_file = ca_file
        self._tls: ssl.SSLContext | None = None
        self._lock = threading.Lock()
        self._idle: dict[StoreHost, list[socket.socket]] = defaultdict(list)
        weakref.finalize(self, _close_all, self._idle)

    def ask(
        self, host: StoreHost, method: str, path: str, headers: Mapping[str, str], body: bytes | None = None
    ) -> HttpAnswer:
        """The answer, whatever its status. ``path``: encoded, with the query. ``body`` None: the method has none."""
        sent = {**headers, **_HEADERS}
        if body is not None:
            sent["content-length"] = str(len(body))
        head = "".join(
            [f"{method} {path} HTTP/1.1\r\n", *(f"{name}: {value}\r\n" for name, value in sent.items()), "\r\n"]
        )
        if head.count("\n") != len(sent) + 2:
            raise ValueError("a header has the end of a line in it")
        connection = self._take(host) or self._connect(host)
        try:
            _send(connection, head.encode("latin-1"), body or b"")
            connection.settimeout(self._answer_wait_s)
            with connection.makefile("rb") as stream:
                answer, may_go_on = read_answer(stream, method)
        except (OSError, BrokenAnswerError) as error:
            connection.close()
            raise NoAnswerError(_describe(error)) from error
        except BaseException:
            connection.close()
            raise
        self._keep(host, connection, may_go_on=may_go_on)
        return answer

    def _take(self, host: StoreHost) -> socket.socket | None:
        """One that the host has not closed meanwhile."""
        while True:
            with self._lock:
                if not self._idle[host]:
                    return None
                connection = self._idle[host].pop()
            poll = select.poll()
            poll.register(connection, select.POLLIN)
            # Nothing was asked: what can be read is its end.
            if not poll.poll(0):
                return connection
            connection.close()

    def _keep(self, host: StoreHost, connection: socket.socket, *, may_go_on: bool) -> None:
        with self._lock:
            if may_go_on and len(self._idle[host]) < CONNECTIONS_KEPT_MAX:
                self._idle[host].append(connection)
                return
        connection.close()

    def _connect(self, host: StoreHost) -> socket.socket:
        try:
            connection = socket.create_connection((host.name, host.port), self._connect_wait_s)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if host.scheme != "https":
                return connection
            try:
                return self._open_tls().wrap_socket(connection, server_hostname=host.name)
            except BaseException:
                connection.close()
                raise
        except (OSError, UnicodeError) as error:
            # A name that is none is a UnicodeError.
            is_distrusted = isinstance(error, ssl.SSLCertVerificationError)
            raise NothingSentError(_describe(error), is_distrusted=is_distrusted) from error

    def _open_tls(self) -> ssl.SSLContext:
        with self._lock:
            if self._tls is None:
                self._tls = ssl.create_default_context(cafile=self._ca_file)
            return self._tls


def _send(connection: socket.socket, head: bytes, body: bytes) -> None:
    """A store may answer, and close, before it has read all: what it said counts."""
    connection.settimeout(SEND_WAIT_S)
    with suppress(BrokenPipeError):
        if len(head) + len(body) <= BLOCK_BYTES:
            connection.sendall(head + body)
            return
        connection.sendall(head)
        rest = memoryview(body)
        for start in range(0, len(rest), BLOCK_BYTES):
            connection.sendall(rest[start : start + BLOCK_BYTES])


def _close_all(idle: Mapping[StoreHost, Iterable[socket.socket]]) -> None:
    for connections in idle.values():
        for each in connections:
            each.close()


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
