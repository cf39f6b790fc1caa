"""The process of one attempt: its signals, and the pipe by which it notices that its executor has died.

SIGINT cancels the ticket. SIGTERM drains: the attempt ends, and the ticket waits for the next one.
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

ORPHAN_GRACE_S: Final = 20.0
"""So long a process without its executor may take to end by itself."""

EXIT_ORPHANED: Final = 75

_SAID: Final = {
    AttemptEnd.CANCELLED: "cancelled",
    AttemptEnd.DRAINED: "its executor was asked to end",
    AttemptEnd.DIED: "its executor has died",
}


class Interruption:
    """The cause of an interruption: the end that it gives to the attempt."""

    def __init__(self) -> None:
        # A classic session of Spark takes SIGINT for itself, and raises KeyboardInterrupt without this process's word.
        self.end = AttemptEnd.CANCELLED

    def drain(self, number: int, frame: FrameType | None) -> None:
        """Handle SIGTERM."""
        del number, frame
        if self.end is AttemptEnd.CANCELLED:
            self.end = AttemptEnd.DRAINED
        raise KeyboardInterrupt

    def notice_death(self) -> None:
        """The executor is gone; to be called from any thread."""
        self.end = AttemptEnd.DIED
        os.kill(os.getpid(), signal.SIGTERM)


def run_attempt(
    claim: Claim, stores: Stores, open_spark: Callable[[], AnnouncedEngine], say: Callable[[str], None], pipe: int
) -> AttemptEnd | None:
    """Run the attempt in this process. None: it may report no more.

    ``pipe``: the descriptor of a pipe whose other end is the executor's.
    """
    interruption = Interruption()
    with _heeding(interruption, pipe):
        try:
            return run_claimed(claim, stores, open_spark, say)
        except FencedError as error:
            say(str(error))
            return None
        except KeyboardInterrupt:
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.SIG_IGN)
            return _report_end(claim, stores, interruption.end)


def _report_end(claim: Claim, stores: Stores, end: AttemptEnd) -> AttemptEnd | None:
    try:
        report_missed(claim, stores)
    except FencedError:
        return None
    return end if stores.tickets.end(claim, end, describe_end(_SAID[end])) else None


@contextmanager
def _heeding(interruption: Interruption, pipe: int) -> Iterator[None]:
    is_over = threading.Event()

    def watch() -> None:
        # Nothing is ever written into it: the read ends when the holder of the other end has died. By the descriptor:
        # a thread that waits in Python's own reader holds a lock that the interpreter wants when it ends.
        os.read(pipe, 1)
        if is_over.is_set():
            return
        interruption.notice_death()
        time.sleep(ORPHAN_GRACE_S)
        # What hangs in a driver or a JVM does not hear a KeyboardInterrupt.
        os._exit(EXIT_ORPHANED)

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, interruption.drain)
    threading.Thread(target=watch, name="executor-watch", daemon=True).start()
    try:
        yield
    finally:
        is_over.set()
        for number, handler in before.items():
            signal.signal(number, handler)
