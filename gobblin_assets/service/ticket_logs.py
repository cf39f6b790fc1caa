"""The ways to executors: tickets are sent over them, and reports, answers and heartbeats come back.

A way has a name, which is stored with each job that was launched: ``ExecutorSpec.way``. Executors that are reached by
their log (communication "log") have the log's name, which is "" for the service's own database. Every other executor
has a way of its own.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from gobblin_assets.model.executor_heartbeat import HeardHeartbeat
from gobblin_assets.model.job_ticket import LogId, SentTicket, TicketId
from gobblin_assets.state.log_drains import LogDrainStore
from gobblin_assets.state.overview import Overview
from gobblin_assets.state.tickets import FoundProbe, TicketOutput, TicketReport


class TicketWire(Protocol):
    """A way to executors. A way needs no connection to their Postgres: what was reported may have come by messages.

    Every call returns soon, or raises RetryableError or OutcomeUnknownError: the way is down; the call is repeated.
    An answer says what is known here now: over a way of messages, an end follows later, as a report.
    """

    def find_log_id(self) -> LogId:
        """The id of the log that the executors work with. RejectedError: none of them was ever heard."""
        ...

    def send(self, sent: SentTicket) -> None:
        """Have the executor get the ticket. It is durable when the call returns; sent again, it is the same one.

        ConflictError: another ticket has its id, it is meant for another log, or it is too large. RetryableError: of a
        PROBE, too many of them wait for the executor.
        """
        ...

    def settle_cancel(self, ticket_id: TicketId) -> TicketId | None:
        """End a CANCEL that was sent, and the ticket that it cancels, unless somebody works on that.

        Returns the other one if an attempt at it lives: whoever claimed it ends it. None also where only the executor
        can settle it: its reports tell.
        """
        ...

    def end_unclaimed(self, ticket_id: TicketId, message: str, *, is_lost: bool = False) -> bool:
        """End a ticket as CANCELLED unless somebody works on it. True: it has ended.

        ``is_lost``: its executor is held for lost; then also a worker's ticket that somebody works on.

        False: it has not, as far as is known here. Ask again, or read its reports.
        """
        ...

    def list_reports(
        self, ticket_ids: Sequence[TicketId], after: Mapping[TicketId, tuple[int, int]], *, limit: int
    ) -> Sequence[TicketReport]:
        """By ticket, attempt and number. ``after``: the (attempt, number) up to which a ticket's reports are known."""
        ...

    def find_ends(self, ticket_ids: Collection[TicketId]) -> Mapping[TicketId, TicketReport]:
        """The reports that ended these tickets; nothing for those that are open."""
        ...

    def forget(self, ticket_ids: Collection[TicketId]) -> frozenset[TicketId]:
        """Remove what is known of ended tickets, whose reports were read. Returns those that are open."""
        ...

    def find_probe(self, ticket_id: TicketId) -> FoundProbe | None:
        """None: no PROBE of this id was sent over this way."""
        ...

    def give_up(self, ticket_id: TicketId, details: Mapping[str, Any]) -> bool:
        """End a PROBE that is too old as FAILED. False: it has ended, or an attempt at it lives."""
        ...

    def list_outputs(self, ticket_id: TicketId, *, limit: int) -> Sequence[TicketOutput]:
        """What the processes of the ticket's attempts said, the latest attempt first."""
        ...

    def list_heartbeats(self) -> Sequence[HeardHeartbeat]:
        """Of each process that takes tickets over this way, the last one."""
        ...


class TicketLogs(Protocol):
    """All ways, by their names."""

    def get_store(self, way: str) -> TicketWire:
        """RejectedError: this process has no address for it, or its executor has left the topology."""
        ...

    def get_log_id(self, way: str) -> LogId:
        """Read anew: a log that was restored elsewhere has another id. RetryableError: the way is down."""
        ...

    def get_overview(self, way: str) -> Overview:
        """What the log of the way's executors has published.

        RejectedError: the service has no connection to that log.
        """
        ...

    def get_drains(self, log: str) -> LogDrainStore:
        """The drains of the log of this name, "" for the service's own. RejectedError: nothing says where it is."""
        ...
