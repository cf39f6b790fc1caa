"""JobMonitor: the sensor that asks for runs of the tickets in an executor's inbox, and tidies behind runs that died.

A run asks the log whether it may begin: it claims. So a run may be asked for twice, and a run that Dagster failed
before it claimed anything is asked for again, after a pause. Dagster's memory of run keys knows no failure: a key has a
ticket and its run before.

Small tickets of one flow group share a run, since a run costs seconds before its first row. While a run of the group
waits in Dagster's queue, further tickets gather until they fill another one. A run that works on one of its tickets for
long keeps the others no longer: they are asked for anew, and whoever claims first has them.
"""

import datetime as dt
import hashlib
import json
import os
import socket
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final
from uuid import UUID

import dagster as dg
from dagster._utils.tags import TagConcurrencyLimitsCounter

from gobblin_assets.dagster.dead_runs import report_lost_runs
from gobblin_assets.dagster.ports import STORES_KEY
from gobblin_assets.dagster.sensor_ticks import (
    EACH_LOOK_S,
    TRIES_READ_MAX,
    UNFINISHED,
    decide_try_wait_s,
    find_ended_at,
    read_times,
)
from gobblin_assets.dagster.ticket_runs import TERMINATED, TICKETS_JOB, TICKETS_OP, find_owner_run
from gobblin_assets.dagster.worker_runs import WORKERS_JOB
from gobblin_assets.dagster.worker_slots import find_workers_max
from gobblin_assets.model.executor_heartbeat import ExecutorHeartbeat
from gobblin_assets.model.job_ticket import TicketId, TicketShape, TicketVerb, names_of_job_uri
from gobblin_assets.run.stores import Stores
from gobblin_assets.state.tickets import AttemptEnd, Claim, OpenTicket, WaitingTicket
from gobblin_assets.tickets.heartbeats import describe_executor
from gobblin_assets.tickets.inbox import end_dead_attempt, give_up_ticket

TICKET_TAG: Final = "gobblin/ticket"
EXECUTOR_TAG: Final = "gobblin/executor"
FLOW_GROUP_TAG: Final = "gobblin/flow_group"
FLOW_TAG: Final = "gobblin/flow"
PRIORITY_TAG: Final = "dagster/priority"

PACK_MAX_DEFAULT: Final = 25
PATIENCE_S: Final = 60.0
"""So long after its run was seen to work on one ticket, the others are asked for again."""

AHEAD: Final = 2
"""For each slot of the instance, and of each limit of tags, so many runs are asked for: one waits in the queue."""

_SLOTS_WITHOUT_LIMIT: Final = 10
"""As many as Dagster's queue lets work at once where nobody says how many."""

_DIGEST_DIGITS: Final = 12
_QUEUED: Final = frozenset({dg.DagsterRunStatus.NOT_STARTED, dg.DagsterRunStatus.QUEUED})
_LISTED_MAX: Final = 2_000
_RUNS_READ_MAX: Final = 500
_TERMINATED_READ_MAX: Final = 200


@dataclass(frozen=True, slots=True)
class Pack:
    """Tickets of one run, in the order of their turns. The first one names it. ``is_full``: it takes no others."""

    tickets: tuple[TicketId, ...]
    waiting: WaitingTicket
    attempts: int
    is_full: bool

    @property
    def first(self) -> TicketId:
        return self.tickets[0]

    @property
    def group(self) -> str:
        """The flow group of all of them."""
        return names_of_job_uri(self.waiting.uri)[0]


def build_job_monitor(executor: str, *, pack_max: int) -> dg.SensorDefinition:
    """The sensor over the inbox of the executor of this name, running unless it is stopped."""

    @dg.sensor(
        name="job_monitor",
        job_name=TICKETS_JOB,
        minimum_interval_seconds=EACH_LOOK_S,
        default_status=dg.DefaultSensorStatus.RUNNING,
        required_resource_keys={STORES_KEY},
        description=f"Asks for runs of the tickets that services send to the executor {executor}.",
    )
    def monitor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        stores: Stores = getattr(context.resources, STORES_KEY)
        stores.heartbeats.beat(describe_instance(executor, pack_max, context.instance, stores))
        tick = MonitorTick(executor, pack_max, context.instance, stores, dt.datetime.now(dt.UTC))
        tick.settle()
        requests, cursor = tick.plan(context.cursor)
        for line in tick.said:
            context.log.info(line)
        if not requests:
            return dg.SensorResult(skip_reason=tick.describe_rest(), cursor=cursor)
        return dg.SensorResult(run_requests=requests, cursor=cursor)

    return monitor


@dataclass(slots=True)
class MonitorTick:
    """One look at the inbox. ``said``: what was done, for the tick's log."""

    executor: str
    pack_max: int
    instance: dg.DagsterInstance
    stores: Stores
    now: dt.datetime
    said: list[str] = field(default_factory=list)
    _open_count: int = 0
    _run_count: int = 0
    _held: dict[str, TicketId] = field(default_factory=dict)

    def settle(self) -> None:
        """End what needs no run: attempts of runs that have ended, tickets that are cancelled, and those used up."""
        held = [(each.claim, find_owner_run(each.owner)) for each in self.stores.tickets.list_held(self.executor)]
        # A run that died with its code server is told to Dagster here. One with a claim that lives, works.
        self._held = {run_id: claim.ticket_id for claim, run_id in held if run_id is not None}
        working = set(self._held).intersection
        lost = report_lost_runs(self.instance, [TICKETS_JOB], lambda _key: False, working, self.now)
        self.said += [f"the run {run_id} has ended: its process is gone" for run_id in lost]
        for claim, run_id in held:
            if run_id is not None:
                self._end_if_dead(claim, run_id)
        waiting = self.stores.tickets.list_claimable(self.executor, limit=_LISTED_MAX)
        for ticket in waiting:
            if ticket.verb is TicketVerb.CANCEL:
                self.stores.tickets.settle_cancel(ticket.ticket_id)
            elif ticket.is_used_up:
                give_up_ticket(ticket, self.stores, self.said.append)
        if waiting:
            self._end_terminated({each.ticket_id for each in waiting})

    def plan(self, cursor: str | None) -> tuple[list[dg.RunRequest], str]:
        """The runs to ask for, and the cursor: by run and ticket, since when it is seen at work (Unix time, s)."""
        runs = self.instance.get_runs(
            dg.RunsFilter(job_name=TICKETS_JOB, statuses=UNFINISHED, tags={EXECUTOR_TAG: self.executor}),
            limit=_RUNS_READ_MAX,
        )
        seen = read_times(cursor)
        works = [self._name_work(run) for run in runs if run.status is dg.DagsterRunStatus.STARTED]
        since = {work: seen.get(work, self.now.timestamp()) for work in works}
        kept = {each for run in runs for each in self._list_kept(run, since.get(self._name_work(run)))}
        waiting = [
            each
            for each in self.stores.tickets.list_claimable(self.executor, limit=_LISTED_MAX)
            if each.verb is TicketVerb.ADD and not each.is_used_up
        ]
        self._open_count, self._run_count = len(waiting), len(runs)
        described = self.stores.tickets.describe_waiting([each.ticket_id for each in waiting])
        packs = plan_packs([each for each in waiting if each.ticket_id not in kept], described, self.pack_max)
        return self._ask(packs, runs), json.dumps(since, sort_keys=True)

    def describe_rest(self) -> str:
        """Why the tick asks for nothing."""
        return f"{self._open_count} tickets of {self.executor} wait, and {self._run_count} runs are asked for."

    def _name_work(self, run: dg.DagsterRun) -> str:
        """What a run is seen at: the ticket that it holds, if any."""
        return f"{run.run_id}/{self._held.get(run.run_id, '')}"

    def _list_kept(self, run: dg.DagsterRun, since_s: float | None) -> Sequence[TicketId]:
        """The tickets that are left to a run that has not ended."""
        is_late = since_s is not None and self.now.timestamp() - since_s > PATIENCE_S
        return [] if is_late else read_tickets(run)

    def _count_tags(self, runs: Sequence[dg.DagsterRun]) -> TagConcurrencyLimitsCounter:
        """Counts against the instance's limits of tags, each for so many runs as room is for all."""
        queue = self.instance.get_concurrency_config().run_queue_config
        limits = [] if queue is None else queue.tag_concurrency_limits
        return TagConcurrencyLimitsCounter([{**each, "limit": AHEAD * each["limit"]} for each in limits], [*runs])

    def _ask(self, packs: Sequence[Pack], runs: Sequence[dg.DagsterRun]) -> list[dg.RunRequest]:
        """The runs to ask for, behind those that have not ended."""
        room = AHEAD * find_slots(self.instance) - len(runs)
        counted = self._count_tags(runs)
        queued = {run.tags[FLOW_GROUP_TAG] for run in runs if run.status in _QUEUED and FLOW_GROUP_TAG in run.tags}
        ended = self._find_ended([each.first for each in packs])
        requests: list[dg.RunRequest] = []
        for pack in packs:
            if len(requests) >= room:
                break
            if not pack.is_full and pack.group in queued:
                continue
            tries = ended.get(pack.first, ())
            # Those that claimed count in the log, which has a pause of its own.
            unclaimed = len(tries) - pack.attempts
            if unclaimed > 0:
                waited_s = (self.now - max(map(find_ended_at, tries))).total_seconds()
                if waited_s < decide_try_wait_s(unclaimed):
                    continue
            request = self._make_request(pack, tries[0].dagster_run.run_id if tries else "none")
            made = dg.DagsterRun(job_name=TICKETS_JOB, tags=request.tags)
            # The runs that others may have at once are not asked for behind runs that only wait.
            if not counted.is_blocked(made):
                counted.update_counters_with_launched_item(made)
                requests.append(request)
        return requests

    def _make_request(self, pack: Pack, before: str) -> dg.RunRequest:
        _group, flow, _job = names_of_job_uri(pack.waiting.uri)
        tags = {
            TICKET_TAG: str(pack.first),
            EXECUTOR_TAG: self.executor,
            FLOW_GROUP_TAG: pack.group,
            # What has begun goes first: others may wait for it.
            PRIORITY_TAG: "1" if pack.attempts else "0",
        }
        return dg.RunRequest(
            # Another tick that sees the same asks for the same run.
            run_key=f"{pack.first}:{before}",
            run_config={"ops": {TICKETS_OP: {"config": {"tickets": [str(each) for each in pack.tickets]}}}},
            tags=tags if len(pack.tickets) > 1 else {**tags, FLOW_TAG: flow},
        )

    def _find_ended(self, firsts: Collection[TicketId]) -> Mapping[TicketId, Sequence[dg.RunRecord]]:
        """The last runs that had these tickets as their first ones, and have ended; of each, the latest first."""
        if not firsts:
            return {}
        asked = dg.RunsFilter(job_name=TICKETS_JOB, tags={TICKET_TAG: [str(each) for each in firsts]})
        found: dict[TicketId, list[dg.RunRecord]] = {}
        for record in self.instance.get_run_records(asked, limit=TRIES_READ_MAX * len(firsts)):
            if record.dagster_run.is_finished:
                found.setdefault(TicketId(UUID(record.dagster_run.tags[TICKET_TAG])), []).append(record)
        return found

    def _end_if_dead(self, claim: Claim, run_id: str) -> None:
        run = self.instance.get_run_by_id(run_id)
        # A run that is not here may live in another instance on this log. Runs of workers have a sensor of their own.
        if run is None or not run.is_finished or run.job_name == WORKERS_JOB:
            return
        is_terminated = run.status is dg.DagsterRunStatus.CANCELED
        end = AttemptEnd.CANCELLED if is_terminated else AttemptEnd.DIED
        said = TERMINATED if is_terminated else f"its Dagster run {run_id} died"
        if end_dead_attempt(claim, self.stores, end, said):
            self.said.append(f"ticket {claim.ticket_id}: attempt {claim.attempt} {said}")

    def _end_terminated(self, waiting: Collection[TicketId]) -> None:
        """Of runs that a person terminated, nothing is begun again."""
        asked = dg.RunsFilter(job_name=TICKETS_JOB, statuses=[dg.DagsterRunStatus.CANCELED])
        for run in self.instance.get_runs(asked, limit=_TERMINATED_READ_MAX):
            for ticket_id in read_tickets(run):
                if ticket_id in waiting and self.stores.tickets.end_unclaimed(ticket_id, TERMINATED):
                    self.said.append(f"ticket {ticket_id}: {TERMINATED}")


def describe_instance(executor: str, pack_max: int, instance: dg.DagsterInstance, stores: Stores) -> ExecutorHeartbeat:
    """The heartbeat of an executor that is this instance of Dagster."""
    home = hashlib.sha256(instance.root_directory.encode()).hexdigest()[:_DIGEST_DIGITS]
    owner, log_id = f"{socket.gethostname()}:dagster:{home}", stores.tickets.find_log_id()
    now_s = time.time()
    return replace(
        describe_executor(executor, owner, log_id, find_slots(instance), os.environ),
        technology="dagster",
        workers_max=find_workers_max(instance),
        pack_max=pack_max,
        daemons={name: max(0.0, now_s - each.timestamp) for name, each in instance.get_daemon_heartbeats().items()},
    )


def read_tickets(run: dg.DagsterRun) -> list[TicketId]:
    """The tickets of a run of ``gobblin_service``; none of one that a person launched with something else."""
    config: Any = run.run_config
    try:
        return [TicketId(UUID(each)) for each in config["ops"][TICKETS_OP]["config"]["tickets"]]
    except (KeyError, TypeError, ValueError):
        return []


def find_slots(instance: dg.DagsterInstance) -> int:
    """How many runs the instance lets work at once; where it has no limit, as many as an executor takes."""
    queue = instance.get_concurrency_config().run_queue_config
    if queue is None or queue.max_concurrent_runs < 0:
        return _SLOTS_WITHOUT_LIMIT
    return queue.max_concurrent_runs


def plan_packs(tickets: Sequence[OpenTicket], described: Mapping[TicketId, WaitingTicket], pack_max: int) -> list[Pack]:
    """Runs for these tickets, which are in the order in which they shall begin. Pure.

    Small ones of one flow group that need the same of Spark share a run, up to ``pack_max``. A ticket is small unless
    its job has run for long before, or it has been begun: what killed an attempt may kill the run.
    """
    packs: list[Pack] = []
    places: dict[tuple[str, str], int] = {}
    for ticket in tickets:
        waiting = described.get(ticket.ticket_id)
        if waiting is None or waiting.shape is not TicketShape.RUN:
            continue
        is_full = waiting.is_long or ticket.last_attempt > 0 or pack_max == 1
        made = Pack((ticket.ticket_id,), waiting, ticket.last_attempt, is_full)
        if is_full:
            packs.append(made)
            continue
        queue = made.group, waiting.needs
        place = places.get(queue)
        if place is None or packs[place].is_full:
            places[queue] = len(packs)
            packs.append(made)
        else:
            together = (*packs[place].tickets, ticket.ticket_id)
            packs[place] = replace(packs[place], tickets=together, is_full=len(together) >= pack_max)
    return packs
