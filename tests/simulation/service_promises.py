"""What holds in a simulated world of the service after each step, and what holds at its end."""

import datetime as dt
import uuid
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from gobblin_assets.model.job_ticket import TicketVerb
from gobblin_assets.service.schedules import Schedule
from gobblin_assets.service.slots import FlowSlotState
from gobblin_assets.service.statuses import ENDED, ExecutionStatus
from gobblin_assets.state.tickets import TicketReportKind
from tests.simulation.service_log import FakeLog, TicketRow
from tests.simulation.service_stores import OVERLAPS_MAX
from tests.simulation.service_tables import FlowRow, JobRow, SlotRow
from tests.simulation.service_world import ServiceWorld

WINDOW = {"start": "12:15", "end": "12:45"}
"""In which some flows are not started."""

_WINDOW_BEGIN, _WINDOW_END = dt.time(12, 15), dt.time(12, 45)
_WAITING_PER_SLOT = 2
_HEARD_S = 30.0


@dataclass(frozen=True)
class _Scheduled:
    """The schedule of a flow, as the last look saw it."""

    version: int
    schedule: Schedule | None
    next_at: dt.datetime | None


class ServicePromises:
    """The promises of one world. It keeps what was seen before."""

    def __init__(self, world: ServiceWorld) -> None:
        self.world = world
        # By executor, the most that may have been sent to it at once up to now.
        self._inbox_max: Counter[str] = Counter()
        self._checked: dict[str, int] = dict.fromkeys(world.logs, 0)
        self._versions: dict[str, int] = {}
        self._partitions: set[tuple[str, int]] = set()
        self._log_of: dict[str, str] = {}
        self._scheduled: dict[uuid.UUID, _Scheduled] = {}
        self._windowed: set[int] = set()
        # What is heard may be old before the first check.
        self._check_inboxes()

    def check(self) -> None:
        """After a step. AssertionError says what is broken."""
        for name, log in self.world.logs.items():
            self._check_publications(name, log)
            self._check_claims(log)
        self._check_inboxes()
        self._check_executions()
        self._check_slots()
        self._check_kept()

    def _check_publications(self, name: str, log: FakeLog) -> None:
        for made in log.published[self._checked[name] :]:
            effect = (made.job_name, made.partition)
            assert effect not in self._partitions, f"{effect} is published twice"
            self._partitions.add(effect)
            assert self._log_of.setdefault(made.job_name, name) == name, f"{made.job_name} is under two logs"
            if log.tickets[made.ticket_id].is_worker:
                before = self._versions.get(made.job_name, 0)
                assert made.version >= before, f"{made.job_name}: a worker of version {made.version} beside {before}"
                self._versions[made.job_name] = made.version
        self._checked[name] = len(log.published)

    def _check_claims(self, log: FakeLog) -> None:
        for job in self.world.tables.list_jobs():
            rows = [row for each in (*job.earlier, job.ticket_id) if (row := log.tickets.get(each)) is not None]
            live = [row for row in rows if log.is_live(row)]
            assert len(live) <= 1, f"two claims of job {job.number} of the execution {job.execution_id} live"
            if job.earlier:
                gone = [each for each in rows if each.sent.ticket_id != job.ticket_id]
                assert all(row.ended_as is not None for row in gone), f"a ticket of {job.job_name} has a successor"
        working: Counter[str] = Counter()
        for row in log.tickets.values():
            if row.is_worker and row.sent.verb is not TicketVerb.DELETE and _is_running(log, row):
                working[str(row.job_name)] += 1
        doubled = [name for name, count in working.items() if count > 1]
        assert not doubled, f"workers of two tickets of {doubled} are at work"

    def _check_inboxes(self) -> None:
        for executor in self.world.executors.values():
            log = executor.raw
            heard = sum(
                (self.world.now() - at).total_seconds() <= _HEARD_S
                for (name, _owner), (_beat, at) in log.beats.items()
                if name == executor.name
            )
            most = _WAITING_PER_SLOT * executor.slots * heard
            self._inbox_max[executor.name] = max(self._inbox_max[executor.name], most)
            waiting = sum(
                row.sent.executor == executor.name
                and row.ended_as is None
                and row.sent.verb is TicketVerb.ADD
                and not any(report.kind is TicketReportKind.RUNNING for report in row.reports)
                for row in log.tickets.values()
            )
            assert waiting <= self._inbox_max[executor.name], f"{waiting} tickets wait at {executor.name}"
            begun = sum(run.verb is TicketVerb.ADD for run in executor.runs.values())
            assert begun <= executor.slots, f"{executor.name} is beyond its slots"

    def _check_executions(self) -> None:
        tables = self.world.tables
        by_flow = defaultdict(list)
        for execution in tables.executions.values():
            if execution.ended_at is None:
                by_flow[execution.flow_id].append(execution)
            assert (execution.ended_at is not None) is (execution.status in ENDED), "an end without its time"
            for job in execution.jobs:
                parents = [each for each in execution.jobs if each.number in job.after and not each.is_worker]
                is_early = job.send_begun_at is not None and job.status not in ENDED
                is_ready = all(each.status is ExecutionStatus.COMPLETE for each in parents)
                assert is_ready or not is_early, f"{job.job_name} does not wait for the job before it"
            if execution.status in ENDED and execution.jobs:
                assert all(job.status in ENDED for job in execution.jobs), "an execution ends before its jobs"
        for found in by_flow.values():
            assert sum(not each.may_overlap for each in found) <= 1, "two executions of a flow are open"
            assert len(found) <= OVERLAPS_MAX + 1, f"{len(found)} executions of a flow are open"
        for execution in tables.executions.values():
            if execution.execution_id not in self._windowed and execution.fire_at is not None:
                self._windowed.add(execution.execution_id)
                is_open = _WINDOW_BEGIN <= execution.started_at.time() < _WINDOW_END
                has_window = bool(tables.flow_of(execution).config.windows)
                assert not (has_window and is_open), f"a slot begins at {execution.started_at}, within a window"
        fired = Counter((e.flow_id, e.fire_at) for e in tables.executions.values() if e.fire_at is not None)
        assert all(count == 1 for count in fired.values()), "a slot has two executions"

    def _check_slots(self) -> None:
        tables = self.world.tables
        for flow in tables.flows.values():
            rows = sorted((slot for slot in tables.slots.values() if slot.flow_id == flow.flow_id), key=lambda s: s.at)
            for before, behind in pairwise(rows):
                assert before.until < behind.at, f"slots of {flow.key.name} are accounted twice"
            for slot in rows:
                assert (slot.state is FlowSlotState.RUN) <= (slot.execution_id is not None), "a run without execution"
                if slot.state is FlowSlotState.RUN and slot.execution_id is not None:
                    assert tables.executions[slot.execution_id].fire_at == slot.at, "an execution of another slot"
            named = {slot.execution_id for slot in rows if slot.state is FlowSlotState.RUN}
            for execution in tables.list_of(flow.flow_id):
                assert execution.fire_at is None or execution.execution_id in named, "an execution without its slot"
            self._check_account(flow, rows)

    def _check_account(self, flow: FlowRow, rows: Sequence[SlotRow]) -> None:
        """What was due since the last look, and is due no more, is accounted."""
        before = self._scheduled.get(flow.flow_id)
        schedule = flow.config.parse_schedule(flow.flow_id)
        self._scheduled[flow.flow_id] = _Scheduled(flow.version, schedule, flow.next_fire_at)
        if before is None or before.schedule is None or before.next_at is None or flow.version > before.version + 1:
            return
        if flow.deleted_at is not None:
            until = flow.deleted_at
        elif before.schedule != schedule:
            until = flow.updated_at
        else:
            until = (flow.next_fire_at or before.next_at) - dt.timedelta(seconds=1)
        slot: dt.datetime | None = before.next_at
        while slot is not None and slot <= until:
            found = [row for row in rows if row.at <= slot <= row.until]
            assert len(found) == 1, f"the slot {slot} of {flow.key.name} is accounted {len(found)} times"
            slot = before.schedule.next_after(slot)

    def check_end(self) -> None:
        """When all is calm, and everything has gone on for long enough."""
        self.check()
        world = self.world
        for flow in world.tables.flows.values():
            schedule = flow.config.parse_schedule(flow.flow_id)
            assert not world.tables.list_waiting(flow.flow_id), f"a slot of {flow.key.name} still waits"
            if flow.deleted_at is None and schedule is not None and not schedule.is_continuous:
                assert (flow.next_fire_at or world.now()) > world.now(), "a slot is still due"
        for execution in world.tables.executions.values():
            waits = [job for job in execution.jobs if job.status not in ENDED and not job.is_worker]
            said = f"the execution {execution.execution_id} is {execution.status}: {execution.message!r}"
            told = [(job.status.value, job.executor, job.progress.message) for job in waits]
            assert execution.status in ENDED or (execution.has_workers and not waits), f"{said} {told}"
            for job in execution.jobs:
                is_unsent = job.cancel_verb is TicketVerb.DELETE and job.cancel_sent_at is None
                assert not is_unsent, f"nobody sends the deletion of {job.job_name}"
                assert job.deletion != "waits", f"nobody reads that {job.job_name} was deleted"
                self._check_count(job)
        for log in world.logs.values():
            for row in log.tickets.values():
                is_open = row.ended_as is None and not row.is_worker
                assert not is_open, f"the ticket {row.sent.verb} of {row.job_name} is left open"

    def _check_kept(self) -> None:
        """What sources keep for workers whose names are used no more is asked to be deleted."""
        tables = self.world.tables
        for name, row in tables.names.items():
            flow = tables.flows[row.flow_id]
            if flow.deleted_at is None and row.generation == flow.generation and not row.named.is_retired:
                continue
            sent = [job for job in tables.list_jobs() if job.job_name == name and job.is_worker and job.was_sent]
            is_asked = any(job.cancel_verb is TicketVerb.DELETE for job in sent)
            assert is_asked or not sent, f"nobody deletes what a source keeps for {name}"

    def _check_count(self, job: JobRow) -> None:
        """Reports that were folded are what the ledger has."""
        log = next((each for each in self.world.logs.values() if job.ticket_id in each.tickets), None)
        if log is None or job.is_worker or job.status not in ENDED:
            return
        tickets = {*job.earlier, job.ticket_id}
        own = sum(made.rows for made in log.published if made.ticket_id in tickets)
        told = {
            report.details["watermarks"]["id"][1]: report.details["rows"]
            for each in tickets
            if each in log.tickets
            for report in log.tickets[each].reports
            if report.kind is TicketReportKind.PUBLISHED
        }
        counted = job.progress.processed_count
        assert counted == sum(told.values()), f"{job.job_name}: {counted} rows are counted, {sum(told.values())} told"
        if job.status is ExecutionStatus.COMPLETE:
            assert counted >= own, f"{job.job_name}: {counted} rows are counted, and {own} published"


def _is_running(log: FakeLog, row: TicketRow) -> bool:
    """Its last attempt lives, and has begun to work."""
    attempt = len(row.claims)
    return log.is_live(row) and any(
        report.kind is TicketReportKind.RUNNING and report.attempt == attempt for report in row.reports
    )
