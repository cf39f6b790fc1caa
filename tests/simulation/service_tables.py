"""The service's tables in memory, and the moves of executions and jobs as the statements of Postgres make them.

What is pure is the product's own: what follows from reports, retries, slots and bindings.
"""

import datetime as dt
import random
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from gobblin_assets.errors import ConflictError
from gobblin_assets.model.job_ticket import JobTicket, TicketId, TicketSelection, TicketShape, TicketVerb
from gobblin_assets.service.flow_config import FailureOption, FlowConfig
from gobblin_assets.service.flow_jobs import check_binding
from gobblin_assets.service.flow_store import FlowState, Launch, LaunchedJob, NamedJob, Owner
from gobblin_assets.service.job_progress import JobOutline, JobProgress, check_move, decide_execution
from gobblin_assets.service.job_retries import NextTicket, make_ticket_id
from gobblin_assets.service.slots import FlowSlotState
from gobblin_assets.service.specs import FlowKey
from gobblin_assets.service.statuses import ENDED, UNSENT, ExecutionStatus

Now = Callable[[], dt.datetime]

_UNIT_S: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


@dataclass
class FlowRow:
    """A row of ``flow``, with the configs of its versions. ``made_at``: of the last version."""

    flow_id: uuid.UUID
    key: FlowKey
    owner: Owner
    created_at: dt.datetime
    updated_at: dt.datetime
    made_at: dt.datetime
    configs: dict[int, FlowConfig]
    state: FlowState = FlowState.ACTIVE
    version: int = 1
    reasons: tuple[str, ...] = ()
    runs_when_able: bool = False
    restarts: bool = False
    generation: int = 0
    change: int = 0
    next_fire_at: dt.datetime | None = None
    due_at: dt.datetime | None = None
    is_continuous: bool = False
    paused_at: dt.datetime | None = None
    resumed_at: dt.datetime | None = None
    deleted_at: dt.datetime | None = None

    @property
    def config(self) -> FlowConfig:
        return self.configs[self.version]


@dataclass
class SlotRow:
    """A row of ``flow_slot``."""

    flow_id: uuid.UUID
    at: dt.datetime
    until: dt.datetime
    count: int
    state: FlowSlotState
    reason: str = ""
    execution_id: int | None = None


@dataclass
class JobNameRow:
    """A row of ``flow_job``."""

    flow_id: uuid.UUID
    generation: int
    named: NamedJob


@dataclass
class JobRow:
    """A row of ``job_execution``. ``earlier``: its rows of ``job_attempt``, the oldest first."""

    execution_id: int
    number: int
    job_name: str
    executor: str
    log: str
    ticket_id: TicketId
    ticket: JobTicket
    after: tuple[int, ...]
    progress: JobProgress
    attempt: int = 1
    failures: int = 0
    send_at: dt.datetime | None = None
    send_tries: int = 0
    send_begun_at: dt.datetime | None = None
    sent_at: dt.datetime | None = None
    moving_at: dt.datetime | None = None
    cancel_ticket_id: TicketId | None = None
    cancel_verb: TicketVerb | None = None
    cancel_sent_at: dt.datetime | None = None
    deletion: str = ""
    earlier: list[TicketId] = field(default_factory=list)

    @property
    def status(self) -> ExecutionStatus:
        return self.progress.status

    @property
    def is_worker(self) -> bool:
        return self.ticket.shape is TicketShape.WORKER

    @property
    def was_sent(self) -> bool:
        """Its ticket, or one before it, may have been."""
        return self.send_begun_at is not None or self.attempt > 1


@dataclass
class ExecutionRow:
    """A row of ``flow_execution``, with its jobs."""

    execution_id: int
    request_id: uuid.UUID
    flow_id: uuid.UUID
    version: int
    status: ExecutionStatus
    selection: TicketSelection
    started_at: dt.datetime
    message: str = ""
    fire_at: dt.datetime | None = None
    launch_at: dt.datetime | None = None
    may_overlap: bool = False
    waits_for: str = ""
    cancel_asked_at: dt.datetime | None = None
    ended_at: dt.datetime | None = None
    start_by: dt.datetime | None = None
    finish_by: dt.datetime | None = None
    resume_id: uuid.UUID | None = None
    jobs: list[JobRow] = field(default_factory=list)

    @property
    def has_workers(self) -> bool:
        return any(job.is_worker for job in self.jobs)


class ServiceTables:
    """All rows. ``now``: the database's clock; ``chance``: where the database draws."""

    def __init__(self, now: Now, chance: random.Random) -> None:
        self.now = now
        self.chance = chance
        self.flows: dict[uuid.UUID, FlowRow] = {}
        self.versions: set[uuid.UUID] = set()
        self.requests: dict[str, tuple[str, uuid.UUID]] = {}
        self.slots: dict[tuple[uuid.UUID, dt.datetime], SlotRow] = {}
        self.names: dict[str, JobNameRow] = {}
        self.executions: dict[int, ExecutionRow] = {}
        self.change = 0

    def draw_id(self) -> uuid.UUID:
        return uuid.UUID(int=self.chance.getrandbits(128), version=4)

    def flow_of(self, execution: ExecutionRow) -> FlowRow:
        return self.flows[execution.flow_id]

    def config_of(self, execution: ExecutionRow) -> FlowConfig:
        return self.flow_of(execution).configs[execution.version]

    def find_flow(self, key: FlowKey) -> FlowRow | None:
        return next((each for each in self.flows.values() if each.key == key and each.deleted_at is None), None)

    def list_of(self, flow_id: uuid.UUID) -> list[ExecutionRow]:
        return [each for each in self.executions.values() if each.flow_id == flow_id]

    def list_open(self, flow_id: uuid.UUID) -> list[ExecutionRow]:
        return [each for each in self.list_of(flow_id) if each.ended_at is None]

    def list_jobs(self) -> Iterable[JobRow]:
        return (job for execution in self.executions.values() for job in execution.jobs)

    def list_waiting(self, flow_id: uuid.UUID) -> list[SlotRow]:
        """The slots that wait, the oldest first."""
        found = [each for each in self.slots.values() if each.flow_id == flow_id]
        return sorted((each for each in found if each.state is FlowSlotState.WAITING), key=lambda each: each.at)

    def fire_execution(
        self, flow: FlowRow, fire_at: dt.datetime | None, selection: TicketSelection, *, may_overlap: bool
    ) -> ExecutionRow | None:
        """Insert a pending execution. None: an index of the table refuses it."""
        if fire_at is not None and any(each.fire_at == fire_at for each in self.list_of(flow.flow_id)):
            return None
        if not may_overlap and any(not each.may_overlap for each in self.list_open(flow.flow_id)):
            return None
        return self._insert(
            ExecutionRow(
                execution_id=len(self.executions) + 1,
                request_id=self.draw_id(),
                flow_id=flow.flow_id,
                version=flow.version,
                status=ExecutionStatus.PENDING,
                selection=selection,
                started_at=self.now(),
                fire_at=fire_at,
                launch_at=self.now(),
                may_overlap=may_overlap,
            )
        )

    def make_execution(self, flow: FlowRow, launch: Launch) -> ExecutionRow:
        if found := self.list_open(flow.flow_id):
            raise refuse_open(found[0].execution_id)
        self._check_names(flow, launch.generation, launch.jobs)
        made = self._insert(
            ExecutionRow(
                execution_id=len(self.executions) + 1,
                request_id=launch.request_id,
                flow_id=flow.flow_id,
                version=flow.version,
                status=ExecutionStatus.COMPILED,
                selection=launch.selection,
                started_at=self.now(),
            )
        )
        self._insert_jobs(flow, made, launch)
        return made

    def _insert(self, made: ExecutionRow) -> ExecutionRow:
        self.executions[made.execution_id] = made
        return made

    def launch_pending(self, flow: FlowRow, execution: ExecutionRow, launch: Launch) -> None:
        self._check_names(flow, launch.generation, launch.jobs)
        execution.status, execution.version = ExecutionStatus.COMPILED, flow.version
        execution.message, execution.waits_for, execution.launch_at = "", "", None
        self._insert_jobs(flow, execution, launch)

    def _insert_jobs(self, flow: FlowRow, execution: ExecutionRow, launch: Launch) -> None:
        for job in launch.jobs:
            self._bind(flow, launch.generation, job)
            status = ExecutionStatus.PENDING if job.after else ExecutionStatus.COMPILED
            ticket_id = make_ticket_id(launch.request_id, job.job_name, 1)
            execution.jobs.append(
                JobRow(
                    execution.execution_id,
                    job.number,
                    job.job_name,
                    job.executor,
                    job.log,
                    ticket_id,
                    job.ticket,
                    job.after,
                    JobProgress(status),
                )
            )
        self._set_deadlines(execution)
        flow.restarts = False
        kept = {job.job_name for job in launch.jobs}
        retired = [
            row
            for row in self.names.values()
            if row.flow_id == flow.flow_id
            and not row.named.is_retired
            and row.named.job_name not in kept
            and any(j.job_name == row.named.job_name and j.is_worker and j.was_sent for j in self.list_jobs())
        ]
        for row in retired:
            row.named = replace(row.named, is_retired=True)
        if retired:
            self.request_deletions(flow.flow_id, [row.named.job_name for row in retired])

    def _set_deadlines(self, execution: ExecutionRow) -> None:
        config = self.config_of(execution)
        if config.start_deadline or config.finish_deadline:
            execution.start_by = self._in(config.start_deadline)
            execution.finish_by = self._in(config.finish_deadline)

    def _in(self, text: str) -> dt.datetime | None:
        seconds = read_time_s(text)
        return None if seconds is None else self.now() + dt.timedelta(seconds=seconds)

    def _check_names(self, flow: FlowRow, generation: int, jobs: Sequence[LaunchedJob]) -> None:
        """All that may refuse a launch, before anything is written: a transaction is whole or nothing."""
        if flow.generation != generation:
            raise ConflictError("the flow was replanned meanwhile", hint="Run it again.")
        for job in jobs:
            named = self._find_name(flow, generation, job.node)
            if (named is None and job.job_name in self.names) or (named and named.named.job_name != job.job_name):
                raise ConflictError(f"the job name {job.job_name} is not free for the node {job.node}", hint="Again.")
            if named is not None:
                check_binding(job.job_name, named.named.binding, job.binding)

    def _find_name(self, flow: FlowRow, generation: int, node: str) -> JobNameRow | None:
        return next(
            (
                row
                for row in self.names.values()
                if row.flow_id == flow.flow_id
                and row.generation == generation
                and row.named.node == node
                and not row.named.is_retired
            ),
            None,
        )

    def _bind(self, flow: FlowRow, generation: int, job: LaunchedJob) -> None:
        if self._find_name(flow, generation, job.node) is None:
            named = NamedJob(job.node, job.job_name, job.binding)
            self.names[job.job_name] = JobNameRow(flow.flow_id, generation, named)

    def resume_jobs(self, flow: FlowRow, execution: ExecutionRow, launch: Launch) -> None:
        if execution.resume_id == launch.request_id:
            return
        if execution.status not in ENDED:
            raise refuse_open(execution.execution_id)
        last = self.list_of(flow.flow_id)[-1]
        rest = [job for job in execution.jobs if job.status is not ExecutionStatus.COMPLETE]
        same = [job.job_name for job in execution.jobs] == [job.job_name for job in launch.jobs]
        if last is not execution or execution.version != flow.version or not same or not rest:
            raise ConflictError("the execution can't be resumed", hint="Run the flow.")
        self._check_names(flow, launch.generation, launch.jobs)
        planned = {job.job_name: job for job in launch.jobs}
        for job in rest:
            self._bind(flow, launch.generation, planned[job.job_name])
            check_move(job.status, ExecutionStatus.PENDING_RESUME)
            self.begin_ticket(execution, job, ExecutionStatus.PENDING_RESUME, NextTicket(""))
            target = planned[job.job_name]
            job.executor, job.log, job.ticket = target.executor, target.log, target.ticket
        check_move(execution.status, ExecutionStatus.PENDING_RESUME)
        execution.status, execution.message, execution.ended_at = ExecutionStatus.PENDING_RESUME, "", None
        execution.cancel_asked_at, execution.resume_id = None, launch.request_id
        self._set_deadlines(execution)

    def begin_ticket(
        self, execution: ExecutionRow, job: JobRow, status: ExecutionStatus, following: NextTicket
    ) -> None:
        if job.send_begun_at is not None:
            job.earlier.append(job.ticket_id)
            job.attempt += 1
        job.ticket_id = make_ticket_id(execution.request_id, job.job_name, job.attempt)
        kept = job.progress
        job.progress = JobProgress(
            status,
            following.message,
            started_at=kept.started_at,
            processed_count=kept.processed_count,
            low_watermarks=kept.low_watermarks,
            high_watermarks=kept.high_watermarks,
        )
        job.failures = 0 if status is ExecutionStatus.PENDING_RESUME else job.failures + following.counts
        job.send_at = self.now() + dt.timedelta(seconds=following.wait_s)
        job.send_tries, job.send_begun_at, job.sent_at, job.moving_at = 0, None, None, None
        job.cancel_ticket_id, job.cancel_verb, job.cancel_sent_at = None, None, None

    def request_end(self, execution: ExecutionRow, reason: str) -> bool:
        if execution.cancel_asked_at is not None:
            return False
        if execution.status in ENDED:
            return True
        execution.cancel_asked_at, execution.message = self.now(), reason
        if execution.launch_at is not None:
            execution.status, execution.launch_at, execution.ended_at = ExecutionStatus.CANCELLED, None, self.now()
            return True
        for job in execution.jobs:
            if job.status in UNSENT and job.send_begun_at is None:
                self.move_job(job, ExecutionStatus.CANCELLED, reason)
        for job in execution.jobs:
            if job.progress.ended_at is None and job.cancel_ticket_id is None:
                job.cancel_ticket_id, job.cancel_verb = TicketId(self.draw_id()), TicketVerb.CANCEL
        self.settle(execution)
        return True

    def request_deletions(self, flow_id: uuid.UUID, names: Sequence[str] | None = None) -> None:
        last: dict[str, JobRow] = {}
        for job in self.list_jobs():
            row = self.names.get(job.job_name)
            is_asked = names is None or job.job_name in names
            if row is not None and row.flow_id == flow_id and is_asked and job.is_worker and job.was_sent:
                last[job.job_name] = job
        for job in last.values():
            if job.cancel_verb is not TicketVerb.DELETE:
                job.cancel_ticket_id, job.cancel_verb = TicketId(self.draw_id()), TicketVerb.DELETE
                job.cancel_sent_at = None

    def move_job(self, job: JobRow, after: ExecutionStatus, message: str) -> None:
        check_move(job.status, after)
        ended_at = (job.progress.ended_at or self.now()) if after in ENDED else None
        job.progress = replace(job.progress, status=after, message=message, ended_at=ended_at)

    def settle(self, execution: ExecutionRow) -> None:
        outlines = [
            JobOutline(
                job.number, job.job_name, job.status, job.after, job.progress.message, job.send_begun_at is not None
            )
            for job in execution.jobs
        ]
        finishes = self.config_of(execution).failure_option is FailureOption.FINISH_RUNNING
        outcome = decide_execution(execution.status, outlines, finishes_running=finishes)
        for job in execution.jobs:
            if job.number in outcome.cancelled:
                self.move_job(job, ExecutionStatus.CANCELLED, outcome.cancelled[job.number])
        if outcome.status is not execution.status:
            check_move(execution.status, outcome.status)
            execution.status = outcome.status
            execution.message = outcome.message or execution.message
            execution.ended_at = self.now() if outcome.status in ENDED else None


def refuse_open(execution_id: int) -> ConflictError:
    return ConflictError(
        f"the execution {execution_id} of the flow is open", hint="Wait for its end.", execution_id=execution_id
    )


def read_time_s(text: str) -> float | None:
    return float(int(text[:-1]) * _UNIT_S[text[-1]]) if text else None
