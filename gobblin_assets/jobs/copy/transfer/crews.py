"""Writers that work on the bins of one order side by side: what they say, and those that are threads."""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from queue import Queue
from typing import Final, Protocol

from gobblin_assets.jobs.copy.transfer.batches import BatchingSink, RowBatch
from gobblin_assets.jobs.copy.transfer.pacing import copy_at_rate
from gobblin_assets.jobs.copy.transfer.writing import BinWork

_WAITING_BATCHES: Final = 4
"""For each thread; more would only take memory while nobody takes the results."""


@dataclass(frozen=True, slots=True)
class LostBin:
    """The writer of the order's bin ``bin`` is gone. What it has not reported failed."""

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
    """For few or large files: a thread starts in no time, and the kernel does the work without Python's lock."""

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
