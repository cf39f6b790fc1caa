"""Workers of a sink, each a process of the command line, and lines on how far they are."""

import os
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from demo.stage import console

LINE_EVERY_S: Final = 2.0
LOOK_S: Final = 0.2
WAIT_S_MAX: Final = 90.0
END_S_MAX: Final = 60.0


@dataclass(frozen=True, slots=True)
class Worker:
    """``log``: the file that has all that the worker said."""

    number: int
    process: "subprocess.Popen[bytes]"
    log: Path

    @property
    def name(self) -> str:
        return f"worker {self.number}"

    @property
    def said(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")


class WorkerProcesses(ABC):
    """In the block ``with``; no worker outlives it. ``job_file``: below ``clone``. ``folder``: of what they say."""

    def __init__(self, clone: Path, folder: Path, job_file: str) -> None:
        self._clone = clone
        self._folder = folder
        self._job_file = job_file
        self._all: list[Worker] = []
        self._begun_s = time.monotonic()
        self._line_at_s = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        for worker in self._all:
            worker.process.kill()
            worker.process.wait(END_S_MAX)

    @abstractmethod
    def say_line(self) -> None:
        """Print how far the workers are."""

    @property
    def live(self) -> list[Worker]:
        return [worker for worker in self._all if worker.process.poll() is None]

    def start(self, count: int) -> None:
        for _number in range(count):
            number = len(self._all) + 1
            console.print(f"[cyan]$ gobblin-assets sink run {self._job_file}[/cyan]    (worker {number})")
            path = self._folder / f"worker-{number}.log"
            with path.open("wb") as log:
                process = subprocess.Popen(  # noqa: S603  our own command, as separate words
                    [sys.executable, "-m", "gobblin_assets.cli", "sink", "run", self._job_file],
                    env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (str(self._clone), _search_path())))},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                )
            self._all.append(Worker(number, process, path))

    def kill(self, worker: Worker) -> None:
        worker.process.kill()
        code = worker.process.wait(END_S_MAX)
        console.print(f"[red]{worker.name} is killed: exit code {code} (SIGKILL)[/red]")

    def end(self, workers: list[Worker]) -> None:
        """By SIGTERM: each ends behind a cut, and gives its lanes back."""
        for worker in workers:
            worker.process.send_signal(signal.SIGTERM)
        for worker in workers:
            self.require_end(worker)

    def require_end(self, worker: Worker) -> None:
        code = worker.process.wait(END_S_MAX)
        if code != 0:
            raise SystemExit(f"{worker.name} ended with {code}:\n{worker.said}")
        console.print(f"{worker.name} has ended: exit code 0")

    def watch(self, seconds: float) -> None:
        until_s = time.monotonic() + seconds
        self.watch_until(lambda: time.monotonic() >= until_s, "the watch's end")

    def watch_until(self, is_reached: Callable[[], bool], what: str) -> None:
        """Print a line now and then. SystemExit, with what the workers said, if it takes too long."""
        end_s = time.monotonic() + WAIT_S_MAX
        while not is_reached():
            if time.monotonic() >= end_s:
                said = "\n".join(f"{worker.name}:\n{worker.said[-2_000:]}" for worker in self._all)
                raise SystemExit(f"{what} has not come in {WAIT_S_MAX:.0f} s. {said}")
            if time.monotonic() >= self._line_at_s:
                self._line_at_s = time.monotonic() + LINE_EVERY_S
                self.say_line()
            time.sleep(LOOK_S)

    def list_completed(self) -> list[str]:
        """What workers said of publications that an earlier holder of their lane had left open."""
        return [
            f"{worker.name}: {line}"
            for worker in self._all
            for line in worker.said.splitlines()
            if "of an earlier holder" in line
        ]


def _search_path() -> str | None:
    return os.environ.get("PYTHONPATH")
