"""Reads the reports of sent tickets, and folds them into the statuses of jobs and flows."""

import logging
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from gobblin_assets import failpoints
from gobblin_assets.errors import GobblinError, OutcomeUnknownError, RetryableError
from gobblin_assets.failpoints import Failpoint
from gobblin_assets.model.job_ticket import TicketId
from gobblin_assets.service.away_logs import AwayLogs
from gobblin_assets.service.execution_store import ExecutionStore, WatchedJob
from gobblin_assets.service.job_progress import describe_deletion, fold_reports
from gobblin_assets.service.ticket_logs import TicketLogs
from gobblin_assets.state.tickets import TicketReport

REPORTS_AT_ONCE_MAX: Final = 500
TICKETS_AT_ONCE_MAX: Final = 500

_log = logging.getLogger(__name__)


class Monitor:
    """The reader of what executors report. Any number may read at once: each report counts once."""

    def __init__(self, executions: ExecutionStore, logs: TicketLogs) -> None:
        self._executions = executions
        self._logs = logs
        self._away = AwayLogs(logs)
        self._told: frozenset[str] = frozenset()
        # Tickets whose reports this process can't take.
        self._faulty: set[TicketId] = set()

    def look(self) -> int:
        """Read what is new; returns how many jobs went on. A log that is away holds up its own jobs only."""
        self._away.ask()
        away = self._away.names
        by_log = defaultdict(list)
        for watched in self._executions.list_watched():
            if watched.log not in away:
                by_log[watched.log].append(watched)
        moved = 0
        for log, jobs in by_log.items():
            try:
                for first in range(0, len(jobs), TICKETS_AT_ONCE_MAX):
                    moved += self._read(log, jobs[first : first + TICKETS_AT_ONCE_MAX])
            except Exception as error:  # noqa: BLE001  what a driver says of one log is not the fault of others
                if log not in self._told:
                    _log.warning("reports of the log %r wait: %s", log, error)
                self._away.add(log)
        self._read_deletions()
        # Told again once it has answered.
        self._told = self._away.names
        return moved

    def _read_deletions(self) -> None:
        away = self._away.names
        by_log = defaultdict(list)
        for sent in self._executions.list_deletions():
            if sent.log not in away:
                by_log[sent.log].append(sent)
        for log, deletions in by_log.items():
            try:
                ends = self._logs.get_store(log).find_ends([sent.ticket_id for sent in deletions])
            except Exception:  # noqa: BLE001  the same, and its reports tell it
                self._away.add(log)
                continue
            for sent in deletions:
                if (end := ends.get(sent.ticket_id)) is not None:
                    self._executions.end_deletion(sent.job, describe_deletion(end))

    def _read(self, log: str, jobs: Sequence[WatchedJob]) -> int:
        by_ticket = {job.ticket_id: job for job in jobs}
        moved = 0
        for ticket_id, reports in self._list_reports(log, jobs):
            watched = by_ticket[ticket_id]
            try:
                now = fold_reports(watched.progress, reports)
                failpoints.reach(Failpoint.REPORTS_READ)
                moved += self._executions.store_progress(watched, now)
            except (RetryableError, OutcomeUnknownError):
                raise
            except Exception as error:  # noqa: BLE001  one job's fault is not that of all others
                self._tell_fault(watched, error)
        return moved

    def _tell_fault(self, watched: WatchedJob, error: Exception) -> None:
        if watched.ticket_id not in self._faulty:
            self._faulty.add(watched.ticket_id)
            said = "reports of job %d of the execution %d are not taken: %s"
            job = watched.job
            _log.warning(said, job.number, job.execution_id, error, exc_info=not isinstance(error, GobblinError))

    def _list_reports(self, log: str, jobs: Sequence[WatchedJob]) -> Iterator[tuple[TicketId, list[TicketReport]]]:
        """All new reports, by ticket."""
        store = self._logs.get_store(log)
        after = {job.ticket_id: job.progress.read for job in jobs}
        found: dict[TicketId, list[TicketReport]] = {}
        while True:
            reports = store.list_reports(list(after), after, limit=REPORTS_AT_ONCE_MAX)
            for report in reports:
                found.setdefault(report.ticket_id, []).append(report)
                after[report.ticket_id] = report.attempt, report.number
            if len(reports) < REPORTS_AT_ONCE_MAX:
                return iter(found.items())
