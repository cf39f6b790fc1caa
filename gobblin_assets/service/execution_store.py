"""Executions between the flows and the executors, as a port: what is to be sent, what was sent, what was reported."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from gobblin_assets.model.job_ticket import JobTicket, LogId, TicketId, TicketSelection
from gobblin_assets.service.job_progress import JobProgress


@dataclass(frozen=True, slots=True)
class JobOfExecution:
    """A job of an execution by its number."""

    execution_id: int
    number: int


class SendTurn(StrEnum):
    """Whether a ticket is sent now. FULL: so many wait at the executor already. OVER: another node sends it, or did.

    OVER also for a job whose end was asked for, or that has another ticket.
    """

    NOW = "now"
    FULL = "full"
    OVER = "over"


@dataclass(frozen=True, slots=True)
class JobNeeds:
    """What an executor must have to do a job. ``log_id``: the log that the job's name is bound to.

    ``groups``: those of the flow's owner.
    """

    log_id: LogId
    capability: str
    nodes: frozenset[str]
    groups: frozenset[str]


@dataclass(frozen=True, slots=True)
class UnsentTicket:
    """A ticket that is to be sent to an executor. ``earlier``: tickets that the job of this execution had before.

    ``is_update``: of a worker's job that was started before: what older tickets started is to end first.
    ``is_begun``: it may be in the log, and its executor is decided. ``expires_after_s``: as the ticket says it.
    """

    job: JobOfExecution
    executor: str
    log: str
    ticket_id: TicketId
    ticket: JobTicket
    selection: TicketSelection
    is_update: bool
    needs: JobNeeds
    earlier: tuple[TicketId, ...] = ()
    is_begun: bool = False
    expires_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class SentJob:
    """A job whose ticket was sent, and has not ended as far as somebody read that.

    ``is_moving``: when the ticket ends unrun, another executor gets one.
    """

    job: JobOfExecution
    executor: str
    log: str
    ticket_id: TicketId
    needs: JobNeeds
    is_moving: bool


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
    """A job that ended long ago, with the tickets that were sent for it: its own, and those that end them."""

    job: JobOfExecution
    log: str
    ticket_ids: tuple[TicketId, ...]


@dataclass(frozen=True, slots=True)
class SentDeletion:
    """A ticket that deletes what a source keeps for a job, and that has not ended."""

    job: JobOfExecution
    log: str
    ticket_id: TicketId


class ExecutionStore(Protocol):
    """The store of open executions. Each method is one transaction."""

    def list_unsent(
        self,
        *,
        limit: int,
        after: JobOfExecution | None = None,
        without: Collection[str] = (),
        full: Collection[str] = (),
    ) -> Sequence[UnsentTicket]:
        """Of jobs whose predecessors are COMPLETE, or RUNNING workers that have published, the oldest executions first.

        ``after``: those behind this job; ``without``: none of these logs; ``full``: none of these executors.
        A job whose stored ticket can't be read is FAILED, and holds up no other.
        """
        ...

    def begin_send(
        self, job: JobOfExecution, ticket_id: TicketId, *, executor: str, log: str, waiting_max: int | None = None
    ) -> SendTurn:
        """From here on the ticket may be in the log, and no other node sends it for a while, which grows.

        ``executor`` and ``log``: where it is to be sent. If another node has given it to another executor, it is OVER.
        ``waiting_max``: so many tickets that were sent to the executor may wait there; None: there is no bound.
        """
        ...

    def mark_sent(self, job: JobOfExecution, ticket_id: TicketId) -> None:
        """The job is ORCHESTRATED, unless it has gone on, or has another ticket."""
        ...

    def fail(self, job: JobOfExecution, ticket_id: TicketId, message: str) -> None:
        """The ticket can't be sent: the job is FAILED. Nothing as by ``mark_sent``."""
        ...

    def assign(self, job: JobOfExecution, ticket_id: TicketId, executor: str, log: str) -> bool:
        """Another executor gets the ticket. False: it may be in a log already, or the job has gone on."""
        ...

    def list_sent(self, *, well: Collection[str]) -> Sequence[SentJob]:
        """Of all executors but these; none whose end was asked for."""
        ...

    def begin_move(self, job: JobOfExecution, ticket_id: TicketId) -> bool:
        """When the ticket ends unrun, another executor gets one. False: the job has gone on, or is to end."""
        ...

    def note(self, job: JobOfExecution, ticket_id: TicketId, message: str) -> bool:
        """Say what a job that does not run waits for. False: it says so already, or has gone on."""
        ...

    def note_full(self, executor: str, message: str) -> None:
        """Say it of all jobs that only wait for this executor."""
        ...

    def list_untaken(self, *, sent_before_s: float) -> Sequence[SentJob]:
        """Those that were sent so long ago, and of which there is no report, and nothing was said."""
        ...

    def end_late(self, *, limit: int) -> int:
        """Ask for the ends of executions that are behind their deadlines; returns how many."""
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

    def store_progress(self, watched: WatchedJob, now: JobProgress) -> bool:
        """Store what reports said, and what follows for the job and the execution. A job may get its next ticket.

        False: somebody read those reports first.
        """
        ...

    def list_deletions(self) -> Sequence[SentDeletion]:
        """Those that were sent and have not ended, as far as somebody read that."""
        ...

    def end_deletion(self, job: JobOfExecution, said: str) -> None:
        """The deletion has ended. ``said``: why nothing was deleted; empty: it was."""
        ...

    def list_old(self, *, ended_before_s: float, limit: int, after: OldJob | None = None) -> Sequence[OldJob]:
        """Jobs whose tickets are not forgotten, and which ended so long ago; all of their reports are read.

        None whose end is still to be sent. ``after``: those behind this one.
        """
        ...

    def mark_forgotten(self, jobs: Sequence[JobOfExecution]) -> None:
        """The logs of these jobs have only the ids of their tickets."""
        ...
