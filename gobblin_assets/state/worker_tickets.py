"""Tickets of workers as whoever keeps their workers alive sees them, as a port.

A worker may be a sequence of processes, each an attempt: one that has worked for its time ends DRAINED, and the next
one goes on. Each asks the log itself whether somebody wants the worker to end: no message has to reach it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from gobblin_assets.model.job_ticket import TicketId, TicketVerb
from gobblin_assets.state.tickets import ATTEMPTS_MAX, Claim


@dataclass(frozen=True, slots=True)
class WorkerTicket:
    """An open ticket of a worker. ``job``: the job's name; ``owner``: who claimed the last attempt; None: nobody has.

    ``is_live``: the claim of the last attempt has neither ended nor expired. ``has_ended``: the attempt has ended, or
    there was none. ``attempts``: as ATTEMPTS_MAX counts them.
    """

    ticket_id: TicketId
    verb: TicketVerb
    job: str
    last_attempt: int
    attempts: int
    owner: str | None
    is_live: bool
    has_ended: bool

    @property
    def last_claim(self) -> Claim:
        return Claim(self.ticket_id, self.last_attempt)

    @property
    def is_used_up(self) -> bool:
        return self.attempts >= ATTEMPTS_MAX


DRAINED_KEPT: Final = 100
"""Of a ticket, so many attempts stay whole. Whoever reads reports is never so far behind."""

OUTPUTS_KEPT: Final = 10


class WorkerTicketStore(Protocol):
    """Implemented by ``state.postgres``. Each method is one transaction, by the log's clock."""

    def list_open(self, executor: str) -> Sequence[WorkerTicket]:
        """The open tickets of workers that are sent to the executor, the oldest first."""
        ...

    def is_replaced(self, ticket_id: TicketId) -> bool:
        """Whether there is an open UPDATE or DELETE of the same job and executor that was sent later."""
        ...

    def forget_drained(self, claim: Claim) -> None:
        """Remove what is known of attempts long before this one that were DRAINED, and what such attempts said.

        A worker of short processes would otherwise leave more behind each hour, for years.
        """
        ...
