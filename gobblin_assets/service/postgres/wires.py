"""The book of a way of messages, in the service's database: tickets that were sent, and all that came back.

Any number of nodes read a topic: a record and the place behind it are one transaction, so each record counts once. A
report is taken if the one before it is here. Behind a gap none is taken, and the ticket is sent again: then its
executor tells all of its reports again.
"""

import json
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, TypeVar

from sqlalchemy import Connection, Engine, text

from gobblin_assets.db.notices import Channel, notify
from gobblin_assets.db.transactions import transact
from gobblin_assets.errors import ConflictError, RejectedError, RetryableError
from gobblin_assets.failpoints import Failpoint
from gobblin_assets.model.executor_heartbeat import (
    SILENT_AFTER_S,
    HeardHeartbeat,
    heartbeat_from_json,
    heartbeat_to_json,
)
from gobblin_assets.model.job_ticket import (
    LogId,
    SentTicket,
    TicketId,
    TicketVerb,
    sent_ticket_from_json,
    sent_ticket_to_json,
)
from gobblin_assets.state.postgres.ticket_reports import ReportTables
from gobblin_assets.state.tickets import (
    PROBE_KEPT_S,
    PROBE_LIFE_S,
    PROBES_OPEN_MAX,
    AttemptEnd,
    FoundProbe,
    TicketOutput,
    TicketReport,
    TicketReportKind,
)
from gobblin_assets.state.worker_tickets import DRAINED_KEPT, OUTPUTS_KEPT
from gobblin_assets.tickets.wire_messages import (
    NoticeKind,
    WireNotice,
    beat_from_json,
    output_from_json,
    read_number,
    read_uuid,
    report_from_json,
)

T = TypeVar("T")

RESENT_AFTER_S: Final = 60.0
RESENT_AFTER_S_MAX: Final = 600.0
"""A ticket that its executor does not have is sent again so much later, twice as much later each time."""

_WITHDRAWN_AGAIN_S: Final = 10.0
_RESENT_AT_ONCE: Final = 100

_ENTER = text("""
    INSERT INTO gobblin_service.way_ticket (ticket_id, way, verb, key, log_id, digest, body)
    VALUES (:ticket_id, :way, :verb, :key, :log_id, :digest, CAST(:body AS json))
        ON CONFLICT (ticket_id) DO NOTHING
""")

_ENTERED = text("SELECT digest FROM gobblin_service.way_ticket WHERE ticket_id = :ticket_id")

_KEY = text("SELECT key FROM gobblin_service.way_ticket WHERE ticket_id = :ticket_id")

_COUNT_PROBES = text(f"""
    SELECT count(*) FROM gobblin_service.way_ticket
     WHERE way = :way AND ended_at IS NULL AND verb = 'PROBE'
       AND entered_at > clock_timestamp() - make_interval(secs => {PROBE_LIFE_S})
""")

_FORGET_PROBES = text(f"""
    DELETE FROM gobblin_service.way_ticket
     WHERE way = :way AND verb = 'PROBE'
       AND entered_at < clock_timestamp() - make_interval(secs => {PROBE_KEPT_S})
""")

_TAKE_BACK = text("""
    DELETE FROM gobblin_service.way_ticket
     WHERE ticket_id = :ticket_id AND received_at IS NULL AND ended_at IS NULL
""")

_PRODUCED = text("""
    UPDATE gobblin_service.way_ticket SET produced_at = coalesce(produced_at, clock_timestamp())
     WHERE ticket_id = :ticket_id
""")

# What is sent again is taken by one node.
_RESEND = text(f"""
    UPDATE gobblin_service.way_ticket t SET produced_at = clock_timestamp(), resends = t.resends + 1
      FROM (SELECT ticket_id FROM gobblin_service.way_ticket
             WHERE way = :way AND ended_at IS NULL AND received_at IS NULL
               AND (verb <> 'PROBE' OR entered_at > clock_timestamp() - make_interval(secs => {PROBE_LIFE_S}))
               AND (produced_at IS NULL AND entered_at < clock_timestamp() - interval '1 second'
                    OR produced_at <= clock_timestamp()
                       - make_interval(secs => least(:after_s_max, :after_s * 2 ^ least(resends, 10))))
             ORDER BY entered_at LIMIT :limit FOR UPDATE SKIP LOCKED) late
     WHERE t.ticket_id = late.ticket_id
    RETURNING t.key, t.body
""")

_PLACES = text("""
    SELECT partition, next_offset FROM gobblin_service.way_place WHERE way = :way AND topic_id = :topic_id
""")

# Of a topic that is another one than those before: what nobody had read is lost, and nothing says what that was.
_IS_NEW = text("""
    SELECT count(*) FILTER (WHERE topic_id <> :topic_id) > 0 AND count(*) FILTER (WHERE topic_id = :topic_id) = 0
      FROM gobblin_service.way_place WHERE way = :way
""")

_DROP_PLACES = text("DELETE FROM gobblin_service.way_place WHERE way = :way AND topic_id <> :topic_id")

_ALL_MISSING = text("""
    UPDATE gobblin_service.way_ticket SET received_at = NULL, produced_at = NULL, resends = 0
     WHERE way = :way AND ended_at IS NULL
""")

_BEGIN_PLACE = text("""
    INSERT INTO gobblin_service.way_place (way, topic_id, partition, next_offset)
    VALUES (:way, :topic_id, :partition, 0) ON CONFLICT DO NOTHING
""")

_LOCK_PLACE = text("""
    SELECT next_offset FROM gobblin_service.way_place
     WHERE way = :way AND topic_id = :topic_id AND partition = :partition FOR UPDATE
""")

_MOVE_PLACE = text("""
    UPDATE gobblin_service.way_place SET next_offset = :next_offset
     WHERE way = :way AND topic_id = :topic_id AND partition = :partition
""")

_LOCK = text("""
    SELECT log_id FROM gobblin_service.way_ticket WHERE ticket_id = :ticket_id AND way = :way FOR UPDATE
""")

_LAST = text("""
    SELECT attempt, number FROM gobblin_service.way_report WHERE ticket_id = :ticket_id
     ORDER BY attempt DESC, number DESC LIMIT 1
""")

_REPORT = text("""
    INSERT INTO gobblin_service.way_report (ticket_id, attempt, number, kind, details, at)
    VALUES (:ticket_id, :attempt, :number, :kind, CAST(:details AS jsonb), :at) ON CONFLICT DO NOTHING
""")

_FORGET_PROGRESS = text("""
    DELETE FROM gobblin_service.way_report
     WHERE ticket_id = :ticket_id AND attempt = :attempt AND kind = 'progress' AND number < :number
""")

# Attempts and lines of a worker that the executor's log has forgotten as well.
_FORGET_DRAINED = text(f"""
    DELETE FROM gobblin_service.way_report r
     WHERE ticket_id = :ticket_id AND attempt <= :attempt - {DRAINED_KEPT}
       AND EXISTS (SELECT FROM gobblin_service.way_report e
                    WHERE e.ticket_id = r.ticket_id AND e.attempt = r.attempt AND e.kind = 'ended'
                      AND e.details ->> 'state' = 'DRAINED')
""")

_FORGET_OUTPUTS = text(f"""
    DELETE FROM gobblin_service.way_output WHERE ticket_id = :ticket_id AND attempt <= :attempt - {OUTPUTS_KEPT}
""")

_RECEIVED = text("""
    UPDATE gobblin_service.way_ticket SET received_at = coalesce(received_at, clock_timestamp())
     WHERE ticket_id = :ticket_id AND way = :way
""")

_MISSING = text("""
    UPDATE gobblin_service.way_ticket SET received_at = NULL, produced_at = NULL, resends = 0
     WHERE ticket_id = :ticket_id AND ended_at IS NULL AND received_at IS NOT NULL
""")

_ENDED = text("""
    UPDATE gobblin_service.way_ticket
       SET ended_at = coalesce(ended_at, clock_timestamp()), received_at = coalesce(received_at, clock_timestamp())
     WHERE ticket_id = :ticket_id
""")

_KEEP_OUTPUT = text("""
    INSERT INTO gobblin_service.way_output AS o (ticket_id, attempt, lines, updated_at)
    SELECT t.ticket_id, :attempt, :lines, :updated_at FROM gobblin_service.way_ticket t
     WHERE t.ticket_id = :ticket_id AND t.way = :way
        ON CONFLICT (ticket_id, attempt) DO UPDATE SET lines = excluded.lines, updated_at = excluded.updated_at
     WHERE o.updated_at < excluded.updated_at
""")

_BEAT = text("""
    INSERT INTO gobblin_service.way_heartbeat (way, owner, body, waiting, working, beaten_at)
    VALUES (:way, :owner, CAST(:body AS jsonb), :waiting, :working,
            clock_timestamp() - make_interval(secs => :heard_ago_s))
        ON CONFLICT (way, owner) DO UPDATE
           SET body = excluded.body, waiting = excluded.waiting, working = excluded.working,
               beaten_at = excluded.beaten_at
""")

_FORGET_BEATS = text("""
    DELETE FROM gobblin_service.way_heartbeat h
     WHERE way = :way AND beaten_at < clock_timestamp() - interval '1 day'
       AND EXISTS (SELECT FROM gobblin_service.way_heartbeat o WHERE o.way = h.way AND o.beaten_at > h.beaten_at)
""")

_BEATS = text("""
    SELECT body, waiting, working,
           greatest(0, extract(epoch FROM clock_timestamp() - beaten_at))::float8 AS heard_ago_s
      FROM gobblin_service.way_heartbeat WHERE way = :way ORDER BY beaten_at DESC, owner
""")

_REPORTS = ReportTables("gobblin_service.way_ticket", "gobblin_service.way_report")

_FORGET = text("""
    DELETE FROM gobblin_service.way_ticket
     WHERE ticket_id = ANY (CAST(:ticket_ids AS uuid[])) AND ended_at IS NOT NULL
""")

_OPEN = text("""
    SELECT ticket_id FROM gobblin_service.way_ticket
     WHERE ticket_id = ANY (CAST(:ticket_ids AS uuid[])) AND ended_at IS NULL
""")

_WITHDRAW = text(f"""
    UPDATE gobblin_service.way_ticket SET withdrawn_at = clock_timestamp()
     WHERE ticket_id = :ticket_id AND ended_at IS NULL
       AND (withdrawn_at IS NULL
            OR withdrawn_at < clock_timestamp() - make_interval(secs => {_WITHDRAWN_AGAIN_S}))
""")

_STATE_OF = text("""
    SELECT ended_at IS NOT NULL AS has_ended FROM gobblin_service.way_ticket WHERE ticket_id = :ticket_id
""")

_PROBE = text("""
    SELECT t.body, extract(epoch FROM clock_timestamp() - t.entered_at)::float8 AS age_s,
           t.ended_at IS NOT NULL AS has_ended,
           EXISTS (SELECT FROM gobblin_service.way_report c
                    WHERE c.ticket_id = t.ticket_id AND c.attempt > 0) AS is_claimed,
           (SELECT r.details FROM gobblin_service.way_report r
             WHERE r.ticket_id = t.ticket_id AND r.kind = 'ended'
             ORDER BY r.attempt DESC, r.number DESC LIMIT 1) AS details
      FROM gobblin_service.way_ticket t
     WHERE t.ticket_id = :ticket_id AND t.way = :way AND t.verb = 'PROBE'
""")

_GIVE_UP = text(f"""
    INSERT INTO gobblin_service.way_report (ticket_id, attempt, number, kind, details, at)
    SELECT ticket_id, 0, 0, 'ended', CAST(:details AS jsonb), clock_timestamp()
      FROM gobblin_service.way_ticket
     WHERE ticket_id = :ticket_id AND verb = 'PROBE' AND ended_at IS NULL
       AND (entered_at <= clock_timestamp() - make_interval(secs => {PROBE_LIFE_S})
            OR NOT EXISTS (SELECT FROM gobblin_service.way_report r WHERE r.ticket_id = way_ticket.ticket_id))
        ON CONFLICT DO NOTHING
""")

_OUTPUTS = text("""
    SELECT attempt, lines, updated_at FROM gobblin_service.way_output
     WHERE ticket_id = :ticket_id ORDER BY attempt DESC LIMIT :limit
""")

_TICKET_ENDS: Final = frozenset(end.value for end in AttemptEnd if end.ends_ticket)

_log = logging.getLogger(__name__)


class PostgresWireBook:
    """The book of one way: each method is one transaction, by the database's clock."""

    def __init__(self, engine: Engine, way: str) -> None:
        self._engine = engine
        self._way = way
        self._told: set[str] = set()

    def enter(self, sent: SentTicket, key: str) -> None:
        """Before it is sent, so that what comes back is known. Errors as of ``TicketWire.send``."""
        arguments = {
            "ticket_id": sent.ticket_id,
            "way": self._way,
            "verb": sent.verb.value,
            "key": key,
            "log_id": sent.log_id,
            "digest": sent.digest,
            "body": json.dumps(sent_ticket_to_json(sent)),
        }

        def body(connection: Connection) -> None:
            if connection.execute(_ENTER, arguments).rowcount:
                if sent.verb is TicketVerb.PROBE:
                    self._require_room(connection, sent)
                return
            known = connection.execute(_ENTERED, {"ticket_id": sent.ticket_id}).scalar_one()
            if bytes(known) != sent.digest:
                raise ConflictError(
                    f"another ticket has the id {sent.ticket_id}", hint="Send a changed ticket under a new id."
                )

        self._do("enter a ticket", body)

    def find_key(self, ticket_id: TicketId) -> str | None:
        """What orders the ticket among others; None: it was not sent over any way of messages."""
        found: str | None = self._do("find a ticket", lambda c: c.execute(_KEY, {"ticket_id": ticket_id}).scalar())
        return found

    def take_back(self, ticket_id: TicketId) -> None:
        """It was entered, and can't be sent. Nothing, if something came back of it."""
        self._do("take a ticket back", lambda c: c.execute(_TAKE_BACK, {"ticket_id": ticket_id}))

    def mark_produced(self, ticket_id: TicketId) -> None:
        self._do("mark a ticket as sent", lambda c: c.execute(_PRODUCED, {"ticket_id": ticket_id}))

    def take_late(self) -> Sequence[tuple[str, SentTicket]]:
        """Tickets, with their keys, that the executor has not said to have, and that are to be sent again now."""
        arguments = {
            "way": self._way,
            "after_s": RESENT_AFTER_S,
            "after_s_max": RESENT_AFTER_S_MAX,
            "limit": _RESENT_AT_ONCE,
        }
        rows = self._do("take tickets that are late", lambda c: c.execute(_RESEND, arguments).all())
        return [(row.key, sent_ticket_from_json(row.body)) for row in rows]

    def list_places(self, topic_id: str) -> dict[int, int]:
        """By partition, the offset that is next. Of a topic that was made anew: all open tickets are sent again."""
        arguments = {"way": self._way, "topic_id": topic_id}

        def body(connection: Connection) -> dict[int, int]:
            if connection.execute(_IS_NEW, arguments).scalar_one():
                connection.execute(_DROP_PLACES, arguments)
                connection.execute(_ALL_MISSING, {"way": self._way})
            return {row.partition: row.next_offset for row in connection.execute(_PLACES, arguments)}

        return self._do("find places of a way", body)

    def ask_again(self) -> None:
        """Have all open tickets sent again, so that everything is told again: records are gone that nobody read."""
        self._do("ask for reports again", lambda c: c.execute(_ALL_MISSING, {"way": self._way}))

    def take(self, topic_id: str, partition: int, notices: Sequence[tuple[int, WireNotice | None]]) -> None:
        """What records say, with their offsets, and the place behind the last one. None: nothing that counts."""
        place = {"way": self._way, "topic_id": topic_id, "partition": partition}

        def body(connection: Connection) -> None:
            connection.execute(_BEGIN_PLACE, place)
            begin = connection.execute(_LOCK_PLACE, place).scalar_one()
            news = [(offset, notice) for offset, notice in notices if offset >= begin]
            if news:
                # In one order, so that nodes which read partitions of one topic do not wait for each other.
                for _offset, notice in news:
                    if notice is not None:
                        self._apply(connection, notice)
                connection.execute(_MOVE_PLACE, {**place, "next_offset": news[-1][0] + 1})
                notify(connection, Channel.REPORTS)

        self._do("take reports", body, committed=Failpoint.REPORTS_TAKEN)

    def list_reports(
        self, ticket_ids: Sequence[TicketId], after: Mapping[TicketId, tuple[int, int]], *, limit: int
    ) -> Sequence[TicketReport]:
        return self._do("list reports", lambda c: _REPORTS.list_behind(c, ticket_ids, after, limit))

    def find_ends(self, ticket_ids: Collection[TicketId]) -> Mapping[TicketId, TicketReport]:
        return self._do("find ends of tickets", lambda c: _REPORTS.find_ends(c, ticket_ids))

    def forget(self, ticket_ids: Collection[TicketId]) -> frozenset[TicketId]:
        asked = {"ticket_ids": list(ticket_ids)}

        def body(connection: Connection) -> frozenset[TicketId]:
            connection.execute(_FORGET, asked)
            return frozenset(TicketId(each) for each in connection.execute(_OPEN, asked).scalars())

        return self._do("forget tickets", body)

    def begin_withdrawal(self, ticket_id: TicketId) -> bool | None:
        """Whether the executor is to be asked now. None: the ticket has ended.

        RejectedError: no such ticket was sent over this way.
        """

        def body(connection: Connection) -> bool | None:
            found = connection.execute(_STATE_OF, {"ticket_id": ticket_id}).one_or_none()
            if found is None:
                raise RejectedError(
                    f"the ticket {ticket_id} was not sent over the way {self._way}",
                    field="ticket",
                    hint="The job of an execution has its id.",
                )
            if found.has_ended:
                return None
            return connection.execute(_WITHDRAW, {"ticket_id": ticket_id}).rowcount == 1

        return self._do("withdraw a ticket", body)

    def find_probe(self, ticket_id: TicketId) -> FoundProbe | None:
        asked = {"ticket_id": ticket_id, "way": self._way}
        found = self._do("find a probe", lambda c: c.execute(_PROBE, asked).one_or_none())
        if found is None:
            return None
        end = found.details if found.has_ended else None
        return FoundProbe(sent_ticket_from_json(found.body), found.age_s, found.is_claimed, end)

    def give_up(self, ticket_id: TicketId, details: Mapping[str, Any]) -> bool:
        said = json.dumps({"state": AttemptEnd.FAILED.value, **details})

        def body(connection: Connection) -> bool:
            is_ended = connection.execute(_GIVE_UP, {"ticket_id": ticket_id, "details": said}).rowcount == 1
            if is_ended:
                connection.execute(_ENDED, {"ticket_id": ticket_id})
            return is_ended

        return self._do("give a question up", body)

    def list_outputs(self, ticket_id: TicketId, *, limit: int) -> Sequence[TicketOutput]:
        arguments = {"ticket_id": ticket_id, "limit": limit}
        rows = self._do("read what processes said", lambda c: c.execute(_OUTPUTS, arguments).all())
        return [TicketOutput(row.attempt, row.lines, row.updated_at) for row in rows]

    def list_heartbeats(self) -> Sequence[HeardHeartbeat]:
        rows = self._do("list heartbeats", lambda c: c.execute(_BEATS, {"way": self._way}).all())
        return [
            HeardHeartbeat(heartbeat_from_json(row.body), row.heard_ago_s, row.waiting, row.working) for row in rows
        ]

    def find_log_id(self) -> LogId:
        """RetryableError: no heartbeat was heard. RejectedError: processes that live work with different logs."""
        beats = self.list_heartbeats()
        if not beats:
            raise RetryableError(
                f"no heartbeat of {self._way} was heard yet",
                passes=True,
                hint="Start the executor, or look at its log.",
            )
        live = {each.beat.log_id for each in beats if each.heard_ago_s <= SILENT_AFTER_S}
        if len(live) > 1:
            raise RejectedError(
                f"processes of {self._way} work with different logs: {', '.join(sorted(map(str, live)))}",
                field="heartbeat.log_id",
                hint="Start all executors of one name with the same GOBBLIN_DATABASE_URL.",
            )
        return beats[0].beat.log_id

    def _require_room(self, connection: Connection, sent: SentTicket) -> None:
        connection.execute(_FORGET_PROBES, {"way": self._way})
        if connection.execute(_COUNT_PROBES, {"way": self._way}).scalar_one() > PROBES_OPEN_MAX:
            raise RetryableError(
                f"{PROBES_OPEN_MAX} questions wait for the executor {sent.executor}",
                passes=True,
                hint="Ask again once they are answered. Does the executor run?",
            )

    def _apply(self, connection: Connection, notice: WireNotice) -> None:
        """What can't be read, or is of an unknown ticket or another log, is left out, and told."""
        try:
            match notice.kind:
                case NoticeKind.RECEIVED:
                    ticket_id = read_uuid(notice.body.get("ticket_id"), "ticket_id")
                    self._lock(connection, TicketId(ticket_id), notice)
                    connection.execute(_RECEIVED, {"ticket_id": ticket_id, "way": self._way})
                case NoticeKind.REPORT:
                    self._take_report(connection, notice)
                case NoticeKind.OUTPUT:
                    self._keep_output(connection, notice)
                case NoticeKind.HEARTBEATS:
                    self._keep_beats(connection, notice)
        except RejectedError as error:
            self._tell_once(str(error))

    def _lock(self, connection: Connection, ticket_id: TicketId, notice: WireNotice) -> None:
        found = connection.execute(_LOCK, {"ticket_id": ticket_id, "way": self._way}).one_or_none()
        if found is None:
            raise RejectedError(
                f"the ticket {ticket_id} was not sent to the executor {notice.executor}",
                field="ticket_id",
                hint="Let each executor write to its own topic of reports only.",
            )
        if found.log_id not in (None, notice.log_id) and not _is_refusal(notice):
            raise RejectedError(
                f"a report of the ticket {ticket_id} comes from the log {notice.log_id}, and it was sent to the log"
                f" {found.log_id}",
                field="log_id",
                hint="Give the executor its log back.",
            )

    def _take_report(self, connection: Connection, notice: WireNotice) -> None:
        report = report_from_json(notice.body)
        behind = _read_place(notice.body.get("behind"))
        self._lock(connection, report.ticket_id, notice)
        of_ticket = {"ticket_id": report.ticket_id}
        last = connection.execute(_LAST, of_ticket).one_or_none()
        if behind > ((-1, 0) if last is None else (last.attempt, last.number)):
            connection.execute(_MISSING, of_ticket)
            return
        where = {**of_ticket, "attempt": report.attempt, "number": report.number}
        said = {"kind": report.kind.value, "details": json.dumps(dict(report.details)), "at": report.at}
        connection.execute(_REPORT, {**where, **said})
        if report.kind is TicketReportKind.PROGRESS:
            connection.execute(_FORGET_PROGRESS, where)
        if report.kind is TicketReportKind.CLAIMED:
            connection.execute(_FORGET_DRAINED, where)
        if report.kind is TicketReportKind.ENDED and report.details.get("state") in _TICKET_ENDS:
            connection.execute(_ENDED, of_ticket)

    def _keep_output(self, connection: Connection, notice: WireNotice) -> None:
        output = output_from_json(notice.body)
        ticket_id = read_uuid(notice.body.get("ticket_id"), "ticket_id")
        said = {"lines": output.lines, "updated_at": output.updated_at}
        where = {"ticket_id": ticket_id, "attempt": output.attempt}
        if connection.execute(_KEEP_OUTPUT, {"way": self._way, **where, **said}).rowcount:
            connection.execute(_FORGET_OUTPUTS, where)

    def _keep_beats(self, connection: Connection, notice: WireNotice) -> None:
        for each in notice.body.get("heartbeats") or ():
            heard = beat_from_json(each)
            if (heard.beat.executor, heard.beat.log_id) != (notice.executor, notice.log_id):
                raise RejectedError(
                    f"a heartbeat of {heard.beat.executor} and the log {heard.beat.log_id} came from"
                    f" {notice.executor} and the log {notice.log_id}",
                    field="heartbeat.log_id",
                    hint="Start all executors of one name with the same GOBBLIN_DATABASE_URL.",
                )
            arguments = {
                "way": self._way,
                "owner": heard.beat.owner,
                "body": json.dumps(heartbeat_to_json(heard.beat)),
                "waiting": heard.waiting,
                "working": heard.working,
                "heard_ago_s": heard.heard_ago_s,
            }
            connection.execute(_BEAT, arguments)
        connection.execute(_FORGET_BEATS, {"way": self._way})

    def _tell_once(self, said: str) -> None:
        if said not in self._told:
            self._told.add(said)
            _log.warning("%s: %s", self._way, said)

    def _do(self, name: str, body: Callable[[Connection], T], committed: Failpoint | None = None) -> T:
        return transact(self._engine, name, body, committed=committed)


def _is_refusal(notice: WireNotice) -> bool:
    """An executor with another log refuses the ticket for that reason."""
    return notice.kind is NoticeKind.REPORT and notice.body.get("attempt") == 0 and notice.body.get("number") == 0


def _read_place(value: object) -> tuple[int, int]:
    match value:
        case [-1, 0]:
            return -1, 0
        case [attempt, number]:
            return read_number(attempt, "behind"), read_number(number, "behind")
        case _:
            raise RejectedError(f"expected an attempt and a number, found {value!r:.80}", field="behind")
