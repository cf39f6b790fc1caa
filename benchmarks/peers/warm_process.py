"""Loads inside a process that has loaded before. The process reads the arguments of each load from a line of input."""

import json
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from benchmarks.peers.watching import Spent, find_descendants, spent_of

_LOOK_S = 0.05


class WarmProcess:
    """The process starts at the first load. ``warm_up(folder)`` gives the arguments of a load that is not measured."""

    def __init__(
        self, words: Sequence[str], environment: Mapping[str, str], warm_up: Callable[[Path], Sequence[str]]
    ) -> None:
        self._words = words
        self._environment = dict(environment)
        self._warm_up = warm_up
        self._process: subprocess.Popen[str] | None = None

    def load(self, arguments: Sequence[str], folder: Path) -> Spent:
        """RuntimeError if the load fails. Peak memory is the largest sum that was seen during the load."""
        if self._process is None:
            self._process = subprocess.Popen(
                self._words, env=self._environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            self._ask(self._process, self._warm_up(folder / "warm_up"))
        process, peak, is_over = self._process, 0, threading.Event()

        def look() -> None:
            nonlocal peak
            while not is_over.wait(_LOOK_S):
                peak = max(peak, sum(spent_of(pid)[1] for pid in find_descendants(process.pid)))

        looker = threading.Thread(target=look)
        before, begun = spent_of(process.pid)[0], time.monotonic()
        looker.start()
        try:
            self._ask(process, arguments)
        finally:
            wall_s = time.monotonic() - begun
            is_over.set()
            looker.join()
        return Spent(wall_s, spent_of(process.pid)[0] - before, peak)

    @staticmethod
    def _ask(process: "subprocess.Popen[str]", arguments: Sequence[str]) -> None:
        if process.stdin is None or process.stdout is None:
            raise AssertionError("both are pipes")
        process.stdin.write(json.dumps(arguments) + "\n")
        process.stdin.flush()
        # Lines that libraries print are skipped.
        for line in process.stdout:
            if line.strip() == "loaded":
                return
        raise RuntimeError(f"the warm process ended with {process.wait()}")

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
