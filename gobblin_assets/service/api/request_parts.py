"""Parts of requests that several routes read: who asks, for which flow, with which body, on which condition."""

import base64
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, NoReturn
from urllib.parse import unquote

from fastapi import Depends, Header, Path, Query, Request

from gobblin_assets.errors import RejectedError
from gobblin_assets.service.access import AccessRules, User
from gobblin_assets.service.api.problems import MalformedRequestError
from gobblin_assets.service.catalogs import CatalogMetrics
from gobblin_assets.service.flow_store import StaleVersionError, StoredFlow
from gobblin_assets.service.guarded_alerts import GuardedAlerts
from gobblin_assets.service.guarded_executors import GuardedExecutors
from gobblin_assets.service.guarded_flows import GuardedFlows
from gobblin_assets.service.guarded_jobs import GuardedJobs
from gobblin_assets.service.guarded_logs import GuardedLogs
from gobblin_assets.service.guarded_packs import GuardedPacks
from gobblin_assets.service.guarded_probes import GuardedProbes
from gobblin_assets.service.probes import ANSWER_WAIT_S_MAX
from gobblin_assets.service.specs import FlowKey, parse_flow_key
from gobblin_assets.service.topology_manager import TopologyManager

SESSION_COOKIE: Final = "gobblin_token"

_BEARER: Final = "bearer "
_BODY: Final = "body"
_NOT_STORABLE: Final = re.compile(r"[\x00\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class ServedParts:
    """The service as its API and its pages see it.

    ``identify``: who asks, by the token that the request has or None; UnknownUserError for one that is not known.
    ``asks_for_tokens``: False where everybody is the same user. ``measure``: what the catalogs counted, by their names.
    ``measure_age_s``: the age of the copy of the flows that answers; 0 while the database does.
    """

    flows: GuardedFlows
    probes: GuardedProbes
    jobs: GuardedJobs
    executors: GuardedExecutors
    logs: GuardedLogs
    alerts: GuardedAlerts
    topologies: TopologyManager
    rules: Callable[[], AccessRules]
    packs: GuardedPacks
    identify: Callable[[str | None], User]
    asks_for_tokens: bool
    measure: Callable[[], Mapping[str, CatalogMetrics]]
    measure_age_s: Callable[[], float]


# These do not wait for anything: as coroutines, they cost a request no turns of other threads.
async def get_parts(request: Request) -> ServedParts:
    parts: ServedParts = request.app.state.parts
    return parts


Parts = Annotated[ServedParts, Depends(get_parts)]


def get_user(request: Request, parts: Parts) -> User:
    authorization = request.headers.get("authorization", "")
    if authorization.lower().startswith(_BEARER):
        return parts.identify(authorization[len(_BEARER) :].strip())
    return parts.identify(request.cookies.get(SESSION_COOKIE))


async def get_asker(request: Request, parts: Parts) -> User:
    return get_user(request, parts)


Asker = Annotated[User, Depends(get_asker)]


async def get_key(
    group: Annotated[str, Path(description="The flow's group.")],
    name: Annotated[str, Path(description="The flow's name; a slash is sent as %2F.")],
) -> FlowKey:
    return parse_flow_key(unquote(group), unquote(name))


Key = Annotated[FlowKey, Depends(get_key)]


async def read_body(request: Request) -> Any:
    return parse_json(await request.body())


JsonBody = Annotated[Any, Depends(read_body)]
"""The body, as JSON, whatever Content-Type says: curl's ``--data`` says that it is a form. None: there is none."""


def parse_json(body: bytes) -> Any:
    """MalformedRequestError for what is no JSON; a name may not stand twice in an object."""
    if not body.strip():
        return None
    try:
        found = json.loads(body.decode(), parse_constant=_refuse_constant, object_pairs_hook=_read_object)
        require_plain_texts(found, _BODY)
    except RecursionError:
        raise MalformedRequestError("the JSON is nested too deeply", field="body", hint="Write it flat.") from None
    except ValueError as error:
        raise MalformedRequestError(f"expected JSON: {error}", field="body", hint="Correct it.") from None
    return found


def require_plain_texts(value: object, field: str) -> None:
    """RejectedError for a text that no database takes: with NUL, or with half of a pair of UTF-16."""
    match value:
        case str() if _NOT_STORABLE.search(value):
            raise RejectedError(
                f"expected no control characters, found {value[:80]!a}", field=ascii(field)[1:-1], hint="Take them out."
            )
        case Mapping():
            for name, inner in value.items():
                require_plain_texts(name, field)
                require_plain_texts(inner, name if field == _BODY else f"{field}.{name}")
        case list():
            for number, inner in enumerate(value):
                require_plain_texts(inner, f"{field}[{number}]")
        case _:
            pass


def read_object(body: object) -> Mapping[str, Any]:
    if not isinstance(body, Mapping):
        raise MalformedRequestError(
            "expected a JSON object", field="body", hint='Write it in braces, such as {"flow_name": "orders"}.'
        )
    return body


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no JSON")


def _read_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _value in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{twice[:100]!a} stands twice in one object")
    return found


def takes(schema: dict[str, Any], *, is_required: bool = True) -> dict[str, Any]:
    """The part of OpenAPI that describes a body that the route reads itself."""
    return {"requestBody": {"required": is_required, "content": {"application/json": {"schema": schema}}}}


def etag_of(flow: StoredFlow) -> str:
    """The entity tag of a flow's version. A flow that is made again under its name has other tags."""
    return f'"{flow.flow_id.hex}-{flow.spec.version}"'


@dataclass(frozen=True, slots=True)
class Condition:
    """What If-Match says. ``flow_id`` and ``version``: None without it, or where any will do."""

    flow_id: str | None = None
    version: str | None = None

    def check(self, flow: StoredFlow) -> None:
        """StaleVersionError: it is another version, or another flow of this name."""
        if self.flow_id is not None and (flow.flow_id.hex, flow.spec.version) != (self.flow_id, self.version):
            raise StaleVersionError(
                f"the flow is at {etag_of(flow)}",
                hint="Get the flow again, and change what it is now.",
            )


def read_condition(
    if_match: Annotated[str | None, Header(description="The flow's ETag: refused with 412 if it changed.")] = None,
) -> Condition:
    if if_match is None or if_match.strip() == "*":
        return Condition()
    flow_id, mark, version = if_match.strip().strip('"').rpartition("-")
    if not (mark and version.isdecimal()):
        raise MalformedRequestError(
            "expected the ETag of a flow", field="If-Match", hint="Send the header ETag of the flow as it came."
        )
    return Condition(flow_id, version)


IfMatch = Annotated[Condition, Depends(read_condition)]

RequestKeyHeader = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        description="Send a request again with its key: it is answered, and not done, a second time.",
    ),
]


Wait = Annotated[
    float,
    Query(ge=0, le=ANSWER_WAIT_S_MAX, description="Wait so many seconds for the answer of an executor."),
]


def write_cursor(place: object) -> str | None:
    """A cursor that clients send back as it came."""
    return None if place is None else base64.urlsafe_b64encode(json.dumps(place).encode()).decode().rstrip("=")


def read_flow_cursor(cursor: str | None) -> FlowKey | None:
    place = read_dataset_cursor(cursor)
    return None if place is None else FlowKey(*place)


def read_dataset_cursor(cursor: str | None) -> tuple[str, str] | None:
    if cursor is None:
        return None
    place = _read_cursor(cursor)
    if not isinstance(place, list) or len(place) != 2 or not all(isinstance(each, str) for each in place):
        raise _refuse_cursor()
    require_plain_texts(place, "cursor")
    return place[0], place[1]


def read_text_cursor(cursor: str | None) -> str | None:
    if cursor is None:
        return None
    place = _read_cursor(cursor)
    if not isinstance(place, str):
        raise _refuse_cursor()
    require_plain_texts(place, "cursor")
    return place


def read_execution_cursor(cursor: str | None) -> int | None:
    if cursor is None:
        return None
    place = _read_cursor(cursor)
    if not isinstance(place, int):
        raise _refuse_cursor()
    return place


def _read_cursor(cursor: str) -> Any:
    try:
        return json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (ValueError, RecursionError):
        raise _refuse_cursor() from None


def _refuse_cursor() -> RejectedError:
    return RejectedError("is no cursor of this list", field="cursor", hint="Send `next` of the last page as it came.")
