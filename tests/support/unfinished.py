"""A connection to Postgres that stops its own process when a certain statement is sent except for its end."""

import socket
import tempfile
import threading
from contextlib import suppress
from pathlib import Path

from sqlalchemy import make_url

from gobblin_assets.failpoints import stop_this_process

_SYNC_LENGTH = 5


class UnfinishedSender:
    """Stands between this process and the server's socket; the first statement with ``marker`` stops the process.

    The server has then executed the statement and waits for Sync, the message that ends it. Sync is sent when the
    process is woken up. No limit on idle transactions runs at this point of the protocol.
    """

    def __init__(self, database_url: str, marker: bytes) -> None:
        url = make_url(database_url)
        self._server = Path(str(url.query["host"]), f".s.PGSQL.{url.query['port']}")
        self._marker = marker
        self._stopped_once = False
        directory = tempfile.mkdtemp(prefix="unfinished-")
        self.database_url = url.update_query_dict({"host": directory}).render_as_string(hide_password=False)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(f"{directory}/{self._server.name}")
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            server = socket.socket(socket.AF_UNIX)
            server.connect(str(self._server))
            threading.Thread(target=self._forward, args=(client, server), daemon=True).start()
            threading.Thread(target=_copy, args=(server, client), daemon=True).start()

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := client.recv(1 << 20):
                if self._marker in data and not self._stopped_once:
                    self._stopped_once = True
                    server.sendall(data[:-_SYNC_LENGTH])
                    stop_this_process()
                    data = data[-_SYNC_LENGTH:]
                server.sendall(data)


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 20):
            target.sendall(data)
    target.close()
