"""versitygw, a gateway that speaks S3 over a directory. Go builds it once, into the user's cache folder."""

import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from demo.go_programs import build_go_program
from gobblin_assets.errors import RetryableError

VERSITYGW: Final = "github.com/versity/versitygw/cmd/versitygw"
VERSITYGW_VERSION: Final = "v1.8.0"
REGION: Final = "us-east-1"

_START_S_MAX: Final = 60.0
_PORT_TRIES_MAX: Final = 3
_LOG_CHARACTERS_MAX: Final = 3_000
_GUARD: Final = 'read -r _; kill -s KILL "$1" 2>/dev/null'


@contextmanager
def run_gateway(folder: Path, access_key_id: str, secret: str, options: Sequence[str] = ()) -> Iterator[int]:
    """Serve ``folder/data`` for the block; gives the port."""
    program = build_versitygw()
    (folder / "data").mkdir(parents=True, exist_ok=True)
    login = {"ROOT_ACCESS_KEY": access_key_id, "ROOT_SECRET_KEY": secret}

    def command(port: int) -> list[str]:
        said = ("--keep-alive", "--quiet", "--region", REGION, "--port", f"127.0.0.1:{port}", *options)
        return [str(program), *said, "posix", str(folder / "data")]

    with serve(command, folder / "log", login) as port:
        yield port


def build_versitygw() -> Path:
    """The program, built once. RejectedError where there is no Go, and where Go can't build it."""
    return build_go_program(VERSITYGW, VERSITYGW_VERSION)


@contextmanager
def serve(command: Callable[[int], list[str]], log: Path, environment: Mapping[str, str]) -> Iterator[int]:
    """Run a server for the block, and give the port at which it takes connections. ``command``: with a port.

    A guard kills the server when this process ends, however it ends.
    """
    for tries in range(1, _PORT_TRIES_MAX + 1):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        with log.open("wb") as output:
            process = subprocess.Popen(  # noqa: S603  our own command, as separate words
                command(port), env={**os.environ, **environment}, stdout=output, stderr=subprocess.STDOUT
            )
        # In a session of its own: otherwise Ctrl-C at the terminal would end the guard first.
        guard = subprocess.Popen(  # noqa: S603  fixed words
            ["/bin/sh", "-c", _GUARD, "sh", str(process.pid)], stdin=subprocess.PIPE, start_new_session=True
        )
        try:
            if _wait(process, port):
                yield port
                return
            if tries == _PORT_TRIES_MAX:
                said = log.read_text(errors="replace")[-_LOG_CHARACTERS_MAX:]
                raise RetryableError(f"the server did not start:\n{said}")
        finally:
            process.kill()
            process.wait()
            guard.kill()
            guard.wait()


def _wait(process: "subprocess.Popen[bytes]", port: int) -> bool:
    end = time.monotonic() + _START_S_MAX
    while time.monotonic() < end and process.poll() is None:
        with socket.socket() as probe:
            probe.settimeout(1.0)
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return True
        time.sleep(0.05)
    return False
