"""The statuses of executions and of their jobs, as Postgres has them."""

import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from sqlalchemy import Connection, Row, text

from gobblin_assets.service.job_progress import JobProgress, read_places, write_watermarks
from gobblin_assets.service.specs import FlowKey
from gobblin_assets.service.statuses import ExecutionStatus, FlowStatus, JobAttempt, JobStatus

PROGRESS_COLUMNS: Final = """
    j.status, j.message, j.started_at, j.ended_at, j.processed_count, j.low_watermarks, j.high_watermarks,
    j.read_attempt, j.read_number, j.ticket ->> 'capability' LIKE 'distcp%' AS counts_files,
    j.deletion, j.cancel_ticket_id, j.ticket ->> 'template_uri' AS template_uri, j.attempt, j.places
"""

_EXECUTION_COLUMNS: Final = """
    e.execution_id, e.flow_version, e.status, e.started_at, e.ended_at, e.message, e.asked_by, f.flow_group,
    f.flow_name
"""

_EXECUTION = text(f"""
    SELECT {_EXECUTION_COLUMNS}
      FROM gobblin_service.flow_execution e JOIN gobblin_service.flow f USING (flow_id)
     WHERE e.execution_id = :execution_id
""")

_EXECUTIONS = text(f"""
    SELECT {_EXECUTION_COLUMNS}
      FROM gobblin_service.flow_execution e JOIN gobblin_service.flow f USING (flow_id)
     WHERE f.flow_group = :flow_group AND f.flow_name = :flow_name AND f.deleted_at IS NULL
       AND e.execution_id < :before
     ORDER BY e.execution_id DESC
     LIMIT :limit
""")

_LAST = text(f"""
    SELECT {_EXECUTION_COLUMNS}
      FROM gobblin_service.flow f
      JOIN LATERAL (SELECT * FROM gobblin_service.flow_execution l
                     WHERE l.flow_id = f.flow_id ORDER BY l.execution_id DESC LIMIT 1) e ON true
     WHERE f.flow_id = ANY (CAST(:flow_ids AS uuid[]))
""")

_JOBS_OF = text(f"""
    SELECT j.execution_id, j.number, j.job_name, j.executor, j.ticket_id, {PROGRESS_COLUMNS}
      FROM gobblin_service.job_execution j
     WHERE j.execution_id = ANY (CAST(:execution_ids AS bigint[])) ORDER BY j.execution_id, j.number
""")

_EARLIER = text("""
    SELECT number, attempt, executor, log, ticket_id, status, message, ended_at FROM gobblin_service.job_attempt
     WHERE execution_id = :execution_id ORDER BY attempt DESC LIMIT :limit
""")

EARLIER_SHOWN_MAX: Final = 50
"""Of an execution: so many of its jobs' earlier tickets are shown, those with the highest numbers."""

LATEST: Final = (1 << 63) - 1


def find_status(connection: Connection, execution_id: int) -> FlowStatus | None:
    """With the earlier tickets of its jobs."""
    rows = connection.execute(_EXECUTION, {"execution_id": execution_id}).all()
    found = next(iter(_statuses_of(connection, rows)), None)
    if found is None or all(job.attempt == 1 for job in found.jobs):
        return found
    earlier: dict[int, list[JobAttempt]] = {job.number: [] for job in found.jobs}
    for row in connection.execute(_EARLIER, {"execution_id": execution_id, "limit": EARLIER_SHOWN_MAX}):
        status = ExecutionStatus(row.status)
        earlier[row.number].append(
            JobAttempt(row.attempt, row.executor, row.log, row.ticket_id, status, row.message, row.ended_at)
        )
    return replace(found, jobs=tuple(replace(job, earlier=tuple(earlier[job.number])) for job in found.jobs))


def find_last(connection: Connection, key: FlowKey) -> FlowStatus | None:
    """The status of the flow's last execution."""
    return next(iter(list_statuses(connection, key, after=None, limit=1)), None)


def list_statuses(connection: Connection, key: FlowKey, *, after: int | None, limit: int) -> Sequence[FlowStatus]:
    before = LATEST if after is None else after
    arguments = {"flow_group": key.group, "flow_name": key.name, "before": before, "limit": limit}
    return _statuses_of(connection, connection.execute(_EXECUTIONS, arguments).all())


def list_last(connection: Connection, flow_ids: Sequence[uuid.UUID]) -> Sequence[FlowStatus]:
    """The statuses of the last executions of several flows."""
    return _statuses_of(connection, connection.execute(_LAST, {"flow_ids": list(flow_ids)}).all())


def job_status_of(row: Row[Any], flow: FlowKey) -> JobStatus:
    """Of a row with the columns of progress of a ``job_execution``."""
    progress = progress_of(row)
    return JobStatus(
        flow=flow,
        number=row.number,
        job_name=row.job_name,
        job_group=row.executor,
        status=progress.status,
        ticket_id=row.ticket_id,
        started_at=progress.started_at,
        ended_at=progress.ended_at,
        message=" ".join(each for each in (progress.message, _describe_deletion(row)) if each),
        processed_count=progress.processed_count,
        low_watermark=write_watermarks(progress.low_watermarks),
        high_watermark=write_watermarks(progress.high_watermarks),
        template_uri=row.template_uri,
        attempt=row.attempt,
    )


def progress_of(row: Row[Any]) -> JobProgress:
    return JobProgress(
        status=ExecutionStatus(row.status),
        message=row.message,
        started_at=row.started_at,
        ended_at=row.ended_at,
        processed_count=row.processed_count,
        low_watermarks=row.low_watermarks,
        high_watermarks=row.high_watermarks,
        read=(row.read_attempt, row.read_number),
        counts_files=row.counts_files,
        places=read_places(row.places),
    )


def _describe_deletion(row: Row[Any]) -> str:
    if row.deletion != "waits":
        return str(row.deletion)
    told = f"`gobblin-assets executor reports {row.cancel_ticket_id}` says how far that is"
    return f"The source keeps what it has for the job until the executor {row.executor} deletes it: {told}."


def _statuses_of(connection: Connection, executions: Sequence[Row[Any]]) -> Sequence[FlowStatus]:
    by_execution: dict[int, list[JobStatus]] = {row.execution_id: [] for row in executions}
    keys = {row.execution_id: FlowKey(row.flow_group, row.flow_name) for row in executions}
    for row in connection.execute(_JOBS_OF, {"execution_ids": list(by_execution)}) if executions else ():
        by_execution[row.execution_id].append(job_status_of(row, keys[row.execution_id]))
    return [
        FlowStatus(
            flow=keys[row.execution_id],
            execution_id=row.execution_id,
            flow_version=str(row.flow_version),
            status=ExecutionStatus(row.status),
            started_at=row.started_at,
            ended_at=row.ended_at,
            message=row.message,
            jobs=tuple(by_execution[row.execution_id]),
            asked_by=row.asked_by,
        )
        for row in executions
    ]
