"""Watches what was sent: moves jobs away from executors that are lost, tells what nobody takes, ends what is late.

A move is decided in the service's database, then asked of the executor's log, which ends a ticket only while nobody
works on it. A claim that has expired counts as nobody's: who made it is refused from then on. When the end is read, the
job gets its next ticket. While a claim lives, its owner is at work, whatever its heartbeats say. Of workers, the leases
of lanes say so, and the claim of one whose executor is lost is taken away.
"""

import logging
from typing import Final

from gobblin_assets.errors import GobblinError
from gobblin_assets.service.away_logs import AwayLogs
from gobblin_assets.service.execution_store import ExecutionStore, SentJob
from gobblin_assets.service.executor_health import HealthState
from gobblin_assets.service.placement import JobPlacement, describe_lost, describe_wire
from gobblin_assets.service.ticket_logs import TicketLogs
from gobblin_assets.service.topology import is_way_of_log

UNTAKEN_AFTER_S: Final = 300.0
"""A ticket that an executor has had for so long without a claim is told, once."""

LATE_AT_ONCE_MAX: Final = 200

_log = logging.getLogger(__name__)


class SentJobWatch:
    """One look of any number of nodes: each does what is left to do."""

    def __init__(
        self,
        executions: ExecutionStore,
        logs: TicketLogs,
        placement: JobPlacement,
        *,
        untaken_after_s: float = UNTAKEN_AFTER_S,
    ) -> None:
        self._executions = executions
        self._logs = logs
        self._placement = placement
        self._untaken_after_s = untaken_after_s
        self._away = AwayLogs(logs)
        self._told: frozenset[str] = frozenset()

    def look(self) -> int:
        """Returns how many tickets were withdrawn."""
        self._executions.end_late(limit=LATE_AT_ONCE_MAX)
        self._tell_untaken()
        telling = set(self._away.names)
        self._away.ask()
        lost = self._executions.list_sent(well=self._placement.list_well())
        moved = sum(self._move(sent, telling) for sent in lost)
        self._told = frozenset(telling)
        return moved

    def _move(self, sent: SentJob, telling: set[str]) -> bool:
        other = self._placement.find_other(sent.executor, sent.needs)
        if other is None:
            said = describe_lost(self._placement.find_health(sent.executor))
            self._executions.note(sent.job, sent.ticket_id, said)
            self._tell(sent.executor, said, telling)
            return False
        if not sent.is_moving and not self._executions.begin_move(sent.job, sent.ticket_id):
            return False
        # One that drains ends its workers behind a cut.
        is_lost = self._placement.find_health(sent.executor).state is HealthState.UNHEALTHY
        if is_lost and not is_way_of_log(sent.log):
            self._executions.note(sent.job, sent.ticket_id, describe_wire(sent.executor, other.name))
        if sent.log in self._away.names:
            return False
        try:
            store = self._logs.get_store(sent.log)
            return store.end_unclaimed(sent.ticket_id, f"withdrawn for {other.name}", is_lost=is_lost)
        except GobblinError as error:
            # Its other jobs don't wait for it as well.
            self._away.add(sent.log)
            self._tell(sent.log, f"tickets of the executor {sent.executor} can't be withdrawn: {error}", telling)
            return False

    def _tell(self, about: str, said: str, telling: set[str]) -> None:
        if about not in self._told | telling:
            _log.warning("%s", said)
        telling.add(about)

    def _tell_untaken(self) -> None:
        for sent in self._executions.list_untaken(sent_before_s=self._untaken_after_s):
            if self._placement.find_health(sent.executor).state is HealthState.HEALTHY:
                said = f"the executor {sent.executor} is heard, and has not begun the job {self._untaken_after_s:g} s"
                said = f"{said} after its ticket was sent"
                if self._executions.note(sent.job, sent.ticket_id, said):
                    _log.warning("job %d of the execution %d: %s", sent.job.number, sent.job.execution_id, said)
