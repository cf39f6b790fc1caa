"""Routes of ``/api/v1`` for flows: their configs, their plans, their executions."""

from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Response
from pydantic import ValidationError

from gobblin_assets.model.job_ticket import TicketSelection
from gobblin_assets.service.api.representations import (
    CancelBody,
    DryRunBody,
    ExecutionsBody,
    ExplanationBody,
    FlowBody,
    FlowsBody,
    NamedJobBody,
    RunBody,
    SlotBody,
    StatusBody,
    VersionBody,
    show_dry_run,
    show_explanation,
    show_flow,
    show_named_job,
    show_slot,
    show_status,
    show_version,
)
from gobblin_assets.service.api.request_parts import (
    Asker,
    IfMatch,
    JsonBody,
    Key,
    Parts,
    RequestKeyHeader,
    Wait,
    etag_of,
    read_execution_cursor,
    read_flow_cursor,
    read_object,
    takes,
    write_cursor,
)
from gobblin_assets.service.flow_config import FlowConfig, read_flow_config
from gobblin_assets.service.flow_store import StoredFlow
from gobblin_assets.service.guarded_flows import PAGE_EXECUTIONS_MAX, PAGE_FLOWS_MAX, PAGE_SLOTS
from gobblin_assets.service.probes import ProbeState
from gobblin_assets.service.specs import FlowKey
from gobblin_assets.spec.spec_errors import refuse

FLOWS_PATH: Final = "/api/v1/flows"

flow_routes = APIRouter(prefix=FLOWS_PATH, tags=["flows"])


_CONFIG: Final = takes({"$ref": "#/components/schemas/FlowConfig"})
_CONFIG_OR_NONE: Final = takes({"$ref": "#/components/schemas/FlowConfig"}, is_required=False)
_PATCH: Final = takes({"type": "object"})
_RUN: Final = takes(RunBody.model_json_schema(), is_required=False)
_CANCEL: Final = takes(CancelBody.model_json_schema())
_SOME_LATER: Final[dict[int | str, dict[str, Any]]] = {
    202: {"model": DryRunBody, "description": "Some answer is not there yet."}
}


@flow_routes.get("")
def list_flows(
    parts: Parts,
    user: Asker,
    group: Annotated[str | None, Query(description="Flows of this group.")] = None,
    search: Annotated[str | None, Query(description="A part of group, name or description.")] = None,
    pending: Annotated[bool, Query(description="Flows that no executor can run now.")] = False,  # noqa: FBT002  FastAPI passes it by name
    cursor: Annotated[str | None, Query(description="`next` of the page before.")] = None,
    limit: Annotated[int, Query(ge=1, le=PAGE_FLOWS_MAX)] = 50,
) -> FlowsBody:
    """List flows by their groups and names."""
    read = parts.flows.list_flows(
        user, group=group, search=search, is_pending=pending, after=read_flow_cursor(cursor), limit=limit
    )
    return FlowsBody(flows=[show_flow(each) for each in read.flows], next=write_cursor(read.after), age_s=read.age_s)


@flow_routes.post("", status_code=201, openapi_extra=_CONFIG)
def create_flow(
    parts: Parts, user: Asker, body: JsonBody, response: Response, idempotency_key: RequestKeyHeader = None
) -> FlowBody:
    """Create a flow; it runs at once unless `run_immediately` is false. A flow that can't run yet is pending."""
    config = read_flow_config(read_object(body))
    return _answer(parts.flows.create(user, config, request_key=idempotency_key), response, is_new=True)


@flow_routes.get("/{group}/{name}")
def get_flow(parts: Parts, user: Asker, key: Key, response: Response) -> FlowBody:
    return _answer(parts.flows.get(user, key), response)


@flow_routes.put("/{group}/{name}", openapi_extra=_CONFIG)
def replace_flow(
    parts: Parts, user: Asker, key: Key, body: JsonBody, condition: IfMatch, response: Response
) -> FlowBody:
    """Replace a flow's config. Its names stay; it is run only if `run_immediately` says so."""
    config = _read_config(key, body)
    if condition.flow_id is not None:
        condition.check(parts.flows.get(user, key))
    return _answer(parts.flows.update(user, key, config, if_version=condition.version), response)


@flow_routes.patch("/{group}/{name}", openapi_extra=_PATCH)
def patch_flow(parts: Parts, user: Asker, key: Key, body: JsonBody, condition: IfMatch, response: Response) -> FlowBody:
    """Change parts of a flow's config by a JSON Merge Patch: null removes an option."""
    flow = parts.flows.patch(user, key, body, if_version=condition.version, fits=condition.check)
    return _answer(flow, response)


@flow_routes.delete("/{group}/{name}", status_code=204)
def delete_flow(parts: Parts, user: Asker, key: Key, condition: IfMatch) -> None:
    """Delete a flow, and end what it runs. What it published stays."""
    if condition.flow_id is not None:
        condition.check(parts.flows.get(user, key))
    parts.flows.delete(user, key, if_version=condition.version)


@flow_routes.post("/{group}/{name}:explain", openapi_extra=_CONFIG_OR_NONE)
def explain_flow(parts: Parts, user: Asker, key: Key, body: JsonBody) -> ExplanationBody:
    """Compile a config as if it were this flow's, or without a body the flow as it is. Nothing is stored."""
    if body is None:
        return show_explanation(parts.flows.explain_stored(user, key))
    return show_explanation(parts.flows.explain(user, _read_config(key, body)))


@flow_routes.post("/{group}/{name}:dry-run", responses=_SOME_LATER, openapi_extra=_CONFIG_OR_NONE)
def plan_dry_run(
    parts: Parts, user: Asker, key: Key, body: JsonBody, response: Response, wait_s: Wait = 3
) -> DryRunBody:
    """Ask executors what a run of a config, or without a body of the flow as it is, would read or copy now.

    202: some answer is not there yet; `GET /api/v1/probes/ID` has it later.
    """
    if body is None:
        dry_run = parts.probes.plan_stored_dry_run(user, key, wait_s=wait_s)
    else:
        dry_run = parts.probes.plan_dry_run(user, _read_config(key, body), wait_s=wait_s)
    if any(each.probe is not None and each.probe.state is ProbeState.WAITING for each in dry_run.jobs):
        response.status_code = 202
    return show_dry_run(dry_run)


@flow_routes.post("/{group}/{name}:run", status_code=201, openapi_extra=_RUN)
def run_flow(
    parts: Parts, user: Asker, key: Key, body: JsonBody, idempotency_key: RequestKeyHeader = None
) -> StatusBody:
    """Run a flow: named partitions, ranges of them, or without either what is due."""
    selection = read_selection(body)
    return show_status(parts.flows.run(user, key, selection, request_key=idempotency_key))


@flow_routes.post("/{group}/{name}:pause")
def pause_flow(parts: Parts, user: Asker, key: Key, response: Response) -> FlowBody:
    """Let no execution begin until the flow is resumed. What runs goes on."""
    return _answer(parts.flows.pause(user, key), response)


@flow_routes.post("/{group}/{name}:resume")
def resume_flow(parts: Parts, user: Asker, key: Key, response: Response) -> FlowBody:
    return _answer(parts.flows.resume(user, key), response)


@flow_routes.post("/{group}/{name}:replan")
def replan_flow(parts: Parts, user: Asker, key: Key, response: Response) -> FlowBody:
    """Take the best plan of now under new job names. What was published stays, under the old ones."""
    return _answer(parts.flows.replan(user, key), response)


@flow_routes.post("/{group}/{name}:repin")
def repin_flow(parts: Parts, user: Asker, key: Key, response: Response) -> FlowBody:
    """Take the newest versions of the flow's packs, as its next version. Names of jobs and config stay."""
    return _answer(parts.flows.repin(user, key), response)


@flow_routes.post("/{group}/{name}:cancel", openapi_extra=_CANCEL)
def cancel_execution(parts: Parts, user: Asker, key: Key, body: JsonBody) -> StatusBody:
    """Ask for the end of an execution."""
    try:
        asked = CancelBody.model_validate(read_object(body))
    except ValidationError as error:
        raise refuse(error, CancelBody) from None
    return show_status(parts.flows.cancel(user, key, asked.execution_id))


@flow_routes.get("/{group}/{name}/versions")
def list_versions(parts: Parts, user: Asker, key: Key) -> list[VersionBody]:
    """List what the flow's config was, the latest first."""
    return [show_version(each) for each in parts.flows.list_versions(user, key)]


@flow_routes.get("/{group}/{name}/slots")
def list_slots(
    parts: Parts, user: Asker, key: Key, limit: Annotated[int, Query(ge=1, le=PAGE_EXECUTIONS_MAX)] = PAGE_SLOTS
) -> list[SlotBody]:
    """List the starts by the flow's schedule, the latest first: those that ran, wait, or were left out, and why."""
    return [show_slot(each) for each in parts.flows.list_slots(user, key, limit=limit)]


@flow_routes.get("/{group}/{name}/jobs")
def list_jobs(parts: Parts, user: Asker, key: Key) -> list[NamedJobBody]:
    """List the flow's jobs by the names that their paths and watermarks are kept under, with their last executions."""
    jobs = parts.flows.list_jobs(user, key)
    past = parts.jobs.list_past(user, key, [each.job_name for each in jobs])
    return [show_named_job(each, past[each.job_name]) for each in jobs]


@flow_routes.get("/{group}/{name}/status")
def get_status(parts: Parts, user: Asker, key: Key) -> StatusBody:
    """Get the flow's last execution."""
    return show_status(parts.flows.get_status(user, key))


@flow_routes.get("/{group}/{name}/executions")
def list_executions(
    parts: Parts,
    user: Asker,
    key: Key,
    cursor: Annotated[str | None, Query(description="`next` of the page before.")] = None,
    limit: Annotated[int, Query(ge=1, le=PAGE_EXECUTIONS_MAX)] = 50,
) -> ExecutionsBody:
    """List the flow's executions, the latest first."""
    page = parts.flows.list_executions(user, key, limit=limit, after=read_execution_cursor(cursor))
    return ExecutionsBody(executions=[show_status(each) for each in page.executions], next=write_cursor(page.after))


@flow_routes.get("/{group}/{name}/executions/{execution_id}")
def get_execution(parts: Parts, user: Asker, key: Key, execution_id: int) -> StatusBody:
    return show_status(parts.flows.get_execution(user, key, execution_id))


@flow_routes.post("/{group}/{name}/executions/{execution_id}:resume")
def resume_execution(parts: Parts, user: Asker, key: Key, execution_id: int) -> StatusBody:
    """Run what the flow's last execution has left, if it failed or was cancelled. COMPLETE jobs are not run again."""
    return show_status(parts.flows.resume_execution(user, key, execution_id))


def read_selection(body: object) -> TicketSelection:
    """RejectedError names what is wrong with the partitions."""
    try:
        asked = RunBody.model_validate({} if body is None else read_object(body))
    except ValidationError as error:
        raise refuse(error, RunBody) from None
    return TicketSelection(tuple(asked.datasets), tuple(asked.partitions), tuple(asked.ranges), asked.mode)


def _read_config(key: FlowKey, body: object) -> FlowConfig:
    """The names may be left out: the path has them."""
    return read_flow_config({"flow_group": key.group, "flow_name": key.name, **read_object(body)})


def _answer(flow: StoredFlow, response: Response, *, is_new: bool = False) -> FlowBody:
    response.headers["ETag"] = etag_of(flow)
    if is_new:
        _scheme, _, path = flow.spec.uri.partition(":/")
        response.headers["Location"] = f"{FLOWS_PATH}/{path}"
    return show_flow(flow)
