"""Adopts what executors begin by themselves, such as a materialization in Dagster: it is an execution of its flow.

Such a run makes its own ticket, which has a number in its log. A look reads the tickets behind the last number that it
knows of the log; any number of nodes may look at once, since a ticket makes one execution. From then on the monitor
reads its reports as those of any ticket.

An adopted execution runs already. So it may be beside another one of its flow, and keeps none from being started: what
works on the same datasets waits for their leases. What it failed of is begun again where it was begun.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from gobblin_assets import failpoints
from gobblin_assets.errors import GobblinError, RejectedError
from gobblin_assets.failpoints import Failpoint
from gobblin_assets.model.job_ticket import LogId
from gobblin_assets.service.away_logs import AwayLogs
from gobblin_assets.service.ticket_logs import TicketLogs
from gobblin_assets.service.topology import Topology
from gobblin_assets.state.overview import OwnTicket

OWN_AT_ONCE_MAX: Final = 100

_log = logging.getLogger(__name__)


class AdoptionStore(Protocol):
    """The store of adopted executions. Each method is one transaction."""

    def find_adopted(self, log_id: LogId) -> int:
        """Up to which number the log's own tickets were adopted; 0: none was looked at."""
        ...

    def adopt(self, log: str, log_id: LogId, ticket: OwnTicket) -> bool:
        """Make an execution of the ticket.

        False: it has one, or its job is of no flow of the service that publishes through this log.
        """
        ...

    def mark_adopted(self, log_id: LogId, number: int) -> None:
        """The log's own tickets up to this one were adopted."""
        ...


class RunAdoption:
    """The reader of own tickets, in the logs of the topology's executors that the service has a connection to."""

    def __init__(self, adoptions: AdoptionStore, logs: TicketLogs, topology: Callable[[], Topology]) -> None:
        self._adoptions = adoptions
        self._logs = logs
        self._topology = topology
        self._away = AwayLogs(logs)
        self._told: frozenset[str] = frozenset()

    def look(self) -> int:
        """Returns how many executions were made. A log that is away is asked again later."""
        self._away.ask()
        away = self._away.names
        telling: set[str] = set()
        made = 0
        for log in sorted({spec.executor.log for spec in self._topology().executors.values()} - away):
            try:
                made += self._adopt_all(log)
            except RejectedError as error:
                # Without a connection, or of a later release.
                telling.add(said := f"runs that executors of the log {log!r} begin are not shown: {error}")
                if said not in self._told:
                    _log.warning("%s", said)
            except GobblinError:
                # Who reads reports tells of it.
                self._away.add(log)
        self._told = frozenset(telling)
        return made

    def _adopt_all(self, log: str) -> int:
        log_id, overview = self._logs.get_log_id(log), self._logs.get_overview(log)
        after, made = self._adoptions.find_adopted(log_id), 0
        while page := overview.list_own_tickets(after, limit=OWN_AT_ONCE_MAX):
            failpoints.reach(Failpoint.OWN_TICKETS_LISTED)
            made += self._adopt_page(log, log_id, page)
            after = page[-1].number
            self._adoptions.mark_adopted(log_id, after)
        return made

    def _adopt_page(self, log: str, log_id: LogId, page: Sequence[OwnTicket]) -> int:
        return sum(self._adoptions.adopt(log, log_id, ticket) for ticket in page if ticket.sent is not None)
