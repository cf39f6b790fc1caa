"""The processes of the demo: the service, and executors, which are killed with all that they started."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from demo.server_process import run_guarded, serve
from demo.service.places import DEMO, TOPOLOGY, child_environment
from demo.stage import console

_CLAIM_TTL_S: Final = 5

Executor = subprocess.Popen[bytes]


@contextmanager
def serving(port: int | None) -> Iterator[int]:
    """The service on a port; None: on a free one."""

    def command(free: int) -> list[str]:
        chosen = str(free if port is None else port)
        words = ["service", "serve", "--topology", str(TOPOLOGY), "--port", chosen, "--no-auth"]
        return [sys.executable, "-m", "gobblin_assets.cli", *words]

    if port is not None:
        console.print(f"[cyan]$ gobblin-assets {' '.join(command(port)[3:])}[/cyan]")
        with run_guarded(command(port), DEMO / "service.log", child_environment()):
            yield port
        return
    with serve(command, DEMO / "service.log", child_environment()) as found:
        console.print(f"[cyan]$ gobblin-assets {' '.join(command(found)[3:])}[/cyan]")
        yield found


@contextmanager
def executing(name: str, number: int, failpoint: str = "") -> Iterator[Executor]:
    """The executor of a name. ``number``: of its log."""
    words = ["executor", "serve", "--name", name, "--claim-ttl", str(_CLAIM_TTL_S)]
    shown = f"GOBBLIN_FAILPOINT={failpoint} " if failpoint else ""
    console.print(f"[cyan]$ {shown}gobblin-assets {' '.join(words)}[/cyan]")
    environment = child_environment() | ({"GOBBLIN_FAILPOINT": failpoint} if failpoint else {})
    command = [sys.executable, "-m", "gobblin_assets.cli", *words]
    with run_guarded(command, DEMO / f"{name}-{number}.log", environment) as process:
        yield process


def kill_all(executor: Executor) -> int:
    """SIGKILL to the executor and to the processes that it started, as if their machine lost its power.

    Returns how many they were.
    """
    executor.send_signal(signal.SIGSTOP)
    children = list_children(executor.pid)
    for pid in (*children, executor.pid):
        os.kill(pid, signal.SIGKILL)
    return len(children) + 1


def list_children(pid: int) -> list[int]:
    found = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False)  # noqa: S603, S607  fixed words
    return [int(each) for each in found.stdout.split()]
