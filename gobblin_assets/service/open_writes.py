"""Counts the writes that are under way, so that a server that is asked to stop ends them first."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from gobblin_assets.errors import RetryableError


class OpenWrites:
    """The writes under way in this process. Once closed, it lets none begin."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._count = 0
        self._is_closed = False

    @contextmanager
    def open(self) -> Iterator[None]:
        """One write. RetryableError: the server stops; another one, or the same one later, takes it."""
        with self._changed:
            if self._is_closed:
                raise RetryableError("the service is being stopped", passes=True, hint="Send the request again.")
            self._count += 1
        try:
            yield
        finally:
            with self._changed:
                self._count -= 1
                self._changed.notify_all()

    def close(self, wait_s_max: float) -> bool:
        """Let no more begin, and wait for those under way. False: some are, after ``wait_s_max``."""
        with self._changed:
            self._is_closed = True
            return self._changed.wait_for(lambda: self._count == 0, wait_s_max)
