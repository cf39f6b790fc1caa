"""Python's look for garbage while a run plans and works: seldom, since a plan's objects are many, and all of them stay.

By its defaults Python looks through new objects after each 700 of them, and through all of them again and again while
their number grows. A plan has some ten objects for each file or partition, in no cycles: nothing was found, and it took
a third of the processor time of a run over 50,000 small files.
"""

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

THRESHOLDS: Final = (100_000, 20, 100)
"""The first look after so many new objects, which may take some 10 MB; the others after so many of the one before."""

_lock: Final = threading.Lock()
_before: Final[list[tuple[int, int, int]]] = []


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
