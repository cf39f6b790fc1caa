"""Copying processes: started, kept for the next order while they are idle, and ended.

A process is started by the system's vfork and exec, from nothing: a fork of the driver, which has threads, might hold
their locks for ever, and multiprocessing's ``spawn`` and ``forkserver`` run the driver's main module again, which may
import Dagster and Spark for seconds, or start the job a second time. Ours imports only what copies. That still takes as
long as copying some thousand small files, so that idle processes are kept.
"""

import subprocess
import sys
import threading
from collections import deque
from contextlib import suppress
from typing import Final

from gobblin_assets.errors import RetryableError
from gobblin_assets.jobs.copy.transfer.wire import MessageBuffer, send_message
from gobblin_assets.jobs.copy.transfer.writing import BinWork

_PROGRAM: Final = "import sys; sys.path[:] = {path!r}; from {module} import serve; serve()"
_MODULE: Final = "gobblin_assets.jobs.copy.transfer.copy_process"


class CopyingProcess:
    """``bins``: those that it has not finished. ``buffer``: what it said. Used by one thread at a time."""

    def __init__(self) -> None:
        program = _PROGRAM.format(path=sys.path, module=_MODULE)
        try:
            self._process = subprocess.Popen(  # noqa: S603  this interpreter, with a program of ours
                [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
            )
        except OSError as error:
            raise RetryableError(f"can't start a copying process: {error.strerror}") from error
        if self._process.stdin is None or self._process.stdout is None:
            raise ValueError("a process without pipes")
        self._input, self._output = self._process.stdin, self._process.stdout
        self.buffer = MessageBuffer()
        self.bins: deque[int] = deque()

    @property
    def output(self) -> int:
        return self._output.fileno()

    @property
    def is_idle(self) -> bool:
        """It lives, and has nothing to do and nothing to say."""
        return not self.bins and self._process.poll() is None

    def give(self, number: int, work: BinWork) -> None:
        self.bins.append(number)
        # A process that is gone says so on its output.
        with suppress(BrokenPipeError):
            send_message(self._input.fileno(), (number, tuple(work)))

    def kill(self) -> None:
        self._process.kill()

    def describe_end(self) -> str:
        code = self._process.wait()
        return f"the copying process ended by signal {-code}" if code < 0 else f"the copying process ended with {code}"

    def close(self) -> None:
        self.kill()
        self._process.wait()
        self._input.close()
        self._output.close()


class ProcessPool:
    """Idle copying processes. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[CopyingProcess] = []

    def prepare(self, count: int) -> None:
        """Have so many idle ones, which import while the caller goes on."""
        with self._lock:
            while len(self._idle) < count:
                self._idle.append(CopyingProcess())

    def has_idle(self) -> bool:
        with self._lock:
            return bool(self._idle)

    def take(self) -> CopyingProcess:
        """An idle one that lives, or a new one."""
        with self._lock:
            while self._idle:
                found = self._idle.pop()
                if found.is_idle:
                    return found
                found.close()
        return CopyingProcess()

    def give_back(self, process: CopyingProcess, *, keep: bool) -> None:
        if keep and process.is_idle:
            with self._lock:
                self._idle.append(process)
        else:
            process.close()

    def close(self) -> None:
        """End the idle ones. Those that work are their orders'."""
        with self._lock:
            idle, self._idle = self._idle, []
        for process in idle:
            process.close()
