"""Lines of progress for a run's log, few enough for a table of events."""

import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final

INTERVAL_S: Final = 5.0
_LINES_KEPT_MAX: Final = 100


class ProgressLog:
    """A log that passes a line on at once if there was none for a while, and else gathers lines.

    Any thread may call it. At most ``_LINES_KEPT_MAX`` lines wait; if there are more, the oldest are dropped and
    counted. Lines that the run's log does not take go to stderr, so that the calling thread, such as a heartbeat, does
    not fail.
    """

    def __init__(
        self,
        write: Callable[[str], None],
        *,
        interval_s: float = INTERVAL_S,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._write = write
        self._interval_s = interval_s
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._waiting: deque[str] = deque(maxlen=_LINES_KEPT_MAX)
        self._left_out = 0
        self._quiet_until = float("-inf")

    def __call__(self, line: str) -> None:
        with self._lock:
            self._left_out += len(self._waiting) == self._waiting.maxlen
            self._waiting.append(line)
            if self._monotonic() >= self._quiet_until:
                self._flush()

    def close(self) -> None:
        """Pass on the lines that still wait."""
        with self._lock:
            self._flush()

    def _flush(self) -> None:
        if not self._waiting:
            return
        lines = list(self._waiting)
        if self._left_out:
            lines.insert(0, f"({self._left_out} earlier lines left out)")
        self._waiting.clear()
        self._left_out = 0
        self._quiet_until = self._monotonic() + self._interval_s
        text = "\n".join(lines)
        try:
            self._write(text)
        except Exception as error:  # noqa: BLE001  its storage raises whatever its driver raises
            sys.stderr.write(f"{text}\n(The run's log did not take these lines: {type(error).__name__})\n")
