"""``ScheduleStore`` and ``ExecutionStore`` over tables in memory: what the real code calls of them."""

import datetime as dt
import uuid
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final

from gobblin_assets.model.job_ticket import TicketId, TicketSelection, TicketVerb
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
from gobblin_assets.service.flow_store import (
    PAUSED_MESSAGE,
    FlowState,
    Launch,
    StoredFlow,
)
from gobblin_assets.service.job_progress import JobProgress, check_move
from gobblin_assets.service.job_retries import decide_next
from gobblin_assets.service.schedule_store import PendingExecution
from gobblin_assets.service.slots import (
    WAS_OPEN,
    DueFlow,
    FlowSlotState,
    PlannedFire,
)
from gobblin_assets.service.specs import FlowSpec
from gobblin_assets.service.statuses import ENDED, UNSENT, ExecutionStatus
from tests.simulation.service_tables import (
    ExecutionRow,
    FlowRow,
    JobRow,
    ServiceTables,
    SlotRow,
    read_time_s,
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

    def list_due(self, *, limit: int, without: Collection[tuple[uuid.UUID, int]] = ()) -> Sequence[DueFlow]:
        now = self._tables.now()
        flows = self._tables.flows.values()
        due = [flow for flow in flows if self._is_due(flow) and (flow.flow_id, flow.version) not in without]
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
            is_held_up = flow.config.find_window_end(self._tables.now()) is not None
            may_begin = is_live and not is_held_up and not self._tables.list_open(flow.flow_id)
            if begun < limit and waiting and may_begin:
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
        if (
            last.cancel_asked_at is not None
            and last.cancel_asked_at >= flow.made_at
            and not _is_end_of_pause(flow, last)
        ):
            return False
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

    def take_pending(self, *, limit: int, full: Collection[str], hold_s: float) -> Sequence[PendingExecution]:
        now = self._tables.now()
        taken = [
            execution
            for execution in self._tables.executions.values()
            if execution.launch_at is not None and execution.launch_at <= now and execution.waits_for not in full
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

    def begin_send(
        self, job: JobOfExecution, ticket_id: TicketId, *, executor: str, log: str, waiting_max: int | None = None
    ) -> SendTurn:
        row, now = self._find(job, ticket_id), self._tables.now()
        if row is not None and (row.executor, row.log) != (executor, log):
            return SendTurn.OVER
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

    def list_sent(self, *, well: Collection[str]) -> Sequence[SentJob]:
        return [self._sent(j) for j in self._list_sent() if j.status in _SENT and j.executor not in well]

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


def _is_end_of_pause(flow: FlowRow, last: ExecutionRow) -> bool:
    """Whether a pause asked for its end. A worker that failed meanwhile has left its own message."""
    asked, paused, resumed = last.cancel_asked_at, flow.paused_at, flow.resumed_at
    is_between = asked is not None and paused is not None and resumed is not None and paused <= asked <= resumed
    return last.message == PAUSED_MESSAGE or (last.status is ExecutionStatus.FAILED and is_between)


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
