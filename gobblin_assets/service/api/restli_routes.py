"""Routes of Rest.li 2.0: FlowConfigs and FlowStatuses by their compound keys."""

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Response

from gobblin_assets.service.access import User
from gobblin_assets.service.api.request_parts import Asker, JsonBody, Parts, ServedParts
from gobblin_assets.service.api.restli_codec import (
    PROTOCOL_VERSION,
    read_flow,
    read_restli_key,
    write_flow,
    write_restli_key,
    write_status,
)
from gobblin_assets.service.flow_config import LATER_OPTIONS, FlowConfig, read_flow_config
from gobblin_assets.service.specs import FlowKey
from gobblin_assets.service.template_store import parse_template_uri

FLOW_RESOURCES: Final = ("flowconfigs", "flowcofigs", "GobblinServiceFlows")
STATUS_RESOURCES: Final = ("FlowStatuses", "flowstatuses")

restli_routes = APIRouter(include_in_schema=False)


def _read_key(key: str) -> FlowKey:
    return read_restli_key(key)


_Key = Annotated[FlowKey, Depends(_read_key)]


def answer_restli(data: object = None, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    body = b"" if data is None else json.dumps(data, ensure_ascii=False).encode()
    return Response(
        body,
        status_code=status,
        media_type=None if data is None else "application/json",
        headers={"X-RestLi-Protocol-Version": PROTOCOL_VERSION, **(headers or {})},
    )


def create_flow_config(parts: Parts, user: Asker, body: JsonBody) -> Response:
    flow = parts.flows.create(user, _read_config(parts, user, body))
    key = write_restli_key(flow.spec.key)
    return answer_restli(status=201, headers={"Location": f"/{FLOW_RESOURCES[0]}/{key}", "X-RestLi-Id": key})


def get_flow_config(parts: Parts, user: Asker, key: _Key) -> Response:
    flow = parts.flows.get(user, key)
    return answer_restli(write_flow(flow.spec.config.model_dump(mode="json")))


def update_flow_config(parts: Parts, user: Asker, key: _Key, body: JsonBody) -> Response:
    config = _read_config(parts, user, body)
    # What a FlowConfig of Rest.li can't say stays.
    parts.flows.update(user, key, config, if_version=None, keeps=LATER_OPTIONS - config.model_fields_set)
    return answer_restli()


def delete_flow_config(parts: Parts, user: Asker, key: _Key) -> Response:
    parts.flows.delete(user, key)
    return answer_restli()


def get_flow_status(parts: Parts, user: Asker, key: _Key) -> Response:
    return answer_restli(write_status(parts.flows.get_status(user, key)))


def _read_config(parts: ServedParts, user: User, body: object) -> FlowConfig:
    def find_schemas(uris: Sequence[str]) -> list[Mapping[str, Any]]:
        if uris:
            return [parts.packs.choose_template(user, parse_template_uri(uri)).parameters for uri in uris]
        return [each.parameters for each in parts.packs.list_templates(user)]

    return read_flow_config(read_flow(body, find_schemas))


for _resource in FLOW_RESOURCES:
    restli_routes.post(f"/{_resource}")(create_flow_config)
    restli_routes.get(f"/{_resource}/{{key}}")(get_flow_config)
    restli_routes.put(f"/{_resource}/{{key}}")(update_flow_config)
    restli_routes.post(f"/{_resource}/{{key}}")(update_flow_config)
    restli_routes.delete(f"/{_resource}/{{key}}")(delete_flow_config)
for _resource in STATUS_RESOURCES:
    restli_routes.get(f"/{_resource}/{{key}}")(get_flow_status)
