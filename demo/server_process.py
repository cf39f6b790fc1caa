"""Servers of demos and tests: processes of their own on free ports, which end with the process that started them."""

import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from gobblin_assets.errors import RetryableError

PORT_TRIES_MAX: Final = 3
"""Another process may take a free port between the look at the port and the server's start."""

_START_S_MAX: Final = 60.0
_LOG_CHARACTERS_MAX: Final = 3_000
_GUARD: Final = 'read -r _; kill -s KILL "$1" 2>/dev/null'


@contextmanager
def serve(
    command: Callable[[int], Sequence[str]], log: Path, environment: Mapping[str, str], **options: Any
) -> Iterator[int]:
    """Run a server for the block, and give the port at which it takes connections. ``command``: with a port.

    ``options``: as for ``run_guarded``.
    """
    for tries in range(1, PORT_TRIES_MAX + 1):
        port = find_port()
        with run_guarded(command(port), log, environment, **options) as process:
            if _takes_connections(process, port):
                yield port
                return
            if tries == PORT_TRIES_MAX:
                raise RetryableError(f"the server did not start:\n{read_end(log)}")


@contextmanager
def run_guarded(
    command: Sequence[str], log: Path, environment: Mapping[str, str], **options: Any
) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a process for the block, whose output goes to ``log``. ``options``: of ``Popen``.

    A guard kills it when this process ends, however it ends.
    """
    with log.open("wb") as output:
        process = subprocess.Popen(  # noqa: S603  our own command, as separate words
            command,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            **options,
        )
    # In a session of its own: otherwise Ctrl-C at the terminal would end the guard first.
    guard = subprocess.Popen(  # noqa: S603  fixed words
        ["/bin/sh", "-c", _GUARD, "sh", str(process.pid)], stdin=subprocess.PIPE, start_new_session=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        guard.kill()
        guard.wait()


def find_port() -> int:
    """One that is free now."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port


def read_end(log: Path) -> str:
    return log.read_text(errors="replace")[-_LOG_CHARACTERS_MAX:]


def _takes_connections(process: "subprocess.Popen[bytes]", port: int) -> bool:
    end = time.monotonic() + _START_S_MAX
    while time.monotonic() < end and process.poll() is None:
        with socket.socket() as probe:
            probe.settimeout(1.0)
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return True
        time.sleep(0.05)
    return False
