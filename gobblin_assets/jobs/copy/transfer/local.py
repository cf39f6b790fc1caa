"""The transfer on this machine: by threads or by processes, as the plan needs them."""

import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

from gobblin_assets.errors import RetryableError
from gobblin_assets.jobs.copy.transfer.batches import RowBatch
from gobblin_assets.jobs.copy.transfer.bins import Bin
from gobblin_assets.jobs.copy.transfer.crews import Crew, LostBin, ThreadCrew
from gobblin_assets.jobs.copy.transfer.port import FileResult, TransferOrder, TransferProgress
from gobblin_assets.jobs.copy.transfer.process_crew import ProcessCrew
from gobblin_assets.jobs.copy.transfer.results import list_lost, list_results
from gobblin_assets.jobs.copy.transfer.writing import PackedWork, pack_work

PROCESS_FILES_MIN: Final = 1_000
"""Fewer files are copied before a process has started."""

THREAD_FILE_BYTES_MIN: Final = 1 << 20
"""From this mean size on, the kernel's part of a copy is so large that threads do not wait for each other."""

BINS_A_WORKER: Final = 4
"""So many bins for each worker let those that end early take over from the others; more cost more messages."""


def bins_max_of(workers: int) -> int:
    """How many bins to plan for so many workers."""
    return workers * BINS_A_WORKER


def needs_processes(bins: Sequence[Bin], workers: int) -> bool:
    """Many small files are copied faster by processes; few or large ones by threads."""
    if workers < 2 or len(bins) < 2:
        return False
    files = [file for found in bins for item in found.items for file in item.files]
    size_bytes = sum(file.origin.identity.size_bytes for file in files)
    return len(files) >= PROCESS_FILES_MIN and size_bytes < THREAD_FILE_BYTES_MIN * len(files)


class LocalTransfer:
    """The Transfer port on this machine. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[str, Crew] = {}
        self._cancelled: set[str] = set()

    def copy(self, order: TransferOrder) -> Iterator[tuple[FileResult, ...]]:
        works = [partial(pack_work, order, found) for found in order.bins]
        make: Callable[[Sequence[Callable[[], PackedWork]], int], Crew]
        make = ProcessCrew if needs_processes(order.bins, order.workers) else ThreadCrew
        crew = make(works, order.workers)
        with self._lock:
            self._running[order.tag] = crew
            if order.tag in self._cancelled:
                crew.stop()
        try:
            yield from _take_results(order, crew)
            with self._lock:
                is_cancelled = order.tag in self._cancelled
            if is_cancelled:
                raise RetryableError("the copy was cancelled", tag=order.tag)
        finally:
            crew.close()
            with self._lock:
                del self._running[order.tag]

    def cancel(self, tag: str) -> None:
        with self._lock:
            self._cancelled.add(tag)
            crew = self._running.get(tag)
        if crew is not None:
            crew.stop()


def _take_results(order: TransferOrder, crew: Crew) -> Iterator[tuple[FileResult, ...]]:
    reported: list[set[tuple[int, int]]] = [set() for _ in order.bins]
    files = failed = moved_bytes = 0
    for report in crew.reports():
        found = order.bins[report.bin]
        match report:
            case RowBatch():
                results = list_results(found, report.rows)
                reported[report.bin].update((item, entry) for item, entry, _staged, _failure in report.rows)
                moved_bytes += report.moved_bytes
                is_done = report.is_last
            case LostBin():
                results = list_lost(found, reported[report.bin], report.reason)
                is_done = True
        if is_done:
            reported[report.bin].clear()
        for result in results:
            if result.failure is not None:
                failed += 1
            elif not result.is_directory:
                files += 1
        order.on_progress(TransferProgress(files, failed, moved_bytes))
        if results:
            yield results
