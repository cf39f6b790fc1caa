"""Routes of ``/api/v1`` for questions to executors: what a node has; and the answers, which may come later."""

import uuid
from typing import Any, Final
from urllib.parse import unquote

from fastapi import APIRouter, Response
from pydantic import ValidationError

from gobblin_assets.model.job_ticket import TicketId
from gobblin_assets.service.api.representations import ProbeBody, SuggestBody, show_probe
from gobblin_assets.service.api.request_parts import Asker, JsonBody, Parts, Wait, read_object, takes
from gobblin_assets.service.probes import Probe, ProbeState
from gobblin_assets.spec.spec_errors import refuse

PROBES_PATH: Final = "/api/v1/probes"

probe_routes = APIRouter(prefix="/api/v1", tags=["probes"])

_LATER: Final[dict[int | str, dict[str, Any]]] = {202: {"model": ProbeBody, "description": "There is no answer yet."}}
_SUGGEST: Final = takes(SuggestBody.model_json_schema(), is_required=False)


@probe_routes.post("/nodes/{node}:suggest", responses=_LATER, openapi_extra=_SUGGEST)
def suggest(parts: Parts, user: Asker, node: str, body: JsonBody, response: Response, wait_s: Wait = 3) -> ProbeBody:
    """Ask an executor what a node has: tables, topics or directories, or the columns of tables.

    202: the answer is not there yet; `GET /api/v1/probes/ID` has it later.
    """
    try:
        asked = SuggestBody.model_validate({} if body is None else read_object(body))
    except ValidationError as error:
        raise refuse(error, SuggestBody) from None
    probe = parts.probes.suggest(user, unquote(node), tables=asked.tables, below=asked.below, wait_s=wait_s)
    return _answer(probe, response)


@probe_routes.get("/probes/{probe_id}", responses=_LATER)
def get_probe(parts: Parts, user: Asker, probe_id: uuid.UUID, response: Response, wait_s: Wait = 0) -> ProbeBody:
    """Get the answer to a question of yours; 202 while there is none. After two minutes nobody waits for it."""
    return _answer(parts.probes.get(user, TicketId(probe_id), wait_s=wait_s), response)


def _answer(probe: Probe, response: Response) -> ProbeBody:
    if probe.state is ProbeState.WAITING:
        response.status_code = 202
        response.headers["Location"] = f"{PROBES_PATH}/{probe.probe_id}"
    return show_probe(probe)
