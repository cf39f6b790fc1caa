"""Sends tickets to the logs of executors.

The ids of tickets are decided when the execution is made. A ticket is sent when all jobs before it are COMPLETE, and
then the job is marked ORCHESTRATED. Whoever dies between sends it again: it is the same ticket, and there is one run of
it. So any number of orchestrators may work on the same executions at once.
"""

import logging
from typing import Final

from gobblin_assets.errors import ConflictError, GobblinError, RetryableError
from gobblin_assets.model.job_ticket import SentTicket, TicketVerb
from gobblin_assets.service.execution_store import ExecutionStore, UnsentCancel, UnsentTicket
from gobblin_assets.service.ticket_logs import TicketLogs

TICKETS_AT_ONCE_MAX: Final = 200
"""Of one look; the next look takes the rest."""

_log = logging.getLogger(__name__)


class Orchestrator:
    """The sender of what launches decided."""

    def __init__(self, executions: ExecutionStore, logs: TicketLogs) -> None:
        self._executions = executions
        self._logs = logs

    def look(self) -> int:
        """Send what can be sent now; returns how many tickets. A log that is away holds up its own tickets only."""
        sent = sum(self._send(each) for each in self._executions.list_unsent(limit=TICKETS_AT_ONCE_MAX))
        cancels = self._executions.list_unsent_cancels(limit=TICKETS_AT_ONCE_MAX)
        return sent + sum(self._send_cancel(each) for each in cancels)

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
            self._logs.get_store(unsent.log).send(
                SentTicket(
                    ticket_id=unsent.ticket_id,
                    verb=TicketVerb.UPDATE if unsent.is_update else TicketVerb.ADD,
                    executor=unsent.executor,
                    ticket=unsent.ticket,
                    selection=unsent.selection,
                    log_id=unsent.log_id,
                )
            )
            self._executions.mark_sent(unsent.job)
        except ConflictError as error:
            self._executions.fail(unsent.job, str(error))
            return False
        except GobblinError as error:
            _note_waiting(unsent.executor, error)
            return False
        return True

    def _send_cancel(self, unsent: UnsentCancel) -> bool:
        try:
            self._logs.get_store(unsent.log).send(
                SentTicket(
                    ticket_id=unsent.ticket_id,
                    verb=TicketVerb.CANCEL if unsent.deletes is None else TicketVerb.DELETE,
                    executor=unsent.executor,
                    ticket=unsent.deletes,
                    cancels=unsent.cancels if unsent.deletes is None else None,
                    log_id=unsent.log_id,
                )
            )
            self._executions.mark_cancel_sent(unsent.job, unsent.ticket_id)
        except GobblinError as error:
            _note_waiting(unsent.executor, error)
            return False
        return True


def _note_waiting(executor: str, error: GobblinError) -> None:
    level = logging.INFO if isinstance(error, RetryableError) and error.passes else logging.WARNING
    _log.log(level, "a ticket for the executor %s waits: %s", executor, error)
