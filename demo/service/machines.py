"""Programs of the demo, each with all processes that it starts as if these had a machine to themselves."""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from demo.places import CLONE
from demo.server_process import run_guarded
from demo.stage import console
from gobblin_assets.model.wording import count_of

_END_S_MAX: Final = 60.0


class Machine:
    """A program that is started, killed, and started again.

    What it says is in ``<name>-<number of the start>.log`` of the folder. ``more``: variables beside the environment.
    """

    def __init__(
        self,
        name: str,
        program: Sequence[str],
        words: Sequence[str],
        environment: Mapping[str, str],
        more: Mapping[str, str],
        folder: Path,
    ) -> None:
        self.name = name
        self._command = [*program, *words]
        self._environment = {**environment, **more}
        # Values of the others may be passwords.
        shown = [f"{variable}={'…' if '://' in value else value}" for variable, value in more.items()]
        self._shown = " ".join([*shown, "gobblin-assets", as_typed(words)])
        self._folder = folder
        self._starts = 0
        self._running = ExitStack()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Of the process that was started last. ValueError: it does not run."""
        if self._process is None:
            raise ValueError(f"{self.name} does not run")
        return self._process.pid

    def start(self) -> None:
        self._starts += 1
        console.print(f"[cyan]$ {self._shown}[/cyan]")
        log = self._folder / f"{self.name}-{self._starts}.log"
        self._process = self._running.enter_context(run_guarded(self._command, log, self._environment))

    def run(self) -> None:
        """Start it, and wait for its end. SystemExit: it failed."""
        self.start()
        if self._process is not None and (code := self._process.wait(_END_S_MAX)):
            raise SystemExit(f"{self.name} failed with exit code {code}: {self._folder} has its log.")
        self._running.close()
        self._process = None

    def kill(self) -> None:
        """SIGKILL to all processes, as if their machine lost its power."""
        killed = count_of(self._kill(), "process", "processes")
        console.print(f"[red]killed: {self.name}, {killed} (SIGKILL)[/red]")

    def close(self) -> None:
        if self._process is not None:
            self._kill()

    def _kill(self) -> int:
        tree = stop_tree(self.pid)
        for pid in tree:
            os.kill(pid, signal.SIGKILL)
        if self._process is not None:
            self._process.wait(_END_S_MAX)
        self._running.close()
        self._process = None
        return len(tree)


def as_typed(words: Sequence[str]) -> str:
    """The words of a command as a person types them in the clone."""
    return " ".join(word.removeprefix(f"{CLONE}/") for word in words)


def stop_tree(pid: int) -> list[int]:
    """SIGSTOP to a process and to all below it: parents first, so that none starts another one. Returns their ids."""
    try:
        os.kill(pid, signal.SIGSTOP)
    except ProcessLookupError:
        return []
    return [pid, *(each for child in list_children(pid) for each in stop_tree(child))]


def list_children(pid: int) -> list[int]:
    found = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False)  # noqa: S603, S607  fixed words
    return [int(each) for each in found.stdout.split()]
