"""SimpleRESTSpecExecutor: an executor whose inbox is reached over https, with the service's client certificate.

All is kept in the executor's log. Each request waits for a bounded time, and may be repeated: a ticket is known by its
id.
"""

import json
import ssl
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from urllib3 import HTTPResponse, HTTPSConnectionPool, Timeout
from urllib3.exceptions import HTTPError, NewConnectionError, SSLError
from urllib3.util.ssl_ import create_urllib3_context

from gobblin_assets.errors import (
    ConflictError,
    ErrorFamily,
    GobblinError,
    OutcomeUnknownError,
    RejectedError,
    RetryableError,
)
from gobblin_assets.model.executor_heartbeat import HeardHeartbeat
from gobblin_assets.model.job_ticket import LogId, SentTicket, TicketId, sent_ticket_from_json
from gobblin_assets.service.spec_executors.wire_kinds import WayTo
from gobblin_assets.state.tickets import FoundProbe, TicketOutput, TicketReport
from gobblin_assets.tickets.wire_messages import (
    beat_from_json,
    output_from_json,
    read_seconds,
    read_uuid,
    read_wire_object,
    report_from_json,
    write_order,
)

CONNECT_S: Final = 3.0
ANSWER_S: Final = 5.0
WHOLE_S: Final = 15.0
"""So long a request may take with all of its answer: others wait meanwhile, and it is repeated anyway."""

ANSWER_BYTES_MAX: Final = 64 << 20
_CONNECTIONS: Final = 4
_IDS_AT_ONCE: Final = 500
_PART_BYTES: Final = 64 << 10
_EXECUTOR_HEADER: Final = "Gobblin-Executor"


@dataclass(frozen=True, slots=True)
class ServiceCertificate:
    """PEM files: the service's certificate with its key, and the authority of the executor's certificate."""

    certificate: str
    key: str
    ca: str


def certificate_variable(executor: str, end: str) -> str:
    """The variable of the service that names a PEM file for the executor. ``end``: CERTIFICATE, KEY or CA."""
    return f"GOBBLIN_EXECUTOR_{executor.upper().replace('-', '_').replace('.', '_')}_{end}"


def read_certificate(executor: str, environment: Mapping[str, str]) -> ServiceCertificate:
    """RejectedError names the variable that is not set, or whose file is missing."""
    found = []
    for end, what in (
        ("CERTIFICATE", "the service's certificate"),
        ("KEY", "the key of the service's certificate"),
        ("CA", "the authority of the executor's certificate"),
    ):
        path = environment.get(variable := certificate_variable(executor, end), "")
        if not path or not Path(path).is_file():
            said = f"there is no file {path}" if path else "it is not set"
            raise RejectedError(
                f"expected a PEM file with {what}; {said}",
                field=variable,
                hint="Set it for the service, and start the service again.",
            )
        found.append(path)
    return ServiceCertificate(*found)


def open_rest_wire(way: WayTo) -> "SimpleRESTSpecExecutor":
    """RejectedError: the executor's location is no https address, or the service has no certificate for it."""
    executor = way.executor
    where = urlsplit(executor.location)
    try:
        port = where.port
    except ValueError:
        port = None
    is_address = where.scheme == "https" and where.hostname and port and where.path in {"", "/"}
    if not is_address or where.query or where.fragment or "@" in where.netloc:
        # What was found is not shown: it may hold a login.
        raise RejectedError(
            "expected an address such as https://HOST:PORT",
            field=f"executors.{executor.name}.location",
            hint="Write https, the host and the port, without a path or a login. Plain http is not spoken.",
        )
    return SimpleRESTSpecExecutor(
        executor.name, str(where.hostname), int(port or 0), read_certificate(executor.name, way.environment)
    )


class SimpleRESTSpecExecutor:
    """``TicketWire`` over https. Any thread may call it."""

    def __init__(self, executor: str, host: str, port: int, certificate: ServiceCertificate) -> None:
        self._executor = executor
        self._address = f"https://{host}:{port}"
        context = create_urllib3_context(cert_reqs=ssl.CERT_REQUIRED)
        try:
            context.load_verify_locations(certificate.ca)
            context.load_cert_chain(certificate.certificate, certificate.key, password=_refuse_password)
        except (ssl.SSLError, OSError, ValueError) as error:
            raise RejectedError(
                f"the service's certificate, its key or the authority can't be used: {error}",
                field=f"executors.{executor}",
                hint="Give PEM files, the key without a password.",
            ) from None
        self._pool = HTTPSConnectionPool(
            host,
            port,
            timeout=Timeout(connect=CONNECT_S, read=ANSWER_S),
            retries=False,
            maxsize=_CONNECTIONS,
            ssl_context=context,
        )

    def find_log_id(self) -> LogId:
        return LogId(read_uuid(self._get("/health").get("log_id"), "log_id"))

    def send(self, sent: SentTicket) -> None:
        try:
            self._ask("POST", "/tickets", write_order(sent), {"Idempotency-Key": str(sent.ticket_id)})
        except RejectedError as error:
            if error.fields.get("is_of_ticket"):
                # It would be refused again; other tickets for the executor are not.
                raise ConflictError(error.message, hint=error.hint) from None
            raise

    def settle_cancel(self, ticket_id: TicketId) -> TicketId | None:
        other = self._post(f"/tickets/{ticket_id}/settle", {}).get("other")
        return None if other is None else TicketId(read_uuid(other, "other"))

    def end_unclaimed(self, ticket_id: TicketId, message: str, *, is_lost: bool = False) -> bool:
        said = {"message": message, "is_lost": is_lost}
        return self._post(f"/tickets/{ticket_id}/withdraw", said).get("has_ended") is True

    def list_reports(
        self, ticket_ids: Sequence[TicketId], after: Mapping[TicketId, tuple[int, int]], *, limit: int
    ) -> Sequence[TicketReport]:
        found: list[TicketReport] = []
        for ids in _divide(sorted(ticket_ids)):
            known = {str(each): list(after.get(each, (-1, 0))) for each in ids}
            answer = self._post("/reports", {"after": known, "limit": limit - len(found)})
            found += [report_from_json(each) for each in _list(answer, "reports")]
            if len(found) >= limit:
                break
        return found

    def find_ends(self, ticket_ids: Collection[TicketId]) -> Mapping[TicketId, TicketReport]:
        found: dict[TicketId, TicketReport] = {}
        for ids in _divide(ticket_ids):
            answer = self._post("/ends", {"ticket_ids": [str(each) for each in ids]})
            ends = [report_from_json(each) for each in _list(answer, "ends")]
            found.update({each.ticket_id: each for each in ends})
        return found

    def forget(self, ticket_ids: Collection[TicketId]) -> frozenset[TicketId]:
        found: set[TicketId] = set()
        for ids in _divide(ticket_ids):
            answer = self._post("/forget", {"ticket_ids": [str(each) for each in ids]})
            found.update(TicketId(read_uuid(each, "open")) for each in _list(answer, "open"))
        return frozenset(found)

    def find_probe(self, ticket_id: TicketId) -> FoundProbe | None:
        found = self._get(f"/tickets/{ticket_id}/probe").get("probe")
        if found is None:
            return None
        probe = read_wire_object(found)
        end = probe.get("end")
        return FoundProbe(
            sent_ticket_from_json(probe.get("sent")),
            read_seconds(probe.get("age_s"), "age_s"),
            probe.get("is_claimed") is True,
            None if end is None else read_wire_object(end),
        )

    def give_up(self, ticket_id: TicketId, details: Mapping[str, Any]) -> bool:
        return self._post(f"/tickets/{ticket_id}/give-up", {"details": dict(details)}).get("is_ended") is True

    def list_outputs(self, ticket_id: TicketId, *, limit: int) -> Sequence[TicketOutput]:
        return [output_from_json(each) for each in _list(self._get(f"/tickets/{ticket_id}/outputs"), "outputs")][:limit]

    def list_heartbeats(self) -> Sequence[HeardHeartbeat]:
        return [beat_from_json(each) for each in _list(self._get("/health"), "heartbeats")]

    def close(self) -> None:
        self._pool.close()

    def _get(self, path: str) -> Mapping[str, Any]:
        return self._ask("GET", path, None, {})

    def _post(self, path: str, said: Mapping[str, object]) -> Mapping[str, Any]:
        return self._ask("POST", path, json.dumps(said).encode(), {})

    def _ask(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> Mapping[str, Any]:
        until_s = time.monotonic() + WHOLE_S
        try:
            answer = self._pool.request(
                method,
                path,
                body=body,
                headers={"Content-Type": "application/json", **headers},
                redirect=False,
                preload_content=False,
            )
            try:
                said = self._read(answer, until_s)
            finally:
                answer.close()
        except SSLError as error:
            raise self._refuse_certificate(error) from None
        except NewConnectionError as error:
            raise RetryableError(f"{self._name()} does not answer: {type(error).__name__}", passes=True) from None
        except HTTPError as error:
            if isinstance(error.__context__, ssl.SSLError):
                raise self._refuse_certificate(error) from None
            raise OutcomeUnknownError(
                f"{self._name()} did not answer: {type(error).__name__}: {error}",
                # In TLS 1.3 the server looks at a client's certificate behind the handshake, and then hangs up.
                hint="If the executor runs, its --rest-client-ca does not know the service's certificate: look at"
                f" {certificate_variable(self._executor, 'CERTIFICATE')}.",
            ) from None
        if answer.headers.get(_EXECUTOR_HEADER) != self._executor:
            raise RejectedError(
                f"{self._address} is not the inbox of the executor {self._executor}",
                field=f"executors.{self._executor}.location",
                hint="Correct the address, or the name of `executor serve --name`.",
            )
        if answer.status != 200:
            raise self._judge(answer.status, said)
        return said

    def _read(self, answer: Any, until_s: float) -> Mapping[str, Any]:
        body = bytearray()
        response: HTTPResponse = answer
        while part := response.read1(_PART_BYTES):
            body += part
            if time.monotonic() > until_s or len(body) > ANSWER_BYTES_MAX:
                raise OutcomeUnknownError(f"{self._name()} did not end its answer in {WHOLE_S:g} s")
        try:
            return read_wire_object(json.loads(body))
        except (ValueError, RecursionError):
            raise OutcomeUnknownError(
                f"{self._name()} gave an answer that is no JSON, status {answer.status}"
            ) from None

    def _refuse_certificate(self, error: Exception) -> GobblinError:
        return RejectedError(
            f"{self._name()} and the service do not accept each other's certificates: {str(error)[:300]}",
            field=f"executors.{self._executor}",
            hint=f"Look at {certificate_variable(self._executor, 'CA')}, …_CERTIFICATE and …_KEY, and at the names"
            " that the executor's certificate has.",
        )

    def _judge(self, status: int, said: Mapping[str, Any]) -> GobblinError:
        message = f"{self._name()}: {said.get('message') or f'status {status}'}"
        hint, field = str(said.get("hint") or ""), str(said.get("field") or "ticket")
        match said.get("family"):
            case ErrorFamily.CONFLICT.value:
                return ConflictError(message, hint=hint)
            case ErrorFamily.REJECTED.value:
                return RejectedError(message, field=field, hint=hint, is_of_ticket=True)
            case ErrorFamily.RETRYABLE.value:
                return RetryableError(message, passes=True, hint=hint)
            case _:
                return OutcomeUnknownError(message, hint=hint)

    def _name(self) -> str:
        return f"the executor {self._executor} at {self._address}"


def _refuse_password() -> str:
    """In place of the prompt by which OpenSSL would ask for it."""
    raise ValueError("the key has a password")


def _divide(ids: Collection[TicketId]) -> list[list[TicketId]]:
    listed = list(ids)
    return [listed[first : first + _IDS_AT_ONCE] for first in range(0, len(listed), _IDS_AT_ONCE)]


def _list(answer: Mapping[str, Any], name: str) -> list[object]:
    found = answer.get(name)
    if not isinstance(found, list):
        raise RejectedError(f"expected a list, found {found!r:.80}", field=name, hint="Upgrade the executor.")
    return found
