"""The transfer on this machine: by threads or by processes, as the plan needs them."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Final, Self

from gobblin_assets.errors import RetryableError
from gobblin_assets.jobs.copy.copyable import CopyItem
from gobblin_assets.jobs.copy.transfer.bins import Bin
from gobblin_assets.jobs.copy.transfer.crews import Crew, LostBin, ProcessCrew, ProcessPool, ThreadCrew
from gobblin_assets.jobs.copy.transfer.file_copy import CopyOptions
from gobblin_assets.jobs.copy.transfer.journal import FinishedFile, work_guid_of
from gobblin_assets.jobs.copy.transfer.preserve import PreserveLetter
from gobblin_assets.jobs.copy.transfer.results import SplitFiles, count_reported, list_lost, list_results, staged_split
from gobblin_assets.jobs.copy.transfer.transfer_port import FileResult, TransferOrder, TransferProgress
from gobblin_assets.jobs.copy.transfer.writing import BinWork, RowBatch, pack_item, pack_part

READY_FILES_MIN: Final = 2_000
"""From so many small files on, processes that are there already are faster than threads."""

COLD_FILES_MIN: Final = 8_000
"""Fewer files are copied by threads before a process has started."""

THREAD_FILE_BYTES_MIN: Final = 1 << 20
"""From this mean size on, the kernel's part of a copy is so large that threads do not wait for each other."""

BINS_A_WORKER: Final = 4
"""So many bins for each worker let those that end early take over from the others; more cost more messages."""


def bins_max_of(workers: int) -> int:
    """The number of bins to plan for so many workers."""
    return workers * BINS_A_WORKER


def needs_processes(bins: Sequence[Bin], workers: int, files_min: int) -> bool:
    """Many small files are copied faster by processes; few or large ones by threads."""
    if workers < 2 or len(bins) < 2:
        return False
    items = [item for found in bins for item in found.items]
    file_count = sum(len(item.files) for item in items)
    size_bytes = sum(file.work_bytes for item in items for file in item.files)
    return file_count >= files_min and size_bytes < THREAD_FILE_BYTES_MIN * file_count


class LocalTransfer:
    """The Transfer port on this machine. Safe to share between threads.

    Processes that were started stay for the next order, until ``close``. They end with this process too.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pool = ProcessPool()
        self._running: dict[str, Crew] = {}
        self._cancelled: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def prepare(self, workers: int) -> None:
        """Start the processes now, as many small files will come: they are there when the plan is."""
        self._pool.prepare(workers)

    def close(self) -> None:
        """End the processes that are idle. Orders under way are ended by ``cancel``, or with their results."""
        self._pool.close()

    def copy(self, order: TransferOrder) -> Iterator[tuple[FileResult, ...]]:
        splits = SplitFiles(order.source_root, order.attempt, options_of(order), order.bins)
        splits.make()
        crew = self._gather(order)
        with self._lock:
            self._running[order.tag] = crew
            if order.tag in self._cancelled:
                crew.stop()
        try:
            yield from _take_results(order, crew, splits)
            with self._lock:
                is_cancelled = order.tag in self._cancelled
            if is_cancelled:
                raise RetryableError("the copy was cancelled", tag=order.tag)
        finally:
            crew.close()
            with self._lock:
                del self._running[order.tag]

    def describe_interruption(self, tag: str, items: Sequence[CopyItem]) -> Mapping[str, object] | None:
        """Writers end with this process."""
        del tag, items
        return None

    def cancel(self, tag: str) -> None:
        with self._lock:
            self._cancelled.add(tag)
            crew = self._running.get(tag)
        if crew is not None:
            crew.stop()

    def _gather(self, order: TransferOrder) -> Crew:
        works = [partial(plan_work, order, found) for found in order.bins]
        files_min = READY_FILES_MIN if self._pool.has_idle() else COLD_FILES_MIN
        if needs_processes(order.bins, order.workers, files_min):
            return ProcessCrew(self._pool, works, order.workers)
        return ThreadCrew(works, order.workers)


def plan_work(order: TransferOrder, found: Bin) -> BinWork:
    """The work of the bin's writer, whichever way the order is copied."""
    items = tuple(pack_item(item) for item in found.items)
    parts = tuple(pack_part(part, staged_split(order.attempt, part.item.number)) for part in found.parts)
    # A plain tuple, which ``marshal`` takes.
    wanted = options_of(order)
    options = (wanted.checksum, wanted.access_lists, wanted.extended, wanted.follows_links)
    writers = min(order.workers, len(order.bins))
    rate = (_part_of(order.rate.bytes_per_s, writers), _part_of(order.rate.files_per_s, writers))
    finished = {guid: (*each,) for guid, each in _find_finished(order, found).items()}
    directory = f"{order.attempt}/{found.writer}"
    return BinWork(
        order.source_root, directory, options, items, order.journals, finished, parts, rate, order.converters
    )


def _part_of(per_s: float | None, writers: int) -> float | None:
    return None if per_s is None else per_s / writers


def options_of(order: TransferOrder) -> CopyOptions:
    """The options of the order for each file besides its bytes."""
    kept = order.preserve.letters
    extended = PreserveLetter.EXTENDED in kept
    return CopyOptions(order.checksum, PreserveLetter.ACCESS_LISTS in kept, extended, order.follows_links)


def _find_finished(order: TransferOrder, found: Bin) -> dict[str, FinishedFile]:
    """The bin's files that earlier attempts finished, by work guid."""
    if not order.finished:
        return {}
    guids = (
        work_guid_of(order.source_root, file.origin, file.identity, file.changed_ns, file.desired)
        for item in found.items
        for file in item.files
    )
    return {guid: order.finished[guid] for guid in guids if guid is not None and guid in order.finished}


def _take_results(order: TransferOrder, crew: Crew, splits: SplitFiles) -> Iterator[tuple[FileResult, ...]]:
    reported = [0 for _ in order.bins]
    files = failed = moved_bytes = 0
    for report in crew.reports():
        found = order.bins[report.bin]
        match report:
            case RowBatch():
                results = list_results(found, report.rows, splits)
                reported[report.bin] += count_reported(report.rows)
                moved_bytes += report.moved_bytes
            case LostBin():
                results = list_results(found, list_lost(found, reported[report.bin], report.reason), splits)
        for result in results:
            if result.failure is not None:
                failed += 1
            elif not result.is_directory:
                files += 1
        order.on_progress(TransferProgress(files, failed, moved_bytes))
        if results:
            yield results
