"""Executions in Postgres: what the orchestrator sends, and what the monitor reads.

Whoever changes a job of an execution locks the execution's row first.
"""

import logging
import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar

from pydantic import ValidationError
from sqlalchemy import Connection, Engine, Row, text

from gobblin_assets.db.statement_texts import to_jsonb
from gobblin_assets.db.table_metadata import states
from gobblin_assets.db.transactions import transact
from gobblin_assets.errors import RejectedError
from gobblin_assets.failpoints import Failpoint
from gobblin_assets.model.job_ticket import (
    LogId,
    TicketId,
    TicketShape,
    TicketVerb,
    job_ticket_from_json,
    selection_from_json,
)
from gobblin_assets.service.execution_store import (
    JobNeeds,
    JobOfExecution,
    OldJob,
    SendTurn,
    SentDeletion,
    SentJob,
    UnsentCancel,
    UnsentTicket,
    WatchedJob,
)
from gobblin_assets.service.flow_config import FlowConfig
from gobblin_assets.service.job_progress import JobProgress, check_move, write_places
from gobblin_assets.service.job_retries import decide_next
from gobblin_assets.service.postgres.execution_moves import (
    IS_UNSENT,
    begin_ticket,
    job_arguments,
    lock_execution,
    move_job,
    request_end,
    settle_execution,
)
from gobblin_assets.service.postgres.execution_statuses import PROGRESS_COLUMNS, progress_of
from gobblin_assets.service.statuses import ENDED, UNSENT, ExecutionStatus
from gobblin_assets.spec.spec_errors import refuse

T = TypeVar("T")

_log = logging.getLogger(__name__)

EARLIER_MAX: Final = 50
"""So many tickets before a ticket are named in it, the latest ones."""

_SEND_PAUSE_S: Final = 0.25
_SEND_PAUSE_S_MAX: Final = 60.0
"""A ticket that a node has begun to send is taken by another one so much later, each time twice as much."""

_SENT: Final = f"status IN ({states(ExecutionStatus.ORCHESTRATED, ExecutionStatus.RUNNING)})"

_ON_PAGE: Final = """
    (j.execution_id, j.number) > (:after_execution, :after_number) AND j.log <> ALL (CAST(:without AS text[]))
     ORDER BY j.execution_id, j.number LIMIT :limit
"""

_SENT_COLUMNS: Final = "j.execution_id, j.number, j.executor, j.log, b.log_id, j.ticket_id"

NEEDS_COLUMNS: Final = """
    j.ticket ->> 'capability' AS capability, b.source_node, b.node, f.owner_groups
"""

# Of ``j``: what it waits for is there.
_HAS_PARENTS: Final = """
    NOT EXISTS (SELECT FROM gobblin_service.job_execution p
                 WHERE p.execution_id = j.execution_id AND j.after @> to_jsonb(p.number)
                   AND p.status <> 'COMPLETE'
                   AND (p.ticket ->> 'shape' <> 'worker' OR p.status <> 'RUNNING' OR p.high_watermarks = '{}'))
"""

# Of ``j``: the execution begins with it, and with no other job. Once any has begun, the others may begin late.
_BEGINS_ALONE: Final = """
    j.attempt = 1 AND j.after = '[]'
    AND NOT EXISTS (SELECT FROM gobblin_service.job_execution o
                     WHERE o.execution_id = j.execution_id AND o.number <> j.number AND o.after = '[]')
"""

_LIST_UNSENT = text(f"""
    SELECT {_SENT_COLUMNS}, {NEEDS_COLUMNS}, j.ticket, e.selection, j.after <> '[]' AS is_behind,
           j.send_begun_at IS NOT NULL AS is_begun,
           j.ticket ->> 'shape' = 'worker'
           AND (j.attempt > 1
                OR EXISTS (SELECT FROM gobblin_service.job_execution o
                            WHERE o.job_name = j.job_name AND o.execution_id < j.execution_id
                              AND (o.send_begun_at IS NOT NULL OR o.attempt > 1))) AS is_update,
           ARRAY(SELECT a.ticket_id FROM gobblin_service.job_attempt a
                  WHERE (a.execution_id, a.number) = (j.execution_id, j.number)
                  ORDER BY a.attempt DESC LIMIT {EARLIER_MAX}) AS earlier,
           CASE WHEN {_BEGINS_ALONE}
                THEN (SELECT extract(epoch FROM CAST(nullif(v.config ->> 'start_deadline', '') AS interval))::float8
                        FROM gobblin_service.flow_version v
                       WHERE (v.flow_id, v.version) = (e.flow_id, e.flow_version)) END AS expires_after_s
      FROM gobblin_service.job_execution j
      JOIN gobblin_service.flow_execution e USING (execution_id)
      JOIN gobblin_service.flow f USING (flow_id)
      JOIN gobblin_service.flow_job b USING (job_name)
     WHERE j.ended_at IS NULL AND j.{IS_UNSENT} AND (j.send_at IS NULL OR j.send_at <= now())
       AND j.executor <> ALL (CAST(:full AS text[]))
       AND (j.send_begun_at IS NOT NULL OR {_HAS_PARENTS})
       AND {_ON_PAGE}
""")

# Another node that is about to send it is not waited for.
_LOCK_FREE = text("""
    SELECT FROM gobblin_service.flow_execution WHERE execution_id = :execution_id FOR UPDATE SKIP LOCKED
""")

# Behind the lock nobody gives it to another executor.
_TO_SEND = text(f"""
    SELECT send_begun_at IS NOT NULL AS is_begun, ticket ->> 'shape' = 'worker' AND attempt > 1 AS replaces
      FROM gobblin_service.job_execution
     WHERE execution_id = :execution_id AND number = :number AND ticket_id = :ticket_id AND {IS_UNSENT}
       AND executor = :executor AND log = :log AND (send_at IS NULL OR send_at <= clock_timestamp())
       FOR UPDATE
""")

_LOCK_INBOX = text("SELECT pg_advisory_xact_lock(hashtextextended('gobblin_service.inbox ' || :executor, 0))")

_COUNT_WAITING = text("""
    SELECT count(*) FROM gobblin_service.job_execution
     WHERE executor = :executor AND ended_at IS NULL AND send_begun_at IS NOT NULL AND status <> 'RUNNING'
""")

_BEGIN_SEND = text("""
    UPDATE gobblin_service.job_execution
       SET send_begun_at = coalesce(send_begun_at, clock_timestamp()), send_tries = send_tries + 1,
           send_at = clock_timestamp()
                     + make_interval(secs => least(:pause_s_max, :pause_s * 2 ^ least(send_tries, 20)))
     WHERE execution_id = :execution_id AND number = :number
""")

_MARK_SENT = text("""
    UPDATE gobblin_service.job_execution SET sent_at = clock_timestamp()
     WHERE execution_id = :execution_id AND number = :number
""")

_ASSIGN = text(f"""
    UPDATE gobblin_service.job_execution SET executor = :executor, log = :log
     WHERE execution_id = :execution_id AND number = :number AND ticket_id = :ticket_id AND {IS_UNSENT}
       AND send_begun_at IS NULL
""")

_LIST_SENT: Final = f"""
    SELECT {_SENT_COLUMNS}, {NEEDS_COLUMNS}, j.moving_at IS NOT NULL AS is_moving
      FROM gobblin_service.job_execution j
      JOIN gobblin_service.flow_execution e USING (execution_id)
      JOIN gobblin_service.flow f USING (flow_id)
      JOIN gobblin_service.flow_job b USING (job_name)
     WHERE j.ended_at IS NULL AND j.send_begun_at IS NOT NULL AND e.cancel_asked_at IS NULL
"""

_LIST_SENT_ELSEWHERE = text(f"""
    {_LIST_SENT} AND j.{_SENT} AND j.executor <> ALL (CAST(:well AS text[]))
     ORDER BY j.execution_id, j.number
""")

_LIST_UNTAKEN = text(f"""
    {_LIST_SENT} AND j.status = 'ORCHESTRATED' AND j.read_attempt < 0 AND j.message = ''
       AND j.sent_at < now() - make_interval(secs => :sent_before_s)
     ORDER BY j.execution_id, j.number
""")

_BEGIN_MOVE = text(f"""
    UPDATE gobblin_service.job_execution j SET moving_at = coalesce(moving_at, clock_timestamp())
      FROM gobblin_service.flow_execution e
     WHERE j.execution_id = :execution_id AND j.number = :number AND j.ticket_id = :ticket_id AND j.{_SENT}
       AND e.execution_id = j.execution_id AND e.cancel_asked_at IS NULL
""")

_NOTE = text("""
    UPDATE gobblin_service.job_execution SET message = :message
     WHERE execution_id = :execution_id AND number = :number AND ticket_id = :ticket_id AND ended_at IS NULL
       AND message <> :message
""")

_NOTE_FULL = text(f"""
    UPDATE gobblin_service.job_execution j SET message = :message
     WHERE j.executor = :executor AND j.{IS_UNSENT} AND j.ended_at IS NULL AND j.send_begun_at IS NULL
       AND j.message = '' AND {_HAS_PARENTS}
""")

_LIST_LATE = text("""
    SELECT execution_id FROM gobblin_service.flow_execution
     WHERE ended_at IS NULL AND cancel_asked_at IS NULL AND least(start_by, finish_by) <= now()
     ORDER BY least(start_by, finish_by) LIMIT :limit
""")

_LATE = text("""
    SELECT e.finish_by <= now() AS is_unfinished, v.config ->> 'start_deadline' AS start_deadline,
           v.config ->> 'finish_deadline' AS finish_deadline,
           EXISTS (SELECT FROM gobblin_service.job_execution j
                    WHERE j.execution_id = e.execution_id AND j.started_at IS NOT NULL) AS has_started
      FROM gobblin_service.flow_execution e
      JOIN gobblin_service.flow_version v ON (v.flow_id, v.version) = (e.flow_id, e.flow_version)
     WHERE e.execution_id = :execution_id AND e.ended_at IS NULL
""")

_HAS_BEGUN = text("UPDATE gobblin_service.flow_execution SET start_by = NULL WHERE execution_id = :execution_id")

_STATUS_OF = text("""
    SELECT status FROM gobblin_service.job_execution
     WHERE execution_id = :execution_id AND number = :number AND ticket_id = :ticket_id
""")

_POLICY = text("""
    SELECT v.config::text AS config, j.failures, j.moving_at IS NOT NULL AS is_moving, e.is_adopted
      FROM gobblin_service.job_execution j
      JOIN gobblin_service.flow_execution e USING (execution_id)
      JOIN gobblin_service.flow_version v ON (v.flow_id, v.version) = (e.flow_id, e.flow_version)
     WHERE j.execution_id = :execution_id AND j.number = :number
""")

_LIST_UNSENT_CANCELS = text(f"""
    SELECT {_SENT_COLUMNS}, j.cancel_ticket_id, j.cancel_verb, j.ticket
      FROM gobblin_service.job_execution j JOIN gobblin_service.flow_job b USING (job_name)
     WHERE j.cancel_ticket_id IS NOT NULL AND j.cancel_sent_at IS NULL
       AND (j.{_SENT} OR j.cancel_verb = 'DELETE' AND NOT j.{IS_UNSENT})
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
           high_watermarks = CAST(:high AS jsonb), read_attempt = :attempt, read_number = :number_read,
           places = CAST(:places AS jsonb)
     WHERE execution_id = :execution_id AND number = :number AND ticket_id = :ticket_id AND status = :status_before
       AND (read_attempt, read_number) = (:attempt_before, :number_before)
""")

_LIST_OLD = text("""
    SELECT execution_id, number, log, ticket_id, cancel_ticket_id,
           ARRAY(SELECT unnest(ARRAY[a.ticket_id, a.cancel_ticket_id]) FROM gobblin_service.job_attempt a
                  WHERE (a.execution_id, a.number) = (j.execution_id, j.number)) AS earlier
      FROM gobblin_service.job_execution j
     WHERE ended_at IS NOT NULL AND forgotten_at IS NULL AND (send_begun_at IS NOT NULL OR attempt > 1)
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
        self,
        *,
        limit: int,
        after: JobOfExecution | None = None,
        without: Collection[str] = (),
        full: Collection[str] = (),
    ) -> Sequence[UnsentTicket]:
        arguments = {**_page_arguments(limit, after, without), "full": list(full)}
        found = []
        for row in self._do("list unsent tickets", lambda c: c.execute(_LIST_UNSENT, arguments).all()):
            job = JobOfExecution(row.execution_id, row.number)
            try:
                found.append(_unsent_ticket_of(row, job))
            except RejectedError as error:
                self.fail(job, TicketId(row.ticket_id), str(error))
        return found

    def begin_send(
        self, job: JobOfExecution, ticket_id: TicketId, *, executor: str, log: str, waiting_max: int | None = None
    ) -> SendTurn:
        where = {**_ticket_arguments(job, ticket_id), "executor": executor, "log": log}

        def body(connection: Connection) -> SendTurn:
            if connection.execute(_LOCK_FREE, {"execution_id": job.execution_id}).one_or_none() is None:
                return SendTurn.OVER
            unsent = connection.execute(_TO_SEND, where).one_or_none()
            if unsent is None:
                return SendTurn.OVER
            if waiting_max is not None and not unsent.is_begun and not unsent.replaces:
                # By one node at a time: what each of them counts is what all of them have sent.
                connection.execute(_LOCK_INBOX, {"executor": executor})
                waiting = connection.execute(_COUNT_WAITING, {"executor": executor}).scalar_one()
                if waiting >= waiting_max:
                    return SendTurn.FULL
            pauses = {"pause_s": _SEND_PAUSE_S, "pause_s_max": _SEND_PAUSE_S_MAX}
            connection.execute(_BEGIN_SEND, {**job_arguments(job), **pauses})
            return SendTurn.NOW

        return self._do("begin to send a ticket", body, Failpoint.SEND_BEGUN)

    def mark_sent(self, job: JobOfExecution, ticket_id: TicketId) -> None:
        self._move_unsent(job, ticket_id, ExecutionStatus.ORCHESTRATED, "", Failpoint.SEND_MARKED)

    def fail(self, job: JobOfExecution, ticket_id: TicketId, message: str) -> None:
        self._move_unsent(job, ticket_id, ExecutionStatus.FAILED, message, None)

    def assign(self, job: JobOfExecution, ticket_id: TicketId, executor: str, log: str) -> bool:
        arguments = {**_ticket_arguments(job, ticket_id), "executor": executor, "log": log}
        return self._do("give a ticket to another executor", lambda c: c.execute(_ASSIGN, arguments).rowcount == 1)

    def list_sent(self, *, well: Collection[str]) -> Sequence[SentJob]:
        asked = {"well": list(well)}
        return [
            _sent_job_of(row)
            for row in self._do("list sent jobs", lambda c: c.execute(_LIST_SENT_ELSEWHERE, asked).all())
        ]

    def begin_move(self, job: JobOfExecution, ticket_id: TicketId) -> bool:
        asked = _ticket_arguments(job, ticket_id)
        return self._do(
            "begin to move a job", lambda c: c.execute(_BEGIN_MOVE, asked).rowcount == 1, Failpoint.MOVE_BEGUN
        )

    def note(self, job: JobOfExecution, ticket_id: TicketId, message: str) -> bool:
        arguments = {**_ticket_arguments(job, ticket_id), "message": message}
        return self._do("note what a job waits for", lambda c: c.execute(_NOTE, arguments).rowcount == 1)

    def note_full(self, executor: str, message: str) -> None:
        arguments = {"executor": executor, "message": message}
        self._do("note what jobs wait for", lambda c: c.execute(_NOTE_FULL, arguments).rowcount)

    def list_untaken(self, *, sent_before_s: float) -> Sequence[SentJob]:
        asked = {"sent_before_s": sent_before_s}
        rows = self._do("list tickets that nobody took", lambda c: c.execute(_LIST_UNTAKEN, asked).all())
        return [_sent_job_of(row) for row in rows]

    def end_late(self, *, limit: int) -> int:
        rows = self._do("list late executions", lambda c: c.execute(_LIST_LATE, {"limit": limit}).all())
        return sum(self._do("end a late execution", partial(_end_late, execution_id=row.execution_id)) for row in rows)

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

    def store_progress(self, watched: WatchedJob, now: JobProgress) -> bool:
        before, job = watched.progress, watched.job
        check_move(before.status, now.status)
        arguments = {
            **_ticket_arguments(job, watched.ticket_id),
            "status": now.status.value,
            "message": now.message,
            "started_at": now.started_at,
            "ended_at": now.ended_at,
            "processed_count": now.processed_count,
            "low": to_jsonb(dict(now.low_watermarks)),
            "high": to_jsonb(dict(now.high_watermarks)),
            "places": to_jsonb(write_places(now.places)),
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
            if is_stored and now.status in ENDED and not execution.is_asked_to_end:
                _follow(connection, execution, job, before.status, now)
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
                tuple(
                    TicketId(each) for each in (row.ticket_id, row.cancel_ticket_id, *row.earlier) if each is not None
                ),
            )
            for row in self._do("list old jobs", lambda c: c.execute(_LIST_OLD, arguments).all())
        ]

    def mark_forgotten(self, jobs: Sequence[JobOfExecution]) -> None:
        arguments = {
            "execution_ids": [job.execution_id for job in jobs],
            "numbers": [job.number for job in jobs],
        }
        self._do("mark tickets as forgotten", lambda c: c.execute(_MARK_FORGOTTEN, arguments).rowcount)

    def _move_unsent(
        self, job: JobOfExecution, ticket_id: TicketId, status: ExecutionStatus, message: str, point: Failpoint | None
    ) -> None:
        def body(connection: Connection) -> None:
            execution = lock_execution(connection, job.execution_id)
            found = connection.execute(_STATUS_OF, _ticket_arguments(job, ticket_id)).scalar()
            if found in UNSENT:
                move_job(connection, job, ExecutionStatus(found), status, message)
                connection.execute(_MARK_SENT, job_arguments(job))
                settle_execution(connection, execution)

        self._do("mark a ticket as sent", body, point)

    def _do(self, name: str, body: Callable[[Connection], T], committed: Failpoint | None = None) -> T:
        return transact(self._engine, name, body, committed=committed)


def _follow(
    connection: Connection, execution: Row[Any], job: JobOfExecution, before: ExecutionStatus, ended: JobProgress
) -> None:
    """Give a job whose ticket has ended the next one, where one follows. RejectedError: the config can't be read."""
    if ended.status is ExecutionStatus.COMPLETE:
        return
    policy = connection.execute(_POLICY, job_arguments(job)).one()
    if policy.is_adopted and ended.status is ExecutionStatus.FAILED:
        # Who began it repeats it, as Dagster's retries do.
        return
    try:
        config = FlowConfig.model_validate_json(policy.config)
    except ValidationError as error:
        raise refuse(error, FlowConfig) from None
    following = decide_next(
        ended,
        failures=policy.failures,
        retries=config.retries,
        retry_wait_s=config.retry_wait_s,
        is_moving=policy.is_moving,
        chance=random.random(),  # noqa: S311  it spreads retries, and keeps nothing secret
    )
    if following is not None:
        check_move(before, ExecutionStatus.PENDING_RETRY)
        begin_ticket(connection, execution, job, ExecutionStatus.PENDING_RETRY, following)


def _end_late(connection: Connection, execution_id: int) -> bool:
    lock_execution(connection, execution_id)
    late = connection.execute(_LATE, {"execution_id": execution_id}).one_or_none()
    if late is None:
        return False
    if late.is_unfinished:
        return request_end(
            connection, execution_id, f"it did not end within {late.finish_deadline}, its finish_deadline"
        )
    if late.has_started:
        connection.execute(_HAS_BEGUN, {"execution_id": execution_id})
        return False
    said = f"no job of it began within {late.start_deadline}, its start_deadline"
    return request_end(connection, execution_id, said)


def _ticket_arguments(job: JobOfExecution, ticket_id: TicketId) -> dict[str, object]:
    return {**job_arguments(job), "ticket_id": ticket_id}


def needs_of(row: Row[Any]) -> JobNeeds:
    """Of a row with the columns of needs, and ``log_id``."""
    nodes = frozenset((row.source_node, row.node))
    return JobNeeds(LogId(row.log_id), row.capability, nodes, frozenset(row.owner_groups))


def _sent_job_of(row: Row[Any]) -> SentJob:
    job = JobOfExecution(row.execution_id, row.number)
    return SentJob(job, row.executor, row.log, TicketId(row.ticket_id), needs_of(row), row.is_moving)


def _page_arguments(limit: int, after: JobOfExecution | None, without: Collection[str]) -> dict[str, object]:
    begin = after or JobOfExecution(0, 0)
    where = {"after_execution": begin.execution_id, "after_number": begin.number}
    return {**where, "without": list(without), "limit": limit}


def _unsent_ticket_of(row: Row[Any], job: JobOfExecution) -> UnsentTicket:
    asked, ticket = selection_from_json(row.selection), job_ticket_from_json(row.ticket)
    # What a hop before publishes has other partitions than its source, or none: all that is new of it is read.
    selection = replace(asked, partitions=(), ranges=()) if row.is_behind else asked
    return UnsentTicket(
        job=job,
        executor=row.executor,
        log=row.log,
        ticket_id=TicketId(row.ticket_id),
        ticket=ticket,
        selection=selection,
        is_update=row.is_update,
        needs=needs_of(row),
        # Workers go on from what their lanes have published, whoever published it.
        earlier=tuple(TicketId(each) for each in row.earlier) if ticket.shape is TicketShape.RUN else (),
        is_begun=row.is_begun,
        expires_after_s=row.expires_after_s,
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
