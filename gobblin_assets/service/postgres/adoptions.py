"""``AdoptionStore`` in Postgres."""

from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import Connection, Engine, text

from gobblin_assets.db.statement_texts import to_jsonb
from gobblin_assets.db.transactions import transact
from gobblin_assets.failpoints import Failpoint
from gobblin_assets.model.job_ticket import LogId, job_ticket_to_json, selection_to_json
from gobblin_assets.service.statuses import ExecutionStatus
from gobblin_assets.state.overview import OwnTicket

T = TypeVar("T")

_FIND = text("SELECT number FROM gobblin_service.adopted_log WHERE log_id = :log_id")

_MARK = text("""
    INSERT INTO gobblin_service.adopted_log AS a (log_id, number) VALUES (:log_id, :number)
        ON CONFLICT (log_id) DO UPDATE SET number = greatest(a.number, excluded.number)
""")

# As everywhere: the flow first.
_LOCK_FLOW = text("""
    SELECT f.flow_id, f.version FROM gobblin_service.flow f
     WHERE f.deleted_at IS NULL
       AND f.flow_id = (SELECT b.flow_id FROM gobblin_service.flow_job b
                         WHERE b.job_name = :job_name AND b.log_id = :log_id)
       FOR UPDATE
""")

# The ticket's id is the request's: a ticket makes one execution.
_INSERT_EXECUTION = text("""
    INSERT INTO gobblin_service.flow_execution
           (request_id, flow_id, flow_version, status, asked_by, selection, started_at, may_overlap, is_adopted)
    VALUES (:ticket_id, :flow_id, :version, :status, :asked_by, CAST(:selection AS jsonb),
            least(:sent_at, clock_timestamp()), true, true)
        ON CONFLICT (request_id) DO NOTHING
    RETURNING execution_id
""")

_INSERT_JOB = text("""
    INSERT INTO gobblin_service.job_execution
           (execution_id, number, job_name, executor, log, ticket_id, ticket, after, status, send_begun_at, sent_at)
    VALUES (:execution_id, 0, :job_name, :executor, :log, :ticket_id, CAST(:ticket AS json), '[]', :status,
            clock_timestamp(), clock_timestamp())
""")


class PostgresAdoptionStore:
    """``AdoptionStore`` over ``flow_execution``, ``job_execution`` and ``adopted_log``."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def find_adopted(self, log_id: LogId) -> int:
        return self._do("find adopted tickets", lambda c: c.execute(_FIND, {"log_id": log_id}).scalar() or 0)

    def adopt(self, log: str, log_id: LogId, ticket: OwnTicket) -> bool:
        sent = ticket.sent
        if sent is None or sent.ticket is None:
            return False
        job_name = sent.ticket.job_name
        execution = {
            "ticket_id": sent.ticket_id,
            "status": ExecutionStatus.ORCHESTRATED.value,
            "asked_by": sent.asked_by,
            "selection": to_jsonb(selection_to_json(sent.selection)),
            "sent_at": ticket.sent_at,
        }
        job = {
            "job_name": job_name,
            "executor": sent.executor,
            "log": log,
            "ticket_id": sent.ticket_id,
            "ticket": to_jsonb(job_ticket_to_json(sent.ticket)),
            "status": ExecutionStatus.ORCHESTRATED.value,
        }

        def body(connection: Connection) -> bool:
            flow = connection.execute(_LOCK_FLOW, {"job_name": job_name, "log_id": log_id}).one_or_none()
            if flow is None:
                return False
            arguments = {**execution, "flow_id": flow.flow_id, "version": flow.version}
            execution_id = connection.execute(_INSERT_EXECUTION, arguments).scalar()
            if execution_id is not None:
                connection.execute(_INSERT_JOB, {**job, "execution_id": execution_id})
            return execution_id is not None

        return self._do("adopt a ticket", body, Failpoint.TICKET_ADOPTED)

    def mark_adopted(self, log_id: LogId, number: int) -> None:
        arguments = {"log_id": log_id, "number": number}
        self._do("mark adopted tickets", lambda c: c.execute(_MARK, arguments).rowcount, Failpoint.ADOPTION_MARKED)

    def _do(self, name: str, body: Callable[[Connection], T], committed: Failpoint | None = None) -> T:
        return transact(self._engine, name, body, committed=committed)
