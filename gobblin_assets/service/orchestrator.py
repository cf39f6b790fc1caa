"""Sends tickets to the logs of executors.

The ids of tickets are decided when the execution is made. A ticket is sent when all jobs before it are COMPLETE, and
then the job is marked ORCHESTRATED. Whoever dies between sends it again: it is the same ticket, and there is one run of
it. So any number of orchestrators may work on the same executions at once.

A ticket that nobody works on is ended by the sender of its CANCEL, so that an execution ends without its executor.

No more tickets wait at an executor than it begins soon: the others wait here, where little has to be withdrawn when it
dies. One that was not sent is sent to another executor, if its own is lost.
"""

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, Protocol, TypeVar

from gobblin_assets.errors import ConflictError, GobblinError, OutcomeUnknownError, RejectedError, RetryableError
from gobblin_assets.model.job_ticket import SentTicket, TicketVerb
from gobblin_assets.service.away_logs import AwayLogs
from gobblin_assets.service.execution_store import (
    ExecutionStore,
    JobOfExecution,
    SendTurn,
    UnsentCancel,
    UnsentTicket,
)
from gobblin_assets.service.placement import LOST, JobPlacement, describe_lost
from gobblin_assets.service.spec_executors.wired_executor import WiredJobs
from gobblin_assets.service.ticket_logs import TicketLogs
from gobblin_assets.service.way_calls import WayCalls

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

    def __init__(self, executions: ExecutionStore, logs: TicketLogs, placement: JobPlacement) -> None:
        self._executions = executions
        self._logs = logs
        self._placement = placement
        # Executors for which nothing more is sent by this look.
        self._full: set[str] = set()
        self._calls = WayCalls()
        self._away = AwayLogs(logs)
        # What waits by the look before and by this one: a log, or the id of a ticket. It is told once.
        self._told: frozenset[str] = frozenset()
        self._telling: set[str] = set()

    def look(self) -> int:
        """Send what can be sent now; returns how many tickets. A log that is away holds up its own tickets only."""
        self._told, self._telling = frozenset(self._telling), set(self._away.names)
        self._away.ask()
        self._full = set()
        sent = self._send_pages(partial(self._executions.list_unsent, full=self._full), self._send)
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

    def _place(self, unsent: UnsentTicket) -> UnsentTicket | None:
        """The ticket for an executor that takes it; None: there is none now."""
        health = self._placement.find_health(unsent.executor)
        if unsent.is_begun or health.state not in LOST:
            return unsent
        other = self._placement.find_other(unsent.executor, unsent.needs)
        if other is None:
            said = describe_lost(health)
            self._executions.note(unsent.job, unsent.ticket_id, said)
            self._tell(unsent.executor, logging.WARNING, "%s", said)
            return None
        if not self._executions.assign(unsent.job, unsent.ticket_id, other.name, other.way):
            return None
        return replace(unsent, executor=other.name, log=other.way)

    def _may_send(self, unsent: UnsentTicket) -> bool:
        if unsent.executor in self._full and not unsent.is_begun:
            return False
        health = self._placement.find_health(unsent.executor)
        if not health.is_read and not unsent.is_begun:
            self._full.add(unsent.executor)
            return False
        turn = self._executions.begin_send(
            unsent.job,
            unsent.ticket_id,
            executor=unsent.executor,
            log=unsent.log,
            waiting_max=health.inbox_max,
        )
        if turn is SendTurn.FULL:
            self._full.add(unsent.executor)
            self._executions.note_full(unsent.executor, f"it waits for a slot of {unsent.executor}")
        return turn is SendTurn.NOW

    def _send(self, planned: UnsentTicket) -> bool:
        unsent = planned
        try:
            placed = self._place(planned)
            if placed is None:
                return False
            unsent = placed
            found = self._logs.get_log_id(unsent.log)
            if found != unsent.needs.log_id:
                raise ConflictError(
                    f"BLOCKED: {unsent.ticket.job_name} publishes through the log {unsent.needs.log_id}, and the log of"
                    f" the executor {unsent.executor} is {found}",
                    hint="Give the executor its log back, or ask for :replan, which publishes beside the old data.",
                )
            if not self._may_send(unsent):
                return False
            executor = WiredJobs(unsent.executor, unsent.log, self._logs, self._calls)
            sent = SentTicket(
                ticket_id=unsent.ticket_id,
                verb=TicketVerb.UPDATE if unsent.is_update else TicketVerb.ADD,
                executor=unsent.executor,
                ticket=unsent.ticket,
                selection=unsent.selection,
                log_id=unsent.needs.log_id,
                earlier=unsent.earlier,
                expires_after_s=unsent.expires_after_s,
            )
            sending = executor.update_job(sent) if unsent.is_update else executor.add_job(sent)
            self._calls.wait_for(unsent.log, sending)
            self._executions.mark_sent(unsent.job, unsent.ticket_id)
        except ConflictError as error:
            self._executions.fail(unsent.job, unsent.ticket_id, str(error))
            return False
        except Exception as error:  # noqa: BLE001  what a driver refuses of one log is not the fault of others
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
        except Exception as error:  # noqa: BLE001  the same
            self._note_waiting(unsent, error)
            return False
        return True

    def _note_waiting(self, unsent: UnsentTicket | UnsentCancel, error: Exception) -> None:
        # What is wrong with the ticket itself is a ConflictError.
        is_away = isinstance(error, (RetryableError, OutcomeUnknownError, RejectedError))
        is_away = is_away or not isinstance(error, GobblinError)
        if is_away:
            self._away.add(unsent.log)
        level = logging.INFO if isinstance(error, RetryableError) and error.passes else logging.WARNING
        about = unsent.log if is_away else str(unsent.ticket_id)
        self._tell(about, level, "a ticket for the executor %s waits: %s", unsent.executor, error)

    def _tell(self, about: str, level: int, said: str, *facts: object) -> None:
        if about not in self._told | self._telling:
            _log.log(level, said, *facts)
        self._telling.add(about)
