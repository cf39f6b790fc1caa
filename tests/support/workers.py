"""A process of the tests that works, stops or is killed at a failpoint."""

import multiprocessing
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

WORKER_S_MAX: Final = 180.0
"""Only a failing test waits so long: a machine with other work may take minutes for what takes seconds."""


@dataclass
class Worker:
    """A run in a process of its own."""

    process: "multiprocessing.process.BaseProcess"
    log: Path

    def wait(self, timeout_s: float = WORKER_S_MAX) -> int | None:
        """The exit code; negative: the signal that ended it."""
        self.process.join(timeout_s)
        if self.process.exitcode is None:
            # Otherwise the tests would wait for it when they end.
            self.process.kill()
            raise AssertionError("the worker did not end")
        return self.process.exitcode

    def wait_until_stopped(self, timeout_s: float = WORKER_S_MAX) -> None:
        """Return when the process has stopped itself (SIGSTOP)."""
        deadline = time.monotonic() + timeout_s
        stat = Path(f"/proc/{self.process.pid}/stat")
        while time.monotonic() < deadline:
            state = stat.read_text(encoding="ascii").rpartition(")")[2].split()[0] if stat.exists() else "gone"
            if state == "T":
                return
            assert state not in ("Z", "X", "gone"), "the worker ended before its failpoint"
            time.sleep(0.005)
        raise AssertionError("the worker never reached its failpoint")

    def wake_up(self) -> None:
        self.send(signal.SIGCONT)

    def terminate(self) -> None:
        self.send(signal.SIGTERM)

    def send(self, number: signal.Signals) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, number)

    def reached(self) -> list[str]:
        return self.log.read_text(encoding="utf-8").splitlines() if self.log.exists() else []
