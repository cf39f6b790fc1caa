"""Crews: writers that work on the bins of one order side by side, as threads or as copying processes.

Many small files are copied by processes, since Python threads would wait for each other's lock. A process is started by
the system's vfork and exec, as a new program. A fork of the driver, which has threads, might hold their locks for ever.
multiprocessing's ``spawn`` and ``forkserver`` run the driver's main module again, which may import Dagster and Spark
for seconds, or start the job a second time. Our process imports only the modules that copy. That still takes as long as
copying some thousand small files, so idle processes are kept.
"""

import os
import selectors
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from queue import Queue
from typing import Final, Protocol

from gobblin_assets.errors import RetryableError
from gobblin_assets.jobs.copy.transfer.copy_process import MessageBuffer, send_message
from gobblin_assets.jobs.copy.transfer.pacing import copy_at_rate
from gobblin_assets.jobs.copy.transfer.writing import BatchingSink, BinWork, RowBatch

_WAITING_BATCHES: Final = 4
"""For each thread; more would only take memory while nobody takes the results."""


@dataclass(frozen=True, slots=True)
class LostBin:
    """The order's bin ``bin``, whose writer is gone. The items that it has not reported have failed."""

    bin: int
    reason: str


class Crew(Protocol):
    """The writers of one order."""

    def reports(self) -> Iterator[RowBatch | LostBin]:
        """Until each bin has had its last batch or is lost, or ``stop`` was called. Errors are those of the product."""
        ...

    def stop(self) -> None:
        """End all writers soon. Called from any thread, at any time, repeatedly."""
        ...

    def close(self) -> None:
        """Stop them, and return when none works any more. Called by the thread that took the reports."""
        ...


class _StoppedError(Exception):
    """Ends a thread's work in the middle of a bin."""


class ThreadCrew:
    """A crew of threads, for few or large files: a thread starts in no time, and the kernel does the work without
    Python's lock.
    """

    def __init__(self, works: Sequence[Callable[[], BinWork]], workers: int) -> None:
        self._waiting = deque(enumerate(works))
        self._stopped = threading.Event()
        count = min(workers, len(works))
        self._reports: Queue[RowBatch | BaseException | None] = Queue(_WAITING_BATCHES * max(1, count))
        self._threads = [threading.Thread(target=self._work, name=f"copy-{n}", daemon=True) for n in range(count)]
        self._ended = 0

    def reports(self) -> Iterator[RowBatch | LostBin]:
        for thread in self._threads:
            thread.start()
        while self._ended < len(self._threads):
            report = self._reports.get()
            if report is None:
                self._ended += 1
            elif isinstance(report, BaseException):
                raise report
            else:
                yield report

    def stop(self) -> None:
        self._stopped.set()

    def close(self) -> None:
        self.stop()
        started = [thread for thread in self._threads if thread.ident is not None]
        while self._ended < len(started):
            self._ended += self._reports.get() is None
        for thread in started:
            thread.join()

    def _work(self) -> None:
        try:
            while self._waiting and not self._stopped.is_set():
                try:
                    number, pack = self._waiting.popleft()
                except IndexError:
                    return
                sink = BatchingSink(number, self._send)
                copy_at_rate(pack(), sink)
                sink.finish()
        except _StoppedError:
            return
        except BaseException as error:  # noqa: BLE001  raised again by who takes the reports
            self._reports.put(error)
        finally:
            self._reports.put(None)

    def _send(self, batch: RowBatch) -> None:
        if self._stopped.is_set():
            raise _StoppedError
        self._reports.put(batch)


_PROGRAM: Final = "import sys; sys.path[:] = {path!r}; from {module} import serve; serve()"
_MODULE: Final = "gobblin_assets.jobs.copy.transfer.copy_process"


class CopyingProcess:
    """A copying process, as the driver sees it. ``bins``: those that it has not finished. ``buffer``: what it said.
    Used by one thread at a time.
    """

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


BINS_AHEAD: Final = 2
"""A process has the bin that it copies, and the next: it never waits for the driver."""

_READ_BYTES: Final = 1 << 20


class ProcessCrew:
    """A crew of processes, for many small files. A process that dies loses the bins that it has; the others go on, with
    all that nobody began.
    """

    def __init__(self, pool: ProcessPool, works: Sequence[Callable[[], BinWork]], workers: int) -> None:
        self._pool = pool
        self._works = works
        self._workers = min(workers, len(works))
        self._waiting = deque(range(len(works)))
        self._lock = threading.Lock()
        self._is_stopped = False
        self._processes: list[CopyingProcess] = []

    def reports(self) -> Iterator[RowBatch | LostBin]:
        with selectors.DefaultSelector() as selector:
            # All of them first: they import while this process plans their work.
            for process in list(self._take_all()):
                self._feed(process)
                selector.register(process.output, selectors.EVENT_READ, process)
            while any(process.bins for process in self._processes):
                for key, _events in selector.select():
                    if self._is_stopped:
                        return
                    process = key.data
                    content = os.read(process.output, _READ_BYTES)
                    if content:
                        yield from self._hear(process, content)
                        continue
                    selector.unregister(process.output)
                    yield from self._lose(process)
            if not self._is_stopped:
                yield from (LostBin(number, "all copying processes ended") for number in self._waiting)

    def stop(self) -> None:
        with self._lock:
            self._is_stopped = True
            for process in self._processes:
                process.kill()

    def close(self) -> None:
        with self._lock:
            processes, self._processes = self._processes, []
        for process in processes:
            self._pool.give_back(process, keep=not self._is_stopped)

    def _take_all(self) -> Iterator[CopyingProcess]:
        for _ in range(self._workers):
            with self._lock:
                if self._is_stopped:
                    return
                process = self._pool.take()
                self._processes.append(process)
            yield process

    def _hear(self, process: CopyingProcess, content: bytes) -> Iterator[RowBatch]:
        for message in process.buffer.add(content):
            batch = RowBatch(*message)
            if batch.is_last:
                process.bins.remove(batch.bin)
                self._feed(process)
            yield batch

    def _feed(self, process: CopyingProcess) -> None:
        while self._waiting and len(process.bins) < BINS_AHEAD:
            number = self._waiting.popleft()
            process.give(number, self._works[number]())

    def _lose(self, process: CopyingProcess) -> Iterator[LostBin]:
        """All its bins, also the one that it may not have begun: a staged name is given to one writer only."""
        reason = process.describe_end()
        while process.bins:
            yield LostBin(process.bins.popleft(), reason)
