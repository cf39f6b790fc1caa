"""Sends tickets to the logs of executors.

The ids of tickets are decided when the execution is made. A ticket is sent when all jobs before it are COMPLETE, and
then the job is marked ORCHESTRATED. Whoever dies between sends it again: it is the same ticket, and there is one run of
it. So any number of orchestrators may work on the same executions at once.

A ticket that nobody works on is ended by the sender of its CANCEL, so that an execution ends without its executor.
"""

import logging
from collections.abc import Callable, Collection, Sequence
from typing import Final, Protocol, TypeVar

from gobblin_assets.errors import ConflictError, GobblinError, OutcomeUnknownError, RejectedError, RetryableError
from gobblin_assets.model.job_ticket import SentTicket, TicketVerb
from gobblin_assets.service.away_logs import AwayLogs
from gobblin_assets.service.execution_store import ExecutionStore, JobOfExecution, UnsentCancel, UnsentTicket
from gobblin_assets.service.spec_executors.wired_executor import WayCalls, WiredJobs
from gobblin_assets.service.ticket_logs import TicketLogs

TICKETS_AT_ONCE_MAX: Final = 200
"""Of one page. A look goes on behind it while something on the page is held up; else the next look takes the rest."""

_log = logging.getLogger(__name__)


_Unsent = TypeVar("_Unsent", UnsentTicket, UnsentCancel)
_T_co = TypeVar("_T_co", covariant=True)


class _Pages(Protocol[_T_co]):
    """A list of ``ExecutionStore`` of what is to be sent."""

    def __call__(self, *, limit: int, after: JobOfExecution | None, without: Collection[str]) -> Sequence[_T_co]: ...


class Orchestrator:
    """The sender of what launches decided."""

    def __init__(self, executions: ExecutionStore, logs: TicketLogs) -> None:
        self._executions = executions
        self._logs = logs
        self._calls = WayCalls()
        self._away = AwayLogs(logs)
        # What waits by the look before and by this one: a log, or the id of a ticket. It is told once.
        self._told: frozenset[str] = frozenset()
        self._telling: set[str] = set()

    def look(self) -> int:
        """Send what can be sent now; returns how many tickets. A log that is away holds up its own tickets only."""
        self._told, self._telling = frozenset(self._telling), set(self._away.names)
        self._away.ask()
        sent = self._send_pages(self._executions.list_unsent, self._send)
        return sent + self._send_pages(self._executions.list_unsent_cancels, self._send_cancel)

    def _send_pages(self, list_page: _Pages[_Unsent], send: Callable[[_Unsent], bool]) -> int:
        sent, after = 0, None
        while True:
            page = list_page(limit=TICKETS_AT_ONCE_MAX, after=after, without=self._away.names)
            done = sum(unsent.log not in self._away.names and send(unsent) for unsent in page)
            sent += done
            if done == len(page):
                return sent
            after = page[-1].job

    def _send(self, unsent: UnsentTicket) -> bool:
        try:
            found = self._logs.get_log_id(unsent.log)
            if found != unsent.log_id:
                raise ConflictError(
                    f"BLOCKED: {unsent.ticket.job_name} publishes through the log {unsent.log_id}, and the log of the"
                    f" executor {unsent.executor} is {found}",
                    hint="Give the executor its log back, or ask for :replan, which publishes beside the old data.",
                )
            if not self._executions.begin_send(unsent.job):
                return False
            executor = WiredJobs(unsent.executor, unsent.log, self._logs, self._calls)
            sent = SentTicket(
                ticket_id=unsent.ticket_id,
                verb=TicketVerb.UPDATE if unsent.is_update else TicketVerb.ADD,
                executor=unsent.executor,
                ticket=unsent.ticket,
                selection=unsent.selection,
                log_id=unsent.log_id,
            )
            sending = executor.update_job(sent) if unsent.is_update else executor.add_job(sent)
            self._calls.wait_for(unsent.log, sending)
            self._executions.mark_sent(unsent.job)
        except ConflictError as error:
            self._executions.fail(unsent.job, str(error))
            return False
        except GobblinError as error:
            self._note_waiting(unsent, error)
            return False
        return True

    def _send_cancel(self, unsent: UnsentCancel) -> bool:
        try:
            executor = WiredJobs(unsent.executor, unsent.log, self._logs, self._calls)
            sent = SentTicket(
                ticket_id=unsent.ticket_id,
                verb=TicketVerb.CANCEL if unsent.deletes is None else TicketVerb.DELETE,
                executor=unsent.executor,
                ticket=unsent.deletes,
                cancels=unsent.cancels if unsent.deletes is None else None,
                log_id=unsent.log_id,
            )
            # While an attempt lives, the next look asks again.
            if self._calls.wait_for(unsent.log, executor.delete_job(sent)) is not None:
                return False
            self._executions.mark_cancel_sent(unsent.job, unsent.ticket_id)
        except GobblinError as error:
            self._note_waiting(unsent, error)
            return False
        return True

    def _note_waiting(self, unsent: UnsentTicket | UnsentCancel, error: GobblinError) -> None:
        is_away = isinstance(error, (RetryableError, OutcomeUnknownError, RejectedError))
        if is_away:
            self._away.add(unsent.log)
        waiting = unsent.log if is_away else str(unsent.ticket_id)
        self._telling.add(waiting)
        if waiting not in self._told:
            level = logging.INFO if isinstance(error, RetryableError) and error.passes else logging.WARNING
            _log.log(level, "a ticket for the executor %s waits: %s", unsent.executor, error)
