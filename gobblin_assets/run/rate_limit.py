"""How fast a run may read: attempts begin so slowly that their rows, on average, come no faster than allowed.

Of an attempt itself nothing is slowed down, so that the smaller WorkUnits and MultiWorkUnits are, the smoother it
gets (Gobblin's extract.limit with type rate waits in front of each record instead).
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
        """Return when an attempt at so many rows may begin. FencedError if the run stops meanwhile."""
        if self.rows_per_s_max is None:
            return
        with self._lock:
            now = self.clock.monotonic()
            begins_at_s = max(now, self._free_at_s)
            self._free_at_s = begins_at_s + rows / self.rows_per_s_max
        if begins_at_s > now and self.wait(begins_at_s - now):
            raise FencedError("the run is stopping")
