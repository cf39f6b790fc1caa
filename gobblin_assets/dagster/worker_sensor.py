"""The sensor of all tickets of workers of one executor: each has a run that works on it, one after another.

A run works for as long as the job says, and leaves its ticket to the next one. At each tick the sensor ends the
attempts of runs that Dagster knows to be dead, asks for the runs that are missing, and tells of the sinks. Runs that
died are spaced, as those of a job's own sink. What the log says decides; a run that is asked for twice finds the ticket
claimed.
"""

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import dagster as dg

from gobblin_assets.dagster.dead_runs import Life, find_life
from gobblin_assets.dagster.ports import STORES_KEY
from gobblin_assets.dagster.run_config import SINK_TAG
from gobblin_assets.dagster.sensor_ticks import EACH_LOOK_S, TRIES_READ_MAX, UNFINISHED, decide_try, in_one_line
from gobblin_assets.dagster.sink_sensor import list_dead_rounds
from gobblin_assets.dagster.ticket_runs import find_owner_run
from gobblin_assets.dagster.ticket_sensors import TICKET_TAG
from gobblin_assets.dagster.ticket_sinks import SinkTelling, describe_failures, read_sinks, update_sinks, write_sinks
from gobblin_assets.dagster.worker_runs import build_worker_config
from gobblin_assets.dagster.worker_slots import find_workers_max
from gobblin_assets.errors import GobblinError
from gobblin_assets.model.job_ticket import TicketVerb
from gobblin_assets.model.wording import count_of
from gobblin_assets.run.stores import Stores
from gobblin_assets.state.tickets import AttemptEnd
from gobblin_assets.state.worker_tickets import WorkerTicket
from gobblin_assets.tickets.inbox import end_dead_attempt

WORKERS_SENSOR: Final = "gobblin_workers_sensor"

_RUNS_READ_MAX: Final = 1_000


def build_workers_sensor(executor: str, job: dg.JobDefinition) -> dg.SensorDefinition:
    """The sensor of the executor of this name; it runs unless a person stops it. ``job``: ``build_workers_job``'s."""
    telling = SinkTelling()

    @dg.sensor(
        name=WORKERS_SENSOR,
        job=job,
        minimum_interval_seconds=EACH_LOOK_S,
        default_status=dg.DefaultSensorStatus.RUNNING,
        required_resource_keys={STORES_KEY},
        description=f"Keeps a run at work on each ticket of a worker that {executor} has, and reports their sinks.",
    )
    def look(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        stores: Stores = getattr(context.resources, STORES_KEY)
        now = dt.datetime.now(dt.UTC)
        cursor = context.cursor
        try:
            keeping = WorkerKeeping(context.instance, stores, now)
            keeping.settle(stores.worker_tickets.list_open(executor))
            # Some of them may have ended by that.
            tickets = stores.worker_tickets.list_open(executor)
            requests = [] if stores.drains.is_draining() else keeping.ask(tickets, job.name)
            said = keeping.describe(tickets)
            working = {each.job: each.ticket_id for each in tickets if each.verb is not TicketVerb.DELETE}
            sinks = update_sinks(read_sinks(cursor), working, now.timestamp())
            # Workers do not wait for reports.
            said += describe_failures(telling.tell(sinks, stores, context.instance, now))
            cursor = write_sinks(sinks)
        except GobblinError as error:
            return dg.SensorResult(skip_reason=in_one_line(error), cursor=cursor)
        if requests:
            return dg.SensorResult(run_requests=requests, cursor=cursor)
        return dg.SensorResult(skip_reason=said, cursor=cursor)

    return look


@dataclass(slots=True)
class WorkerKeeping:
    """One tick: what the log says of tickets, and Dagster of their runs.

    ``waiting``: tickets that have no run, since all slots are taken; ``resting``: since runs of theirs have died.
    """

    instance: dg.DagsterInstance
    stores: Stores
    now: dt.datetime
    waiting: int = 0
    resting: int = 0

    def settle(self, tickets: Sequence[WorkerTicket]) -> None:
        """End attempts whose runs are over, and tickets that are replaced."""
        for ticket in tickets:
            if not ticket.has_ended:
                self._end_dead(ticket)
            if not ticket.is_live and ticket.verb is not TicketVerb.ADD:
                # The older ones that somebody works on see the newer one themselves, and end.
                self.stores.tickets.supersede(ticket.ticket_id)

    def ask(self, tickets: Sequence[WorkerTicket], job_name: str) -> list[dg.RunRequest]:
        """Requests of the runs that are missing, as many as have a slot."""
        # Whoever looks after the inbox gives up what is used up.
        idle = [each for each in tickets if not each.is_live and not each.is_used_up]
        if not idle:
            return []
        unfinished = self.instance.get_runs(dg.RunsFilter(statuses=UNFINISHED), limit=_RUNS_READ_MAX)
        slots = find_workers_max(self.instance)
        room = len(tickets) if slots is None else slots - sum(SINK_TAG in run.tags for run in unfinished)
        requests = []
        for ticket in idle:
            runs = [run for run in unfinished if run.tags.get(TICKET_TAG) == str(ticket.ticket_id)]
            if any(run.run_id != find_owner_run(ticket.owner or "") for run in runs):
                # Of the one that made the last attempt, nothing comes any more: the claim has run out.
                continue
            if self.stores.worker_tickets.is_replaced(ticket.ticket_id):
                continue
            needs_slot = ticket.verb is not TicketVerb.DELETE
            if needs_slot and room <= 0:
                self.waiting += 1
            elif (request := self._build_request(ticket, job_name)) is None:
                self.resting += 1
            else:
                room -= needs_slot
                requests.append(request)
        return requests

    def describe(self, tickets: Sequence[WorkerTicket]) -> str:
        """The tick, as sentences."""
        at_work = sum(each.is_live for each in tickets)
        said = f"{count_of(len(tickets), 'ticket', 'tickets')} of workers, {at_work} worked on."
        if self.waiting:
            slots = find_workers_max(self.instance)
            said += f" {self.waiting} wait: {slots} may run at once, by the limit of {SINK_TAG} in dagster.yaml."
        return f"{said} {self.resting} rest, since their runs died." if self.resting else said

    def _build_request(self, ticket: WorkerTicket, job_name: str) -> dg.RunRequest | None:
        """None: runs that died last are to be waited for."""
        mine = {TICKET_TAG: str(ticket.ticket_id)}
        records = self.instance.get_run_records(dg.RunsFilter(tags=mine), limit=TRIES_READ_MAX)
        if decide_try(list_dead_rounds(records), self.now) is None:
            return None
        before = records[0].dagster_run.run_id if records else "none"
        return dg.RunRequest(
            # Another tick that sees the same asks for the same run.
            run_key=f"{ticket.ticket_id}:{ticket.last_attempt + 1}:{before}",
            job_name=job_name,
            run_config=build_worker_config(ticket.ticket_id),
            tags=mine if ticket.verb is TicketVerb.DELETE else {**mine, SINK_TAG: ticket.job},
        )

    def _end_dead(self, ticket: WorkerTicket) -> None:
        """End an attempt whose run is over, and its leases: the next one does not wait until they run out."""
        run = self.instance.get_run_by_id(find_owner_run(ticket.owner or "") or "")
        if run is None or (not run.is_finished and (ticket.is_live or find_life(self.instance, run) is not Life.DEAD)):
            return
        if not run.is_finished:
            self.instance.report_run_failed(run, "Its process is gone, and its claim of the ticket has run out.")
        end_dead_attempt(ticket.last_claim, self.stores, AttemptEnd.DIED, f"its Dagster run {run.run_id} died")
