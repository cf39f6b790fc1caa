"""Questions of whoever asks for runs of tickets: what waits, and what is held. They lock nothing."""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from sqlalchemy import Connection, text

from gobblin_assets.model.job_ticket import TicketId, TicketShape, is_job_uri
from gobblin_assets.state.tickets import LONG_RUN_S, LONG_RUNS, Claim, HeldClaim, WaitingTicket

UNREADABLE_JOB_URI: Final = "gobblin-job:/unreadable/unreadable/unreadable"
"""Instead of the URI of a ticket that has none."""

# Of ``t``, a ticket. Earlier releases took NUL in the options of jobs, and then no operator looks into the body.
BODY: Final = r"CAST(replace(CAST(t.body AS text), '\u0000', '\ufffd') AS json)"

_JOB: Final = "b.body #> '{ticket,job}'"

# A copy names its source by a place: it needs no connector. What Spark needs of a destination is said by its scheme.
_WAITING = text(f"""
    SELECT t.ticket_id, t.executor, t.shape, b.body #>> '{{ticket,uri}}' AS uri,
           concat_ws(' ', {_JOB} ->> 'kind', substring({_JOB} ->> 'destination' FROM '^([A-Za-z][A-Za-z0-9+.-]*):'),
                     CASE json_typeof({_JOB} -> 'source') WHEN 'object' THEN md5({_JOB} ->> 'source') END) AS needs,
           EXISTS (SELECT FROM (SELECT r.started_at, r.ended_at FROM gobblin.run r
                                 WHERE r.job = t.job ORDER BY r.started_at DESC LIMIT {LONG_RUNS}) last
                    WHERE coalesce(last.ended_at, clock_timestamp())
                          > last.started_at + make_interval(secs => {LONG_RUN_S})) AS is_long
      FROM gobblin.job_ticket t CROSS JOIN LATERAL (SELECT {BODY} AS body OFFSET 0) b
     WHERE t.ticket_id = ANY (CAST(:ticket_ids AS uuid[])) AND t.job IS NOT NULL AND t.ended_at IS NULL
""")

_HELD = text("""
    SELECT c.ticket_id, c.attempt, c.owner
      FROM gobblin.job_ticket t JOIN gobblin.ticket_claim c USING (ticket_id)
     WHERE t.executor = :executor AND t.ended_at IS NULL
       AND c.ended_at IS NULL AND c.expires_at > clock_timestamp()
     ORDER BY c.claimed_at, c.ticket_id
""")

# The executor of the one that is cancelled leads to the index.
_CANCELS = text("""
    SELECT c.ticket_id FROM gobblin.job_ticket t JOIN gobblin.job_ticket c USING (executor)
     WHERE t.ticket_id = :ticket_id AND c.ended_at IS NULL AND c.verb = 'CANCEL' AND c.cancels = t.ticket_id
     ORDER BY c.sent_at, c.ticket_id
""")


def describe_waiting(connection: Connection, ticket_ids: Collection[TicketId]) -> Mapping[TicketId, WaitingTicket]:
    rows = connection.execute(_WAITING, {"ticket_ids": list(ticket_ids)}).all()
    return {
        TicketId(row.ticket_id): WaitingTicket(
            row.executor, _read_uri(row.uri), TicketShape(row.shape), row.needs, row.is_long
        )
        for row in rows
    }


def _read_uri(found: str | None) -> str:
    """Of a ticket that a later release wrote, or somebody changed: it is refused by who claims it, as any ticket is."""
    return found if found is not None and is_job_uri(found) else UNREADABLE_JOB_URI


def list_held(connection: Connection, executor: str) -> Sequence[HeldClaim]:
    rows = connection.execute(_HELD, {"executor": executor}).all()
    return [HeldClaim(Claim(TicketId(row.ticket_id), row.attempt), row.owner) for row in rows]


def list_cancels(connection: Connection, ticket_id: TicketId) -> Sequence[TicketId]:
    return [TicketId(each) for each in connection.execute(_CANCELS, {"ticket_id": ticket_id}).scalars()]
