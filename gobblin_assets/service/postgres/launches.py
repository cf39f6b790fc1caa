"""Launches in Postgres: the execution that is made, its jobs, their names and the ids of their tickets."""

import json
import uuid
from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Connection, Row, text

from gobblin_assets.db.statement_texts import to_jsonb
from gobblin_assets.errors import ConflictError
from gobblin_assets.model.job_ticket import (
    JobTicket,
    LogId,
    job_ticket_from_json,
    job_ticket_to_json,
    selection_to_json,
)
from gobblin_assets.service.execution_store import JobOfExecution
from gobblin_assets.service.flow_jobs import check_binding
from gobblin_assets.service.flow_store import JobBinding, Launch, LaunchedJob
from gobblin_assets.service.job_progress import check_move
from gobblin_assets.service.job_retries import NextTicket, make_ticket_id
from gobblin_assets.service.postgres.execution_moves import (
    begin_ticket,
    job_arguments,
    lock_execution,
    request_deletions,
)
from gobblin_assets.service.statuses import ENDED, ExecutionStatus

_FIND_LAUNCHED = text("SELECT execution_id FROM gobblin_service.flow_execution WHERE request_id = :request_id")

_FIND_OPEN = text("""
    SELECT execution_id FROM gobblin_service.flow_execution
     WHERE flow_id = :flow_id AND ended_at IS NULL AND NOT is_adopted
""")

_GENERATION = text("SELECT generation FROM gobblin_service.flow WHERE flow_id = :flow_id")

_HAS_STARTED = text("UPDATE gobblin_service.flow SET restarts = false WHERE flow_id = :flow_id AND restarts")

_RETIRE = text("""
    UPDATE gobblin_service.flow_job b SET retired_at = clock_timestamp()
     WHERE b.flow_id = :flow_id AND b.retired_at IS NULL AND b.job_name <> ALL (CAST(:kept AS text[]))
       AND EXISTS (SELECT FROM gobblin_service.job_execution j
                    WHERE j.job_name = b.job_name AND j.ticket ->> 'shape' = 'worker'
                      AND (j.send_begun_at IS NOT NULL OR j.attempt > 1))
    RETURNING b.job_name
""")

_TICKETS_OF = text("""
    SELECT number, job_name, executor, ticket FROM gobblin_service.job_execution
     WHERE execution_id = :execution_id ORDER BY number
""")

_NAME_JOB = text("""
    INSERT INTO gobblin_service.flow_job
           (job_name, flow_id, node, generation, log_id, template_uri, source_node, source_place, root)
    VALUES (:job_name, :flow_id, :node, :generation, :log_id, :template_uri, :source_node, :source_place, :root)
        ON CONFLICT DO NOTHING
""")

_NAMED_JOB = text("""
    SELECT job_name, log_id, template_uri, source_node, source_place, root FROM gobblin_service.flow_job
     WHERE flow_id = :flow_id AND node = :node AND generation = :generation AND retired_at IS NULL
""")

_INSERT_EXECUTION = text("""
    INSERT INTO gobblin_service.flow_execution (request_id, flow_id, flow_version, status, asked_by, selection)
    VALUES (:request_id, :flow_id, :flow_version, :status, :asked_by, CAST(:selection AS jsonb))
    RETURNING execution_id
""")

_COMPILE_EXECUTION = text("""
    UPDATE gobblin_service.flow_execution
       SET status = :status, flow_version = :flow_version, message = '', waits_for = '', launch_at = NULL
     WHERE execution_id = :execution_id
""")

_INSERT_JOB = text("""
    INSERT INTO gobblin_service.job_execution
           (execution_id, number, job_name, executor, log, ticket_id, ticket, after, status)
    VALUES (:execution_id, :number, :job_name, :executor, :log, :ticket_id, CAST(:ticket AS json),
            CAST(:after AS jsonb), :status)
""")


DEADLINE: Final = "{since} + CAST(nullif({config} ->> '{option}', '') AS interval)"
"""By an option of a flow's ``config``; null if it has none."""

_SINCE: Final = "CASE WHEN :is_resumed THEN clock_timestamp() ELSE e.started_at END"
_START_BY: Final = DEADLINE.format(since=_SINCE, config="v.config", option="start_deadline")
_FINISH_BY: Final = DEADLINE.format(since=_SINCE, config="v.config", option="finish_deadline")

# An execution that was fired has those of the version that it was fired for.
_SET_DEADLINES = text(f"""
    UPDATE gobblin_service.flow_execution e SET start_by = {_START_BY}, finish_by = {_FINISH_BY}
      FROM gobblin_service.flow_version v
     WHERE e.execution_id = :execution_id AND (v.flow_id, v.version) = (e.flow_id, e.flow_version)
       AND (v.config ?| ARRAY['start_deadline', 'finish_deadline'] OR least(e.start_by, e.finish_by) IS NOT NULL)
""")


def _set_deadlines(connection: Connection, execution_id: int, *, is_resumed: bool) -> None:
    """By the options of the flow's version: from when the execution was made, or from now on if it is resumed."""
    connection.execute(_SET_DEADLINES, {"execution_id": execution_id, "is_resumed": is_resumed})


_TO_RESUME = text("""
    SELECT number, job_name, status FROM gobblin_service.job_execution
     WHERE execution_id = :execution_id ORDER BY number
""")

_REASSIGN = text("""
    UPDATE gobblin_service.job_execution SET executor = :executor, log = :log, ticket = CAST(:ticket AS json)
     WHERE execution_id = :execution_id AND number = :number
""")

_RESUMED = text("""
    SELECT e.resume_id, e.flow_version, e.is_adopted, e.asked_by,
           e.execution_id = (SELECT max(o.execution_id) FROM gobblin_service.flow_execution o
                              WHERE o.flow_id = e.flow_id AND NOT o.is_adopted) AS is_last
      FROM gobblin_service.flow_execution e WHERE e.execution_id = :execution_id AND e.flow_id = :flow_id
""")

_RESUME = text("""
    UPDATE gobblin_service.flow_execution
       SET status = :status, message = '', ended_at = NULL, cancel_asked_at = NULL, resume_id = :resume_id
     WHERE execution_id = :execution_id
""")


def resume_jobs(connection: Connection, flow_id: uuid.UUID, version: int, execution_id: int, launch: Launch) -> None:
    """Give the jobs of an ended execution that did not complete new tickets, by the plan of now.

    The flow's row is locked. ConflictError: the execution is not the flow's last one, or not of its version; it is open
    or COMPLETE; or the plan of now has other jobs.
    """
    execution = lock_execution(connection, execution_id)
    found = connection.execute(_RESUMED, {"execution_id": execution_id, "flow_id": flow_id}).one_or_none()
    if found is not None and found.resume_id == launch.request_id:
        return
    status = ExecutionStatus(execution.status)
    if status not in ENDED:
        raise is_open(execution_id)
    if found is not None and found.is_adopted:
        raise _refuse_resume(execution_id, f"it was begun in {found.asked_by}")
    if found is None or not found.is_last or found.flow_version != version:
        raise _refuse_resume(execution_id, "the flow was run or changed after it")
    if connection.execute(_GENERATION, {"flow_id": flow_id}).scalar_one() != launch.generation:
        raise _refuse_resume(execution_id, "the flow was replanned after it")
    rows = connection.execute(_TO_RESUME, {"execution_id": execution_id}).all()
    planned = {job.job_name: job for job in launch.jobs}
    if [row.job_name for row in rows] != [job.job_name for job in launch.jobs]:
        raise _refuse_resume(execution_id, "the plan of now has other jobs")
    rest = [row for row in rows if row.status != ExecutionStatus.COMPLETE]
    if not rest:
        raise _refuse_resume(execution_id, "all of its jobs are COMPLETE")
    for row in rest:
        job, following = planned[row.job_name], JobOfExecution(execution_id, row.number)
        _bind(connection, flow_id, launch.generation, job)
        check_move(ExecutionStatus(row.status), ExecutionStatus.PENDING_RESUME)
        begin_ticket(connection, execution, following, ExecutionStatus.PENDING_RESUME, NextTicket(""))
        target = {"executor": job.executor, "log": job.log, "ticket": to_jsonb(job_ticket_to_json(job.ticket))}
        connection.execute(_REASSIGN, {**job_arguments(following), **target})
    check_move(status, ExecutionStatus.PENDING_RESUME)
    resumed = {"status": ExecutionStatus.PENDING_RESUME.value, "resume_id": launch.request_id}
    connection.execute(_RESUME, {"execution_id": execution_id, **resumed})
    _set_deadlines(connection, execution_id, is_resumed=True)


def _refuse_resume(execution_id: int, why: str) -> ConflictError:
    return ConflictError(
        f"the execution {execution_id} can't be resumed: {why}", hint="Run the flow.", execution_id=execution_id
    )


def find_launched(connection: Connection, request_id: uuid.UUID) -> int | None:
    """The execution that this launch made before."""
    found: int | None = connection.execute(_FIND_LAUNCHED, {"request_id": request_id}).scalar()
    return found


def make_execution(connection: Connection, flow_id: uuid.UUID, version: int, launch: Launch) -> int:
    """Make an execution of a flow whose row is locked, and bind the names of its jobs."""
    open_id = connection.execute(_FIND_OPEN, {"flow_id": flow_id}).scalar()
    if open_id is not None:
        raise is_open(open_id)
    execution_id: int = connection.execute(
        _INSERT_EXECUTION,
        {
            "request_id": launch.request_id,
            "flow_id": flow_id,
            "flow_version": version,
            "status": ExecutionStatus.COMPILED.value,
            "asked_by": launch.asked_by,
            "selection": to_jsonb(selection_to_json(launch.selection)),
        },
    ).scalar_one()
    _insert_jobs(connection, flow_id, execution_id, launch)
    return execution_id


def launch_execution(
    connection: Connection, flow_id: uuid.UUID, version: int, execution_id: int, launch: Launch
) -> None:
    """Give an execution that was fired its jobs. Its row and its flow's are locked."""
    arguments = {"execution_id": execution_id, "flow_version": version, "status": ExecutionStatus.COMPILED.value}
    connection.execute(_COMPILE_EXECUTION, arguments)
    _insert_jobs(connection, flow_id, execution_id, launch)


def _insert_jobs(connection: Connection, flow_id: uuid.UUID, execution_id: int, launch: Launch) -> None:
    if connection.execute(_GENERATION, {"flow_id": flow_id}).scalar_one() != launch.generation:
        raise ConflictError("the flow was replanned meanwhile", hint="Run it again.")
    for job in launch.jobs:
        _bind(connection, flow_id, launch.generation, job)
    for job in launch.jobs:
        arguments = {
            "execution_id": execution_id,
            "number": job.number,
            "job_name": job.job_name,
            "executor": job.executor,
            "log": job.log,
            "ticket_id": make_ticket_id(launch.request_id, job.job_name, 1),
            "ticket": to_jsonb(job_ticket_to_json(job.ticket)),
            "after": to_jsonb(list(job.after)),
            "status": (ExecutionStatus.PENDING if job.after else ExecutionStatus.COMPILED).value,
        }
        connection.execute(_INSERT_JOB, arguments)
    _set_deadlines(connection, execution_id, is_resumed=False)
    connection.execute(_HAS_STARTED, {"flow_id": flow_id})
    kept = [job.job_name for job in launch.jobs]
    if retired := connection.execute(_RETIRE, {"flow_id": flow_id, "kept": kept}).scalars().all():
        request_deletions(connection, flow_id, retired)


def runs_as_planned(connection: Connection, execution_id: int, planned: Sequence[LaunchedJob]) -> bool:
    """Whether the execution's jobs are these, but for versions and descriptions."""
    rows = connection.execute(_TICKETS_OF, {"execution_id": execution_id}).all()
    found = [(row.job_name, row.executor, _essence_of(job_ticket_from_json(row.ticket))) for row in rows]
    return found == [(job.job_name, job.executor, _essence_of(job.ticket)) for job in planned]


def _essence_of(ticket: JobTicket) -> object:
    return ticket.capability, ticket.shape, json.dumps(ticket.job, sort_keys=True)


def is_open(execution_id: int) -> ConflictError:
    return ConflictError(
        f"the execution {execution_id} of the flow is open",
        hint="Wait for its end, or cancel it.",
        execution_id=execution_id,
    )


def binding_of(row: Row[Any]) -> JobBinding:
    """Of a row of ``flow_job``."""
    return JobBinding(LogId(row.log_id), row.template_uri, row.source_node, row.source_place, row.root)


def _bind(connection: Connection, flow_id: uuid.UUID, generation: int, job: LaunchedJob) -> None:
    binding = job.binding
    arguments = {
        "job_name": job.job_name,
        "flow_id": flow_id,
        "node": job.node,
        "generation": generation,
        "log_id": binding.log_id,
        "template_uri": binding.template_uri,
        "source_node": binding.source_node,
        "source_place": binding.source_place,
        "root": binding.root,
    }
    connection.execute(_NAME_JOB, arguments)
    named = connection.execute(
        _NAMED_JOB, {"flow_id": flow_id, "node": job.node, "generation": generation}
    ).one_or_none()
    if named is None or named.job_name != job.job_name:
        raise ConflictError(
            f"the job name {job.job_name} is not free for the node {job.node}", hint="Run the flow again."
        )
    check_binding(job.job_name, binding_of(named), binding)
