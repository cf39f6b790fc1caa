"""Reports of tickets as they are read, from the tables of a log or of a service that keeps what came by messages."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Row, text

from gobblin_assets.model.job_ticket import TicketId
from gobblin_assets.state.tickets import TicketReport, TicketReportKind

_BEFORE_ALL = (-1, 0)


class ReportTables:
    """The reading side of two tables, by their names: one of tickets, and one of their reports."""

    def __init__(self, tickets: str, reports: str) -> None:
        self._behind = text(f"""
            SELECT r.ticket_id, r.attempt, r.number, r.kind, r.details, r.at
              FROM unnest(CAST(:ticket_ids AS uuid[]), CAST(:attempts AS int[]), CAST(:numbers AS int[]))
                   AS known (ticket_id, attempt, number)
              JOIN {reports} r
                ON r.ticket_id = known.ticket_id AND (r.attempt, r.number) > (known.attempt, known.number)
             ORDER BY r.ticket_id, r.attempt, r.number
             LIMIT :limit
        """)
        self._ends = text(f"""
            SELECT DISTINCT ON (r.ticket_id) r.ticket_id, r.attempt, r.number, r.kind, r.details, r.at
              FROM {tickets} t JOIN {reports} r USING (ticket_id)
             WHERE t.ticket_id = ANY (CAST(:ticket_ids AS uuid[])) AND t.ended_at IS NOT NULL AND r.kind = 'ended'
             ORDER BY r.ticket_id, r.attempt DESC, r.number DESC
        """)

    def list_behind(
        self,
        connection: Connection,
        ticket_ids: Sequence[TicketId],
        after: Mapping[TicketId, tuple[int, int]],
        limit: int,
    ) -> list[TicketReport]:
        """By ticket, attempt and number. ``after``: the (attempt, number) up to which a ticket's reports are known."""
        known = [after.get(each, _BEFORE_ALL) for each in ticket_ids]
        arguments = {
            "ticket_ids": list(ticket_ids),
            "attempts": [attempt for attempt, _number in known],
            "numbers": [number for _attempt, number in known],
            "limit": limit,
        }
        return [_report_of(row) for row in connection.execute(self._behind, arguments)]

    def find_ends(self, connection: Connection, ticket_ids: Collection[TicketId]) -> dict[TicketId, TicketReport]:
        """The reports that ended these tickets; nothing for those that are open."""
        rows = connection.execute(self._ends, {"ticket_ids": list(ticket_ids)})
        return {TicketId(row.ticket_id): _report_of(row) for row in rows}


def _report_of(row: Row[Any]) -> TicketReport:
    kind = TicketReportKind(row.kind)
    return TicketReport(TicketId(row.ticket_id), row.attempt, row.number, kind, row.details, row.at)
