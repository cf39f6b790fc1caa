"""Lines for whoever waits: the progress of long work, at most one every few seconds; or that there is no answer."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from gobblin_assets.model.clock import Clock
from gobblin_assets.model.wording import PassingLine

LINE_EVERY_S: Final = 5.0
STANDING_LINE_EVERY_S: Final = 60.0
"""The longest time between two lines while no task ends: each such line comes twice as late as the one before."""

MIB: Final = 1 << 20


def unheard(_said: object) -> None:
    """A report that goes nowhere: what functions take where nobody listens."""


@contextmanager
def said_if_slow(say: Callable[[str], None], line: str, *, after_s: float) -> Iterator[None]:
    """Say the line once if the block takes longer than ``after_s``. ``say`` is then called by another thread."""
    timer = threading.Timer(after_s, say, (line,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


class StepProgress:
    """The progress of ``count`` equal steps: how many are done, how fast, and how long the rest may take.

    For steps that are too short to be reported one by one.
    """

    def __init__(self, clock: Clock, say: Callable[[str], None], what: str, count: int) -> None:
        """``what`` is done, such as "partitions planned"."""
        self._clock = clock
        self._say = say
        self._what = what
        self._count = count
        self._done = self._rows = 0
        self._started_at = self._said_at = clock.monotonic()

    def add(self, steps: int = 1, *, rows: int = 0) -> None:
        """Count steps, and the ``rows`` that came with them."""
        self._done += steps
        self._rows += rows
        now = self._clock.monotonic()
        if now - self._said_at < LINE_EVERY_S or self._done >= self._count:
            return
        self._said_at = now
        elapsed_s = now - self._started_at
        rows_said = f", {self._rows:,} rows" if self._rows else ""
        left_s = (self._count - self._done) * elapsed_s / self._done
        said = f"{self._done:,} of {self._count:,} {self._what}{rows_said}, {self._done / elapsed_s:,.1f} a second, "
        self._say(PassingLine(f"{said}{elapsed_s:.0f} s, about {left_s:.0f} s left"))


class Progress:
    """The progress of tasks, with their rows and bytes: how many have ended, and how long the rest may take."""

    def __init__(self, clock: Clock, say: Callable[[str], None], *, task_count: int, estimated_rows: int) -> None:
        self._clock = clock
        self._say = say
        self._task_count = task_count
        self._estimated_rows = estimated_rows
        self._lock = threading.Lock()
        self._started_at = self._said_at = clock.monotonic()
        self._tasks = self._rows = self._bytes = 0
        self._every_s = LINE_EVERY_S
        self._said_tasks = -1

    def add(self, *, rows: int, file_bytes: int) -> None:
        """Count one ended task."""
        with self._lock:
            self._tasks += 1
            self._rows += rows
            self._bytes += file_bytes
            self._say_if_due()

    def tick(self) -> None:
        """Called while waiting, so that a long task does not look like a hang."""
        with self._lock:
            self._say_if_due()

    def _say_if_due(self) -> None:
        now = self._clock.monotonic()
        if self._tasks != self._said_tasks:
            self._every_s = LINE_EVERY_S
        if now - self._said_at < self._every_s:
            return
        self._said_at, self._said_tasks = now, self._tasks
        self._every_s = min(2 * self._every_s, STANDING_LINE_EVERY_S)
        elapsed_s = now - self._started_at
        if not self._tasks:
            self._say(PassingLine(f"waiting for the first of {self._task_count} tasks, {elapsed_s:.0f} s"))
            return
        rate = self._rows / elapsed_s if elapsed_s > 0 else 0.0
        left = max(0, self._estimated_rows - self._rows)
        eta = f", about {left / rate:.0f} s left" if rate > 0 and self._estimated_rows and left else ""
        done = f"{self._tasks} of {self._task_count} tasks, {self._rows:,} rows, {self._bytes / MIB:,.1f} MiB, "
        self._say(PassingLine(f"{done}{rate:,.0f} rows/s, {elapsed_s:.0f} s{eta}"))
