"""``ScheduleStore``, ``ExecutionStore`` and ``FlowStore`` over tables in memory: what the real code calls of them."""

import datetime as dt
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

from gobblin_assets.errors import ConflictError
from gobblin_assets.model.job_ticket import LogId, TicketId, TicketSelection, TicketVerb
from gobblin_assets.service.execution_store import (
    JobNeeds,
    JobOfExecution,
    SendTurn,
    SentDeletion,
    SentJob,
    UnsentCancel,
    UnsentTicket,
    WatchedJob,
)
from gobblin_assets.service.flow_config import FlowConfig
from gobblin_assets.service.flow_store import (
    PAUSED_MESSAGE,
    CatalogChanges,
    FlowState,
    FlowWrite,
    Launch,
    NamedJob,
    RequestKey,
    SpecNotFoundError,
    StaleVersionError,
    StoredFlow,
    no_flow,
)
from gobblin_assets.service.job_progress import JobProgress, check_move
from gobblin_assets.service.job_retries import decide_next
from gobblin_assets.service.schedule_store import PendingExecution
from gobblin_assets.service.slots import (
    WAS_OPEN,
    DueFlow,
    FlowSlot,
    FlowSlotState,
    PlannedFire,
    account_missed,
    find_due_at,
)
from gobblin_assets.service.specs import FlowKey, FlowSpec
from gobblin_assets.service.statuses import ENDED, UNSENT, ExecutionStatus, FlowStatus, JobStatus
from tests.simulation.service_tables import (
    ExecutionRow,
    FlowRow,
    JobRow,
    ServiceTables,
    SlotRow,
    read_time_s,
    refuse_open,
)

OVERLAPS_MAX: Final = 20
_RESTART_FIRST_S: Final = 5.0
_RESTART_S_MAX: Final = 600.0
_SEND_PAUSE_S: Final = 0.25
_SEND_PAUSE_S_MAX: Final = 60.0
_SENT: Final = (ExecutionStatus.ORCHESTRATED, ExecutionStatus.RUNNING)
_NOT_BEGUN: Final = (ExecutionStatus.COMPILED, ExecutionStatus.ORCHESTRATED)


def stored_flow(row: FlowRow) -> StoredFlow:
    config = row.config
    return StoredFlow(
        flow_id=row.flow_id,
        spec=FlowSpec(row.key.uri, str(row.version), config.description, config, config.template_uris),
        state=row.state,
        reasons=row.reasons,
        owner=row.owner,
        created_at=row.created_at,
        updated_at=row.updated_at,
        change=row.change,
        generation=row.generation,
        runs_when_able=row.runs_when_able,
        restarts=row.restarts,
        next_fire_at=row.next_fire_at,
    )


class FakeScheduleStore:
    """``ScheduleStore``."""

    def __init__(self, tables: ServiceTables) -> None:
        self._tables = tables

    def list_due(self, *, limit: int) -> Sequence[DueFlow]:
        now = self._tables.now()
        due = [flow for flow in self._tables.flows.values() if self._is_due(flow)]
        return [
            DueFlow(
                f.flow_id, f.version, f.next_fire_at or now, now, f.config.model_dump_json(), f.paused_at, f.resumed_at
            )
            for f in due[:limit]
        ]

    def _is_due(self, flow: FlowRow) -> bool:
        is_live = flow.deleted_at is None and flow.state is not FlowState.PAUSED
        return is_live and flow.due_at is not None and flow.due_at <= self._tables.now()

    def fire(self, fires: Sequence[PlannedFire]) -> int:
        return sum(self._fire(each) for each in fires)

    def _fire(self, fire: PlannedFire) -> bool:
        flow = self._tables.flows[fire.flow.flow_id]
        is_seen = flow.version == fire.flow.version and flow.next_fire_at == fire.flow.fire_at
        if not is_seen or not self._is_due(flow):
            return False
        flow.next_fire_at, flow.due_at = fire.next_at, fire.due_at
        waiting = self._tables.list_waiting(flow.flow_id)
        was_open = len(self._tables.list_open(flow.flow_id))
        begun: dict[dt.datetime, int] = {}
        for slot in fire.slots:
            may_begin = slot.run_by == slot.at and (fire.replaces_waiting or not waiting)
            if may_begin and not (fire.may_overlap and was_open >= OVERLAPS_MAX):
                selection = TicketSelection(begun_by=slot.at, missing_max=fire.missing_max)
                made = self._tables.fire_execution(flow, slot.at, selection, may_overlap=fire.may_overlap)
                if made is not None:
                    begun[slot.at] = made.execution_id
        self._replace_waiting(fire, waiting, is_begun=bool(begun))
        for slot in fire.slots:
            execution_id = None if slot.run_by is None else begun.get(slot.run_by)
            waits = fire.if_open is FlowSlotState.WAITING
            keeps = slot.run_by is None or execution_id is not None or (waits and slot.at != slot.run_by)
            state = slot.state if keeps else fire.if_open
            reason = slot.reason if keeps else WAS_OPEN
            row = SlotRow(flow.flow_id, slot.at, slot.until, slot.count, state, reason, execution_id)
            self._tables.slots.setdefault((flow.flow_id, slot.at), row)
        return True

    def _replace_waiting(self, fire: PlannedFire, waiting: Sequence[SlotRow], *, is_begun: bool) -> None:
        runs = any(slot.run_by == slot.at for slot in fire.slots)
        if not runs or not (fire.if_open is FlowSlotState.WAITING or not fire.replaces_waiting or is_begun):
            return
        for place, row in enumerate(reversed(waiting), start=1):
            if fire.replaces_waiting:
                row.state, row.reason = FlowSlotState.COALESCED, "a later slot took its place"
            elif place > fire.waiting_max:
                row.state, row.reason = FlowSlotState.SKIPPED, "more slots waited than catch_up_max"

    def begin_waiting(self, *, limit: int) -> int:
        begun = 0
        for flow in self._tables.flows.values():
            is_live = flow.deleted_at is None and flow.state is not FlowState.PAUSED
            waiting = self._tables.list_waiting(flow.flow_id)
            if begun < limit and waiting and is_live and not self._tables.list_open(flow.flow_id):
                slot = waiting[0]
                selection = TicketSelection(begun_by=slot.at, missing_max=flow.config.missing_max)
                made = self._tables.fire_execution(flow, slot.at, selection, may_overlap=False)
                if made is not None:
                    slot.state, slot.reason, slot.execution_id = FlowSlotState.RUN, "", made.execution_id
                    begun += 1
        return begun

    def begin_continuous(self, *, limit: int) -> int:
        begun = 0
        for flow in self._tables.flows.values():
            is_live = flow.is_continuous and flow.deleted_at is None and flow.state is FlowState.ACTIVE
            if is_live and not flow.restarts and not self._tables.list_open(flow.flow_id) and self._may_begin(flow):
                self._tables.fire_execution(flow, None, TicketSelection(), may_overlap=False)
                begun += 1
        return min(begun, limit)

    def _may_begin(self, flow: FlowRow) -> bool:
        past = self._tables.list_of(flow.flow_id)
        if not past:
            return True
        last, now = past[-1], self._tables.now()
        if last.status is not ExecutionStatus.FAILED:
            return last.version != flow.version and last.message != PAUSED_MESSAGE
        hour = now - dt.timedelta(hours=1)
        failed = sum(e.status is ExecutionStatus.FAILED and e.ended_at is not None and e.ended_at > hour for e in past)
        rest_s = min(_RESTART_S_MAX, _RESTART_FIRST_S * 2.0 ** (min(failed, 20) - 1))
        return last.ended_at is not None and last.ended_at + dt.timedelta(seconds=rest_s) <= now

    def count_ahead(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for job in self._tables.list_jobs():
            if job.progress.ended_at is None and job.status in _NOT_BEGUN:
                found[job.executor] = found.get(job.executor, 0) + 1
        return found

    def take_pending(self, *, limit: int, ahead_max: int, hold_s: float) -> Sequence[PendingExecution]:
        now, ahead = self._tables.now(), self.count_ahead()
        taken = [
            execution
            for execution in self._tables.executions.values()
            if execution.launch_at is not None
            and execution.launch_at <= now
            and (execution.waits_for == "" or ahead.get(execution.waits_for, 0) < ahead_max)
        ][:limit]
        for execution in taken:
            execution.launch_at = now + dt.timedelta(seconds=hold_s)
        return [
            PendingExecution(
                each.execution_id,
                stored_flow(self._tables.flow_of(each)),
                each.selection,
                each.request_id,
                each.message,
                each.cancel_asked_at is not None or self._tables.flow_of(each).deleted_at is not None,
            )
            for each in taken
        ]

    def launch_pending(self, execution_id: int, launch: Launch, *, if_version: str) -> bool:
        execution = self._tables.executions[execution_id]
        flow = self._tables.flow_of(execution)
        if execution.launch_at is None or execution.cancel_asked_at is not None:
            return False
        if str(flow.version) != if_version or flow.deleted_at is not None or flow.state is FlowState.PAUSED:
            return False
        self._tables.launch_pending(flow, execution, launch)
        activate(self._tables, flow)
        return True

    def hold_pending(self, execution_id: int, message: str, *, wait_s: float, waits_for: str = "") -> None:
        execution = self._tables.executions[execution_id]
        if execution.launch_at is not None and execution.cancel_asked_at is None:
            execution.launch_at = self._tables.now() + dt.timedelta(seconds=wait_s)
            execution.message, execution.waits_for = message, waits_for

    def end_pending(self, execution_id: int, message: str, *, is_failed: bool) -> None:
        execution = self._tables.executions[execution_id]
        if execution.launch_at is None:
            return
        execution.launch_at, execution.ended_at = None, self._tables.now()
        execution.status = ExecutionStatus.CANCELLED
        if execution.cancel_asked_at is None:
            execution.status = ExecutionStatus.FAILED if is_failed else ExecutionStatus.CANCELLED
            execution.message = message

    def wake_pending(self) -> int:
        found = [e for e in self._tables.executions.values() if e.launch_at and e.launch_at > self._tables.now()]
        for execution in found:
            execution.launch_at = self._tables.now()
        return len(found)


class FakeExecutionStore:
    """``ExecutionStore``."""

    def __init__(self, tables: ServiceTables) -> None:
        self._tables = tables

    def _find(self, job: JobOfExecution, ticket_id: TicketId | None = None) -> JobRow | None:
        found = next(j for j in self._tables.executions[job.execution_id].jobs if j.number == job.number)
        return found if ticket_id in (None, found.ticket_id) else None

    def _page(
        self, rows: Sequence[JobRow], limit: int, after: JobOfExecution | None, without: Collection[str]
    ) -> list[JobRow]:
        begin = (0, -1) if after is None else (after.execution_id, after.number)
        # Postgres begins a first page behind (0, 0): executions have ids from 1.
        return [j for j in rows if (j.execution_id, j.number) > begin and j.log not in without][:limit]

    def list_unsent(
        self,
        *,
        limit: int,
        after: JobOfExecution | None = None,
        without: Collection[str] = (),
        full: Collection[str] = (),
    ) -> Sequence[UnsentTicket]:
        now = self._tables.now()
        rows = [
            job
            for job in self._tables.list_jobs()
            if job.status in UNSENT
            and (job.send_at is None or job.send_at <= now)
            and job.executor not in full
            and (job.send_begun_at is not None or self._has_parents(job))
        ]
        return [self._unsent(job) for job in self._page(rows, limit, after, without)]

    def _has_parents(self, job: JobRow) -> bool:
        return all(
            parent.status is ExecutionStatus.COMPLETE
            or (parent.is_worker and parent.status is ExecutionStatus.RUNNING and parent.progress.high_watermarks)
            for parent in self._tables.executions[job.execution_id].jobs
            if parent.number in job.after
        )

    def _unsent(self, job: JobRow) -> UnsentTicket:
        execution = self._tables.executions[job.execution_id]
        selection = replace(execution.selection, partitions=(), ranges=()) if job.after else execution.selection
        before = any(
            o.job_name == job.job_name and o.execution_id < job.execution_id and o.was_sent
            for o in self._tables.list_jobs()
        )
        begins_alone = job.attempt == 1 and not job.after and all(o is job or o.after for o in execution.jobs)
        expires = read_time_s(self._tables.config_of(execution).start_deadline) if begins_alone else None
        return UnsentTicket(
            job=_job_of(job),
            executor=job.executor,
            log=job.log,
            ticket_id=job.ticket_id,
            ticket=job.ticket,
            selection=selection,
            is_update=job.is_worker and (job.attempt > 1 or before),
            needs=self._needs(job),
            earlier=() if job.is_worker else tuple(reversed(job.earlier)),
            is_begun=job.send_begun_at is not None,
            expires_after_s=expires,
        )

    def _needs(self, job: JobRow) -> JobNeeds:
        bound = self._tables.names[job.job_name].named
        owner = self._tables.flow_of(self._tables.executions[job.execution_id]).owner
        nodes = frozenset((bound.binding.source_node, bound.node))
        return JobNeeds(bound.binding.log_id, job.ticket.capability, nodes, owner.groups)

    def begin_send(self, job: JobOfExecution, ticket_id: TicketId, *, waiting_max: int | None = None) -> SendTurn:
        row, now = self._find(job, ticket_id), self._tables.now()
        if row is None or row.status not in UNSENT or (row.send_at is not None and row.send_at > now):
            return SendTurn.OVER
        replaces = row.is_worker and row.attempt > 1
        is_bound = waiting_max is not None and row.send_begun_at is None and not replaces
        if waiting_max is not None and is_bound and self.count_waiting(row.executor) >= waiting_max:
            return SendTurn.FULL
        row.send_begun_at = row.send_begun_at or now
        pause_s = min(_SEND_PAUSE_S_MAX, _SEND_PAUSE_S * 2.0 ** min(row.send_tries, 20))
        row.send_tries, row.send_at = row.send_tries + 1, now + dt.timedelta(seconds=pause_s)
        return SendTurn.NOW

    def count_waiting(self, executor: str) -> int:
        return sum(
            job.executor == executor
            and job.progress.ended_at is None
            and job.send_begun_at is not None
            and job.status is not ExecutionStatus.RUNNING
            for job in self._tables.list_jobs()
        )

    def mark_sent(self, job: JobOfExecution, ticket_id: TicketId) -> None:
        self._move_unsent(job, ticket_id, ExecutionStatus.ORCHESTRATED, "")

    def fail(self, job: JobOfExecution, ticket_id: TicketId, message: str) -> None:
        self._move_unsent(job, ticket_id, ExecutionStatus.FAILED, message)

    def _move_unsent(self, job: JobOfExecution, ticket_id: TicketId, status: ExecutionStatus, message: str) -> None:
        row = self._find(job, ticket_id)
        if row is not None and row.status in UNSENT:
            self._tables.move_job(row, status, message)
            row.sent_at = self._tables.now()
            self._tables.settle(self._tables.executions[job.execution_id])

    def assign(self, job: JobOfExecution, ticket_id: TicketId, executor: str, log: str) -> bool:
        row = self._find(job, ticket_id)
        if row is None or row.status not in UNSENT or row.send_begun_at is not None:
            return False
        row.executor, row.log = executor, log
        return True

    def _list_sent(self) -> list[JobRow]:
        return [
            job
            for job in self._tables.list_jobs()
            if job.progress.ended_at is None
            and job.send_begun_at is not None
            and self._tables.executions[job.execution_id].cancel_asked_at is None
        ]

    def _sent(self, job: JobRow) -> SentJob:
        is_moving = job.moving_at is not None
        return SentJob(_job_of(job), job.executor, job.log, job.ticket_id, self._needs(job), is_moving)

    def list_sent(self, executors: Collection[str]) -> Sequence[SentJob]:
        return [self._sent(j) for j in self._list_sent() if j.status in _SENT and j.executor in executors]

    def list_untaken(self, *, sent_before_s: float) -> Sequence[SentJob]:
        before = self._tables.now() - dt.timedelta(seconds=sent_before_s)
        return [
            self._sent(job)
            for job in self._list_sent()
            if job.status is ExecutionStatus.ORCHESTRATED
            and job.progress.read[0] < 0
            and job.progress.message == ""
            and job.sent_at is not None
            and job.sent_at < before
        ]

    def begin_move(self, job: JobOfExecution, ticket_id: TicketId) -> bool:
        row = self._find(job, ticket_id)
        if row is None or row.status not in _SENT:
            return False
        if self._tables.executions[job.execution_id].cancel_asked_at is not None:
            return False
        row.moving_at = row.moving_at or self._tables.now()
        return True

    def note(self, job: JobOfExecution, ticket_id: TicketId, message: str) -> bool:
        row = self._find(job, ticket_id)
        if row is None or row.progress.ended_at is not None or row.progress.message == message:
            return False
        row.progress = replace(row.progress, message=message)
        return True

    def note_full(self, executor: str, message: str) -> None:
        for job in self._tables.list_jobs():
            waits = job.status in UNSENT and job.send_begun_at is None and not job.progress.message
            if waits and job.executor == executor and self._has_parents(job):
                job.progress = replace(job.progress, message=message)

    def end_late(self, *, limit: int) -> int:
        now, ended = self._tables.now(), 0
        for execution in list(self._tables.executions.values()):
            deadlines = [each for each in (execution.start_by, execution.finish_by) if each is not None]
            if execution.ended_at is None and execution.cancel_asked_at is None and deadlines and min(deadlines) <= now:
                ended += self._end_late(execution, now)
        return min(ended, limit)

    def _end_late(self, execution: ExecutionRow, now: dt.datetime) -> bool:
        config = self._tables.config_of(execution)
        if execution.finish_by is not None and execution.finish_by <= now:
            said = f"it did not end within {config.finish_deadline}, its finish_deadline"
            return self._tables.request_end(execution, said)
        if any(job.progress.started_at is not None for job in execution.jobs):
            execution.start_by = None
            return False
        said = f"no job of it began within {config.start_deadline}, its start_deadline"
        return self._tables.request_end(execution, said)

    def list_unsent_cancels(
        self, *, limit: int, after: JobOfExecution | None = None, without: Collection[str] = ()
    ) -> Sequence[UnsentCancel]:
        rows = [
            job
            for job in self._tables.list_jobs()
            if job.cancel_ticket_id is not None
            and job.cancel_sent_at is None
            and (job.status in _SENT or (job.cancel_verb is TicketVerb.DELETE and job.status not in UNSENT))
        ]
        found = []
        for job in self._page(rows, limit, after, without):
            log_id = self._tables.names[job.job_name].named.binding.log_id
            deletes = job.ticket if job.cancel_verb is TicketVerb.DELETE else None
            ended_by = TicketId(job.cancel_ticket_id or uuid.UUID(int=0))
            found.append(UnsentCancel(_job_of(job), job.executor, job.log, log_id, ended_by, job.ticket_id, deletes))
        return found

    def mark_cancel_sent(self, job: JobOfExecution, ticket_id: TicketId) -> None:
        row = self._find(job)
        if row is not None and row.cancel_ticket_id == ticket_id:
            if row.cancel_verb is TicketVerb.DELETE and row.cancel_sent_at is None:
                row.deletion = "waits"
            row.cancel_sent_at = row.cancel_sent_at or self._tables.now()

    def list_watched(self) -> Sequence[WatchedJob]:
        return [
            WatchedJob(_job_of(job), job.log, job.ticket_id, job.progress)
            for job in self._tables.list_jobs()
            if job.progress.ended_at is None and job.status in _SENT
        ]

    def store_progress(self, watched: WatchedJob, now: JobProgress) -> bool:
        check_move(watched.progress.status, now.status)
        row = self._find(watched.job, watched.ticket_id)
        execution = self._tables.executions[watched.job.execution_id]
        before = watched.progress
        is_stored = row is not None and row.status is before.status and row.progress.read == before.read
        if row is not None and is_stored:
            row.progress = replace(now, family=None, is_busy=False)
            if now.status in ENDED and execution.cancel_asked_at is None:
                self._follow(execution, row, before.status, now)
        self._tables.settle(execution)
        return is_stored

    def _follow(self, execution: ExecutionRow, job: JobRow, before: ExecutionStatus, ended: JobProgress) -> None:
        config = self._tables.config_of(execution)
        following = decide_next(
            ended,
            failures=job.failures,
            retries=config.retries,
            retry_wait_s=config.retry_wait_s,
            is_moving=job.moving_at is not None,
            chance=self._tables.chance.random(),
        )
        if following is not None:
            check_move(before, ExecutionStatus.PENDING_RETRY)
            self._tables.begin_ticket(execution, job, ExecutionStatus.PENDING_RETRY, following)

    def list_deletions(self) -> Sequence[SentDeletion]:
        return [
            SentDeletion(_job_of(job), job.log, TicketId(job.cancel_ticket_id or uuid.UUID(int=0)))
            for job in self._tables.list_jobs()
            if job.deletion == "waits"
        ]

    def end_deletion(self, job: JobOfExecution, said: str) -> None:
        row = self._find(job)
        if row is not None and row.deletion == "waits":
            row.deletion = said


def _job_of(job: JobRow) -> JobOfExecution:
    return JobOfExecution(job.execution_id, job.number)


def activate(tables: ServiceTables, flow: FlowRow) -> None:
    """A flow that a launch has compiled can run."""
    if flow.state is FlowState.PENDING:
        flow.state, flow.reasons, flow.runs_when_able = FlowState.ACTIVE, (), False
        note_change(tables, flow)


def note_change(tables: ServiceTables, flow: FlowRow) -> StoredFlow:
    tables.change += 1
    flow.change = tables.change
    return stored_flow(flow)


class FakeFlowStore:
    """``FlowStore``, but for lists that only pages ask for, and packs."""

    def __init__(self, tables: ServiceTables) -> None:
        self._tables = tables

    def create(self, flow_id: uuid.UUID, write: FlowWrite, request: RequestKey | None) -> StoredFlow:
        if request is not None and (known := self._tables.requests.get(request.key)) is not None:
            if known[0] != request.digest:
                raise ConflictError("the key of this request belongs to another request", hint="Make a new key.")
            return stored_flow(self._tables.flows[known[1]])
        key = FlowKey(write.config.flow_group, write.config.flow_name)
        if (found := self._tables.find_flow(key)) is not None:
            if found.flow_id != flow_id:
                raise ConflictError(f"there is a flow {key.name!a} in the group {key.group!a}", hint="Another name.")
            return stored_flow(found)
        now = self._tables.now()
        flow = FlowRow(flow_id, key, write.owner, now, now, {1: write.config})
        flow.state = FlowState.PENDING if write.reasons else FlowState.ACTIVE
        flow.reasons, flow.runs_when_able = write.reasons, write.runs_when_able
        self._tables.flows[flow_id] = flow
        self._tables.versions.add(write.request_id)
        self._schedule(flow, write.config, write.config)
        if write.launch is not None:
            self._tables.make_execution(flow, write.launch)
        if request is not None:
            self._tables.requests[request.key] = (request.digest, flow_id)
        return note_change(self._tables, flow)

    def _schedule(self, flow: FlowRow, before: FlowConfig, config: FlowConfig) -> None:
        schedule, was = config.parse_schedule(flow.flow_id), before.parse_schedule(flow.flow_id)
        if schedule is None and flow.next_fire_at is None and not flow.is_continuous:
            return
        next_at, now = flow.next_fire_at, self._tables.now()
        if next_at is None or was != schedule:
            self._account_due(flow, before, "the schedule was changed before it was fired")
            until = [slot.until for slot in self._tables.slots.values() if slot.flow_id == flow.flow_id]
            next_at = None if schedule is None else schedule.next_after(max((now, *until)))
        flow.next_fire_at, flow.due_at = next_at, find_due_at(config, next_at)
        flow.is_continuous = schedule is not None and schedule.is_continuous

    def _account_due(self, flow: FlowRow, config: FlowConfig, reason: str) -> None:
        first, now = flow.next_fire_at, self._tables.now()
        schedule = config.parse_schedule(flow.flow_id)
        if first is not None and first <= now and schedule is not None:
            slot = account_missed(schedule, first, now, reason)
            row = SlotRow(flow.flow_id, slot.at, slot.until, slot.count, slot.state, slot.reason)
            self._tables.slots.setdefault((flow.flow_id, slot.at), row)

    def change(self, flow_id: uuid.UUID, write: FlowWrite, *, if_version: str) -> StoredFlow:
        flow = self._lock(FlowKey(write.config.flow_group, write.config.flow_name), flow_id)
        if write.request_id in self._tables.versions:
            return stored_flow(flow)
        _require_version(flow, if_version)
        open_one = next((e for e in self._tables.list_open(flow_id) if e.has_workers), None)
        ends = (
            flow.state is not FlowState.PAUSED
            and open_one is not None
            and not write.reasons
            and not _runs_as_planned(open_one, write)
        )
        if not ends and write.launch is not None:
            if flow.state is FlowState.PAUSED:
                raise ConflictError(f"the flow {flow.key.name!a} is paused", hint="Resume it first.")
            if found := self._tables.list_open(flow_id):
                raise refuse_open(found[0].execution_id)
        before = flow.config
        flow.version += 1
        flow.configs[flow.version] = write.config
        self._tables.versions.add(write.request_id)
        if flow.state is not FlowState.PAUSED:
            flow.state = FlowState.PENDING if write.reasons else FlowState.ACTIVE
        flow.reasons, flow.runs_when_able, flow.owner = write.reasons, write.runs_when_able, write.owner
        flow.updated_at = self._tables.now()
        self._schedule(flow, before, write.config)
        if ends and open_one is not None:
            self._restart(flow, open_one)
        elif write.launch is not None:
            self._tables.make_execution(flow, write.launch)
        return note_change(self._tables, flow)

    def _restart(self, flow: FlowRow, execution: ExecutionRow) -> None:
        if self._tables.request_end(execution, f"version {flow.version} takes its place"):
            flow.restarts = True

    def delete(self, key: FlowKey, *, if_version: str | None = None) -> StoredFlow | None:
        flow = self._tables.find_flow(key)
        if flow is None:
            return None
        if if_version is not None:
            _require_version(flow, if_version)
        for execution in self._tables.list_open(flow.flow_id):
            self._tables.request_end(execution, "the flow was deleted")
        self._account_due(flow, flow.config, "the flow was deleted")
        for slot in self._tables.list_waiting(flow.flow_id):
            slot.state, slot.reason = FlowSlotState.SKIPPED, "the flow was deleted"
        flow.next_fire_at, flow.due_at, flow.is_continuous = None, None, False
        self._tables.request_deletions(flow.flow_id)
        flow.deleted_at = self._tables.now()
        return note_change(self._tables, flow)

    def find(self, key: FlowKey) -> StoredFlow | None:
        found = self._tables.find_flow(key)
        return None if found is None else stored_flow(found)

    def list_pending(self, *, after: StoredFlow | None, limit: int) -> Sequence[StoredFlow]:
        return self._page([f for f in self._live() if f.state is FlowState.PENDING], after, limit)

    def list_restarting(self, *, after: StoredFlow | None, limit: int) -> Sequence[StoredFlow]:
        found = [
            flow
            for flow in self._live()
            if flow.restarts and flow.state is FlowState.ACTIVE and not self._tables.list_open(flow.flow_id)
        ]
        return self._page(found, after, limit)

    def _live(self) -> list[FlowRow]:
        return [flow for flow in self._tables.flows.values() if flow.deleted_at is None]

    def _page(self, rows: Sequence[FlowRow], after: StoredFlow | None, limit: int) -> Sequence[StoredFlow]:
        order = list(self._tables.flows)
        begin = -1 if after is None else order.index(after.flow_id)
        return [stored_flow(row) for row in rows if order.index(row.flow_id) > begin][:limit]

    def activate(self, flow_id: uuid.UUID, *, if_version: str, launch: Launch | None, pins: Mapping[str, str]) -> bool:
        assert not pins, "the compiler of the simulated world knows no packs"
        flow = self._tables.flows[flow_id]
        if flow.deleted_at is not None or flow.state is not FlowState.PENDING or str(flow.version) != if_version:
            return False
        open_ones = self._tables.list_open(flow_id)
        if launch is not None and not open_ones:
            self._tables.make_execution(flow, launch)
        flow.state, flow.reasons, flow.runs_when_able = FlowState.ACTIVE, (), False
        if (with_workers := next((e for e in open_ones if e.has_workers), None)) is not None:
            self._restart(flow, with_workers)
        note_change(self._tables, flow)
        return True

    def set_reasons(self, flow_id: uuid.UUID, reasons: Sequence[str], *, if_version: str) -> None:
        flow = self._tables.flows[flow_id]
        if flow.deleted_at is None and flow.state is not FlowState.PAUSED and str(flow.version) == if_version:
            flow.state, flow.reasons = FlowState.PENDING, tuple(reasons)
            note_change(self._tables, flow)

    def set_paused(self, key: FlowKey, *, is_paused: bool) -> StoredFlow:
        flow = self._lock(key)
        for execution in self._tables.list_open(flow.flow_id):
            if is_paused and execution.has_workers:
                self._tables.request_end(execution, PAUSED_MESSAGE)
        if (flow.state is FlowState.PAUSED) is is_paused:
            return stored_flow(flow)
        now = self._tables.now()
        if is_paused:
            flow.state, flow.paused_at, flow.resumed_at = FlowState.PAUSED, now, None
        else:
            flow.state = FlowState.PENDING if flow.reasons else FlowState.ACTIVE
            flow.resumed_at = now
            for execution in self._tables.list_of(flow.flow_id):
                execution.launch_at = None if execution.launch_at is None else now
        return note_change(self._tables, flow)

    def list_slots(self, flow_id: uuid.UUID, *, limit: int) -> Sequence[FlowSlot]:
        rows = [slot for slot in self._tables.slots.values() if slot.flow_id == flow_id]
        rows.sort(key=lambda slot: slot.at, reverse=True)
        return [FlowSlot(s.at, s.until, s.count, s.state, s.reason, s.execution_id) for s in rows[:limit]]

    def list_jobs(self, flow_id: uuid.UUID) -> Sequence[NamedJob]:
        generation = self._tables.flows[flow_id].generation if flow_id in self._tables.flows else 0
        rows = [r for r in self._tables.names.values() if r.flow_id == flow_id and r.generation == generation]
        return sorted((row.named for row in rows), key=lambda named: named.node)

    def count_workers(self, executor: str, *, without: uuid.UUID) -> int:
        return sum(
            job.is_worker and job.executor == executor and job.progress.ended_at is None
            for execution in self._tables.executions.values()
            if execution.ended_at is None and execution.flow_id != without
            for job in execution.jobs
        )

    def find_job_log(self, job_name: str) -> LogId | None:
        found = self._tables.names.get(job_name)
        return None if found is None else found.named.binding.log_id

    def launch(self, flow_id: uuid.UUID, launch: Launch, *, if_version: str) -> int:
        for execution in self._tables.executions.values():
            if execution.request_id == launch.request_id:
                return execution.execution_id
        flow = self._tables.flows[flow_id]
        if flow.deleted_at is not None:
            raise ConflictError("the flow was deleted meanwhile", hint="Look for it.")
        if launch.is_restart and not flow.restarts:
            raise ConflictError("the flow was started again meanwhile", hint="Look at its executions.")
        if str(flow.version) != if_version or flow.state is FlowState.PAUSED:
            raise ConflictError("the flow was changed meanwhile", hint="Look at it, and run it again.")
        made = self._tables.make_execution(flow, launch)
        activate(self._tables, flow)
        return made.execution_id

    def resume_execution(self, key: FlowKey, execution_id: int, launch: Launch, *, if_version: str) -> FlowStatus:
        flow = self._lock(key)
        execution = self._get_execution(key, execution_id)
        if str(flow.version) != if_version or flow.state is FlowState.PAUSED or flow.restarts:
            raise ConflictError("the flow was changed meanwhile", hint="Look at it, and run it again.")
        self._tables.resume_jobs(flow, execution, launch)
        return self._status_of(execution)

    def cancel(self, key: FlowKey, execution_id: int) -> FlowStatus:
        execution = self._get_execution(key, execution_id)
        self._tables.request_end(execution, "somebody asked for its end")
        if self._tables.list_of(execution.flow_id)[-1] is execution:
            self._tables.flow_of(execution).restarts = False
        return self._status_of(execution)

    def find_status(self, key: FlowKey) -> FlowStatus | None:
        return next(iter(self.list_executions(key, after=None, limit=1)), None)

    def list_executions(self, key: FlowKey, *, after: int | None, limit: int) -> Sequence[FlowStatus]:
        flow = self._tables.find_flow(key)
        rows = [] if flow is None else self._tables.list_of(flow.flow_id)
        return [self._status_of(e) for e in reversed(rows) if after is None or e.execution_id < after][:limit]

    def find_execution(self, execution_id: int) -> FlowStatus | None:
        found = self._tables.executions.get(execution_id)
        return None if found is None else self._status_of(found)

    def read_changes(self, after: int, *, limit: int) -> CatalogChanges:
        changed = sorted((f for f in self._tables.flows.values() if f.change > after), key=lambda f: f.change)[:limit]
        live = tuple(stored_flow(f) for f in changed if f.deleted_at is None)
        gone = tuple((f.key, f.flow_id) for f in changed if f.deleted_at is not None)
        number = self._tables.change if len(changed) < limit else changed[-1].change
        return CatalogChanges(number, live, gone, len(changed) < limit)

    def find_change_number(self) -> int:
        return self._tables.change

    def _lock(self, key: FlowKey, flow_id: uuid.UUID | None = None) -> FlowRow:
        flow = self._tables.find_flow(key)
        if flow is None or flow_id not in (None, flow.flow_id):
            raise no_flow(key)
        return flow

    def _get_execution(self, key: FlowKey, execution_id: int) -> ExecutionRow:
        found = self._tables.executions.get(execution_id)
        if found is None or self._tables.flow_of(found).key != key:
            raise SpecNotFoundError(f"the flow {key.name!a} has no execution {execution_id}", field="execution")
        return found

    def _status_of(self, execution: ExecutionRow) -> FlowStatus:
        key = self._tables.flow_of(execution).key
        return FlowStatus(
            flow=key,
            execution_id=execution.execution_id,
            flow_version=str(execution.version),
            status=execution.status,
            started_at=execution.started_at,
            ended_at=execution.ended_at,
            message=execution.message,
            jobs=tuple(_job_status(job, key) for job in execution.jobs),
        )


def _job_status(job: JobRow, key: FlowKey) -> JobStatus:
    return JobStatus(
        flow=key,
        number=job.number,
        job_name=job.job_name,
        job_group=job.executor,
        status=job.status,
        ticket_id=job.ticket_id,
        started_at=job.progress.started_at,
        ended_at=job.progress.ended_at,
        message=job.progress.message,
        processed_count=job.progress.processed_count,
        low_watermark=None,
        high_watermark=None,
        template_uri=job.ticket.template_uri,
        attempt=job.attempt,
    )


def _require_version(flow: FlowRow, if_version: str) -> None:
    if str(flow.version) != if_version:
        raise StaleVersionError(f"the flow {flow.key.name!a} is at version {flow.version}, not {if_version}")


def _runs_as_planned(execution: ExecutionRow, write: FlowWrite) -> bool:
    found = [(j.job_name, j.executor, j.ticket.capability, j.ticket.shape, j.ticket.job) for j in execution.jobs]
    planned = [(j.job_name, j.executor, j.ticket.capability, j.ticket.shape, j.ticket.job) for j in write.planned]
    return found == planned
