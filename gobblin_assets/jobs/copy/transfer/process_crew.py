"""Writers that are processes, for many small files: Python threads would wait for each other's lock."""

import os
import selectors
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from gobblin_assets.jobs.copy.transfer.batches import RowBatch
from gobblin_assets.jobs.copy.transfer.crews import LostBin
from gobblin_assets.jobs.copy.transfer.processes import CopyingProcess, ProcessPool
from gobblin_assets.jobs.copy.transfer.writing import BinWork

BINS_AHEAD: Final = 2
"""A process has the bin that it copies, and the next: it never waits for the driver."""

_READ_BYTES: Final = 1 << 20


class ProcessCrew:
    """A process that dies loses the bins that it has; the others go on, with all that nobody began."""

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
