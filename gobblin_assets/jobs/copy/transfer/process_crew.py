"""Writers that are processes, for many small files: Python threads would wait for each other's lock.

A process is started by the system's vfork and exec, from nothing: a fork of the driver, which has threads, might hold
their locks for ever, and multiprocessing's ``spawn`` and ``forkserver`` run the driver's main module again, which may
import Dagster and Spark for seconds, or start the job a second time. Ours imports only what copies.
"""

import os
import selectors
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Final

from gobblin_assets.errors import RetryableError
from gobblin_assets.jobs.copy.transfer.batches import RowBatch
from gobblin_assets.jobs.copy.transfer.crews import LostBin
from gobblin_assets.jobs.copy.transfer.wire import MessageBuffer, send_message
from gobblin_assets.jobs.copy.transfer.writing import PackedWork

BINS_AHEAD: Final = 2
"""A process has the bin that it copies, and the next: it never waits for the driver."""

_READ_BYTES: Final = 1 << 20
_PROGRAM: Final = "import sys; sys.path[:] = {path!r}; from {module} import serve; serve()"
_MODULE: Final = "gobblin_assets.jobs.copy.transfer.copy_process"


class ProcessCrew:
    """A process that dies loses the bins that it has; the others go on, with all that nobody began."""

    def __init__(self, works: Sequence[Callable[[], PackedWork]], workers: int) -> None:
        self._works = works
        self._workers = min(workers, len(works))
        self._waiting = deque(range(len(works)))
        self._lock = threading.Lock()
        self._is_stopped = False
        self._processes: list[_CopyingProcess] = []

    def reports(self) -> Iterator[RowBatch | LostBin]:
        with selectors.DefaultSelector() as selector:
            # All of them first: they import while this process plans their work.
            for process in list(self._start_all()):
                self._feed(process)
                selector.register(process.output, selectors.EVENT_READ, process)
            while any(process.bins for process in self._processes) and not self._is_stopped:
                for key, _events in selector.select():
                    if self._is_stopped:
                        return
                    process = key.data
                    content = os.read(process.output, _READ_BYTES)
                    if content:
                        yield from self._take(process, content)
                        continue
                    selector.unregister(process.output)
                    yield from self._lose(process)
            if self._waiting and not self._is_stopped:
                yield from (LostBin(number, "all copying processes ended") for number in self._waiting)

    def stop(self) -> None:
        with self._lock:
            self._is_stopped = True
            for process in self._processes:
                process.kill()

    def close(self) -> None:
        self.stop()
        for process in self._processes:
            process.close()

    def _start_all(self) -> "Iterator[_CopyingProcess]":
        for _ in range(self._workers):
            with self._lock:
                if self._is_stopped:
                    return
                process = _CopyingProcess()
                self._processes.append(process)
            yield process

    def _take(self, process: "_CopyingProcess", content: bytes) -> Iterator[RowBatch]:
        for message in process.buffer.add(content):
            batch = RowBatch(*message)
            if batch.is_last:
                process.bins.remove(batch.bin)
                self._feed(process)
            yield batch

    def _feed(self, process: "_CopyingProcess") -> None:
        while self._waiting and len(process.bins) < BINS_AHEAD:
            number = self._waiting.popleft()
            process.bins.append(number)
            process.send((number, self._works[number]()))

    def _lose(self, process: "_CopyingProcess") -> Iterator[LostBin]:
        """All its bins, also the one that it may not have begun: a staged name is given to one writer only."""
        reason = process.describe_end()
        while process.bins:
            yield LostBin(process.bins.popleft(), reason)


class _CopyingProcess:
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

    def send(self, message: object) -> None:
        # A process that is gone says so on its output.
        with suppress(BrokenPipeError):
            send_message(self._input.fileno(), message)

    def kill(self) -> None:
        self._process.kill()

    def describe_end(self) -> str:
        code = self._process.wait()
        return f"the copying process ended by signal {-code}" if code < 0 else f"the copying process ended with {code}"

    def close(self) -> None:
        self._process.wait()
        self._input.close()
        self._output.close()
