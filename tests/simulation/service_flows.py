"""``FlowStore`` over tables in memory: what the real code calls of it."""

import uuid
from collections.abc import Mapping, Sequence

from gobblin_assets.errors import ConflictError
from gobblin_assets.model.job_ticket import LogId
from gobblin_assets.service.flow_config import FlowConfig
from gobblin_assets.service.flow_store import (
    PAUSED_MESSAGE,
    CatalogChanges,
    FlowCopy,
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
from gobblin_assets.service.slots import FlowSlot, FlowSlotState, account_missed, find_due_at
from gobblin_assets.service.specs import FlowKey
from gobblin_assets.service.statuses import FlowStatus, JobStatus
from tests.simulation.service_stores import activate, note_change, stored_flow
from tests.simulation.service_tables import ExecutionRow, FlowRow, JobRow, ServiceTables, SlotRow, refuse_open


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
        flow = FlowRow(flow_id, key, write.owner, now, now, now, {1: write.config})
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
        flow.updated_at = flow.made_at = self._tables.now()
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

    def replan(self, flow_id: uuid.UUID, *, generation: int) -> None:
        flow = self._tables.flows[flow_id]
        if flow.deleted_at is not None:
            raise ConflictError("the flow was deleted meanwhile", hint="Look for it in the list of flows.")
        if flow.generation == generation:
            return
        if flow.generation != generation - 1:
            raise ConflictError("the flow was replanned meanwhile", hint="Look at its jobs before the next replan.")
        if found := self._tables.list_open(flow_id):
            raise refuse_open(found[0].execution_id)
        flow.generation = generation
        self._tables.request_deletions(flow_id)
        note_change(self._tables, flow)

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
        live = tuple(FlowCopy.of(stored_flow(f)) for f in changed if f.deleted_at is None)
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
