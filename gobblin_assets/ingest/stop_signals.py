"""SIGTERM and SIGINT as a request to stop: what is under way is ended in good order."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Final

_STOPPING_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


@dataclass(frozen=True, slots=True)
class StopRequest:
    """Whether a signal has come."""

    _heard: threading.Event = field(default_factory=threading.Event)

    @property
    def is_made(self) -> bool:
        return self._heard.is_set()

    def make(self) -> None:
        self._heard.set()

    def wait(self, seconds: float) -> bool:
        """Wait so long, or until it is made; True then."""
        return self._heard.wait(seconds)


@contextmanager
def heed_stop_signals(report: Callable[[str], None]) -> Iterator[StopRequest]:
    """The first signal makes the request, and ``report`` gets a line; the second does what it did before, or raises
    KeyboardInterrupt. Whoever else takes signals, as a classic Spark session does when it opens, must have done so.

    Python gives signals to the main thread alone: in another one, the request is never made.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return

    def hear(number: int, frame: FrameType | None) -> None:
        if not request.is_made:
            request.make()
            report(f"{signal.Signals(number).name}: stopping after the publication under way; once more stops at once")
            return
        handler = before[number]
        if callable(handler):
            handler(number, frame)
        raise KeyboardInterrupt

    before = {int(number): signal.getsignal(number) for number in _STOPPING_SIGNALS}
    for number in before:
        signal.signal(number, hear)
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
