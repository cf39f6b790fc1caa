"""Sinks of tickets for Dagster: one sensor tells of all of them, of some at each tick.

Those come first of which it has not told for longest, so that a source that answers slowly delays the others, and
hides none.
"""

import datetime as dt
import json
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, cast

import dagster as dg
from pydantic import TypeAdapter, ValidationError

from gobblin_assets.dagster.environment import layout_of_found
from gobblin_assets.dagster.layout import JobLayout
from gobblin_assets.dagster.sensor_ticks import in_one_line
from gobblin_assets.dagster.sink_sight import look_at_sink
from gobblin_assets.dagster.sink_telling import tell_of_sink
from gobblin_assets.errors import GobblinError
from gobblin_assets.jobs.sink.running import open_log_connection, read_sink_datasets
from gobblin_assets.model.job_ticket import JobTicket, TicketId
from gobblin_assets.run.stores import Stores
from gobblin_assets.spec.job_parsing import parse_job
from gobblin_assets.spec.job_spec import JobSpec

TELLING_S_MAX: Final = 20.0
"""Of one tick: a source that answers slowly keeps no other sink, and no worker, waiting for long."""

TOLD_AFTER_S: Final = 3_600.0
"""So long a sink is told of after its last ticket has ended: what its workers published last is told as well."""


@dataclass(slots=True)
class ToldSink:
    """A sink that is told of. ``ticket``: its last one; ``checks``: the cursor of its checks.

    ``open_at_s``: when a ticket was last seen to be open, in Unix time.
    """

    ticket: TicketId
    open_at_s: float
    checks: str | None = None


_SINKS: Final = TypeAdapter(dict[str, ToldSink])


def read_sinks(cursor: str | None) -> dict[str, ToldSink]:
    """By job."""
    try:
        return _SINKS.validate_json(cursor) if cursor else {}
    except ValidationError:
        # Somebody typed it into the UI, or another release wrote it: what is lost of it is told again.
        return {}


def write_sinks(sinks: Mapping[str, ToldSink]) -> str:
    """The cursor that ``read_sinks`` reads."""
    return json.dumps(_SINKS.dump_python(dict(sinks), mode="json"), sort_keys=True)


def update_sinks(sinks: Mapping[str, ToldSink], tickets: Mapping[str, TicketId], now_s: float) -> dict[str, ToldSink]:
    """The sinks to tell of from now on. ``tickets``: by job, the last one that is open."""
    kept = {job: sink for job, sink in sinks.items() if now_s - sink.open_at_s < TOLD_AFTER_S}
    told = {job: ToldSink(ticket, now_s, kept[job].checks if job in kept else None) for job, ticket in tickets.items()}
    return {**kept, **told}


@dataclass(slots=True)
class SinkTelling:
    """Tells of the sinks of tickets. Layouts are kept from one tick to the next, as a ticket never changes."""

    _layouts: dict[TicketId, JobLayout] = field(default_factory=dict)
    _told_at_s: dict[str, float] = field(default_factory=dict)

    def tell(
        self, sinks: Mapping[str, ToldSink], stores: Stores, instance: dg.DagsterInstance, now: dt.datetime
    ) -> list[str]:
        """Tell of as many sinks as the time of a tick is enough for, and change their cursors. Returns what failed."""
        until_s = time.monotonic() + TELLING_S_MAX
        tickets = stores.tickets.load_jobs([sink.ticket for sink in sinks.values() if sink.ticket not in self._layouts])
        self._forget({sink.ticket for sink in sinks.values()}, sinks)
        failures = []
        for job, sink in sorted(sinks.items(), key=lambda each: self._told_at_s.get(each[0], 0.0)):
            if time.monotonic() >= until_s:
                break
            self._told_at_s[job] = time.monotonic()
            try:
                if (layout := self._find_layout(sink.ticket, tickets)) is not None:
                    self._tell_one(layout, sink, stores, instance, now)
            except GobblinError as error:
                failures.append(f"{job}: {in_one_line(error)}")
            except Exception as error:  # noqa: BLE001  of a source's driver, or a job's own code: the others go on
                failures.append(f"{job}: {type(error).__name__}")
        return failures

    def _tell_one(
        self, layout: JobLayout, sink: ToldSink, stores: Stores, instance: dg.DagsterInstance, now: dt.datetime
    ) -> None:
        connection = open_log_connection(cast("JobSpec", layout.job)) if layout.is_one_stream else None
        sight = look_at_sink(layout, stores, connection)
        _count, sink.checks = tell_of_sink(layout, stores, instance, sight, sink.checks, now)
        if sight.unanswered is not None:
            raise sight.unanswered

    def _find_layout(self, ticket_id: TicketId, tickets: Mapping[TicketId, JobTicket]) -> JobLayout | None:
        if ticket_id not in self._layouts and ticket_id in tickets:
            job = parse_job(tickets[ticket_id].job)
            self._layouts[ticket_id] = layout_of_found(job, read_sink_datasets(job))
        return self._layouts.get(ticket_id)

    def _forget(self, tickets: Collection[TicketId], jobs: Collection[str]) -> None:
        self._layouts = {ticket_id: layout for ticket_id, layout in self._layouts.items() if ticket_id in tickets}
        self._told_at_s = {job: at_s for job, at_s in self._told_at_s.items() if job in jobs}


def describe_failures(failures: Sequence[str]) -> str:
    """What a tick says of sinks that it could not tell of; nothing if there are none."""
    return f" Not told of: {'; '.join(failures)}." if failures else ""
