"""The inbox of an executor over REST: the same tables of the log that a service writes to where it can reach them.

Nothing is kept here. A request that is repeated after a lost answer finds what the first one did: a ticket is known by
its id, which is also the request's Idempotency-Key.
"""

import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from gobblin_assets.errors import ConflictError, GobblinError, RejectedError, family_of
from gobblin_assets.model.job_ticket import SentTicket, TicketId, require_plain_json, sent_ticket_to_json
from gobblin_assets.state.heartbeats import HeartbeatStore
from gobblin_assets.state.tickets import TicketStore
from gobblin_assets.tickets.wire_messages import (
    beat_to_json,
    output_to_json,
    read_message,
    read_number,
    read_order,
    read_uuid,
    read_wire_object,
    report_to_json,
)

EXECUTOR_HEADER: Final = "Gobblin-Executor"
KEY_HEADER: Final = "Idempotency-Key"

BODY_BYTES_MAX: Final = 4 << 20
IDS_MAX: Final = 1_000
REPORTS_MAX: Final = 1_000
_OUTPUTS_MAX: Final = 100

_log = logging.getLogger(__name__)

_Answer = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ServedInbox:
    """The executor of a name, and the stores of its log."""

    executor: str
    tickets: TicketStore
    heartbeats: HeartbeatStore


def make_inbox_api(inbox: ServedInbox) -> Starlette:
    """The application. Who may call it is decided by the server's TLS."""
    actions: Mapping[tuple[str, str], Callable[[ServedInbox, Request, bytes], _Answer]] = {
        ("POST", "/tickets"): _take_ticket,
        ("POST", "/reports"): _list_reports,
        ("POST", "/ends"): _find_ends,
        ("POST", "/forget"): _forget,
        ("POST", "/tickets/{ticket_id}/settle"): _settle,
        ("POST", "/tickets/{ticket_id}/withdraw"): _withdraw,
        ("POST", "/tickets/{ticket_id}/give-up"): _give_up,
        ("GET", "/tickets/{ticket_id}/probe"): _find_probe,
        ("GET", "/tickets/{ticket_id}/outputs"): _list_outputs,
        ("GET", "/health"): _tell_health,
    }
    return Starlette(
        routes=[Route(path, _serve(inbox, act), methods=[method]) for (method, path), act in actions.items()]
    )


def _serve(
    inbox: ServedInbox, act: Callable[[ServedInbox, Request, bytes], _Answer]
) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        headers = {EXECUTOR_HEADER: inbox.executor}
        try:
            body = await _read_body(request)
            # The log's driver waits: in a thread, so that other requests do not.
            said = await run_in_threadpool(act, inbox, request, body)
        except GobblinError as error:
            return JSONResponse(_describe(error), _code_of(error), headers)
        except Exception:  # noqa: BLE001  whoever asks gets an answer, and no text that may hold a secret
            _log.exception("%s %s failed", request.method, request.url.path)
            said = {"family": None, "message": "the executor failed: its own log says why", "field": "", "hint": ""}
            return JSONResponse(said, HTTPStatus.INTERNAL_SERVER_ERROR, headers)
        return JSONResponse(said, HTTPStatus.OK, headers)

    return answer


async def _read_body(request: Request) -> bytes:
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > BODY_BYTES_MAX:
            # A service that sent it would send it again: it is the ticket's own fault.
            raise ConflictError(f"the body has more than {BODY_BYTES_MAX:,} bytes", hint="Divide the flow.")
    return bytes(body)


def _describe(error: GobblinError) -> _Answer:
    field = str(error.fields.get("field", ""))
    message = error.message.removeprefix(f"{field}: ") if field else error.message
    return {"family": family_of(error).value, "message": message, "field": field, "hint": error.hint}


def _code_of(error: GobblinError) -> HTTPStatus:
    if isinstance(error, RejectedError):
        return HTTPStatus.UNPROCESSABLE_ENTITY
    return HTTPStatus.CONFLICT if isinstance(error, ConflictError) else HTTPStatus.SERVICE_UNAVAILABLE


def _take_ticket(inbox: ServedInbox, request: Request, body: bytes) -> _Answer:
    sent = read_order(body)
    if not isinstance(sent, SentTicket):
        raise RejectedError("expected a ticket", field="kind", hint="Send other wishes to paths of their own.")
    if sent.executor != inbox.executor:
        raise RejectedError(
            f"the ticket is for the executor {sent.executor}, and this is {inbox.executor}",
            field="executor",
            hint="Look at the location of that executor in the topology.",
        )
    if request.headers.get(KEY_HEADER) != str(sent.ticket_id):
        raise RejectedError(
            f"expected the id of the ticket, found {request.headers.get(KEY_HEADER, 'none')[:80]!a}",
            field=KEY_HEADER,
            hint="Send a ticket again under the key that it had.",
        )
    inbox.tickets.send(sent)
    return {}


def _list_reports(inbox: ServedInbox, _request: Request, body: bytes) -> _Answer:
    asked = _read_json(body)
    known = read_wire_object(asked.get("after"))
    if len(known) > IDS_MAX:
        raise RejectedError(f"expected at most {IDS_MAX} tickets, found {len(known)}", field="after", hint="Ask twice.")
    after = {TicketId(read_uuid(each, "after")): _read_place(place) for each, place in known.items()}
    limit = min(read_number(asked.get("limit"), "limit"), REPORTS_MAX)
    found = inbox.tickets.list_reports(list(after), after, limit=limit)
    return {"reports": [report_to_json(each) for each in found]}


def _find_ends(inbox: ServedInbox, _request: Request, body: bytes) -> _Answer:
    return {"ends": [report_to_json(each) for each in inbox.tickets.find_ends(_read_ids(body)).values()]}


def _forget(inbox: ServedInbox, _request: Request, body: bytes) -> _Answer:
    return {"open": [str(each) for each in inbox.tickets.forget(_read_ids(body))]}


def _settle(inbox: ServedInbox, request: Request, _body: bytes) -> _Answer:
    other = inbox.tickets.settle_cancel(_read_path(request))
    return {"other": None if other is None else str(other)}


def _withdraw(inbox: ServedInbox, request: Request, body: bytes) -> _Answer:
    asked = _read_json(body)
    message, is_lost = read_message(asked.get("message")), asked.get("is_lost") is True
    return {"has_ended": inbox.tickets.end_unclaimed(_read_path(request), message, is_lost=is_lost)}


def _give_up(inbox: ServedInbox, request: Request, body: bytes) -> _Answer:
    details = read_wire_object(_read_json(body).get("details"))
    require_plain_json(details, field="details")
    return {"is_ended": inbox.tickets.give_up(_read_path(request), details)}


def _find_probe(inbox: ServedInbox, request: Request, _body: bytes) -> _Answer:
    found = inbox.tickets.find_probe(_read_path(request))
    if found is None:
        return {"probe": None}
    said = {"age_s": found.age_s, "is_claimed": found.is_claimed, "end": found.end}
    return {"probe": {"sent": sent_ticket_to_json(found.sent), **said}}


def _list_outputs(inbox: ServedInbox, request: Request, _body: bytes) -> _Answer:
    found = inbox.tickets.list_outputs(_read_path(request), limit=_OUTPUTS_MAX)
    return {"outputs": [output_to_json(each) for each in found]}


def _tell_health(inbox: ServedInbox, _request: Request, _body: bytes) -> _Answer:
    beats = [each for each in inbox.heartbeats.list_heartbeats() if each.beat.executor == inbox.executor]
    return {"log_id": str(inbox.tickets.find_log_id()), "heartbeats": [beat_to_json(each) for each in beats]}


def _read_json(body: bytes) -> Mapping[str, Any]:
    try:
        return read_wire_object(json.loads(body))
    except (ValueError, RecursionError):
        raise RejectedError("expected JSON", field="body", hint="Send an object.") from None


def _read_ids(body: bytes) -> list[TicketId]:
    listed = _read_json(body).get("ticket_ids")
    if not isinstance(listed, list) or len(listed) > IDS_MAX:
        raise RejectedError(f"expected a list of at most {IDS_MAX} ids", field="ticket_ids", hint="Ask twice.")
    return [TicketId(read_uuid(each, "ticket_ids")) for each in listed]


def _read_path(request: Request) -> TicketId:
    return TicketId(read_uuid(request.path_params["ticket_id"], "ticket_id"))


def _read_place(value: object) -> tuple[int, int]:
    match value:
        case [-1, 0]:
            return -1, 0
        case [attempt, number]:
            return read_number(attempt, "after"), read_number(number, "after")
        case _:
            raise RejectedError("expected an attempt and a number", field="after", hint="Write [attempt, number].")
