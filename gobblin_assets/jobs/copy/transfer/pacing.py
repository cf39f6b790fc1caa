"""The pace of a writer below its part of a rate: a bucket of tokens for bytes, and one for files.

Bytes are paid for after they are moved: a writer that moved more than its bucket holds waits until the bucket is even
again. So a file as large as the kernel moves at once goes through, and the rate holds over the seconds around it.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from gobblin_assets.jobs.copy.transfer.transfer_port import Rate
from gobblin_assets.jobs.copy.transfer.writing import BinWork, ResultRow, RowSink, copy_bin

BURST_S: Final = 1.0
"""A bucket holds what comes in this time: a writer that waited for its disk may catch up so much."""

SLICE_S: Final = 0.2
"""A writer that waits looks so often whether it was stopped."""


@dataclass(slots=True)
class TokenBucket:
    """A bucket of tokens. ``per_s`` of them flow in; full at ``BURST_S``. Times are of one steady clock, in seconds."""

    per_s: float
    even_at_s: float

    def take(self, count: float, now_s: float) -> float:
        """Take so many tokens; returns the seconds to wait until the bucket is even again."""
        self.even_at_s = max(self.even_at_s, now_s - BURST_S) + count / self.per_s
        return max(0.0, self.even_at_s - now_s)


def copy_at_rate(work: BinWork, sink: RowSink) -> None:
    """Copy the bin, below the rate that the work carries."""
    bytes_per_s, files_per_s = work.rate
    unlimited = bytes_per_s is None and files_per_s is None
    paced = sink if unlimited else PacedSink(sink, bytes_per_s, files_per_s)
    if work.directory[0] == "/":
        copy_bin(work, paced)
        return
    from gobblin_assets.jobs.copy.transfer.remote_writing import copy_remote_bin  # noqa: PLC0415  copying processes wait for imports

    copy_remote_bin(work, paced)


class PacedSink:
    """The RowSink of a writer with a rate. It waits inside the calls, and looks at ``sink`` while it waits."""

    def __init__(
        self,
        sink: RowSink,
        bytes_per_s: float | None,
        files_per_s: float | None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._sink = sink
        self._clock = clock
        self._sleep = sleep
        # Empty at first: writers come and go, and each would bring a full bucket.
        now_s = clock()
        self._bytes = None if bytes_per_s is None else TokenBucket(bytes_per_s, now_s)
        self._files = None if files_per_s is None else TokenBucket(files_per_s, now_s)

    def moved(self, count: int) -> None:
        self._sink.moved(count)
        if self._bytes is not None:
            self._wait(self._bytes.take(count, self._clock()))

    def ended(self, row: ResultRow) -> None:
        self._sink.ended(row)
        if self._files is not None:
            self._wait(self._files.take(1, self._clock()))

    def _wait(self, wait_s: float) -> None:
        while wait_s > 0:
            self._sleep(min(wait_s, SLICE_S))
            wait_s -= SLICE_S
            # Raises if the work was stopped.
            self._sink.moved(0)


class ThreadPace:
    """The pace of threads that share one part of a rate: each waits until what all of them moved is paid for.

    ``is_stopped`` is asked while a thread waits; then it waits no longer.
    """

    def __init__(
        self,
        rate: Rate,
        is_stopped: Callable[[], bool],
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._is_stopped = is_stopped
        self._clock = clock
        self._sleep = sleep
        self._lock = threading.Lock()
        now_s = clock()
        self._bytes = None if rate.bytes_per_s is None else TokenBucket(rate.bytes_per_s, now_s)
        self._files = None if rate.files_per_s is None else TokenBucket(rate.files_per_s, now_s)

    def spend(self, size_bytes: int, files: int) -> None:
        now_s = self._clock()
        with self._lock:
            wait_s = max(
                0.0 if self._bytes is None else self._bytes.take(size_bytes, now_s),
                0.0 if self._files is None else self._files.take(files, now_s),
            )
        while wait_s > 0 and not self._is_stopped():
            self._sleep(min(wait_s, SLICE_S))
            wait_s -= SLICE_S
