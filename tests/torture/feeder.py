"""A thread that adds to the sources all the time."""

import threading
from abc import ABC, abstractmethod


class Feeder(ABC):
    """Calls ``add_some`` about every ``every_s``, from its own thread, between ``start`` and ``stop``."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._full = threading.Event()
        self._thread = threading.Thread(target=self._feed, daemon=True)

    @abstractmethod
    def add_some(self) -> None: ...

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._full.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _feed(self) -> None:
        while not self._full.wait(self._every_s):
            self.add_some()
