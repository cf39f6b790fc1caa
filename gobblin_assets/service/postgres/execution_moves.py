"""Moves of executions and of their jobs in Postgres: the statuses that follow from each other, and the ends asked for.

Whoever changes a job of an execution locks the execution's row first.
"""

import uuid
from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Connection, Row, text

from gobblin_assets.db.table_metadata import states
from gobblin_assets.service.execution_store import JobOfExecution
from gobblin_assets.service.flow_config import FailureOption
from gobblin_assets.service.job_progress import JobOutline, check_move, decide_execution
from gobblin_assets.service.job_retries import NextTicket, make_ticket_id
from gobblin_assets.service.statuses import ENDED, UNSENT, ExecutionStatus

IS_UNSENT: Final = f"status IN ({states(*UNSENT)})"

_LOCK = text(f"""
    SELECT e.execution_id, e.request_id, e.status, e.cancel_asked_at IS NOT NULL AS is_asked_to_end,
           e.launch_at IS NOT NULL AS has_no_jobs,
           coalesce(v.config ->> 'failure_option', '') = '{FailureOption.FINISH_RUNNING}' AS finishes_running
      FROM gobblin_service.flow_execution e
      JOIN gobblin_service.flow_version v ON (v.flow_id, v.version) = (e.flow_id, e.flow_version)
     WHERE e.execution_id = :execution_id FOR UPDATE OF e
""")

_OUTLINES = text("""
    SELECT number, job_name, status, after, message, send_begun_at IS NOT NULL AS is_begun
      FROM gobblin_service.job_execution
     WHERE execution_id = :execution_id ORDER BY number FOR UPDATE
""")

_MOVE_JOB = text("""
    UPDATE gobblin_service.job_execution
       SET status = :status, message = :message,
           ended_at = CASE WHEN :is_ended THEN coalesce(ended_at, clock_timestamp()) END
     WHERE execution_id = :execution_id AND number = :number
""")

_MOVE_EXECUTION = text("""
    UPDATE gobblin_service.flow_execution
       SET status = :status, message = CASE WHEN :message <> '' THEN :message ELSE message END,
           ended_at = CASE WHEN :is_ended THEN clock_timestamp() END
     WHERE execution_id = :execution_id
""")

_ASK_END = text("""
    UPDATE gobblin_service.flow_execution SET cancel_asked_at = clock_timestamp(), message = :message
     WHERE execution_id = :execution_id
""")

_END_FIRED = text("""
    UPDATE gobblin_service.flow_execution
       SET status = 'CANCELLED', launch_at = NULL, ended_at = clock_timestamp()
     WHERE execution_id = :execution_id
""")

_NOT_BEGUN = text(f"""
    SELECT number, status FROM gobblin_service.job_execution
     WHERE execution_id = :execution_id AND {IS_UNSENT} AND send_begun_at IS NULL ORDER BY number
""")

_DECIDE_CANCELS = text("""
    UPDATE gobblin_service.job_execution SET cancel_ticket_id = gen_random_uuid(), cancel_verb = 'CANCEL'
     WHERE execution_id = :execution_id AND ended_at IS NULL AND cancel_ticket_id IS NULL
""")

# The last ticket of each worker's job that may have been sent: its end removes what the source keeps for the job.
_DECIDE_DELETIONS = text("""
    UPDATE gobblin_service.job_execution j
       SET cancel_ticket_id = gen_random_uuid(), cancel_verb = 'DELETE', cancel_sent_at = NULL, forgotten_at = NULL
     WHERE (j.job_name, j.execution_id) IN (
               SELECT o.job_name, max(o.execution_id)
                 FROM gobblin_service.flow_job b JOIN gobblin_service.job_execution o USING (job_name)
                WHERE b.flow_id = :flow_id AND o.ticket ->> 'shape' = 'worker'
                  AND (o.send_begun_at IS NOT NULL OR o.attempt > 1)
                  AND (CAST(:names AS text[]) IS NULL OR o.job_name = ANY (CAST(:names AS text[])))
                GROUP BY o.job_name)
       AND j.cancel_verb IS DISTINCT FROM 'DELETE'
""")


_KEEP_ATTEMPT = text("""
    INSERT INTO gobblin_service.job_attempt
           (execution_id, number, attempt, executor, log, ticket_id, cancel_ticket_id, status, message)
    SELECT execution_id, number, attempt, executor, log, ticket_id, cancel_ticket_id, status, message
      FROM gobblin_service.job_execution WHERE execution_id = :execution_id AND number = :number
""")

_NEXT_TICKET = text("""
    UPDATE gobblin_service.job_execution
       SET status = :status, message = :message, ended_at = NULL, attempt = :attempt, ticket_id = :ticket_id,
           failures = CASE WHEN :resets THEN 0 ELSE failures + CAST(:counts AS int) END,
           send_at = clock_timestamp() + make_interval(secs => :wait_s), send_tries = 0, send_begun_at = NULL,
           started_at = CASE WHEN :resets THEN NULL ELSE started_at END,
           sent_at = NULL, moving_at = NULL, read_attempt = -1, read_number = 0, places = '{}',
           cancel_ticket_id = NULL, cancel_verb = NULL, cancel_sent_at = NULL, forgotten_at = NULL
     WHERE execution_id = :execution_id AND number = :number
""")

_ATTEMPT = text("""
    SELECT job_name, attempt, send_begun_at IS NOT NULL AS is_begun FROM gobblin_service.job_execution
     WHERE execution_id = :execution_id AND number = :number
""")


def begin_ticket(
    connection: Connection, execution: Row[Any], job: JobOfExecution, status: ExecutionStatus, following: NextTicket
) -> None:
    """Give a job of a locked execution its next ticket, which is to be sent. What it published stays counted.

    A ticket that was never sent is no attempt: it stays the job's.
    """
    last = connection.execute(_ATTEMPT, job_arguments(job)).one()
    attempt = last.attempt
    if last.is_begun:
        connection.execute(_KEEP_ATTEMPT, job_arguments(job))
        attempt += 1
    arguments = {
        "status": status.value,
        "message": following.message,
        "attempt": attempt,
        "ticket_id": make_ticket_id(execution.request_id, last.job_name, attempt),
        "counts": following.counts,
        "resets": status is ExecutionStatus.PENDING_RESUME,
        "wait_s": following.wait_s,
    }
    connection.execute(_NEXT_TICKET, {**job_arguments(job), **arguments})


def request_end(connection: Connection, execution_id: int, reason: str) -> bool:
    """End what was not sent, and decide the tickets that end the rest.

    False: its end was asked for before, and nothing is done.
    """
    execution = lock_execution(connection, execution_id)
    if execution.is_asked_to_end:
        return False
    if ExecutionStatus(execution.status) in ENDED:
        return True
    connection.execute(_ASK_END, {"execution_id": execution_id, "message": reason})
    if execution.has_no_jobs:
        connection.execute(_END_FIRED, {"execution_id": execution_id})
        return True
    for row in connection.execute(_NOT_BEGUN, {"execution_id": execution_id}).all():
        job = JobOfExecution(execution_id, row.number)
        move_job(connection, job, ExecutionStatus(row.status), ExecutionStatus.CANCELLED, reason)
    connection.execute(_DECIDE_CANCELS, {"execution_id": execution_id})
    settle_execution(connection, execution)
    return True


def request_deletions(connection: Connection, flow_id: uuid.UUID, names: Sequence[str] | None = None) -> None:
    """Decide the tickets by which sources forget workers: of a flow that is deleted or renamed, or of these jobs."""
    connection.execute(_DECIDE_DELETIONS, {"flow_id": flow_id, "names": None if names is None else list(names)})


def lock_execution(connection: Connection, execution_id: int) -> Row[Any]:
    return connection.execute(_LOCK, {"execution_id": execution_id}).one()


def move_job(
    connection: Connection, job: JobOfExecution, before: ExecutionStatus, after: ExecutionStatus, message: str
) -> None:
    check_move(before, after)
    arguments = {"status": after.value, "message": message, "is_ended": after in ENDED}
    connection.execute(_MOVE_JOB, {**job_arguments(job), **arguments})


def settle_execution(connection: Connection, execution: Row[Any]) -> None:
    """Give a locked execution the status that its jobs have it be in."""
    execution_id, current = execution.execution_id, ExecutionStatus(execution.status)
    rows = connection.execute(_OUTLINES, {"execution_id": execution_id}).all()
    jobs = [
        JobOutline(
            row.number, row.job_name, ExecutionStatus(row.status), tuple(row.after), row.message, is_begun=row.is_begun
        )
        for row in rows
    ]
    outcome = decide_execution(current, jobs, finishes_running=execution.finishes_running)
    for job in jobs:
        if job.number in outcome.cancelled:
            moved = JobOfExecution(execution_id, job.number)
            move_job(connection, moved, job.status, ExecutionStatus.CANCELLED, outcome.cancelled[job.number])
    if outcome.status is not current:
        check_move(current, outcome.status)
        arguments = {"status": outcome.status.value, "message": outcome.message, "is_ended": outcome.status in ENDED}
        connection.execute(_MOVE_EXECUTION, {"execution_id": execution_id, **arguments})


def job_arguments(job: JobOfExecution) -> dict[str, object]:
    return {"execution_id": job.execution_id, "number": job.number}
