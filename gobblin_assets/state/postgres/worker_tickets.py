"""``WorkerTicketStore`` in Postgres."""

from collections.abc import Sequence

from sqlalchemy import Connection, Engine, text

from gobblin_assets.db.transactions import transact
from gobblin_assets.model.job_ticket import TicketId, TicketVerb
from gobblin_assets.state.postgres.tickets import COUNTED_ATTEMPTS, LAST_CLAIM
from gobblin_assets.state.tickets import LONG_LIFE_S, Claim
from gobblin_assets.state.worker_tickets import DRAINED_KEPT, OUTPUTS_KEPT, WorkerTicket

_OPEN = text(f"""
    SELECT t.ticket_id, t.verb, t.job, coalesce(l.attempt, 0) AS last_attempt, {COUNTED_ATTEMPTS} AS attempts,
           l.owner, coalesce(l.is_live, false) AS is_live, l.attempt IS NULL OR l.ended_at IS NOT NULL AS has_ended
      FROM gobblin.job_ticket t LEFT JOIN LATERAL ({LAST_CLAIM.format("t.ticket_id")}) l ON true
     WHERE t.executor = :executor AND t.ended_at IS NULL AND t.shape = 'worker'
     ORDER BY t.sent_at, t.ticket_id
""")

_IS_REPLACED = text("""
    SELECT EXISTS (SELECT FROM gobblin.job_ticket t JOIN gobblin.job_ticket o USING (executor, job)
                    WHERE t.ticket_id = :ticket_id AND o.ended_at IS NULL AND o.verb IN ('UPDATE', 'DELETE')
                      AND (o.sent_at, o.ticket_id) > (t.sent_at, t.ticket_id))
""")

# Of an attempt, its number stays only where it is the last one: new ones go on from there.
_FORGET_DRAINED = text(f"""
    WITH old AS (
        DELETE FROM gobblin.ticket_claim
         WHERE ticket_id = :ticket_id AND ended_as = 'DRAINED' AND attempt <= :attempt - {DRAINED_KEPT}
        RETURNING attempt)
    DELETE FROM gobblin.ticket_report USING old
     WHERE ticket_report.ticket_id = :ticket_id AND ticket_report.attempt = old.attempt
""")

_FORGET_OUTPUTS = text(f"""
    DELETE FROM gobblin.ticket_output WHERE ticket_id = :ticket_id AND attempt <= :attempt - {OUTPUTS_KEPT}
""")


class PostgresWorkerTicketStore:
    """``WorkerTicketStore`` over the log's tables of tickets and claims."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def list_open(self, executor: str) -> Sequence[WorkerTicket]:
        asked = {"executor": executor, "long_life_s": LONG_LIFE_S}
        rows = transact(self._engine, "list tickets of workers", lambda c: c.execute(_OPEN, asked).all())
        return [
            WorkerTicket(
                *(TicketId(row.ticket_id), TicketVerb(row.verb), row.job),
                *(row.last_attempt, row.attempts, row.owner, row.is_live, row.has_ended),
            )
            for row in rows
        ]

    def is_replaced(self, ticket_id: TicketId) -> bool:
        asked = {"ticket_id": ticket_id}
        return bool(transact(self._engine, "find what replaces", lambda c: c.execute(_IS_REPLACED, asked).scalar()))

    def forget_drained(self, claim: Claim) -> None:
        asked = {"ticket_id": claim.ticket_id, "attempt": claim.attempt}

        def body(connection: Connection) -> None:
            for statement in (_FORGET_DRAINED, _FORGET_OUTPUTS):
                connection.execute(statement, asked)

        transact(self._engine, "forget drained attempts", body)
