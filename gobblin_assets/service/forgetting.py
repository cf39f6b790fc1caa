"""Forgets the tickets of jobs that ended long ago, in the logs of their executors.

Only the service knows that it has read all reports of a ticket. Statuses of executions stay as they are.
"""

import logging
from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from gobblin_assets.errors import GobblinError
from gobblin_assets.service.execution_store import ExecutionStore, OldJob
from gobblin_assets.service.ticket_logs import TicketLogs

JOBS_AT_ONCE_MAX: Final = 500
KEPT_DAYS_DEFAULT: Final = 30

_DAY_S: Final = 86_400.0

_log = logging.getLogger(__name__)


class Forgetting:
    """Of jobs that ended ``kept_days`` ago. Any number of nodes may forget at once, and any of them may die."""

    def __init__(self, executions: ExecutionStore, logs: TicketLogs, kept_days: float = KEPT_DAYS_DEFAULT) -> None:
        self._executions = executions
        self._logs = logs
        self._kept_s = kept_days * _DAY_S

    def look(self) -> int:
        """Forget all that is old, page by page; returns the count of jobs. A log that is away keeps its own tickets."""
        done, last = 0, None
        while page := self._executions.list_old(ended_before_s=self._kept_s, limit=JOBS_AT_ONCE_MAX, after=last):
            by_log = defaultdict(list)
            for old in page:
                by_log[old.log].append(old)
            done += sum(self._forget(log, jobs) for log, jobs in by_log.items())
            last = page[-1]
        return done

    def _forget(self, log: str, jobs: Sequence[OldJob]) -> int:
        try:
            held = self._logs.get_store(log).forget([each for old in jobs for each in old.ticket_ids])
        except GobblinError as error:
            _log.warning("tickets of the log %r are not forgotten: %s", log, error)
            return 0
        # A ticket that deletes what a source keeps may be open for as long as its executor is gone.
        gone = [old.job for old in jobs if held.isdisjoint(old.ticket_ids)]
        self._executions.mark_forgotten(gone)
        return len(gone)
