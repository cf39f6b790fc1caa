"""A proxy before a server. It cuts connections, or calls the test, when so many bytes came from the server; or it holds
back what the server says until the client has sent so many.
"""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

_READ_BYTES: Final = 1 << 16


@dataclass(slots=True)
class CuttingProxy:
    """``cut_after``: so many bytes of each connection come from the server; None: all. ``cuts``: how often, at most.

    ``at_bytes``: when a connection has given so many, ``call`` is called, once. ``connections`` counts all,
    ``ended`` those that client or server closed.
    """

    server_port: int
    cut_after: int | None = None
    cuts: int = 1 << 30
    at_bytes: int = 1 << 62
    call: Callable[[], object] = bool
    connections: int = 0
    ended: int = 0
    _sent: int = 0
    _held_until: int = 0
    _more: threading.Condition = field(default_factory=threading.Condition)
    _listener: socket.socket = field(default_factory=lambda: socket.create_server(("127.0.0.1", 0)))

    @property
    def port(self) -> int:
        port: int = self._listener.getsockname()[1]
        return port

    def serve(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self.connections += 1
                server = socket.create_connection(("127.0.0.1", self.server_port))
                threading.Thread(target=self._ask, args=(client, server), daemon=True).start()
                threading.Thread(target=self._answer, args=(server, client), daemon=True).start()

    def hold(self, sent_bytes: int) -> None:
        """Let nothing of the server's pass before clients have sent so many more bytes."""
        with self._more:
            self._held_until = self._sent + sent_bytes

    def close(self) -> None:
        # Closing alone would not wake the thread that waits in accept.
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _ask(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while content := client.recv(_READ_BYTES):
                with self._more:
                    self._sent += len(content)
                    self._more.notify_all()
                server.sendall(content)
            server.shutdown(socket.SHUT_WR)

    def _answer(self, server: socket.socket, client: socket.socket) -> None:
        seen = 0
        with server, client, suppress(OSError):
            while content := server.recv(_READ_BYTES):
                seen += len(content)
                if seen >= self.at_bytes:
                    self.at_bytes = 1 << 62
                    self.call()
                if self.cut_after is not None and seen > self.cut_after and self.cuts:
                    self.cuts -= 1
                    client.sendall(content[: self.cut_after - seen])
                    for each in (client, server):
                        each.shutdown(socket.SHUT_RDWR)
                    return
                with self._more:
                    self._more.wait_for(lambda: self._sent >= self._held_until)
                client.sendall(content)
            client.shutdown(socket.SHUT_RDWR)
        self.ended += 1


@contextmanager
def cutting_proxy(server_port: int, cut_after: int | None = None) -> Iterator[CuttingProxy]:
    made = CuttingProxy(server_port, cut_after)
    thread = threading.Thread(target=made.serve, daemon=True)
    thread.start()
    try:
        yield made
    finally:
        made.close()
        thread.join()
