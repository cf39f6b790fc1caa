"""Executions between the flows and the executors, as a port: what is to be sent, what was sent, what was reported."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from gobblin_assets.model.job_ticket import JobTicket, LogId, TicketId, TicketSelection
from gobblin_assets.service.job_progress import JobProgress


@dataclass(frozen=True, slots=True)
class JobOfExecution:
    """A job of an execution by its number."""

    execution_id: int
    number: int


@dataclass(frozen=True, slots=True)
class UnsentTicket:
    """A ticket that is to be sent to an executor. ``log_id``: the log that the job's name is bound to.

    ``is_update``: of a worker's job that was started before: what older tickets started is to end first.
    """

    job: JobOfExecution
    executor: str
    log: str
    log_id: LogId
    ticket_id: TicketId
    ticket: JobTicket
    selection: TicketSelection
    is_update: bool


@dataclass(frozen=True, slots=True)
class UnsentCancel:
    """A ticket that ends another one, and is to be sent.

    ``deletes``: the job of a worker, which ends with all that its source keeps for it.
    """

    job: JobOfExecution
    executor: str
    log: str
    log_id: LogId
    ticket_id: TicketId
    cancels: TicketId
    deletes: JobTicket | None


@dataclass(frozen=True, slots=True)
class WatchedJob:
    """A job whose ticket was sent and has not ended, and what its reports said up to now."""

    job: JobOfExecution
    log: str
    ticket_id: TicketId
    progress: JobProgress


@dataclass(frozen=True, slots=True)
class OldJob:
    """A job that ended long ago, with the tickets that were sent for it: its own, and the one that ends it."""

    job: JobOfExecution
    log: str
    ticket_ids: tuple[TicketId, ...]


class ExecutionStore(Protocol):
    """The store of open executions. Each method is one transaction."""

    def list_unsent(
        self, *, limit: int, after: JobOfExecution | None = None, without: Collection[str] = ()
    ) -> Sequence[UnsentTicket]:
        """Of jobs whose predecessors are COMPLETE, or RUNNING workers that have published, the oldest executions first.

        ``after``: those behind this job; ``without``: none of these logs.
        A job whose stored ticket can't be read is FAILED, and holds up no other.
        """
        ...

    def begin_send(self, job: JobOfExecution) -> bool:
        """From here on the ticket may be in the log. False: the job's end was asked for first."""
        ...

    def mark_sent(self, job: JobOfExecution) -> None:
        """The job is ORCHESTRATED, unless it is so already or has gone on."""
        ...

    def fail(self, job: JobOfExecution, message: str) -> None:
        """The job can't be sent: it is FAILED."""
        ...

    def list_unsent_cancels(
        self, *, limit: int, after: JobOfExecution | None = None, without: Collection[str] = ()
    ) -> Sequence[UnsentCancel]:
        """Of jobs whose own tickets were sent, and those that delete, of jobs that have ended, too.

        ``after`` and ``without`` as of ``list_unsent``.
        """
        ...

    def mark_cancel_sent(self, job: JobOfExecution, ticket_id: TicketId) -> None:
        """The job's end was sent. Nothing, if another ticket took the place of this one meanwhile."""
        ...

    def list_watched(self) -> Sequence[WatchedJob]:
        """All jobs whose tickets were sent and have not ended."""
        ...

    def store_progress(self, job: JobOfExecution, before: JobProgress, now: JobProgress) -> bool:
        """Store what reports said, and what follows for the execution. False: somebody read those reports first."""
        ...

    def list_old(self, *, ended_before_s: float, limit: int, after: OldJob | None = None) -> Sequence[OldJob]:
        """Jobs whose tickets are not forgotten, and which ended so long ago; all of their reports are read.

        None whose end is still to be sent. ``after``: those behind this one.
        """
        ...

    def mark_forgotten(self, jobs: Sequence[JobOfExecution]) -> None:
        """The logs of these jobs have only the ids of their tickets."""
        ...
