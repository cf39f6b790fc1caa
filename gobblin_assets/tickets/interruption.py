"""Interruptions of an attempt, as its executor sends them through a pipe.

The executor writes one byte, which says why. If the executor dies, the pipe ends. A run then gets SIGINT from its own
process: Spark cancels its jobs at that signal. A worker is asked to end behind a cut. SIGTERM, as whoever stops a whole
group of processes sends it, drains.
"""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Final

from gobblin_assets.run.own_process import StopRequest
from gobblin_assets.state.tickets import AttemptEnd
from gobblin_assets.tickets.attempt_output import take_output_back

CANCELLING: Final = b"c"
DRAINING: Final = b"d"

ORPHAN_GRACE_S: Final = 20.0
"""So long a process without its executor may take to end by itself."""

EXIT_ORPHANED: Final = 75

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_HEARD_MAX: Final = 4096

_ENDS: Final = {CANCELLING: AttemptEnd.CANCELLED, DRAINING: AttemptEnd.DRAINED, b"": AttemptEnd.DIED}


class Interruption:
    """An interruption of the attempt. ``end``: that it gives to the attempt; None: there was none.

    ``stop`` is made by it. ``is_graceful``: the work looks at ``stop``, and is not interrupted otherwise.
    ``is_heard``: a signal came while ``hearing_signals``, whoever handled it.
    """

    def __init__(self) -> None:
        self.end: AttemptEnd | None = None
        self.stop = StopRequest()
        self.is_graceful = False
        self._ear: int | None = None
        self._is_heard = False

    @property
    def is_heard(self) -> bool:
        if self._ear is not None:
            with suppress(BlockingIOError):
                heard = os.read(self._ear, _HEARD_MAX)
                self._is_heard = self._is_heard or any(number in heard for number in _SIGNALS)
        return self._is_heard

    @contextmanager
    def hearing_signals(self) -> Iterator[None]:
        """Note signals during the block. Drivers make errors of their own of what a handler raises.

        Python gives signals to the main thread only: in another thread, none is noted.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        self._ear, voice = os.pipe()
        os.set_blocking(self._ear, False)
        os.set_blocking(voice, False)
        before = signal.set_wakeup_fd(voice, warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(before)
            self._is_heard, ear = self.is_heard, self._ear
            self._ear = None
            os.close(ear)
            os.close(voice)

    def drain(self, _number: int, _frame: FrameType | None) -> None:
        """Handle SIGTERM."""
        self.end = self.end or AttemptEnd.DRAINED
        self.stop.make()
        if not self.is_graceful:
            raise KeyboardInterrupt

    def interrupt(self, end: AttemptEnd) -> None:
        """Interrupt the work of the main thread, from another one."""
        self.end = self.end or end
        self.stop.make()
        if not self.is_graceful:
            os.kill(os.getpid(), signal.SIGINT)

    def watch(self, pipe: int) -> None:
        """Wait for the executor's word or its death. For a thread of its own, which may outlive the attempt."""
        # By the descriptor: a thread in Python's own reader has a lock that the interpreter wants when it ends.
        said = os.read(pipe, 1)
        if not said:
            # Whatever becomes of its output, the attempt has to end.
            with suppress(Exception):
                take_output_back(os.environ)
        self.interrupt(_ENDS[said])
        if said:
            # The executor kills what takes too long.
            os.read(pipe, 1)
        time.sleep(ORPHAN_GRACE_S)
        # What hangs in a driver or a JVM does not hear a KeyboardInterrupt.
        os._exit(EXIT_ORPHANED)


@contextmanager
def hold_signals() -> Iterator[None]:
    """The main thread hears neither signal during the block, so that it can report an end."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
