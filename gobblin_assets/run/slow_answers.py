"""A line for whoever waits, while something that may take long has not answered."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


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
