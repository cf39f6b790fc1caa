"""The process of one attempt: it runs the ticket, hears why it is to end, and reports its end."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gobblin_assets.errors import FencedError
from gobblin_assets.jobs.ingest.engine_port import AnnouncedEngine
from gobblin_assets.run.stores import Stores
from gobblin_assets.state.tickets import AttemptEnd, Claim
from gobblin_assets.tickets.interruption import Interruption
from gobblin_assets.tickets.ticket_run import report_interrupted, run_claimed


def run_attempt(
    claim: Claim, stores: Stores, open_spark: Callable[[], AnnouncedEngine], say: Callable[[str], None], pipe: int
) -> AttemptEnd | None:
    """Run the attempt in this process. None: it may report no more.

    ``pipe``: the descriptor of a pipe whose other end is the executor's.
    """
    interruption = Interruption()
    try:
        with _heeding(interruption, pipe):
            return run_claimed(claim, stores, open_spark, say, interruption)
    except FencedError as error:
        say(str(error))
        return None
    except KeyboardInterrupt:
        return report_interrupted(claim, stores, interruption.end or AttemptEnd.CANCELLED)


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
