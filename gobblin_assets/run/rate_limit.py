"""Limits how fast a run reads: attempts are delayed so that the average rate of rows stays below the limit.

An attempt itself is not slowed down, so smaller WorkUnits and MultiWorkUnits give a smoother rate (Gobblin's
extract.limit with type rate waits before each record instead).
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from gobblin_assets.errors import FencedError
from gobblin_assets.model.clock import Clock


@dataclass(slots=True)
class RateLimit:
    """Shared by all threads of a run. ``wait`` waits for seconds; True if the run is stopping."""

    clock: Clock
    rows_per_s_max: float | None
    wait: Callable[[float], bool]
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _free_at_s: float = 0.0

    def acquire(self, rows: int) -> None:
        """Return when an attempt at this many rows may begin. FencedError if the run stops meanwhile."""
        if self.rows_per_s_max is None:
            return
        with self._lock:
            now = self.clock.monotonic()
            begins_at_s = max(now, self._free_at_s)
            self._free_at_s = begins_at_s + rows / self.rows_per_s_max
        if begins_at_s > now and self.wait(begins_at_s - now):
            raise FencedError("the run is stopping")
