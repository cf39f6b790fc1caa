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
    COMPLETE = "COMPLETE"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


EDGES: Final[Mapping[ExecutionStatus, frozenset[ExecutionStatus]]] = {
    ExecutionStatus.COMPILED: frozenset(
        {ExecutionStatus.PENDING, ExecutionStatus.ORCHESTRATED, ExecutionStatus.FAILED, ExecutionStatus.CANCELLED}
    ),
    ExecutionStatus.PENDING: frozenset(
        {ExecutionStatus.COMPILED, ExecutionStatus.ORCHESTRATED, ExecutionStatus.FAILED, ExecutionStatus.CANCELLED}
    ),
    ExecutionStatus.ORCHESTRATED: frozenset(
        {ExecutionStatus.RUNNING, ExecutionStatus.COMPLETE, ExecutionStatus.FAILED, ExecutionStatus.CANCELLED}
    ),
    ExecutionStatus.RUNNING: frozenset({ExecutionStatus.COMPLETE, ExecutionStatus.FAILED, ExecutionStatus.CANCELLED}),
    ExecutionStatus.COMPLETE: frozenset(),
    ExecutionStatus.FAILED: frozenset(),
    ExecutionStatus.CANCELLED: frozenset(),
}

ENDED: Final = frozenset(status for status, following in EDGES.items() if not following)


@dataclass(frozen=True, slots=True)
class JobStatus:
    """A job of one execution. ``job_group``: its executor's name.

    ``processed_count``: rows; of copies, files. ``low_watermark`` and ``high_watermark``: of one key its text, of
    several a JSON object by key; None where nothing has a position. ``template_uri``: with the version of the pack that
    the job was made by. Times are aware.
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


@dataclass(frozen=True, slots=True)
class FlowStatus:
    """One execution of a flow, with its jobs in the order of the plan."""

    flow: FlowKey
    execution_id: int
    flow_version: str
    status: ExecutionStatus
    started_at: dt.datetime
    ended_at: dt.datetime | None
    message: str
    jobs: tuple[JobStatus, ...]
