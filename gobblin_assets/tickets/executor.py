"""The executor of technology ``process``: it claims the tickets of its name, and starts a process for each.

The process does the work and reports it. The executor renews its claims, reports processes that died, and passes on
that a ticket is cancelled. If the executor dies, its processes notice and end, its claims expire, and another executor
of the name takes the tickets over.

While the log drains, its processes end as when it is asked to end itself, and it begins nothing. Behind an upgrade it
ends: another release goes on.
"""

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import IO, Any, Final

from gobblin_assets.errors import OutcomeUnknownError, RetryableError
from gobblin_assets.model.clock import Clock
from gobblin_assets.model.executor_heartbeat import ExecutorPhase
from gobblin_assets.model.job_ticket import TicketId, TicketVerb
from gobblin_assets.run.stores import Stores
from gobblin_assets.state.tickets import PROBE_LIFE_S, AttemptEnd, Claim, OpenTicket, StaleReleaseError
from gobblin_assets.tickets.attempt_processes import AttemptProcess, AttemptProcesses
from gobblin_assets.tickets.heartbeats import Heart
from gobblin_assets.tickets.inbox import end_dead_run, give_up_ticket, report_all_missed
from gobblin_assets.tickets.interruption import CANCELLING, DRAINING
from gobblin_assets.tickets.ticket_run import describe_end

POLL_S: Final = 0.5
CLAIM_TTL_S: Final = 30.0
RENEWALS_PER_TTL: Final = 3

STOP_GRACE_S: Final = 60.0
"""So long a process may take to end after a signal; then it is killed."""

_REPLACING: Final = (TicketVerb.UPDATE, TicketVerb.DELETE)
"""Each takes the place of workers, which end only once it is at work: it does not wait for a slot."""

PROBES_AT_ONCE_MAX: Final = 3
"""Questions wait for no slot: a person waits for the answer. They have places of their own."""

_LISTED_MAX: Final = 100
_PAUSE_S: Final = 5.0
"""After a failure of the log, the next look at it comes so much later."""


@dataclass(frozen=True, slots=True)
class ExecutorOptions:
    """The options of an executor. ``owner`` names its process; ``slots``: so many tickets at once.

    0: it only answers questions and ends tickets that nobody works on, beside a Dagster that runs the others. Then it
    has no heartbeat: the Dagster has one.
    """

    name: str
    slots: int
    owner: str
    claim_ttl_s: float = CLAIM_TTL_S
    stop_grace_s: float = STOP_GRACE_S


@dataclass(slots=True)
class _Child:
    """The process of a claim. ``kill_at_s``: by the monotonic clock; None: nobody has asked it to end.

    ``life_end_s``: by the same clock, when it is killed although nobody asked it to end, as that of a probe is.
    """

    claim: Claim
    process: AttemptProcess
    kill_at_s: float | None = None
    is_probe: bool = False
    life_end_s: float = math.inf

    @property
    def pipe(self) -> IO[bytes]:
        if self.process.stdin is None:
            raise ValueError("the process of an attempt needs a pipe")
        return self.process.stdin


@dataclass(slots=True)
class ProcessExecutor:
    """An executor over one log. Each process that ``processes`` starts has a pipe for its standard input."""

    options: ExecutorOptions
    stores: Stores
    processes: AttemptProcesses
    heart: Heart
    clock: Clock
    say: Callable[[str], None]
    _children: dict[TicketId, _Child] = field(default_factory=dict)
    _renew_at_s: float = 0.0
    _phase: ExecutorPhase = ExecutorPhase.WORKING

    def take_tickets(self, wait: Callable[[float], bool]) -> None:
        """Work until ``wait(seconds)`` says to stop; then drain: end all processes, and wait for them.

        StaleReleaseError, behind that too: the log was upgraded meanwhile.
        """
        pause_s = 0.0
        try:
            while not wait(pause_s or POLL_S):
                is_there = self._try(self._heed_drain) and self._try(self._look)
                pause_s = 0.0 if is_there else _PAUSE_S
        finally:
            self.processes.close()
            self._drain()

    def _try(self, act: Callable[[], None]) -> bool:
        """Whether the log could be asked. It may be away for hours; what runs goes on meanwhile."""
        try:
            act()
        except StaleReleaseError:
            raise
        except (RetryableError, OutcomeUnknownError) as error:
            self.say(str(error))
            return False
        except Exception as error:  # noqa: BLE001  one ticket's fault, or a library's, is not that of all others
            self.say(f"{type(error).__name__}: {error}")
        return True

    def _beat(self, phase: ExecutorPhase) -> None:
        if self.options.slots > 0:
            self.heart.beat(phase)

    def _heed_drain(self) -> None:
        is_draining = self.stores.drains.is_draining()
        phase = ExecutorPhase.DRAINING if is_draining else ExecutorPhase.WORKING
        if phase is not self._phase:
            self._phase = phase
            self.say("the log drains: what runs is ended, and goes on later" if is_draining else "the log is resumed")
        if is_draining:
            for child in self._children.values():
                self._stop(child, DRAINING)
        self._beat(phase)

    def _look(self) -> None:
        self._reap()
        self._renew()
        for ticket in self.stores.tickets.list_claimable(self.options.name, limit=_LISTED_MAX):
            if not self._try(partial(self._take, ticket)):
                return
        if len(self._children) < max(1, self.options.slots):
            self.processes.prepare()

    def _take(self, ticket: OpenTicket) -> None:
        if ticket.verb is TicketVerb.CANCEL:
            self._cancel(ticket.ticket_id)
        elif ticket.is_used_up:
            give_up_ticket(ticket, self.stores, self.say)
        elif self._has_room(ticket.verb):
            self._claim(ticket)

    def _has_room(self, verb: TicketVerb) -> bool:
        probes = sum(child.is_probe for child in self._children.values())
        if verb is TicketVerb.PROBE:
            return probes < PROBES_AT_ONCE_MAX
        if self.options.slots == 0:
            return False
        return verb in _REPLACING or len(self._children) - probes < self.options.slots

    def _claim(self, ticket: OpenTicket) -> None:
        claim = self.stores.tickets.claim(ticket.ticket_id, self.options.owner, ttl_s=self.options.claim_ttl_s)
        if claim is None:
            # Another executor of the name was faster.
            return
        self.say(f"ticket {claim.ticket_id}: attempt {claim.attempt} begins")
        try:
            is_probe = ticket.verb is TicketVerb.PROBE
            life_end_s = self.clock.monotonic() + PROBE_LIFE_S if is_probe else math.inf
            self._children[claim.ticket_id] = _Child(claim, self.processes.start(claim), None, is_probe, life_end_s)
        except OSError as error:
            self._end(claim, AttemptEnd.DIED, describe_end(f"no process could be started: {error}"))

    def _cancel(self, ticket_id: TicketId) -> None:
        other = self.stores.tickets.settle_cancel(ticket_id)
        child = None if other is None else self._children.get(other)
        if child is not None:
            self._stop(child, CANCELLING)

    def _stop(self, child: _Child, why: bytes) -> None:
        if child.kill_at_s is None:
            child.kill_at_s = self.clock.monotonic() + self.options.stop_grace_s
            # One that has ended meanwhile hears nothing. The pipe of one that could not be reported is closed.
            with suppress(OSError, ValueError):
                child.pipe.write(why)
                child.pipe.flush()

    def _reap(self) -> None:
        """Report processes that ended without an end of their own."""
        self._kill_late()
        for ticket_id, child in list(self._children.items()):
            code = child.process.poll()
            if code is not None:
                with suppress(OSError):
                    child.pipe.close()
                # No later attempt may come that would tell of them.
                self._try(partial(report_all_missed, child.claim, self.stores))
                died = _describe_death(code)
                if code != 0:
                    end_dead_run(child.claim, self.stores, f"its process {died}")
                self._end(child.claim, AttemptEnd.DIED, describe_end(died))
                del self._children[ticket_id]

    def _kill_late(self) -> None:
        now_s = self.clock.monotonic()
        for child in self._children.values():
            kill_at_s = child.life_end_s if child.kill_at_s is None else min(child.kill_at_s, child.life_end_s)
            if now_s >= kill_at_s and child.process.poll() is None:
                child.process.kill()

    def _end(self, claim: Claim, end: AttemptEnd, details: Mapping[str, Any]) -> None:
        if self.stores.tickets.end(claim, end, details):
            self.say(f"ticket {claim.ticket_id}: attempt {claim.attempt} {details['message']}")

    def _renew(self) -> None:
        if not self._children or self.clock.monotonic() < self._renew_at_s:
            return
        self._renew_at_s = self.clock.monotonic() + self.options.claim_ttl_s / RENEWALS_PER_TTL
        claims = [child.claim for child in self._children.values()]
        kept = self.stores.tickets.renew(claims, ttl_s=self.options.claim_ttl_s)
        for child in self._children.values():
            if child.claim not in kept and child.process.poll() is None:
                self.say(f"ticket {child.claim.ticket_id}: the claim is lost; attempt {child.claim.attempt} is ended")
                self._stop(child, DRAINING)

    def _drain(self) -> None:
        for child in self._children.values():
            self._stop(child, DRAINING)
        while any(child.process.poll() is None for child in self._children.values()):
            self._try(partial(self._beat, ExecutorPhase.DRAINING))
            self._try(self._renew)
            self.clock.sleep(POLL_S)
            self._kill_late()
        # Without the log, the claims of those that could not report their end expire.
        self._try(self._reap)
        self._try(partial(self._beat, ExecutorPhase.ENDED))


def _describe_death(code: int) -> str:
    return f"died of signal {-code}" if code < 0 else f"ended with {code}, and without a report"
