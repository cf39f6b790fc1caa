"""The executor's end of a wire over Kafka: tickets from a topic into the log, and reports from the log into a topic.

A ticket and its place in the topic are one transaction of the log. Reports are told at least once, each with the one
before it, so that who hears of them notices a gap, and has all of them told again by sending the ticket again.
"""

import datetime as dt
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from gobblin_assets import failpoints
from gobblin_assets.errors import (
    ConflictError,
    GobblinError,
    OutcomeUnknownError,
    RejectedError,
    RetryableError,
    family_of,
)
from gobblin_assets.failpoints import Failpoint
from gobblin_assets.kafka.connection import KafkaConnection
from gobblin_assets.model.clock import Clock
from gobblin_assets.model.executor_heartbeat import HEARTBEAT_EVERY_S, HeardHeartbeat
from gobblin_assets.model.job_ticket import LogId, SentTicket, TicketVerb
from gobblin_assets.state.tickets import AttemptEnd, TicketReport, TicketReportKind, TicketStore
from gobblin_assets.state.wires import WiredTicket, WirePlace, WireStore
from gobblin_assets.tickets.wire_messages import (
    ForgetOrder,
    NoticeKind,
    WireNotice,
    WireOrder,
    WithdrawOrder,
    beat_to_json,
    find_ticket_id,
    output_to_json,
    read_order,
    report_to_json,
    write_notice,
)
from gobblin_assets.tickets.wire_topics import (
    WireProducer,
    WireReader,
    WireRecord,
    name_report_topic,
    name_ticket_topic,
    prepare_wire_topics,
)

HOLD_TTL_S: Final = 6.0
"""So long after the process that reads and tells has died, another one of the executor does so."""

REFUSED_PLACE: Final = (0, 0)
"""Attempt and number of the report that a ticket was refused: no report of the log has them."""

TOLD_BYTES_MAX: Final = 900_000
"""A report that is larger is told without its large details: a topic takes 1 MiB, unless it is set."""

_DETAIL_BYTES_MAX: Final = 10_000
_POLL_S: Final = 0.2
_PAUSE_S: Final = 2.0
_STAND_BY_S: Final = 1.0
_REPORTS_AT_ONCE: Final = 500
_OUTPUTS_AT_ONCE: Final = 50
_FIRST: Final = (-1, 0)


@dataclass(frozen=True, slots=True)
class KafkaWireOptions:
    """The options of a wire. ``owner`` names the process."""

    executor: str
    owner: str
    log_id: LogId


@dataclass(slots=True)
class KafkaWire:
    """A wire over one log. ``list_beats``: the heartbeats of this executor's processes, which are told each 10 s."""

    options: KafkaWireOptions
    connection: KafkaConnection
    wires: WireStore
    tickets: TicketStore
    clock: Clock
    say: Callable[[str], None]
    list_beats: Callable[[], Sequence[HeardHeartbeat]]
    _producer: WireProducer = field(init=False)
    _reader: WireReader = field(init=False)
    _is_prepared: bool = False
    _hold_at_s: float = 0.0
    _beat_at_s: float = 0.0
    _outputs_after: dt.datetime | None = None
    _said: str = ""

    def __post_init__(self) -> None:
        self._producer = WireProducer(self.connection)
        self._reader = WireReader(self.connection, self._load_places, self.say, _await_senders)

    def carry(self, wait: Callable[[float], bool]) -> None:
        """Read and tell until ``wait(seconds)`` says to stop, and then tell what is left."""
        pause_s = 0.0
        while not wait(pause_s):
            pause_s = 0.0 if self._try(self.look) else _PAUSE_S
        # Also the last heartbeats, which say that it has ended.
        self.beat_soon()
        self._try(self._tell)
        self.close()

    def beat_soon(self) -> None:
        """Tell heartbeats with the next round."""
        self._beat_at_s = 0.0

    def close(self) -> None:
        self._reader.close()
        self._producer.close()

    def look(self) -> None:
        """One round: what came is stored, and what is new is told."""
        if not self._hold():
            # Another process of the executor does so.
            self.clock.sleep(_STAND_BY_S)
            return
        self._prepare()
        for record in self._reader.poll(_POLL_S):
            self._take(record)
        self._tell()

    def _try(self, act: Callable[[], None]) -> bool:
        """Whether it was done. Brokers and the log may be away for hours; the executor's work goes on meanwhile."""
        try:
            act()
        except Exception as error:  # noqa: BLE001  one record's fault, or a library's, is not that of all others
            said = str(error) if isinstance(error, GobblinError) else f"{type(error).__name__}: {error}"
            # What was read and not stored comes again.
            self._reader.start_over()
            if said != self._said:
                self.say(f"the wire over {self.connection.name} waits: {said}")
            self._said = said
            return False
        self._said = ""
        return True

    def _hold(self) -> bool:
        now_s = self.clock.monotonic()
        if now_s >= self._hold_at_s:
            if not self.wires.hold(self.options.executor, self.options.owner, ttl_s=HOLD_TTL_S):
                return False
            self._hold_at_s = now_s + HOLD_TTL_S / 3
        return True

    def _prepare(self) -> None:
        """Make the topics, unless they are there."""
        if not self._is_prepared:
            topics = name_ticket_topic(self.options.executor), name_report_topic(self.options.executor)
            prepare_wire_topics(self.connection, topics)
            self._reader.follow(topics[:1])
            self._is_prepared = True

    def _load_places(self, topic: str, topic_id: str) -> dict[int, int]:
        return dict(self.wires.list_places(self.options.executor, topic, topic_id))

    def _take(self, record: WireRecord) -> None:
        place = WirePlace(self.options.executor, record.topic, record.topic_id, record.partition, record.offset)
        try:
            self._obey(place, read_order(record.value))
        except (RejectedError, ConflictError) as error:
            self._refuse(place, record, error)
        except (RetryableError, OutcomeUnknownError):
            raise
        except Exception as error:  # noqa: BLE001  a ticket that the database refuses stops no other one
            self._refuse(place, record, ConflictError(f"the log does not take it: {type(error).__name__}"))

    def _obey(self, place: WirePlace, order: WireOrder) -> None:
        match order:
            case SentTicket():
                self._receive(place, order)
            case WithdrawOrder():
                self.tickets.end_unclaimed(order.ticket_id, order.message, is_lost=order.is_lost)
                self.wires.skip(place)
            case ForgetOrder():
                self.tickets.forget(order.ticket_ids)
                self.wires.skip(place)

    def _receive(self, place: WirePlace, sent: SentTicket) -> None:
        if sent.executor != self.options.executor:
            raise RejectedError(
                f"the ticket is for the executor {sent.executor}, and this is {self.options.executor}",
                field="executor",
                hint="Send it by the topic of that executor.",
            )
        try:
            self.wires.receive(place, sent)
        except RetryableError as error:
            if sent.verb is TicketVerb.PROBE and "transaction" not in error.fields:
                raise ConflictError(error.message, hint=error.hint) from None
            raise
        if sent.verb is TicketVerb.CANCEL:
            # One that nobody works on waits for no look of the executor.
            self.tickets.settle_cancel(sent.ticket_id)

    def _refuse(self, place: WirePlace, record: WireRecord, error: GobblinError) -> None:
        ticket_id = find_ticket_id(record.value)
        self.say(f"refused the record {record.offset} of {record.topic}: {error}")
        if ticket_id is None:
            self.wires.skip(place)
            return
        refusal = {
            "state": AttemptEnd.FAILED.value,
            "family": family_of(error).value,
            "message": error.message,
            "hint": error.hint,
            "field": str(error.fields.get("field", "")),
        }
        try:
            self.wires.refuse(place, ticket_id, refusal)
        except (RetryableError, OutcomeUnknownError):
            raise
        except Exception as fault:  # noqa: BLE001  the record would come again for ever, and hold up all behind it
            self.say(f"the log does not take why the ticket {ticket_id} was refused: {type(fault).__name__}")
            self.wires.skip(place)

    def _tell(self) -> None:
        # By themselves: a report that does not go hides nobody who lives.
        self._tell_beats()
        untold = self.wires.list_untold(self.options.executor, limit=_REPORTS_AT_ONCE)
        outputs = self.wires.list_changed_outputs(self.options.executor, self._outputs_after, limit=_OUTPUTS_AT_ONCE)
        records = [record for each in untold for record in self._describe(each)]
        for ticket_id, output in outputs:
            said = {"ticket_id": str(ticket_id), **output_to_json(output)}
            records.append(self._write(NoticeKind.OUTPUT, str(ticket_id), said))
        if not records:
            return
        self._producer.send(name_report_topic(self.options.executor), records)
        failpoints.reach(Failpoint.REPORTS_PRODUCED)
        if untold:
            self.wires.note_told(self.options.executor, untold)
        if outputs:
            self._outputs_after = outputs[-1][1].updated_at

    def _tell_beats(self) -> None:
        now_s = self.clock.monotonic()
        if now_s >= self._beat_at_s:
            beats = {"heartbeats": [beat_to_json(each) for each in self.list_beats()]}
            record = self._write(NoticeKind.HEARTBEATS, self.options.executor, beats)
            self._producer.send(name_report_topic(self.options.executor), [record])
            self._beat_at_s = now_s + HEARTBEAT_EVERY_S

    def _describe(self, wired: WiredTicket) -> Iterator[tuple[str, bytes]]:
        key = str(wired.ticket_id)
        if not wired.is_received_told:
            yield self._write(NoticeKind.RECEIVED, key, {"ticket_id": key})
        if wired.refusal is not None:
            report = TicketReport(
                wired.ticket_id, *REFUSED_PLACE, TicketReportKind.ENDED, wired.refusal, self.clock.now()
            )
            yield self._write_report(_FIRST, report)
        behind = wired.told
        for each in wired.reports:
            yield self._write_report(behind, each)
            behind = each.attempt, each.number

    def _write_report(self, behind: tuple[int, int], report: TicketReport) -> tuple[str, bytes]:
        key = str(report.ticket_id)
        said = self._write(NoticeKind.REPORT, key, {"behind": list(behind), **report_to_json(report)})
        if len(said[1]) <= TOLD_BYTES_MAX:
            return said
        told = replace(report, details=_cut_details(report.details, len(said[1])))
        return self._write(NoticeKind.REPORT, key, {"behind": list(behind), **report_to_json(told)})

    def _write(self, kind: NoticeKind, key: str, body: dict[str, Any]) -> tuple[str, bytes]:
        return key, write_notice(WireNotice(kind, self.options.executor, self.options.log_id, body))


def _cut_details(details: Mapping[str, Any], size: int) -> dict[str, Any]:
    kept = {name: each for name, each in details.items() if len(json.dumps(each)) <= _DETAIL_BYTES_MAX}
    cut = f"What it says has {size:,} bytes, which are too many for a record: only the executor's log has all of it."
    return {**kept, "message": " ".join(each for each in (str(kept.get("message") or ""), cut) if each)}


def _await_senders() -> None:
    """Nothing: whoever sent a ticket that is gone sends it again until it hears that it is here."""
