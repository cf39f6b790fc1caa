"""Proxies to Postgres that lose acknowledgements, answer late, and break."""

import random
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from sqlalchemy import make_url

from tests.torture.schedule import LEASE_TTL_S, PROXY_FAULTS, Injection
from tests.torture.server import Victim
from tests.torture.tally import Tally

# A COMMIT as psycopg sends it: as a simple or as an extended query.
_COMMIT: Final = b"COMMIT\x00"
_PER_COMMIT: Final = 0.12
_PER_MESSAGE: Final = 0.03
_DELAY_S: Final = (0.2, 1.5 * LEASE_TTL_S)


class Proxies:
    """One proxy for each kind of fault, below ``home``."""

    def __init__(self, home: Path, victim: Victim, seed: str, tally: Tally) -> None:
        self._victim = victim
        self._by_fault = {
            fault: FaultyProxy(home / f"p{number}", fault, lambda: victim.socket_file, seed, tally)
            for number, fault in enumerate(PROXY_FAULTS)
        }

    def url(self, route: Injection | None) -> str:
        """The URL of the log by the present port: a server that was started again may have another port."""
        url = make_url(self._victim.url)
        if route is not None:
            url = url.update_query_dict({"host": str(self._by_fault[route].directory)})
        return url.render_as_string(hide_password=False)

    def calm_down(self) -> None:
        """From now on, pass everything on."""
        for proxy in self._by_fault.values():
            proxy.calm_down()

    def close(self) -> None:
        for proxy in self._by_fault.values():
            proxy.close()


class FaultyProxy:
    """Listens in ``directory`` under the name of the server's socket, and makes one kind of fault."""

    def __init__(
        self, directory: Path, fault: Injection, server_socket: Callable[[], Path], seed: str, tally: Tally
    ) -> None:
        directory.mkdir(parents=True)
        self.directory = directory
        self._fault = fault
        self._server_socket = server_socket
        self._dice = random.Random(f"{seed}/{fault}")
        self._tally = tally
        self._calm = threading.Event()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(directory / server_socket().name))
        self._listener.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()

    def calm_down(self) -> None:
        self._calm.set()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        server = socket.socket(socket.AF_UNIX)
        with client, server, suppress(OSError):
            server.connect(str(self._server_socket()))
            connection = _Connection(client, server)
            threading.Thread(target=self._bring_back, args=(connection,), daemon=True).start()
            while data := client.recv(1 << 18):
                if self._strikes(data) and not self._pass_broken(connection, data):
                    break
                server.sendall(data)
            connection.close()

    def _strikes(self, data: bytes) -> bool:
        if self._calm.is_set():
            return False
        if self._fault is Injection.PROXY_CUT:
            return self._dice.random() < _PER_MESSAGE
        return _COMMIT in data and self._dice.random() < _PER_COMMIT

    def _pass_broken(self, connection: "_Connection", data: bytes) -> bool:
        """Whether ``data`` is sent on."""
        self._tally.add(self._fault)
        match self._fault:
            case Injection.PROXY_SWALLOWED:
                connection.swallow.set()
                return True
            case Injection.PROXY_DELAYED:
                connection.delay_s = self._dice.uniform(*_DELAY_S)
                return True
            case _:
                connection.close()
                return False

    def _bring_back(self, connection: "_Connection") -> None:
        with suppress(OSError):
            while data := connection.server.recv(1 << 18):
                if connection.swallow.is_set():
                    # The server has answered, so the COMMIT took effect; its sender will never get the answer.
                    break
                if connection.delay_s:
                    time.sleep(connection.delay_s)
                    connection.delay_s = 0.0
                connection.client.sendall(data)
        connection.close()


class _Connection:
    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client = client
        self.server = server
        self.swallow = threading.Event()
        self.delay_s = 0.0

    def close(self) -> None:
        for end in (self.client, self.server):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
