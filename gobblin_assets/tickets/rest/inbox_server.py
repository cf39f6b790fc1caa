"""The https server of an executor's inbox. It answers only whoever has a certificate of the service's authority."""

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import uvicorn
from starlette.applications import Starlette

from gobblin_assets.errors import RejectedError

_BACKLOG: Final = 64
_REQUESTS_MAX: Final = 64
_STOP_WAIT_S_MAX: Final = 10
_JOIN_S_MAX: Final = 15.0
_PORT_MAX: Final = 65_535


@dataclass(frozen=True, slots=True)
class InboxAddress:
    """Where the inbox is served, and the PEM files: the server's certificate and key, and the clients' authority."""

    host: str
    port: int
    certificate: Path
    key: Path
    client_ca: Path


def parse_address(text: str) -> tuple[str, int]:
    """RejectedError: it is no HOST:PORT."""
    host, _, port = text.rpartition(":")
    if not host or "/" in text or not port.isascii() or not port.isdigit() or int(port) > _PORT_MAX:
        raise RejectedError(
            f"expected HOST:PORT, found {text[:200]!a}",
            field="--rest",
            hint="Write such as 0.0.0.0:8443. It is always https: plain http is not served.",
        )
    return host.removeprefix("[").removesuffix("]"), int(port)


@contextmanager
def serve_inbox(app: Starlette, address: InboxAddress) -> Iterator[int]:
    """Serve while the block runs; gives the port. RejectedError: a file or the address can't be used."""
    config = uvicorn.Config(
        app,
        lifespan="off",
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=_REQUESTS_MAX,
        timeout_graceful_shutdown=_STOP_WAIT_S_MAX,
        ssl_certfile=_require(address.certificate, "--rest-certificate"),
        ssl_keyfile=_require(address.key, "--rest-key"),
        ssl_ca_certs=_require(address.client_ca, "--rest-client-ca"),
        ssl_cert_reqs=ssl.CERT_REQUIRED,
    )
    try:
        config.load()
    except (ssl.SSLError, OSError) as error:
        raise RejectedError(
            f"the certificate, its key or the clients' authority can't be used: {error}",
            field="--rest-certificate",
            hint="Give PEM files: a certificate, the key that belongs to it without a password, and the authority.",
        ) from None
    server = uvicorn.Server(config)
    with _listen(address) as listening:
        port: int = listening.getsockname()[1]
        # In a thread, uvicorn leaves the process's signals alone.
        thread = threading.Thread(target=server.run, args=([listening],), name="inbox", daemon=True)
        thread.start()
        try:
            yield port
        finally:
            server.should_exit = True
            thread.join(_JOIN_S_MAX)


def _listen(address: InboxAddress) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        return socket.create_server((address.host, address.port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise RejectedError(
            f"can't listen on {address.host}:{address.port}: {error.strerror}",
            field="--rest",
            hint="Choose an address of this machine, and a port that is free.",
        ) from None


def _require(path: Path, option: str) -> str:
    if not path.is_file():
        raise RejectedError(f"expected a PEM file, found none at {path}", field=option, hint="Correct the path.")
    return str(path)
