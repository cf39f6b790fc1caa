"""A proxy before a store that speaks S3, which makes one fault at the requests that a test chooses.

Each connection is served by a thread, and each request is read whole before anything is done with it.
"""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

_READ_BYTES: Final = 1 << 18
_BUSY: Final = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
_TOO_LARGE: Final = (
    b"<Error><Code>InvalidRequest</Code><Message>The specified copy source is larger than the maximum allowable size "
    b"for a copy source: 5368709120</Message></Error>"
)


class StoreFault(StrEnum):
    """BUSY: 503 instead of an effect. TOO_LARGE: 400, as S3 answers to copies of large objects. UNMET: 412, whatever
    the condition. OVERLAPPED: 409, as S3 answers to one of two conditional requests that overlap.

    BROKEN: 500 after the effect. LOST: the effect, and no answer. CUT: no effect and no answer. SPOILED: a byte of the
    body is another one when it comes to the store.
    """

    BUSY = "busy"
    TOO_LARGE = "too_large"
    UNMET = "unmet"
    OVERLAPPED = "overlapped"
    BROKEN = "broken"
    LOST = "lost"
    CUT = "cut"
    SPOILED = "spoiled"


REFUSALS: Final = {
    StoreFault.BUSY: (b"503 Slow Down", _BUSY),
    StoreFault.TOO_LARGE: (b"400 Bad Request", _TOO_LARGE),
    StoreFault.UNMET: (b"412 Precondition Failed", b"<Error><Code>PreconditionFailed</Code></Error>"),
    StoreFault.OVERLAPPED: (b"409 Conflict", b"<Error><Code>ConditionalRequestConflict</Code></Error>"),
}
"""The answers to requests that never come to the store."""


@dataclass(frozen=True, slots=True)
class Message:
    """A request or an answer. ``head`` ends with the empty line."""

    head: bytes
    body: bytes

    @property
    def method(self) -> str:
        return self.head.split(b" ", 1)[0].decode()

    @property
    def target(self) -> str:
        return self.head.split(b" ", 2)[1].decode()


Choose = Callable[[Message], StoreFault | None]


@dataclass(slots=True)
class FaultyStore:
    """``choose`` is asked at each request. ``seen``: methods and targets that came, with what was done to them."""

    server: tuple[str, int]
    choose: Choose = lambda _request: None
    seen: list[tuple[str, str, StoreFault | None]] = field(default_factory=list)
    _listener: socket.socket = field(default_factory=lambda: socket.create_server(("127.0.0.1", 0)))

    @property
    def endpoint_url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def fault_once(self, fault: StoreFault, method: str, part: str = "") -> None:
        """At the first request of this method whose target has ``part``."""
        left = [fault]
        self.choose = lambda request: (
            left.pop() if left and request.method == method and part in request.target else None
        )

    def fault_always(self, fault: StoreFault, method: str, part: str = "") -> None:
        self.choose = lambda request: fault if request.method == method and part in request.target else None

    def counts(self, method: str) -> int:
        return sum(each[0] == method for each in self.seen)

    def serve(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._talk, args=(client,), daemon=True).start()

    def close(self) -> None:
        # Closing alone would not wake the thread that waits in accept.
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _talk(self, client: socket.socket) -> None:
        with client, suppress(OSError), socket.create_connection(self.server) as server:
            while (request := _read_message(client)) is not None:
                fault = self.choose(request)
                self.seen.append((request.method, request.target, fault))
                match fault:
                    case StoreFault.CUT:
                        return
                    case StoreFault.BUSY | StoreFault.TOO_LARGE | StoreFault.UNMET | StoreFault.OVERLAPPED:
                        client.sendall(_answer(*REFUSALS[fault]))
                        continue
                    case StoreFault.SPOILED if request.body:
                        request = Message(request.head, request.body[:-1] + bytes([request.body[-1] ^ 1]))
                    case _:
                        pass
                server.sendall(request.head + request.body)
                answer = _read_message(server, is_head=request.method == "HEAD")
                if answer is None or fault is StoreFault.LOST:
                    return
                broken = fault is StoreFault.BROKEN
                client.sendall(_answer(b"500 Internal Server Error", b"") if broken else answer.head + answer.body)


@contextmanager
def faulty_store(server: tuple[str, int]) -> Iterator[FaultyStore]:
    made = FaultyStore(server)
    thread = threading.Thread(target=made.serve, daemon=True)
    thread.start()
    try:
        yield made
    finally:
        made.close()
        thread.join()


def _answer(status: bytes, body: bytes) -> bytes:
    return b"HTTP/1.1 %s\r\ncontent-type: application/xml\r\ncontent-length: %d\r\n\r\n%s" % (status, len(body), body)


def _read_message(connection: socket.socket, *, is_head: bool = False) -> Message | None:
    """None at the end of the connection. The stores of our tests say the length of every body."""
    content = b""
    while b"\r\n\r\n" not in content:
        more = connection.recv(_READ_BYTES)
        if not more:
            return None
        content += more
    head, _, body = content.partition(b"\r\n\r\n")
    lengths = [line.partition(b":")[2] for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
    length = 0 if is_head or not lengths else int(lengths[0])
    rest = bytearray(body)
    while len(rest) < length:
        more = connection.recv(_READ_BYTES)
        if not more:
            return None
        rest += more
    return Message(head + b"\r\n\r\n", bytes(rest))
