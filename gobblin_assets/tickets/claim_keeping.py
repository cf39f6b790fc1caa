"""Keeps the claim of an attempt that runs in this process, where no executor does it from beside.

A thread renews the claim, keeps what the attempt says, and asks the log whether somebody cancels the ticket, and
whether the log drains. So an attempt ends, although nobody else of its executor may be at work.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from gobblin_assets.run.stores import Stores
from gobblin_assets.state.tickets import AttemptEnd, Claim
from gobblin_assets.tickets.attempt_output import KEEP_EVERY_S, AttemptOutput
from gobblin_assets.tickets.executor import CLAIM_TTL_S, RENEWALS_PER_TTL, STOP_GRACE_S
from gobblin_assets.tickets.interruption import EXIT_ORPHANED, Interruption
from gobblin_assets.tickets.ticket_run import report_interrupted

_LOOK_S: Final = 1.0


def _find_none() -> AttemptEnd | None:
    return None


@dataclass(slots=True)
class ClaimKeeper:
    """Keeps one claim while its work is done in the main thread, which is interrupted when the claim is no more.

    A work that hears no interruption for ``grace_s`` is ended with its process, behind the report of its end.
    ``find_end``: the end that something besides wants of the attempt now; None: nothing does.
    """

    claim: Claim
    stores: Stores
    interruption: Interruption
    output: AttemptOutput
    say: Callable[[str], None]
    ttl_s: float = CLAIM_TTL_S
    grace_s: float = STOP_GRACE_S
    find_end: Callable[[], AttemptEnd | None] = _find_none
    _is_over: threading.Event = field(default_factory=threading.Event)
    _renew_at_s: float = 0.0
    _keep_at_s: float = 0.0
    _exit_at_s: float | None = None
    _is_away: bool = False

    @contextmanager
    def keep(self) -> Iterator[None]:
        """Keep the claim during the block."""
        self._renew_at_s = time.monotonic() + self.ttl_s / RENEWALS_PER_TTL
        thread = threading.Thread(target=self._repeat, name="claim-keeper", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._is_over.set()
            thread.join()

    def keep_output(self) -> None:
        """Put what the attempt said into the log."""
        lines = self.output.take_news()
        if lines is not None:
            self.stores.tickets.keep_output(self.claim, lines)

    def _repeat(self) -> None:
        while not self._is_over.wait(_LOOK_S):
            try:
                self._look()
                self._is_away = False
            except Exception as error:  # noqa: BLE001  the work goes on, whatever a look at the log ends with
                if not self._is_away:
                    self.say(f"its claim can't be renewed: {error}")
                self._is_away = True
            if self._exit_at_s is not None and time.monotonic() >= self._exit_at_s:
                self._exit()

    def _look(self) -> None:
        now_s = time.monotonic()
        if now_s >= self._keep_at_s:
            self._keep_at_s = now_s + KEEP_EVERY_S
            self.keep_output()
        if now_s >= self._renew_at_s:
            self._renew_at_s = now_s + self.ttl_s / RENEWALS_PER_TTL
            if self.claim not in self.stores.tickets.renew([self.claim], ttl_s=self.ttl_s):
                self.say(f"the claim is lost; attempt {self.claim.attempt} is ended")
                self._interrupt(AttemptEnd.DRAINED)
        if self.stores.tickets.list_cancels(self.claim.ticket_id):
            self._interrupt(AttemptEnd.CANCELLED)
        elif self.stores.drains.is_draining():
            self._interrupt(AttemptEnd.DRAINED)
        elif (end := self.find_end()) is not None:
            self._interrupt(end)

    def _interrupt(self, end: AttemptEnd) -> None:
        if self._exit_at_s is None and not self._is_over.is_set():
            self._exit_at_s = time.monotonic() + self.grace_s
            self.interruption.interrupt(end)

    def _exit(self) -> None:
        # What hangs in a driver or a JVM does not hear a KeyboardInterrupt.
        try:
            report_interrupted(self.claim, self.stores, self.interruption.end or AttemptEnd.DRAINED)
        finally:
            os._exit(EXIT_ORPHANED)


def settle_cancels(claim: Claim, stores: Stores) -> None:
    """Answer those who cancelled the ticket, once its attempt has ended."""
    for cancel in stores.tickets.list_cancels(claim.ticket_id):
        stores.tickets.settle_cancel(cancel)
