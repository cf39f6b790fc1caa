"""The web server: the API with its pages, behind the guards, on one socket."""

import signal
import socket
from collections.abc import Collection
from types import FrameType
from typing import Final

import uvicorn

from gobblin_assets.service.api.application import make_api
from gobblin_assets.service.api.request_guards import RequestGuards
from gobblin_assets.service.api.request_parts import ServedParts
from gobblin_assets.service.ui.service_pages import add_pages

_STOP_WAIT_S_MAX: Final = 10


def serve_requests(parts: ServedParts, listening: socket.socket, hosts: Collection[str]) -> None:
    """Answer requests until SIGTERM or SIGINT; those under way are answered first. ``hosts``: names of this server."""
    app = make_api(parts)
    add_pages(app)
    config = uvicorn.Config(
        RequestGuards(app, hosts),
        # uvloop and httptools, where they are installed: Dagster's web server brings them.
        loop="auto",
        http="auto",
        lifespan="off",
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=_STOP_WAIT_S_MAX,
    )
    # After the last answer, uvicorn raises the signal once more, for whoever had the handler before.
    before = {number: signal.signal(number, _ignore) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        uvicorn.Server(config).run(sockets=[listening])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _ignore(_number: int, _frame: FrameType | None) -> None:
    """Nothing is left to do: the server has stopped, and the caller goes on."""
