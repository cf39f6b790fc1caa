"""The process of a run: the signals that stop it, and Python's look for garbage in it.

SIGTERM and SIGINT are a request to stop after the work under way.

While a run plans and works, Python looks for garbage seldom, since a plan's objects are many, and all of them stay. By
its defaults Python looks through new objects after each 700 of them, and through all of them again and again while
their number grows. A plan has some ten objects for each file or partition, in no cycles: nothing was found, and it took
a third of the processor time of a run over 50,000 small files.
"""

import gc
import queue
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Final

_STOPPING_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)

THRESHOLDS: Final = (100_000, 20, 100)
"""The first look after so many new objects, which may take some 10 MB; the others after so many of the one before."""

_lock: Final = threading.Lock()
_before: Final[list[tuple[int, int, int]]] = []


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

    def wake(self) -> None:
        """End the wait of now, or the next one. Any thread may call it."""
        if self._wakeups.empty():
            self._wakeups.put(None)

    def wait(self, seconds: float) -> bool:
        """Wait this long, or until the request is made or ``wake`` is called; True if it was made. For one thread."""
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


@contextmanager
def look_for_garbage_seldom() -> Iterator[None]:
    """For the block, in all threads of this process. Blocks may overlap; the last that ends puts back what was."""
    with _lock:
        # Of blocks that overlap, only the first one finds what was.
        _before.append(_before[0] if _before else gc.get_threshold())
        if gc.get_threshold()[0] < THRESHOLDS[0]:
            gc.set_threshold(*THRESHOLDS)
    try:
        yield
    finally:
        with _lock:
            found = _before.pop()
            if not _before:
                gc.set_threshold(*found)
