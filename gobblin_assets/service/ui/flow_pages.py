"""Pages of flows: the list, one flow, one execution, and what their buttons do."""

import uuid
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from fastapi import APIRouter, Request, Response

from gobblin_assets.errors import GobblinError, RejectedError
from gobblin_assets.model.job_ticket import TicketSelection
from gobblin_assets.service.access import Action, User
from gobblin_assets.service.api.problems import problem_of
from gobblin_assets.service.api.request_parts import (
    Asker,
    Key,
    Parts,
    ServedParts,
    read_execution_cursor,
    read_flow_cursor,
    write_cursor,
)
from gobblin_assets.service.flow_catalog import FlowsRead
from gobblin_assets.service.flow_store import SpecNotFoundError
from gobblin_assets.service.job_plan import FlowPlan
from gobblin_assets.service.specs import FlowKey
from gobblin_assets.service.statuses import ENDED, FlowStatus
from gobblin_assets.service.ui.copy_links import link_copies
from gobblin_assets.service.ui.forms import Form, SentForm
from gobblin_assets.service.ui.rendering import PAGES, flow_page, go_to, render, wants_fragment

flow_pages = APIRouter(prefix=f"{PAGES}/flows", include_in_schema=False)

_PAGE_FLOWS: Final = 50
_PAGE_EXECUTIONS: Final = 20
_RANGE_MARK: Final = "..."
# By the word in the address: a link of somebody else can't put words of its own on a page.
_SAID: Final = MappingProxyType(
    {
        "created": "The flow is created.",
        "changed": "The change is stored.",
        "paused": "The flow is paused. What runs goes on.",
        "resumed": "The flow is resumed.",
        "repinned": "The flow takes the newest versions of its packs.",
        "replanned": "The next run publishes under new names. What was published stays.",
    }
)


@flow_pages.get("")
def show_flows(
    request: Request, parts: Parts, user: Asker, search: str = "", pending: str = "", cursor: str = ""
) -> Response:
    """The flows, or those whose names or descriptions contain what was searched."""
    read = parts.flows.list_flows(
        user,
        search=search.strip() or None,
        is_pending=bool(pending),
        after=read_flow_cursor(cursor or None),
        limit=_PAGE_FLOWS,
    )
    template = "flow_rows.html" if wants_fragment(request.headers) else "flows.html"
    return render(
        request,
        template,
        user=user,
        flows=read.flows,
        last=_find_last(parts, user, read),
        age_s=read.age_s,
        search=search,
        pending=pending,
        cursor=cursor,
        next=write_cursor(read.after),
        # A copy of the flows knows of none.
        alerts=() if read.age_s else parts.alerts.list_alerts(user),
    )


@flow_pages.get("/{group}/{name}")
def show_flow(request: Request, parts: Parts, user: Asker, key: Key, said: str = "", cursor: str = "") -> Response:
    """One flow: its plan, its executions, its versions, and what can be done with it."""
    flow = parts.flows.get(user, key)
    page = parts.flows.list_executions(user, key, limit=_PAGE_EXECUTIONS, after=read_execution_cursor(cursor or None))
    values: dict[str, Any] = {
        "user": user,
        "key": key,
        "flow": flow,
        "executions": page.executions,
        "next": write_cursor(page.after),
        "cursor": cursor,
        "ended": ENDED,
        "may": _find_rights(parts, user, key),
    }
    if wants_fragment(request.headers):
        return render(request, "flow_parts.html", **values)
    explained = explain_for_page(lambda: parts.flows.explain_stored(user, key))
    return render(
        request,
        "flow.html",
        copies=link_copies(explained["plan"]),
        said=_SAID.get(said, ""),
        request_key=uuid.uuid4().hex,
        config=flow.spec.config.model_dump(mode="json", exclude_defaults=True),
        versions=parts.flows.list_versions(user, key),
        slots=parts.flows.list_slots(user, key),
        names=parts.flows.list_jobs(user, key),
        **explained,
        **values,
    )


@flow_pages.get("/{group}/{name}/executions/{execution_id}")
def show_execution(
    request: Request,
    parts: Parts,
    user: Asker,
    key: Key,
    execution_id: int,
    job: int | None = None,
    ticket: int | None = None,
) -> Response:
    """One execution: its jobs, how far each came, and what it says, or what one of their earlier tickets said."""
    if job is None:
        outputs = parts.jobs.list_outputs(user, key, execution_id)
    else:
        outputs = [parts.jobs.get_output(user, key, execution_id, job, ticket=ticket)]
    template = "execution_parts.html" if wants_fragment(request.headers) else "execution.html"
    return render(
        request,
        template,
        user=user,
        key=key,
        execution=parts.flows.get_execution(user, key, execution_id),
        outputs=outputs,
        ticket=ticket,
        ended=ENDED,
        may=_find_rights(parts, user, key),
    )


@flow_pages.post("/{group}/{name}/run")
def run_flow(parts: Parts, user: Asker, key: Key, form: Form) -> Response:
    status = parts.flows.run(user, key, read_typed_selection(form), request_key=form.text("request_key") or None)
    return go_to(flow_page(key, "executions", status.execution_id))


@flow_pages.post("/{group}/{name}/pause")
def pause_flow(parts: Parts, user: Asker, key: Key) -> Response:
    parts.flows.pause(user, key)
    return go_to(flow_page(key), said="paused")


@flow_pages.post("/{group}/{name}/resume")
def resume_flow(parts: Parts, user: Asker, key: Key) -> Response:
    parts.flows.resume(user, key)
    return go_to(flow_page(key), said="resumed")


@flow_pages.post("/{group}/{name}/replan")
def replan_flow(parts: Parts, user: Asker, key: Key) -> Response:
    parts.flows.replan(user, key)
    return go_to(flow_page(key), said="replanned")


@flow_pages.post("/{group}/{name}/repin")
def repin_flow_by_page(parts: Parts, user: Asker, key: Key) -> Response:
    parts.flows.repin(user, key)
    return go_to(flow_page(key), said="repinned")


@flow_pages.post("/{group}/{name}/delete")
def delete_flow(parts: Parts, user: Asker, key: Key) -> Response:
    parts.flows.delete(user, key)
    return go_to(f"{PAGES}/flows", search=key.group)


@flow_pages.post("/{group}/{name}/executions/{execution_id}/cancel")
def cancel_execution(parts: Parts, user: Asker, key: Key, execution_id: int) -> Response:
    parts.flows.cancel(user, key, execution_id)
    return go_to(flow_page(key, "executions", execution_id))


@flow_pages.post("/{group}/{name}/executions/{execution_id}/resume")
def resume_execution_by_page(parts: Parts, user: Asker, key: Key, execution_id: int) -> Response:
    parts.flows.resume_execution(user, key, execution_id)
    return go_to(flow_page(key, "executions", execution_id))


def read_typed_selection(form: SentForm) -> TicketSelection:
    """Partitions as a person types them: keys and FIRST...LAST, with spaces or commas between them."""
    partitions, ranges = [], []
    for word in form.text("partitions").replace(",", " ").split():
        first, mark, last = word.partition(_RANGE_MARK)
        if not mark:
            partitions.append(word)
        elif first and last:
            ranges.append((first, last))
        else:
            raise RejectedError(
                f"expected FIRST{_RANGE_MARK}LAST, found {word[:100]!a}",
                field="partitions",
                hint="Such as 2026-01-01...2026-01-31.",
            )
    return TicketSelection(partitions=tuple(partitions), ranges=tuple(ranges))


def _find_last(parts: ServedParts, user: User, read: FlowsRead) -> Mapping[FlowKey, FlowStatus]:
    """The last execution of each flow; of none while a copy answers in place of the database."""
    return {} if read.age_s else parts.flows.list_last_statuses(user, read.flows)


def _find_rights(parts: ServedParts, user: User, key: FlowKey) -> Mapping[str, bool]:
    return {action.value: parts.flows.may(user, action, key) for action in Action}


def explain_for_page(compile_flow: Callable[[], Any]) -> dict[str, Any]:
    """The values of the fragment that shows a plan; what was refused is shown in its place."""
    try:
        explanation = compile_flow()
    except SpecNotFoundError:
        raise
    except GobblinError as error:
        return {"explanation": None, "plan": None, "problem": problem_of(error)}
    compiled = explanation.compiled
    return {
        "explanation": explanation,
        "plan": compiled if isinstance(compiled, FlowPlan) else None,
        "problem": None,
    }
