"""SIGTERM and SIGINT as a request to stop after the work under way."""

import queue
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Final

_STOPPING_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


class StopRequest:
    """A request to stop, once a signal has come.

    A signal handler makes the request, perhaps while this thread waits. An Event would then wait for its own lock; a
    SimpleQueue can be used from a handler.
    """

    def __init__(self) -> None:
        self._wakeups: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._is_made = False

    @property
    def is_made(self) -> bool:
        return self._is_made

    def make(self) -> None:
        self._is_made = True
        self._wakeups.put(None)

    def wait(self, seconds: float) -> bool:
        """Wait this long, or until the request is made; True if it was made. For one thread."""
        if not self._is_made:
            with suppress(queue.Empty):
                self._wakeups.get(timeout=max(0.0, seconds))
        return self._is_made


@contextmanager
def heed_stop_signals(say: Callable[[str], None], request: StopRequest) -> Iterator[None]:
    """Handle stop signals during the block.

    The first signal makes the request, and ``say`` gets a line. The second signal calls the previous handler, and
    then raises KeyboardInterrupt if that handler did not. Other code that takes signals, such as a classic Spark
    session when it opens, must have done so before: its handler is then the previous one, and may fail if its JVM is
    gone.

    Python gives signals to the main thread only: in another thread, the request is never made.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def hear(number: int, frame: FrameType | None) -> None:
        if not request.is_made:
            request.make()
            say(f"{signal.Signals(number).name}: stopping after the publication under way; once more stops at once")
            return
        handler = before[number]
        if callable(handler):
            with suppress(Exception):
                handler(number, frame)
        raise KeyboardInterrupt

    before = {int(number): signal.getsignal(number) for number in _STOPPING_SIGNALS}
    for number in before:
        signal.signal(number, hear)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
