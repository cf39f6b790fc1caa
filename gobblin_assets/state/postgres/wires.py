"""``WireStore`` in Postgres."""

import datetime as dt
import json
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any, Final, TypeVar

from sqlalchemy import Connection, Engine, Row, text

from gobblin_assets.db.transactions import transact
from gobblin_assets.failpoints import Failpoint
from gobblin_assets.model.job_ticket import SentTicket, TicketId
from gobblin_assets.state.postgres.tickets import put_ticket
from gobblin_assets.state.tickets import TicketOutput, TicketReport, TicketReportKind
from gobblin_assets.state.wires import WiredTicket, WirePlace

T = TypeVar("T")

_WATCHED_S: Final = 60.0
"""So long after its end a ticket is watched: the last lines of its process come later than its end."""

_HOLD = text("""
    INSERT INTO gobblin.wire_holder AS h (executor, owner, expires_at)
    VALUES (:executor, :owner, clock_timestamp() + make_interval(secs => :ttl_s))
        ON CONFLICT (executor) DO UPDATE SET owner = excluded.owner, expires_at = excluded.expires_at
     WHERE h.owner = excluded.owner OR h.expires_at <= clock_timestamp()
""")

_PLACES = text("""
    SELECT partition, next_offset FROM gobblin.wire_place
     WHERE executor = :executor AND topic = :topic AND topic_id = :topic_id
""")

_PASS = text("""
    INSERT INTO gobblin.wire_place AS p (executor, topic, topic_id, partition, next_offset)
    VALUES (:executor, :topic, :topic_id, :partition, :offset + 1)
        ON CONFLICT (executor, topic, topic_id, partition) DO UPDATE SET next_offset = excluded.next_offset
     WHERE p.next_offset < excluded.next_offset
""")

_WATCH = text("""
    INSERT INTO gobblin.wired_ticket (ticket_id, executor) VALUES (:ticket_id, :executor)
        ON CONFLICT (ticket_id) DO UPDATE SET is_received_told = false, attempt = -1, number = 0
""")

_REFUSE = text("""
    INSERT INTO gobblin.wired_ticket (ticket_id, executor, is_received_told, refusal)
    VALUES (:ticket_id, :executor, true, CAST(:refusal AS jsonb))
        ON CONFLICT (ticket_id) DO UPDATE SET refusal = excluded.refusal
""")

_UNTOLD = text("""
    SELECT w.ticket_id, w.attempt AS told_attempt, w.number AS told_number, w.is_received_told, w.refusal,
           r.attempt, r.number, r.kind, r.details, r.at
      FROM gobblin.wired_ticket w
      LEFT JOIN gobblin.ticket_report r
        ON r.ticket_id = w.ticket_id AND (r.attempt, r.number) > (w.attempt, w.number)
     WHERE w.executor = :executor AND (NOT w.is_received_told OR w.refusal IS NOT NULL OR r.ticket_id IS NOT NULL)
     ORDER BY w.ticket_id, r.attempt, r.number
     LIMIT :limit
""")

_NOTE_TOLD = text("""
    UPDATE gobblin.wired_ticket SET is_received_told = true, attempt = :attempt, number = :number,
           refusal = CASE WHEN refusal = CAST(:refusal AS jsonb) THEN NULL ELSE refusal END
     WHERE ticket_id = :ticket_id AND (attempt, number) = (:attempt_before, :number_before)
       AND is_received_told = :is_received_told
""")

_UNWATCH = text("""
    DELETE FROM gobblin.wired_ticket w
     WHERE w.executor = :executor AND w.is_received_told AND w.refusal IS NULL
       AND NOT EXISTS (SELECT FROM gobblin.job_ticket t
                        WHERE t.ticket_id = w.ticket_id
                          AND (t.ended_at IS NULL
                               OR t.ended_at > clock_timestamp() - make_interval(secs => :watched_s)))
       AND NOT EXISTS (SELECT FROM gobblin.ticket_report r
                        WHERE r.ticket_id = w.ticket_id AND (r.attempt, r.number) > (w.attempt, w.number))
""")

_CHANGED_OUTPUTS = text("""
    SELECT o.ticket_id, o.attempt, o.lines, o.updated_at
      FROM gobblin.wired_ticket w JOIN gobblin.ticket_output o USING (ticket_id)
     WHERE w.executor = :executor AND (CAST(:after AS timestamptz) IS NULL OR o.updated_at > :after)
     ORDER BY o.updated_at LIMIT :limit
""")


class PostgresWireStore:
    """``WireStore`` over the log's tables of wires."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def hold(self, executor: str, owner: str, *, ttl_s: float) -> bool:
        arguments = {"executor": executor, "owner": owner, "ttl_s": ttl_s}
        return self._do("hold a wire", lambda c: c.execute(_HOLD, arguments).rowcount == 1)

    def list_places(self, executor: str, topic: str, topic_id: str) -> Mapping[int, int]:
        arguments = {"executor": executor, "topic": topic, "topic_id": topic_id}
        rows = self._do("find places of a wire", lambda c: c.execute(_PLACES, arguments).all())
        return {row.partition: row.next_offset for row in rows}

    def receive(self, place: WirePlace, sent: SentTicket) -> None:
        def body(connection: Connection) -> None:
            if _pass(connection, place):
                put_ticket(connection, sent)
                connection.execute(_WATCH, {"ticket_id": sent.ticket_id, "executor": place.executor})

        self._do("receive a ticket", body, committed=Failpoint.TICKET_RECEIVED)

    def refuse(self, place: WirePlace, ticket_id: TicketId, refusal: Mapping[str, Any]) -> None:
        arguments = {"ticket_id": ticket_id, "executor": place.executor, "refusal": json.dumps(refusal)}

        def body(connection: Connection) -> None:
            if _pass(connection, place):
                connection.execute(_REFUSE, arguments)

        self._do("refuse a ticket", body)

    def skip(self, place: WirePlace) -> None:
        self._do("pass a record", lambda c: _pass(c, place))

    def list_untold(self, executor: str, *, limit: int) -> Sequence[WiredTicket]:
        rows = self._do(
            "list untold reports", lambda c: c.execute(_UNTOLD, {"executor": executor, "limit": limit}).all()
        )
        return [_wired_of(list(some)) for _, some in groupby(rows, key=lambda row: row.ticket_id)]

    def note_told(self, executor: str, told: Sequence[WiredTicket]) -> None:
        def body(connection: Connection) -> None:
            # In one order, so that two processes that tell the same do not wait for each other.
            for each in sorted(told, key=lambda each: each.ticket_id):
                connection.execute(_NOTE_TOLD, _told_arguments(each))
            connection.execute(_UNWATCH, {"executor": executor, "watched_s": _WATCHED_S})

        self._do("note what was told", body, committed=Failpoint.REPORTS_TOLD)

    def list_changed_outputs(
        self, executor: str, after: dt.datetime | None, *, limit: int
    ) -> Sequence[tuple[TicketId, TicketOutput]]:
        arguments = {"executor": executor, "after": after, "limit": limit}
        rows = self._do("list changed outputs", lambda c: c.execute(_CHANGED_OUTPUTS, arguments).all())
        return [(TicketId(row.ticket_id), TicketOutput(row.attempt, row.lines, row.updated_at)) for row in rows]

    def _do(self, name: str, body: Callable[[Connection], T], committed: Failpoint | None = None) -> T:
        return transact(self._engine, name, body, committed=committed)


def _pass(connection: Connection, place: WirePlace) -> bool:
    """False: it was passed before."""
    arguments = {
        "executor": place.executor,
        "topic": place.topic,
        "topic_id": place.topic_id,
        "partition": place.partition,
        "offset": place.offset,
    }
    return connection.execute(_PASS, arguments).rowcount == 1


def _wired_of(rows: Sequence[Row[Any]]) -> WiredTicket:
    first = rows[0]
    ticket_id = TicketId(first.ticket_id)
    reports = tuple(
        TicketReport(ticket_id, row.attempt, row.number, TicketReportKind(row.kind), row.details, row.at)
        for row in rows
        if row.attempt is not None
    )
    told = first.told_attempt, first.told_number
    return WiredTicket(ticket_id, told, first.is_received_told, first.refusal, reports)


def _told_arguments(told: WiredTicket) -> dict[str, Any]:
    attempt, number = (told.reports[-1].attempt, told.reports[-1].number) if told.reports else told.told
    return {
        "ticket_id": told.ticket_id,
        "attempt": attempt,
        "number": number,
        "attempt_before": told.told[0],
        "number_before": told.told[1],
        "is_received_told": told.is_received_told,
        "refusal": None if told.refusal is None else json.dumps(told.refusal),
    }
