"""A wire over topics in memory: the real ends of a Kafka wire. Topics lose answers, double records and are made anew.

The service's end is ``SimpleKafkaSpecExecutor`` over a book in memory, the executor's end ``KafkaWire`` over a log in
memory. What both tell each other are the real records.
"""

import datetime as dt
import random
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from gobblin_assets.errors import ConflictError, OutcomeUnknownError, RetryableError
from gobblin_assets.kafka.connection import KafkaConnection
from gobblin_assets.model.executor_heartbeat import HeardHeartbeat
from gobblin_assets.model.job_ticket import LogId, SentTicket, TicketId
from gobblin_assets.service.postgres.wires import RESENT_AFTER_S
from gobblin_assets.service.spec_executors.simple_kafka import SimpleKafkaSpecExecutor
from gobblin_assets.state.tickets import AttemptEnd, TicketReport, TicketReportKind
from gobblin_assets.state.wires import WiredTicket, WirePlace
from gobblin_assets.tickets.kafka_wire import KafkaWire, KafkaWireOptions
from gobblin_assets.tickets.wire_messages import NoticeKind, WireNotice, beat_from_json, report_from_json
from gobblin_assets.tickets.wire_topics import WireRecord, name_report_topic, name_ticket_topic
from tests.simulation.service_log import FakeLog
from tests.simulation.service_tables import Now

FIRST: Final = (-1, 0)
_WITHDRAWN_AGAIN_S: Final = 10.0
_CONNECTION: Final = KafkaConnection("nowhere:9092")


@dataclass
class WireFaults:
    """What befalls records, by shares of all sends. ``chance`` draws."""

    chance: random.Random
    lost: float = 0.0
    unanswered: float = 0.0
    doubled: float = 0.0

    def draw(self) -> str:
        drawn = self.chance.random()
        for name, share in (("lost", self.lost), ("unanswered", self.unanswered), ("doubled", self.doubled)):
            if drawn < share:
                return name
            drawn -= share
        return ""


class FakeTopics:
    """Topics of one partition each. One that is made anew has another id, and none of the records."""

    def __init__(self, faults: WireFaults) -> None:
        self.faults = faults
        self._records: dict[str, list[bytes]] = {}
        self._made: dict[str, int] = {}

    def send(self, topic: str, records: Sequence[tuple[str, bytes]]) -> None:
        fault = self.faults.draw()
        if fault == "lost":
            raise RetryableError("no broker answers", passes=True)
        for _key, value in records:
            # One that is sent again by a client that lost its place.
            self._records.setdefault(topic, []).extend([value] * (2 if fault == "doubled" else 1))
        if fault == "unanswered":
            raise OutcomeUnknownError("the brokers did not answer")

    def find_id(self, topic: str) -> str:
        return f"{topic} {self._made.get(topic, 0)}"

    def read(self, topic: str, offset: int) -> list[bytes]:
        return self._records.get(topic, [])[offset:]

    def make_anew(self, topic: str) -> None:
        self._records[topic] = []
        self._made[topic] = self._made.get(topic, 0) + 1


@dataclass
class FakeReader:
    """``WireReader`` of one topic. ``load_place``: the offset that is next in the topic of an id."""

    topics: FakeTopics
    topic: str
    load_place: Callable[[str], int]
    _topic_id: str = ""
    _offset: int = 0

    def follow(self, topics: Collection[str]) -> None:
        assert list(topics) == [self.topic]

    def poll(self, _timeout_s: float) -> Sequence[WireRecord]:
        found = self.topics.find_id(self.topic)
        if found != self._topic_id:
            self._topic_id, self._offset = found, self.load_place(found)
        values = self.topics.read(self.topic, self._offset)
        first, self._offset = self._offset, self._offset + len(values)
        return [WireRecord(self.topic, found, 0, first + number, value) for number, value in enumerate(values)]

    def start_over(self) -> None:
        self._topic_id = ""


@dataclass
class BookRow:
    """A ticket that was sent over the wire, as the service has it."""

    sent: SentTicket
    key: str
    entered_at: dt.datetime
    produced_at: dt.datetime | None = None
    withdrawn_at: dt.datetime | None = None
    is_received: bool = False
    has_ended: bool = False
    reports: dict[tuple[int, int], TicketReport] = field(default_factory=dict)


class FakeWireBook:
    """``PostgresWireBook`` in memory: one for all nodes."""

    def __init__(self, now: Now) -> None:
        self._now = now
        self.rows: dict[TicketId, BookRow] = {}
        self._places: dict[str, int] = {}
        self._beats: dict[str, tuple[HeardHeartbeat, dt.datetime]] = {}

    def enter(self, sent: SentTicket, key: str) -> None:
        row = self.rows.setdefault(sent.ticket_id, BookRow(sent, key, self._now()))
        if row.sent.digest != sent.digest:
            raise ConflictError("another ticket has the id", hint="Send it under a new id.")

    def find_key(self, ticket_id: TicketId) -> str | None:
        return self.rows[ticket_id].key if ticket_id in self.rows else None

    def mark_produced(self, ticket_id: TicketId) -> None:
        self.rows[ticket_id].produced_at = self.rows[ticket_id].produced_at or self._now()

    def take_late(self) -> Sequence[tuple[str, SentTicket]]:
        late = [row for row in self.rows.values() if not row.has_ended and not row.is_received and self._is_due(row)]
        for row in late:
            row.produced_at = self._now()
        return [(row.key, row.sent) for row in late]

    def _is_due(self, row: BookRow) -> bool:
        age_s = (self._now() - (row.produced_at or row.entered_at)).total_seconds()
        return age_s >= (RESENT_AFTER_S if row.produced_at else 1.0)

    def load_place(self, topic_id: str) -> int:
        if self._places and topic_id not in self._places:
            # What nobody had read is lost, and nothing says what that was.
            self._places = {}
            for ticket_id in self.rows:
                self._ask_again(ticket_id)
        return self._places.setdefault(topic_id, 0)

    def _ask_again(self, ticket_id: TicketId) -> None:
        row = self.rows[ticket_id]
        if not row.has_ended:
            row.is_received, row.produced_at = False, None

    def take(self, topic_id: str, _partition: int, notices: Sequence[tuple[int, WireNotice | None]]) -> None:
        begin = self._places.get(topic_id, 0)
        for offset, notice in notices:
            if offset >= begin and notice is not None:
                self._apply(notice)
        self._places[topic_id] = max(begin, notices[-1][0] + 1)

    def _apply(self, notice: WireNotice) -> None:
        match notice.kind:
            case NoticeKind.RECEIVED:
                self.rows[TicketId(uuid.UUID(notice.body["ticket_id"]))].is_received = True
            case NoticeKind.REPORT:
                first, second = notice.body["behind"]
                self.take_report(report_from_json(notice.body), (int(first), int(second)))
            case _:
                for each in notice.body.get("heartbeats") or ():
                    heard = beat_from_json(each)
                    at = self._now() - dt.timedelta(seconds=heard.heard_ago_s)
                    self._beats[heard.beat.owner] = heard, at

    def take_report(self, report: TicketReport, behind: tuple[int, int]) -> None:
        row = self.rows[report.ticket_id]
        if behind > max(row.reports, default=FIRST):
            self._ask_again(report.ticket_id)
            return
        row.reports.setdefault((report.attempt, report.number), report)
        ends = report.kind is TicketReportKind.ENDED and AttemptEnd(report.details["state"]).ends_ticket
        if ends:
            row.has_ended = row.is_received = True

    def begin_withdrawal(self, ticket_id: TicketId) -> bool | None:
        row = self.rows[ticket_id]
        if row.has_ended:
            return None
        again = dt.timedelta(seconds=_WITHDRAWN_AGAIN_S)
        is_due = row.withdrawn_at is None or row.withdrawn_at < self._now() - again
        row.withdrawn_at = self._now() if is_due else row.withdrawn_at
        return is_due

    def list_reports(
        self, ticket_ids: Sequence[TicketId], after: Mapping[TicketId, tuple[int, int]], *, limit: int
    ) -> Sequence[TicketReport]:
        found = [
            report
            for ticket_id, row in self.rows.items()
            if ticket_id in ticket_ids
            for place, report in sorted(row.reports.items())
            if place > after.get(ticket_id, FIRST)
        ]
        return found[:limit]

    def find_ends(self, ticket_ids: Collection[TicketId]) -> Mapping[TicketId, TicketReport]:
        rows = {each: self.rows[each] for each in ticket_ids if each in self.rows}
        return {each: row.reports[max(row.reports)] for each, row in rows.items() if row.has_ended}

    def list_heartbeats(self) -> Sequence[HeardHeartbeat]:
        now = self._now()
        heard = [(each, (now - at).total_seconds()) for each, at in self._beats.values()]
        return [HeardHeartbeat(each.beat, age_s, each.waiting, each.working) for each, age_s in heard]

    def find_log_id(self) -> LogId:
        beats = sorted(self.list_heartbeats(), key=lambda each: each.heard_ago_s)
        if not beats:
            raise RetryableError("no heartbeat was heard yet", passes=True)
        return beats[0].beat.log_id


def _place_of(report: TicketReport) -> tuple[int, int]:
    return report.attempt, report.number


@dataclass
class WatchedTicket:
    """A ticket that came by the topic."""

    told: tuple[int, int] = FIRST
    telling: int = 0
    is_received_told: bool = False
    refusal: Mapping[str, Any] | None = None


class FakeWireStore:
    """``WireStore`` over a log in memory."""

    def __init__(self, log: FakeLog) -> None:
        self._log = log
        self._watched: dict[TicketId, WatchedTicket] = {}
        self.places: dict[str, int] = {}

    def find_place(self, topic_id: str) -> int:
        return self.places.get(topic_id, 0)

    def hold(self, _executor: str, _owner: str, *, ttl_s: float) -> bool:
        return ttl_s > 0

    def receive(self, place: WirePlace, sent: SentTicket) -> None:
        if place.offset < self.places.get(place.topic_id, 0):
            return
        self._log.send(sent)
        self.skip(place)
        row = self._watched.setdefault(sent.ticket_id, WatchedTicket(telling=-1))
        row.told, row.is_received_told, row.telling = FIRST, False, row.telling + 1

    def refuse(self, place: WirePlace, ticket_id: TicketId, refusal: Mapping[str, Any]) -> None:
        raise AssertionError(f"the ticket {ticket_id} at {place} is refused: {refusal}")

    def skip(self, place: WirePlace) -> None:
        self.places[place.topic_id] = max(self.places.get(place.topic_id, 0), place.offset + 1)

    def list_untold(self, _executor: str, *, limit: int) -> Sequence[WiredTicket]:
        found = []
        for ticket_id, row in self._watched.items():
            known = self._log.tickets[ticket_id].reports
            reports = sorted((each for each in known if _place_of(each) > row.told), key=_place_of)[:limit]
            if reports or not row.is_received_told:
                told = WiredTicket(ticket_id, row.told, row.telling, row.is_received_told, None, tuple(reports))
                found.append(told)
        return found

    def note_told(self, _executor: str, told: Sequence[WiredTicket]) -> None:
        for each in told:
            row = self._watched[each.ticket_id]
            if (row.told, row.telling) == (each.told, each.telling):
                row.is_received_told = True
                row.told = _place_of(each.reports[-1]) if each.reports else row.told
                if self._log.tickets[each.ticket_id].ended_as is not None:
                    del self._watched[each.ticket_id]

    def list_changed_outputs(self, _executor: str, _after: object, *, limit: int) -> Sequence[Any]:
        return ()[:limit]


@dataclass
class SimulatedClock:
    """The clock of an end."""

    now: Now

    def monotonic(self) -> float:
        return self.now().timestamp()

    def sleep(self, seconds: float) -> None:
        raise AssertionError(f"nobody else holds the wire, and it sleeps {seconds} s")


def open_executor_end(executor: str, log: FakeLog, store: Any, tickets: Any, topics: FakeTopics) -> KafkaWire:
    """``store`` and ``tickets``: the tables of wires and the log, as the wire's process calls them, with faults."""

    def list_beats() -> list[HeardHeartbeat]:
        return [each for each in log.list_heartbeats() if each.beat.executor == executor]

    clock: Any = SimulatedClock(log.now)
    options = KafkaWireOptions(executor, f"wire of {executor}", log.log_id)
    made = KafkaWire(options, _CONNECTION, store, tickets, clock, lambda _line: None, list_beats)
    ends: Any = made
    ends._producer = topics
    ends._reader = FakeReader(topics, name_ticket_topic(executor), store.find_place)
    ends._is_prepared = True
    return made


def open_service_end(executor: str, book: Any, topics: FakeTopics) -> SimpleKafkaSpecExecutor:
    """Without its thread: ``carry_reports`` does what that does."""
    made: Any = SimpleKafkaSpecExecutor.__new__(SimpleKafkaSpecExecutor)
    made._executor, made._book, made._producer = executor, book, topics
    made._reader = FakeReader(topics, name_report_topic(executor), book.load_place)
    end: SimpleKafkaSpecExecutor = made
    return end


def carry_reports(end: SimpleKafkaSpecExecutor) -> None:
    """One round of the thread that reads reports."""
    try:
        end._take(end._reader.poll(0.0))
        end._resend()
    except (RetryableError, OutcomeUnknownError):
        end._reader.start_over()
        raise


def carry_tickets(end: KafkaWire) -> None:
    """One round of the executor's end."""
    try:
        end.look()
    except (RetryableError, OutcomeUnknownError):
        end._reader.start_over()
