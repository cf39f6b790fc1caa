"""Executions in Postgres: what launches make, what the orchestrator sends, what the monitor reads.

Whoever changes a job of an execution locks the execution's row first.
"""

import json
import logging
import uuid
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

from sqlalchemy import Connection, Engine, Row, text

from gobblin_assets.db.statement_texts import to_jsonb
from gobblin_assets.db.table_metadata import states
from gobblin_assets.db.transactions import transact
from gobblin_assets.errors import ConflictError, RejectedError
from gobblin_assets.failpoints import Failpoint
from gobblin_assets.model.job_ticket import (
    JobTicket,
    LogId,
    TicketId,
    TicketVerb,
    job_ticket_from_json,
    job_ticket_to_json,
    selection_from_json,
    selection_to_json,
)
from gobblin_assets.service.execution_store import (
    JobOfExecution,
    OldJob,
    SentDeletion,
    UnsentCancel,
    UnsentTicket,
    WatchedJob,
)
from gobblin_assets.service.flow_jobs import check_binding
from gobblin_assets.service.flow_store import JobBinding, Launch, LaunchedJob
from gobblin_assets.service.job_progress import (
    JobOutline,
    JobProgress,
    check_move,
    decide_execution,
    write_watermarks,
)
from gobblin_assets.service.specs import FlowKey
from gobblin_assets.service.statuses import ENDED, ExecutionStatus, FlowStatus, JobStatus

T = TypeVar("T")

_log = logging.getLogger(__name__)

_UNSENT: Final = f"status IN ({states(ExecutionStatus.COMPILED, ExecutionStatus.PENDING)})"
_SENT: Final = f"status IN ({states(ExecutionStatus.ORCHESTRATED, ExecutionStatus.RUNNING)})"

_FIND_LAUNCHED = text("SELECT execution_id FROM gobblin_service.flow_execution WHERE request_id = :request_id")

_FIND_OPEN = text("""
    SELECT execution_id FROM gobblin_service.flow_execution WHERE flow_id = :flow_id AND ended_at IS NULL
""")

_GENERATION = text("SELECT generation FROM gobblin_service.flow WHERE flow_id = :flow_id")

_HAS_STARTED = text("UPDATE gobblin_service.flow SET restarts = false WHERE flow_id = :flow_id AND restarts")

_RETIRE = text("""
    UPDATE gobblin_service.flow_job b SET retired_at = clock_timestamp()
     WHERE b.flow_id = :flow_id AND b.retired_at IS NULL AND b.job_name <> ALL (CAST(:kept AS text[]))
       AND EXISTS (SELECT FROM gobblin_service.job_execution j
                    WHERE j.job_name = b.job_name AND j.ticket ->> 'shape' = 'worker' AND j.send_begun_at IS NOT NULL)
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

_INSERT_JOB = text("""
    INSERT INTO gobblin_service.job_execution
           (execution_id, number, job_name, executor, log, ticket_id, ticket, after, status)
    VALUES (:execution_id, :number, :job_name, :executor, :log, :ticket_id, CAST(:ticket AS json),
            CAST(:after AS jsonb), :status)
""")

_LOCK = text("""
    SELECT execution_id, status, cancel_asked_at IS NOT NULL AS is_asked_to_end
      FROM gobblin_service.flow_execution WHERE execution_id = :execution_id FOR UPDATE
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

_NOT_BEGUN = text(f"""
    SELECT number, status FROM gobblin_service.job_execution
     WHERE execution_id = :execution_id AND {_UNSENT} AND send_begun_at IS NULL ORDER BY number
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
                WHERE b.flow_id = :flow_id AND o.ticket ->> 'shape' = 'worker' AND o.send_begun_at IS NOT NULL
                  AND (CAST(:names AS text[]) IS NULL OR o.job_name = ANY (CAST(:names AS text[])))
                GROUP BY o.job_name)
       AND j.cancel_verb IS DISTINCT FROM 'DELETE'
""")

_ON_PAGE: Final = """
    (j.execution_id, j.number) > (:after_execution, :after_number) AND j.log <> ALL (CAST(:without AS text[]))
     ORDER BY j.execution_id, j.number LIMIT :limit
"""

_SENT_COLUMNS: Final = "j.execution_id, j.number, j.executor, j.log, b.log_id, j.ticket_id"

_LIST_UNSENT = text(f"""
    SELECT {_SENT_COLUMNS}, j.ticket, e.selection, j.after <> '[]' AS is_behind,
           j.ticket ->> 'shape' = 'worker'
           AND EXISTS (SELECT FROM gobblin_service.job_execution o
                        WHERE o.job_name = j.job_name AND o.execution_id < j.execution_id
                          AND o.send_begun_at IS NOT NULL) AS is_update
      FROM gobblin_service.job_execution j
      JOIN gobblin_service.flow_execution e USING (execution_id)
      JOIN gobblin_service.flow_job b USING (job_name)
     WHERE j.ended_at IS NULL AND j.{_UNSENT}
       AND (j.send_begun_at IS NOT NULL
            OR NOT EXISTS (
                       SELECT FROM gobblin_service.job_execution p
                        WHERE p.execution_id = j.execution_id AND j.after @> to_jsonb(p.number)
                          AND p.status <> 'COMPLETE'
                          AND (p.ticket ->> 'shape' <> 'worker' OR p.status <> 'RUNNING'
                               OR p.high_watermarks = '{{}}')))
       AND {_ON_PAGE}
""")

_BEGIN_SEND = text(f"""
    UPDATE gobblin_service.job_execution SET send_begun_at = coalesce(send_begun_at, clock_timestamp())
     WHERE execution_id = :execution_id AND number = :number AND {_UNSENT}
""")

_STATUS_OF = text("""
    SELECT status FROM gobblin_service.job_execution WHERE execution_id = :execution_id AND number = :number
""")

_LIST_UNSENT_CANCELS = text(f"""
    SELECT {_SENT_COLUMNS}, j.cancel_ticket_id, j.cancel_verb, j.ticket
      FROM gobblin_service.job_execution j JOIN gobblin_service.flow_job b USING (job_name)
     WHERE j.cancel_ticket_id IS NOT NULL AND j.cancel_sent_at IS NULL
       AND (j.{_SENT} OR j.cancel_verb = 'DELETE' AND NOT j.{_UNSENT})
       AND {_ON_PAGE}
""")

_MARK_CANCEL_SENT = text("""
    UPDATE gobblin_service.job_execution
       SET cancel_sent_at = coalesce(cancel_sent_at, clock_timestamp()),
           deletion = CASE WHEN cancel_verb = 'DELETE' AND cancel_sent_at IS NULL THEN 'waits' ELSE deletion END
     WHERE execution_id = :execution_id AND number = :number AND cancel_ticket_id = :ticket_id
""")

_LIST_DELETIONS = text("""
    SELECT execution_id, number, log, cancel_ticket_id FROM gobblin_service.job_execution
     WHERE deletion = 'waits' ORDER BY execution_id, number
""")

_END_DELETION = text("""
    UPDATE gobblin_service.job_execution SET deletion = :said
     WHERE execution_id = :execution_id AND number = :number AND deletion = 'waits'
""")

PROGRESS_COLUMNS: Final = """
    j.status, j.message, j.started_at, j.ended_at, j.processed_count, j.low_watermarks, j.high_watermarks,
    j.read_attempt, j.read_number, j.ticket ->> 'capability' LIKE 'distcp%' AS counts_files,
    j.deletion, j.cancel_ticket_id, j.ticket ->> 'template_uri' AS template_uri
"""

_LIST_WATCHED = text(f"""
    SELECT j.execution_id, j.number, j.log, j.ticket_id, {PROGRESS_COLUMNS} FROM gobblin_service.job_execution j
     WHERE j.ended_at IS NULL AND j.{_SENT} ORDER BY j.execution_id, j.number
""")

_STORE_PROGRESS = text("""
    UPDATE gobblin_service.job_execution
       SET status = :status, message = :message, started_at = :started_at, ended_at = :ended_at,
           processed_count = :processed_count, low_watermarks = CAST(:low AS jsonb),
           high_watermarks = CAST(:high AS jsonb), read_attempt = :attempt, read_number = :number_read
     WHERE execution_id = :execution_id AND number = :number AND status = :status_before
       AND (read_attempt, read_number) = (:attempt_before, :number_before)
""")

_LIST_OLD = text("""
    SELECT execution_id, number, log, ticket_id, cancel_ticket_id FROM gobblin_service.job_execution
     WHERE ended_at IS NOT NULL AND forgotten_at IS NULL AND send_begun_at IS NOT NULL
       AND ended_at < clock_timestamp() - make_interval(secs => :ended_before_s)
       AND (cancel_verb IS DISTINCT FROM 'DELETE' OR cancel_sent_at IS NOT NULL AND deletion <> 'waits')
       AND (execution_id, number) > (:after_execution, :after_number)
     ORDER BY execution_id, number LIMIT :limit
""")

_MARK_FORGOTTEN = text("""
    UPDATE gobblin_service.job_execution j SET forgotten_at = clock_timestamp()
      FROM unnest(CAST(:execution_ids AS bigint[]), CAST(:numbers AS int[])) AS old (execution_id, number)
     WHERE j.execution_id = old.execution_id AND j.number = old.number AND j.forgotten_at IS NULL
""")

_EXECUTION_COLUMNS: Final = """
    e.execution_id, e.flow_version, e.status, e.started_at, e.ended_at, e.message, f.flow_group, f.flow_name
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

LATEST: Final = (1 << 63) - 1


class PostgresExecutionStore:
    """``ExecutionStore`` over ``flow_execution`` and ``job_execution``."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def list_unsent(
        self, *, limit: int, after: JobOfExecution | None = None, without: Collection[str] = ()
    ) -> Sequence[UnsentTicket]:
        arguments = _page_arguments(limit, after, without)
        found = []
        for row in self._do("list unsent tickets", lambda c: c.execute(_LIST_UNSENT, arguments).all()):
            job = JobOfExecution(row.execution_id, row.number)
            try:
                found.append(_unsent_ticket_of(row, job))
            except RejectedError as error:
                self.fail(job, str(error))
        return found

    def begin_send(self, job: JobOfExecution) -> bool:
        def body(connection: Connection) -> bool:
            _lock_execution(connection, job.execution_id)
            return connection.execute(_BEGIN_SEND, _job_arguments(job)).rowcount == 1

        return self._do("begin to send a ticket", body, Failpoint.SEND_BEGUN)

    def mark_sent(self, job: JobOfExecution) -> None:
        self._move_unsent(job, ExecutionStatus.ORCHESTRATED, "", Failpoint.SEND_MARKED)

    def fail(self, job: JobOfExecution, message: str) -> None:
        self._move_unsent(job, ExecutionStatus.FAILED, message, None)

    def list_unsent_cancels(
        self, *, limit: int, after: JobOfExecution | None = None, without: Collection[str] = ()
    ) -> Sequence[UnsentCancel]:
        arguments = _page_arguments(limit, after, without)
        rows = self._do("list unsent ends", lambda c: c.execute(_LIST_UNSENT_CANCELS, arguments).all())
        found = []
        for row in rows:
            try:
                found.append(_unsent_cancel_of(row))
            except RejectedError as error:
                _log.warning("job %d of the execution %d gets no end: %s", row.number, row.execution_id, error)
        return found

    def mark_cancel_sent(self, job: JobOfExecution, ticket_id: TicketId) -> None:
        def body(connection: Connection) -> None:
            connection.execute(_MARK_CANCEL_SENT, {**_job_arguments(job), "ticket_id": ticket_id})

        self._do("mark an end as sent", body, Failpoint.CANCEL_MARKED)

    def list_watched(self) -> Sequence[WatchedJob]:
        return [
            WatchedJob(
                JobOfExecution(row.execution_id, row.number), row.log, TicketId(row.ticket_id), _progress_of(row)
            )
            for row in self._do("list watched jobs", lambda c: c.execute(_LIST_WATCHED).all())
        ]

    def store_progress(self, job: JobOfExecution, before: JobProgress, now: JobProgress) -> bool:
        check_move(before.status, now.status)
        arguments = {
            **_job_arguments(job),
            "status": now.status.value,
            "message": now.message,
            "started_at": now.started_at,
            "ended_at": now.ended_at,
            "processed_count": now.processed_count,
            "low": to_jsonb(dict(now.low_watermarks)),
            "high": to_jsonb(dict(now.high_watermarks)),
            "attempt": now.read[0],
            "number_read": now.read[1],
            "status_before": before.status.value,
            "attempt_before": before.read[0],
            "number_before": before.read[1],
        }

        def body(connection: Connection) -> bool:
            execution = _lock_execution(connection, job.execution_id)
            # A repetition finds what it stored, and changes nothing.
            is_stored = connection.execute(_STORE_PROGRESS, arguments).rowcount == 1
            _settle(connection, execution)
            return is_stored

        return self._do("store what reports said", body, Failpoint.REPORTS_FOLDED)

    def list_deletions(self) -> Sequence[SentDeletion]:
        rows = self._do("list deletions", lambda c: c.execute(_LIST_DELETIONS).all())
        return [
            SentDeletion(JobOfExecution(row.execution_id, row.number), row.log, TicketId(row.cancel_ticket_id))
            for row in rows
        ]

    def end_deletion(self, job: JobOfExecution, said: str) -> None:
        arguments = {**_job_arguments(job), "said": said}
        self._do("note what became of a deletion", lambda c: c.execute(_END_DELETION, arguments).rowcount)

    def list_old(self, *, ended_before_s: float, limit: int, after: OldJob | None = None) -> Sequence[OldJob]:
        begin = JobOfExecution(0, 0) if after is None else after.job
        where = {"after_execution": begin.execution_id, "after_number": begin.number}
        arguments = {**where, "ended_before_s": ended_before_s, "limit": limit}
        return [
            OldJob(
                JobOfExecution(row.execution_id, row.number),
                row.log,
                tuple(TicketId(each) for each in (row.ticket_id, row.cancel_ticket_id) if each is not None),
            )
            for row in self._do("list old jobs", lambda c: c.execute(_LIST_OLD, arguments).all())
        ]

    def mark_forgotten(self, jobs: Sequence[JobOfExecution]) -> None:
        arguments = {
            "execution_ids": [job.execution_id for job in jobs],
            "numbers": [job.number for job in jobs],
        }
        self._do("mark tickets as forgotten", lambda c: c.execute(_MARK_FORGOTTEN, arguments).rowcount)

    def _move_unsent(self, job: JobOfExecution, status: ExecutionStatus, message: str, point: Failpoint | None) -> None:
        def body(connection: Connection) -> None:
            execution = _lock_execution(connection, job.execution_id)
            before = ExecutionStatus(connection.execute(_STATUS_OF, _job_arguments(job)).scalar_one())
            if before in (ExecutionStatus.COMPILED, ExecutionStatus.PENDING):
                _move_job(connection, job, before, status, message)
                _settle(connection, execution)

        self._do("mark a ticket as sent", body, point)

    def _do(self, name: str, body: Callable[[Connection], T], committed: Failpoint | None = None) -> T:
        return transact(self._engine, name, body, committed=committed)


def find_launched(connection: Connection, request_id: uuid.UUID) -> int | None:
    """The execution that this launch made before."""
    found: int | None = connection.execute(_FIND_LAUNCHED, {"request_id": request_id}).scalar()
    return found


def make_execution(connection: Connection, flow_id: uuid.UUID, version: int, launch: Launch) -> int:
    """Make an execution of a flow whose row is locked, and bind the names of its jobs."""
    open_id = connection.execute(_FIND_OPEN, {"flow_id": flow_id}).scalar()
    if open_id is not None:
        raise is_open(open_id)
    if connection.execute(_GENERATION, {"flow_id": flow_id}).scalar_one() != launch.generation:
        raise ConflictError("the flow was replanned meanwhile", hint="Run it again.")
    for job in launch.jobs:
        _bind(connection, flow_id, launch.generation, job)
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
    for job in launch.jobs:
        arguments = {
            "execution_id": execution_id,
            "number": job.number,
            "job_name": job.job_name,
            "executor": job.executor,
            "log": job.log,
            "ticket_id": job.ticket_id,
            "ticket": to_jsonb(job_ticket_to_json(job.ticket)),
            "after": to_jsonb(list(job.after)),
            "status": (ExecutionStatus.PENDING if job.after else ExecutionStatus.COMPILED).value,
        }
        connection.execute(_INSERT_JOB, arguments)
    connection.execute(_HAS_STARTED, {"flow_id": flow_id})
    kept = [job.job_name for job in launch.jobs]
    if retired := connection.execute(_RETIRE, {"flow_id": flow_id, "kept": kept}).scalars().all():
        connection.execute(_DECIDE_DELETIONS, {"flow_id": flow_id, "names": list(retired)})
    return execution_id


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


def request_end(connection: Connection, execution_id: int, reason: str) -> bool:
    """End what was not sent, and decide the tickets that end the rest.

    False: its end was asked for before, and nothing is done.
    """
    execution = _lock_execution(connection, execution_id)
    if execution.is_asked_to_end:
        return False
    if ExecutionStatus(execution.status) in ENDED:
        return True
    connection.execute(_ASK_END, {"execution_id": execution_id, "message": reason})
    for row in connection.execute(_NOT_BEGUN, {"execution_id": execution_id}).all():
        job = JobOfExecution(execution_id, row.number)
        _move_job(connection, job, ExecutionStatus(row.status), ExecutionStatus.CANCELLED, reason)
    connection.execute(_DECIDE_CANCELS, {"execution_id": execution_id})
    _settle(connection, execution)
    return True


def request_deletions(connection: Connection, flow_id: uuid.UUID) -> None:
    """Decide the tickets by which sources forget the workers of a flow that is deleted, or whose jobs get new names."""
    connection.execute(_DECIDE_DELETIONS, {"flow_id": flow_id, "names": None})


def find_status(connection: Connection, execution_id: int) -> FlowStatus | None:
    rows = connection.execute(_EXECUTION, {"execution_id": execution_id}).all()
    return next(iter(_statuses_of(connection, rows)), None)


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


def _lock_execution(connection: Connection, execution_id: int) -> Row[Any]:
    return connection.execute(_LOCK, {"execution_id": execution_id}).one()


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


def _move_job(
    connection: Connection, job: JobOfExecution, before: ExecutionStatus, after: ExecutionStatus, message: str
) -> None:
    check_move(before, after)
    arguments = {"status": after.value, "message": message, "is_ended": after in ENDED}
    connection.execute(_MOVE_JOB, {**_job_arguments(job), **arguments})


def _settle(connection: Connection, execution: Row[Any]) -> None:
    """Give a locked execution the status that its jobs have it be in."""
    execution_id, current = execution.execution_id, ExecutionStatus(execution.status)
    rows = connection.execute(_OUTLINES, {"execution_id": execution_id}).all()
    jobs = [
        JobOutline(
            row.number, row.job_name, ExecutionStatus(row.status), tuple(row.after), row.message, is_begun=row.is_begun
        )
        for row in rows
    ]
    outcome = decide_execution(current, jobs)
    for job in jobs:
        if job.number in outcome.cancelled:
            moved = JobOfExecution(execution_id, job.number)
            _move_job(connection, moved, job.status, ExecutionStatus.CANCELLED, outcome.cancelled[job.number])
    if outcome.status is not current:
        check_move(current, outcome.status)
        arguments = {"status": outcome.status.value, "message": outcome.message, "is_ended": outcome.status in ENDED}
        connection.execute(_MOVE_EXECUTION, {"execution_id": execution_id, **arguments})


def _job_arguments(job: JobOfExecution) -> dict[str, object]:
    return {"execution_id": job.execution_id, "number": job.number}


def _page_arguments(limit: int, after: JobOfExecution | None, without: Collection[str]) -> dict[str, object]:
    begin = after or JobOfExecution(0, 0)
    where = {"after_execution": begin.execution_id, "after_number": begin.number}
    return {**where, "without": list(without), "limit": limit}


def _unsent_ticket_of(row: Row[Any], job: JobOfExecution) -> UnsentTicket:
    asked = selection_from_json(row.selection)
    # What a hop before publishes has other partitions than its source, or none: all that is new of it is read.
    selection = replace(asked, partitions=(), ranges=()) if row.is_behind else asked
    return UnsentTicket(
        job=job,
        executor=row.executor,
        log=row.log,
        log_id=LogId(row.log_id),
        ticket_id=TicketId(row.ticket_id),
        ticket=job_ticket_from_json(row.ticket),
        selection=selection,
        is_update=row.is_update,
    )


def _unsent_cancel_of(row: Row[Any]) -> UnsentCancel:
    return UnsentCancel(
        job=JobOfExecution(row.execution_id, row.number),
        executor=row.executor,
        log=row.log,
        log_id=LogId(row.log_id),
        ticket_id=TicketId(row.cancel_ticket_id),
        cancels=TicketId(row.ticket_id),
        deletes=job_ticket_from_json(row.ticket) if row.cancel_verb == TicketVerb.DELETE else None,
    )


def _progress_of(row: Row[Any]) -> JobProgress:
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
    )


def _describe_deletion(row: Row[Any]) -> str:
    if row.deletion != "waits":
        return str(row.deletion)
    told = f"`gobblin-assets executor reports {row.cancel_ticket_id}` says how far that is"
    return f"The source keeps what it has for the job until the executor {row.executor} deletes it: {told}."


def job_status_of(row: Row[Any], flow: FlowKey) -> JobStatus:
    """Of a row with the columns of progress of a ``job_execution``."""
    progress = _progress_of(row)
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
    )


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
        )
        for row in executions
    ]
