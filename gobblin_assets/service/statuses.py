"""Statuses of flows and of their jobs, as executions have them, and the moves between them."""

import datetime as dt
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from gobblin_assets.service.specs import FlowKey


class ExecutionStatus(StrEnum):
    """The state of an execution of a flow, or of one of its jobs (Gobblin's words)."""

    COMPILED = "COMPILED"  # its plan is made
    PENDING = "PENDING"  # it waits for jobs before it, or for its launch
    ORCHESTRATED = "ORCHESTRATED"  # its ticket is sent
    RUNNING = "RUNNING"
    PENDING_RETRY = "PENDING_RETRY"  # its ticket has ended, and it gets another one
    PENDING_RESUME = "PENDING_RESUME"  # it had ended, and somebody has asked for the rest of it
    COMPLETE = "COMPLETE"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


ENDED: Final = frozenset({ExecutionStatus.COMPLETE, ExecutionStatus.FAILED, ExecutionStatus.CANCELLED})

UNSENT: Final = (
    ExecutionStatus.COMPILED,
    ExecutionStatus.PENDING,
    ExecutionStatus.PENDING_RETRY,
    ExecutionStatus.PENDING_RESUME,
)
"""Of jobs whose tickets are to be sent."""

EDGES: Final[Mapping[ExecutionStatus, frozenset[ExecutionStatus]]] = {
    ExecutionStatus.COMPILED: frozenset(
        {ExecutionStatus.PENDING, ExecutionStatus.ORCHESTRATED, ExecutionStatus.FAILED, ExecutionStatus.CANCELLED}
    ),
    ExecutionStatus.PENDING: frozenset(
        {ExecutionStatus.COMPILED, ExecutionStatus.ORCHESTRATED, ExecutionStatus.FAILED, ExecutionStatus.CANCELLED}
    ),
    ExecutionStatus.ORCHESTRATED: frozenset({ExecutionStatus.RUNNING, ExecutionStatus.PENDING_RETRY, *ENDED}),
    ExecutionStatus.RUNNING: frozenset({ExecutionStatus.PENDING_RETRY, *ENDED}),
    # Of an execution, another job may run while one is to be sent again.
    ExecutionStatus.PENDING_RETRY: frozenset(
        {ExecutionStatus.ORCHESTRATED, ExecutionStatus.RUNNING, ExecutionStatus.FAILED, ExecutionStatus.CANCELLED}
    ),
    ExecutionStatus.PENDING_RESUME: frozenset(
        {ExecutionStatus.ORCHESTRATED, ExecutionStatus.RUNNING, ExecutionStatus.FAILED, ExecutionStatus.CANCELLED}
    ),
    ExecutionStatus.COMPLETE: frozenset(),
    ExecutionStatus.FAILED: frozenset({ExecutionStatus.PENDING_RESUME}),
    ExecutionStatus.CANCELLED: frozenset({ExecutionStatus.PENDING_RESUME}),
}


@dataclass(frozen=True, slots=True)
class JobAttempt:
    """A ticket of a job before its last one, and its end. ``log``: the name of the way to its executor."""

    attempt: int
    executor: str
    log: str
    ticket_id: uuid.UUID
    status: ExecutionStatus
    message: str
    ended_at: dt.datetime


@dataclass(frozen=True, slots=True)
class JobStatus:
    """A job of one execution. ``job_group``: its executor's name.

    ``processed_count``: rows; of copies, files. ``low_watermark`` and ``high_watermark``: of one key its text, of
    several a JSON object by key; None where nothing has a position. ``template_uri``: with the version of the pack that
    the job was made by. Times are aware. ``attempt``: its tickets are counted from 1; what earlier ones published is in
    the figures. ``earlier``: of a status that was asked for by its id, the tickets before this one, the latest first.
    """

    flow: FlowKey
    number: int
    job_name: str
    job_group: str
    status: ExecutionStatus
    ticket_id: uuid.UUID
    started_at: dt.datetime | None = None
    ended_at: dt.datetime | None = None
    message: str = ""
    processed_count: int = 0
    low_watermark: str | None = None
    high_watermark: str | None = None
    template_uri: str | None = None
    attempt: int = 1
    earlier: tuple[JobAttempt, ...] = ()


@dataclass(frozen=True, slots=True)
class FlowStatus:
    """One execution of a flow, with its jobs in the order of the plan.

    ``asked_by``: a user; of one that an executor began by itself, what began it, such as dagster.
    """

    flow: FlowKey
    execution_id: int
    flow_version: str
    status: ExecutionStatus
    started_at: dt.datetime
    ended_at: dt.datetime | None
    message: str
    jobs: tuple[JobStatus, ...]
    asked_by: str = ""
