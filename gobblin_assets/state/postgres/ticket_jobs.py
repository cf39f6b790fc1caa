"""The jobs that tickets have brought into the log, by one look that reads no ticket."""

from collections.abc import Collection, Mapping
from typing import Final

from sqlalchemy import Connection, text

from gobblin_assets.errors import RejectedError
from gobblin_assets.model.job_ticket import JobTicket, TicketId, TicketVerb, sent_ticket_from_json
from gobblin_assets.model.urn import JobName
from gobblin_assets.state.tickets import LastTicket

# The index has a job's tickets that are not forgotten in one place, by their times.
_LAST: Final = """
    SELECT t.ticket_id, t.verb FROM gobblin.job_ticket t
     WHERE t.job = {} AND NOT coalesce(json_typeof(t.body) = 'null', false)
     ORDER BY t.sent_at DESC, t.ticket_id DESC LIMIT 1
"""

# From one name to the next: a job may have a million tickets.
LAST_OF_ALL = text(f"""
    WITH RECURSIVE name (job) AS (
        (SELECT job FROM gobblin.job_ticket WHERE job IS NOT NULL ORDER BY job LIMIT 1)
         UNION ALL
        SELECT (SELECT t.job FROM gobblin.job_ticket t WHERE t.job > name.job ORDER BY t.job LIMIT 1)
          FROM name WHERE name.job IS NOT NULL)
    SELECT name.job, l.ticket_id, l.verb FROM name LEFT JOIN LATERAL ({_LAST.format("name.job")}) l ON true
     WHERE name.job IS NOT NULL
""")

_BODIES = text("""
    SELECT ticket_id, body FROM gobblin.job_ticket
     WHERE ticket_id = ANY (CAST(:ticket_ids AS uuid[])) AND json_typeof(body) <> 'null'
""")


def list_last_tickets(connection: Connection) -> dict[JobName, LastTicket | None]:
    return {
        JobName(row.job): None
        if row.ticket_id is None
        else LastTicket(TicketId(row.ticket_id), is_delete=row.verb == TicketVerb.DELETE)
        for row in connection.execute(LAST_OF_ALL)
    }


def load_ticket_jobs(connection: Connection, ticket_ids: Collection[TicketId]) -> Mapping[TicketId, JobTicket]:
    found: dict[TicketId, JobTicket] = {}
    for row in connection.execute(_BODIES, {"ticket_ids": list(ticket_ids)}):
        try:
            found[TicketId(row.ticket_id)] = sent_ticket_from_json(row.body).get_job_ticket()
        except RejectedError:
            # A later release wrote it.
            continue
    return found
