"""The jobs that tickets have brought into a log, as they lie in Dagster: each as its last ticket says.

A layout is made when somebody asks for it, and again once the job has another last ticket. A job that finds its
datasets by itself looks for them again, at most once a minute: its runs publish datasets that are newer than its
ticket.
"""

import logging
import math
import os
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from gobblin_assets.dagster.environment import find_database
from gobblin_assets.dagster.layout import JobLayout, build_layout
from gobblin_assets.dagster.naming import GobblinTranslator
from gobblin_assets.errors import GobblinError, RetryableError
from gobblin_assets.jobs.programs import program_of
from gobblin_assets.model.job_ticket import JobTicket, TicketId
from gobblin_assets.model.urn import JobName
from gobblin_assets.sources.environment import require_address
from gobblin_assets.spec.job_options import JobOptions
from gobblin_assets.spec.job_parsing import parse_any_job
from gobblin_assets.state.tickets import LastTicket, TicketStore

SEARCHED_EVERY_S: Final = 60.0

_LOADED_MAX: Final = 1_000
_LOG: Final = logging.getLogger("gobblin_assets")


@dataclass(frozen=True, slots=True)
class TicketLayout:
    """The layout of a ticket's job. ``layout`` None: ``refused`` says why there is none."""

    ticket_id: TicketId
    ticket: JobTicket | None
    layout: JobLayout | None
    refused: str
    made_at_s: float


@dataclass(slots=True)
class TicketLayouts:
    """The layouts of one process. ``searches``: whether jobs that find their datasets may look for them."""

    searches: bool = True
    clock_s: Callable[[], float] = time.monotonic
    _last: Mapping[JobName, LastTicket | None] = field(default_factory=dict)
    _made: dict[JobName, TicketLayout] = field(default_factory=dict)
    _looked_at_s: float = -math.inf

    def look(self, tickets: TicketStore, *, every_s: float = 0.0) -> Mapping[JobName, LastTicket | None]:
        """The jobs that there are now, each with its last ticket; None: all of its tickets are forgotten.

        ``every_s``: so old the answer may be.
        """
        if self.clock_s() >= self._looked_at_s + every_s:
            self._last, self._looked_at_s = tickets.list_last_tickets(), self.clock_s()
            self._made = {name: made for name, made in self._made.items() if self._last.get(name) is not None}
        return self._last

    def find(
        self, tickets: TicketStore, names: Collection[JobName], *, until_s: float = math.inf
    ) -> Mapping[JobName, TicketLayout]:
        """Those of these jobs, of the last ``look``, that have a ticket.

        ``until_s``: by the clock; so long jobs may look for their datasets.
        """
        last = {name: found.ticket_id for name in names if (found := self._last.get(name)) is not None}
        missing = {name: ticket_id for name, ticket_id in last.items() if not self._is_fresh(name, ticket_id)}
        wanted = list(missing.items())
        for first in range(0, len(wanted), _LOADED_MAX):
            page = wanted[first : first + _LOADED_MAX]
            loaded = tickets.load_jobs([ticket_id for _name, ticket_id in page])
            for name, ticket_id in page:
                self._made[name] = self._make(name, ticket_id, loaded.get(ticket_id), until_s)
        return {name: self._made[name] for name in last}

    def _is_fresh(self, name: JobName, ticket_id: TicketId) -> bool:
        made = self._made.get(name)
        if made is None or made.ticket_id != ticket_id:
            return False
        finds = self.searches and made.layout is not None and made.layout.program.may_lack_datasets(made.layout.job)
        return not finds or self.clock_s() - made.made_at_s < SEARCHED_EVERY_S

    def _make(self, name: JobName, ticket_id: TicketId, ticket: JobTicket | None, until_s: float) -> TicketLayout:
        layout, refused = None, "its last ticket is of a later release"
        if ticket is not None:
            try:
                layout, refused = self._build(parse_any_job(ticket.job), until_s), ""
            except GobblinError as error:
                refused = str(error)
            except Exception as error:  # noqa: BLE001  a package's own kind of job; one job's fault is its own
                _LOG.exception("the job %s of a ticket has no layout", name)
                refused = type(error).__name__
        return TicketLayout(ticket_id, ticket, layout, refused, self.clock_s())

    def _build(self, job: JobOptions, until_s: float) -> JobLayout:
        program = program_of(job)
        if program.may_lack_datasets(job) and self.clock_s() > until_s:
            raise RetryableError("there was no time to look for its datasets")
        datasets = program.declare_datasets(job, program.find_discovered(job), searches=self.searches)
        return build_layout(job, datasets, GobblinTranslator(), database=find_database(job, os.environ))


def find_lack(layout: JobLayout, environment: Mapping[str, str]) -> str | None:
    """What the environment lacks to work on the job: the error of its connection. None: it lacks nothing."""
    try:
        if layout.source is not None:
            require_address(layout.source, environment)
    except GobblinError as error:
        return str(error)
    return None
