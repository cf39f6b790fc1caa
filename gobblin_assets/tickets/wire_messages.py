"""The records by which a service and an executor speak over topics, as plain JSON. Pure.

To an executor go tickets, wishes to end what nobody works on, and ids of tickets to forget. Back come: that a ticket
was received, its reports, what its processes said, heartbeats. Each record says its schema; a newer one is refused.
"""

import datetime as dt
import json
import math
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from gobblin_assets.errors import RejectedError, make_storable
from gobblin_assets.model.executor_heartbeat import HeardHeartbeat, heartbeat_from_json, heartbeat_to_json
from gobblin_assets.model.job_ticket import LogId, SentTicket, TicketId, sent_ticket_from_json, sent_ticket_to_json
from gobblin_assets.state.tickets import TicketOutput, TicketReport, TicketReportKind

WIRE_SCHEMA: Final = 1

_FORGOTTEN_MAX: Final = 10_000
_MESSAGE_CHARACTERS_MAX: Final = 4_000
_NUMBER_MAX: Final = 2**31 - 1


class OrderKind(StrEnum):
    """The kind of a record that goes to an executor."""

    TICKET = "ticket"
    WITHDRAW = "withdraw"
    FORGET = "forget"


class NoticeKind(StrEnum):
    """The kind of a record that comes from an executor."""

    RECEIVED = "received"
    REPORT = "report"
    OUTPUT = "output"
    HEARTBEATS = "heartbeats"


@dataclass(frozen=True, slots=True)
class WithdrawOrder:
    """The wish that a ticket ends as CANCELLED, unless somebody works on it. ``message``: why, as a sentence.

    ``is_lost``: its executor is held for lost; then also a worker's ticket that somebody works on.
    """

    ticket_id: TicketId
    message: str
    is_lost: bool = False


@dataclass(frozen=True, slots=True)
class ForgetOrder:
    """The wish that ended tickets are forgotten, whose reports were read."""

    ticket_ids: tuple[TicketId, ...]


WireOrder = SentTicket | WithdrawOrder | ForgetOrder


@dataclass(frozen=True, slots=True)
class WireNotice:
    """A record from an executor, which says its name and the id of its log. ``body``: plain JSON, by kind."""

    kind: NoticeKind
    executor: str
    log_id: LogId
    body: Mapping[str, Any]


def write_order(order: WireOrder) -> bytes:
    match order:
        case SentTicket():
            return _write(OrderKind.TICKET, {"ticket": sent_ticket_to_json(order)})
        case WithdrawOrder():
            said = {"ticket_id": str(order.ticket_id), "message": order.message, "is_lost": order.is_lost}
            return _write(OrderKind.WITHDRAW, said)
        case ForgetOrder():
            return _write(OrderKind.FORGET, {"ticket_ids": [str(each) for each in order.ticket_ids]})


def read_order(value: bytes | None) -> WireOrder:
    """RejectedError names the field."""
    data = _read(value)
    match _read_word(data, OrderKind):
        case OrderKind.WITHDRAW:
            message = read_message(data.get("message"))
            ticket_id = TicketId(read_uuid(data.get("ticket_id"), "ticket_id"))
            # A service of the release before says nothing of it.
            return WithdrawOrder(ticket_id, message, is_lost=data.get("is_lost") is True)
        case OrderKind.FORGET:
            listed = data.get("ticket_ids")
            if not isinstance(listed, list) or len(listed) > _FORGOTTEN_MAX:
                raise _refuse("ticket_ids", f"a list of at most {_FORGOTTEN_MAX:,} ids", listed)
            return ForgetOrder(tuple(TicketId(read_uuid(each, "ticket_ids")) for each in listed))
        case _:
            return sent_ticket_from_json(data.get("ticket"))


def find_ticket_id(value: bytes | None) -> TicketId | None:
    """The id of the ticket in a record that is refused, if it has one that can be read, whatever else it says."""
    try:
        return TicketId(uuid.UUID(json.loads(value or b"")["ticket"]["ticket_id"]))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def write_notice(notice: WireNotice) -> bytes:
    said = {"executor": notice.executor, "log_id": str(notice.log_id), "body": dict(notice.body)}
    return _write(notice.kind, said)


def read_notice(value: bytes | None) -> WireNotice:
    """RejectedError names the field."""
    data = _read(value)
    executor, body = data.get("executor"), data.get("body")
    if not isinstance(executor, str) or not executor:
        raise _refuse("executor", "the executor's name", executor)
    if not isinstance(body, Mapping):
        raise _refuse("body", "an object", body)
    log_id = LogId(read_uuid(data.get("log_id"), "log_id"))
    return WireNotice(_read_word(data, NoticeKind), executor, log_id, body)


def report_to_json(report: TicketReport) -> dict[str, object]:
    return {
        "ticket_id": str(report.ticket_id),
        "attempt": report.attempt,
        "number": report.number,
        "kind": report.kind.value,
        "details": dict(report.details),
        "at": report.at.isoformat(),
    }


def report_from_json(data: object) -> TicketReport:
    """The same, back. RejectedError names the field."""
    fields = read_wire_object(data)
    details = fields.get("details")
    if not isinstance(details, Mapping):
        raise _refuse("details", "an object", details)
    return TicketReport(
        ticket_id=TicketId(read_uuid(fields.get("ticket_id"), "ticket_id")),
        attempt=read_number(fields.get("attempt"), "attempt"),
        number=read_number(fields.get("number"), "number"),
        kind=_read_word(fields, TicketReportKind),
        details=details,
        at=read_time(fields.get("at"), "at"),
    )


def beat_to_json(heard: HeardHeartbeat) -> dict[str, object]:
    return {
        "beat": heartbeat_to_json(heard.beat),
        "heard_ago_s": heard.heard_ago_s,
        "waiting": heard.waiting,
        "working": heard.working,
    }


def beat_from_json(data: object) -> HeardHeartbeat:
    """The same, back. RejectedError names the field."""
    fields = read_wire_object(data)
    return HeardHeartbeat(
        beat=heartbeat_from_json(fields.get("beat")),
        heard_ago_s=read_seconds(fields.get("heard_ago_s"), "heard_ago_s"),
        waiting=read_number(fields.get("waiting"), "waiting"),
        working=read_number(fields.get("working"), "working"),
    )


def output_to_json(output: TicketOutput) -> dict[str, object]:
    return {"attempt": output.attempt, "lines": output.lines, "updated_at": output.updated_at.isoformat()}


def output_from_json(data: object) -> TicketOutput:
    """The same, back. RejectedError names the field."""
    fields = read_wire_object(data)
    lines = fields.get("lines")
    if not isinstance(lines, str):
        raise _refuse("lines", "a text", lines)
    attempt = read_number(fields.get("attempt"), "attempt")
    return TicketOutput(attempt, lines, read_time(fields.get("updated_at"), "updated_at"))


def read_wire_object(data: object) -> Mapping[str, Any]:
    if not isinstance(data, Mapping):
        raise _refuse("body", "an object", data)
    return data


def read_message(value: object) -> str:
    """A sentence that a log takes. RejectedError names the field."""
    if not isinstance(value, str) or len(value) > _MESSAGE_CHARACTERS_MAX:
        raise _refuse("message", f"a text of at most {_MESSAGE_CHARACTERS_MAX:,} characters", value)
    return make_storable(value)


def read_uuid(value: object, field: str) -> uuid.UUID:
    try:
        return uuid.UUID(value)  # type: ignore[arg-type]  # whatever is no text is refused
    except (ValueError, AttributeError, TypeError):
        raise _refuse(field, "a UUID", value) from None


def read_number(value: object, field: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _NUMBER_MAX:
        raise _refuse(field, f"a whole number from 0 to {_NUMBER_MAX:,}", value)
    return value


def read_seconds(value: object, field: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise _refuse(field, "a number of seconds", value)
    return float(value)


def read_time(value: object, field: str) -> dt.datetime:
    try:
        found = dt.datetime.fromisoformat(value)  # type: ignore[arg-type]  # whatever is no text is refused
    except (ValueError, TypeError):
        raise _refuse(field, "a time", value) from None
    if found.tzinfo is None:
        raise _refuse(field, "a time with its offset", value)
    return found


def _write(kind: StrEnum, said: Mapping[str, object]) -> bytes:
    return json.dumps({"schema": WIRE_SCHEMA, "kind": kind.value, **said}, ensure_ascii=False).encode()


def _read(value: bytes | None) -> Mapping[str, Any]:
    try:
        data = json.loads(value or b"")
    except (ValueError, RecursionError):
        raise _refuse("record", "JSON", (value or b"")[:80]) from None
    if not isinstance(data, Mapping):
        raise _refuse("record", "an object", data)
    schema = data.get("schema")
    if isinstance(schema, bool) or not isinstance(schema, int) or schema < 1:
        raise _refuse("schema", "a number from 1 on", schema)
    if schema > WIRE_SCHEMA:
        raise NewerSchemaError(
            f"the record is of schema {schema}, and this release reads up to {WIRE_SCHEMA}",
            field="schema",
            hint="Upgrade the executor and the service to one release.",
        )
    return data


class NewerSchemaError(RejectedError):
    """A record of a later release."""


def _read_word(data: Mapping[str, Any], kind: type[Any]) -> Any:
    try:
        return kind(data.get("kind"))
    except ValueError:
        raise _refuse("kind", f"one of {', '.join(each.value for each in kind)}", data.get("kind")) from None


def _refuse(field: str, expected: str, found: object) -> RejectedError:
    return RejectedError(
        f"expected {expected}, found {found!r:.80}",
        field=field,
        hint="Only services and executors of this package write to the topics.",
    )
