"""The process of one attempt, and the pipe by which its executor says that it is to end, or has died.

The executor writes one byte, why the attempt is to end. If the executor dies, the pipe ends. Either way the process
gets SIGINT from itself: Spark cancels its jobs at that signal. SIGTERM, as whoever stops a whole group of processes
sends it, drains.
"""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

from gobblin_assets.errors import FencedError
from gobblin_assets.jobs.ingest.engine_port import AnnouncedEngine
from gobblin_assets.run.stores import Stores
from gobblin_assets.state.tickets import AttemptEnd, Claim
from gobblin_assets.tickets.ticket_run import describe_end, report_missed, run_claimed

CANCELLING: Final = b"c"
DRAINING: Final = b"d"

ORPHAN_GRACE_S: Final = 20.0
"""So long a process without its executor may take to end by itself."""

EXIT_ORPHANED: Final = 75

_ENDS: Final = {CANCELLING: AttemptEnd.CANCELLED, DRAINING: AttemptEnd.DRAINED, b"": AttemptEnd.DIED}
_SAID: Final = {
    AttemptEnd.CANCELLED: "cancelled",
    AttemptEnd.DRAINED: "its executor was asked to end",
    AttemptEnd.DIED: "its executor has died",
}


class Interruption:
    """The end that an interruption gives to the attempt; None: there was none."""

    def __init__(self) -> None:
        self.end: AttemptEnd | None = None

    def drain(self, _number: int, _frame: FrameType | None) -> None:
        """Handle SIGTERM."""
        self.end = self.end or AttemptEnd.DRAINED
        raise KeyboardInterrupt

    def watch(self, pipe: int) -> None:
        """Wait for the executor's word or its death. For a thread of its own, which may outlive the attempt."""
        # By the descriptor: a thread in Python's own reader has a lock that the interpreter wants when it ends.
        said = os.read(pipe, 1)
        self.end = self.end or _ENDS[said]
        os.kill(os.getpid(), signal.SIGINT)
        if said:
            # The executor kills what takes too long.
            os.read(pipe, 1)
        time.sleep(ORPHAN_GRACE_S)
        # What hangs in a driver or a JVM does not hear a KeyboardInterrupt.
        os._exit(EXIT_ORPHANED)


def run_attempt(
    claim: Claim, stores: Stores, open_spark: Callable[[], AnnouncedEngine], say: Callable[[str], None], pipe: int
) -> AttemptEnd | None:
    """Run the attempt in this process. None: it may report no more.

    ``pipe``: the descriptor of a pipe whose other end is the executor's.
    """
    interruption = Interruption()
    try:
        with _heeding(interruption, pipe):
            return run_claimed(claim, stores, open_spark, say, lambda: interruption.end is not None)
    except FencedError as error:
        say(str(error))
        return None
    except KeyboardInterrupt:
        return _report_end(claim, stores, interruption.end or AttemptEnd.CANCELLED)


def _report_end(claim: Claim, stores: Stores, end: AttemptEnd) -> AttemptEnd | None:
    try:
        report_missed(claim, stores)
    except FencedError:
        return None
    return end if stores.tickets.end(claim, end, describe_end(_SAID[end])) else None


@contextmanager
def _heeding(interruption: Interruption, pipe: int) -> Iterator[None]:
    """Behind the block, the process hears neither signal, so that it can report its end."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, interruption.drain)
    threading.Thread(target=interruption.watch, args=(pipe,), name="executor-watch", daemon=True).start()
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
