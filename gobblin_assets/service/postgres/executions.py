"""Executions in Postgres: what the orchestrator sends, and what the monitor reads.

Whoever changes a job of an execution locks the execution's row first.
"""

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

from sqlalchemy import Connection, Engine, Row, text

from gobblin_assets.db.statement_texts import to_jsonb
from gobblin_assets.db.table_metadata import states
from gobblin_assets.db.transactions import transact
from gobblin_assets.errors import RejectedError
from gobblin_assets.failpoints import Failpoint
from gobblin_assets.model.job_ticket import (
    LogId,
    TicketId,
    TicketVerb,
    job_ticket_from_json,
    selection_from_json,
)
from gobblin_assets.service.execution_store import (
    JobOfExecution,
    OldJob,
    SentDeletion,
    UnsentCancel,
    UnsentTicket,
    WatchedJob,
)
from gobblin_assets.service.job_progress import JobProgress, check_move
from gobblin_assets.service.postgres.execution_moves import (
    UNSENT,
    job_arguments,
    lock_execution,
    move_job,
    settle_execution,
)
from gobblin_assets.service.postgres.execution_statuses import PROGRESS_COLUMNS, progress_of
from gobblin_assets.service.statuses import ExecutionStatus

T = TypeVar("T")

_log = logging.getLogger(__name__)

_SENT: Final = f"status IN ({states(ExecutionStatus.ORCHESTRATED, ExecutionStatus.RUNNING)})"

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
     WHERE j.ended_at IS NULL AND j.{UNSENT}
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
     WHERE execution_id = :execution_id AND number = :number AND {UNSENT}
""")

_STATUS_OF = text("""
    SELECT status FROM gobblin_service.job_execution WHERE execution_id = :execution_id AND number = :number
""")

_LIST_UNSENT_CANCELS = text(f"""
    SELECT {_SENT_COLUMNS}, j.cancel_ticket_id, j.cancel_verb, j.ticket
      FROM gobblin_service.job_execution j JOIN gobblin_service.flow_job b USING (job_name)
     WHERE j.cancel_ticket_id IS NOT NULL AND j.cancel_sent_at IS NULL
       AND (j.{_SENT} OR j.cancel_verb = 'DELETE' AND NOT j.{UNSENT})
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
            lock_execution(connection, job.execution_id)
            return connection.execute(_BEGIN_SEND, job_arguments(job)).rowcount == 1

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
            connection.execute(_MARK_CANCEL_SENT, {**job_arguments(job), "ticket_id": ticket_id})

        self._do("mark an end as sent", body, Failpoint.CANCEL_MARKED)

    def list_watched(self) -> Sequence[WatchedJob]:
        return [
            WatchedJob(JobOfExecution(row.execution_id, row.number), row.log, TicketId(row.ticket_id), progress_of(row))
            for row in self._do("list watched jobs", lambda c: c.execute(_LIST_WATCHED).all())
        ]

    def store_progress(self, job: JobOfExecution, before: JobProgress, now: JobProgress) -> bool:
        check_move(before.status, now.status)
        arguments = {
            **job_arguments(job),
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
            execution = lock_execution(connection, job.execution_id)
            # A repetition finds what it stored, and changes nothing.
            is_stored = connection.execute(_STORE_PROGRESS, arguments).rowcount == 1
            settle_execution(connection, execution)
            return is_stored

        return self._do("store what reports said", body, Failpoint.REPORTS_FOLDED)

    def list_deletions(self) -> Sequence[SentDeletion]:
        rows = self._do("list deletions", lambda c: c.execute(_LIST_DELETIONS).all())
        return [
            SentDeletion(JobOfExecution(row.execution_id, row.number), row.log, TicketId(row.cancel_ticket_id))
            for row in rows
        ]

    def end_deletion(self, job: JobOfExecution, said: str) -> None:
        arguments = {**job_arguments(job), "said": said}
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
            execution = lock_execution(connection, job.execution_id)
            before = ExecutionStatus(connection.execute(_STATUS_OF, job_arguments(job)).scalar_one())
            if before in (ExecutionStatus.COMPILED, ExecutionStatus.PENDING):
                move_job(connection, job, before, status, message)
                settle_execution(connection, execution)

        self._do("mark a ticket as sent", body, point)

    def _do(self, name: str, body: Callable[[Connection], T], committed: Failpoint | None = None) -> T:
        return transact(self._engine, name, body, committed=committed)


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
