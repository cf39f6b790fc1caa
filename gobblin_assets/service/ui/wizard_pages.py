"""Pages that describe a flow: a form made from a template's schema, with the plan beside it."""

import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Final

from fastapi import APIRouter, Request, Response

from gobblin_assets.errors import ConflictError, RejectedError
from gobblin_assets.service.access import User
from gobblin_assets.service.api.problems import Problem, problem_of
from gobblin_assets.service.api.request_parts import Asker, Key, Parts, ServedParts, etag_of, read_condition
from gobblin_assets.service.api.service_routes import find_nodes, find_templates, get_visible_template
from gobblin_assets.service.flow_config import FlowConfig, read_flow_config
from gobblin_assets.service.flow_store import StoredFlow
from gobblin_assets.service.job_template import JobTemplate, TemplateEnd
from gobblin_assets.service.specs import FlowKey
from gobblin_assets.service.topology import DataNode
from gobblin_assets.service.ui.flow_pages import explain_for_page
from gobblin_assets.service.ui.forms import Form, SentForm
from gobblin_assets.service.ui.rendering import PAGES, flow_page, go_to, render
from gobblin_assets.service.ui.wizard_fields import plan_fields, read_form

wizard_pages = APIRouter(prefix=PAGES, include_in_schema=False)

_PARAMETERS: Final = "parameters."
_NO_OPTIONS: Final[Mapping[str, Any]] = {"flow_group": "", "flow_name": "", "description": "", "source": None}


@wizard_pages.get("/new")
def show_wizard(request: Request, parts: Parts, user: Asker, template: str = "", group: str = "") -> Response:
    """Without a template, those that there are; else the form of this one."""
    if not template:
        return render(request, "choose.html", user=user, templates=find_templates(parts, user), group=group)
    chosen = get_visible_template(parts, user, template)
    return _show_form(request, parts, user, chosen, {"flow_group": group})


@wizard_pages.post("/new")
def create_flow(request: Request, parts: Parts, user: Asker, form: Form) -> Response:
    """Create the flow that the form describes, show its plan, or show the form with one more row."""
    template = get_visible_template(parts, user, form.text("template"))
    options = read_wizard(template, form)
    if not form.has("create"):
        return _show_form(request, parts, user, template, options, form=form)
    try:
        flow = parts.flows.create(user, read_flow_config(options), request_key=form.text("request_key") or None)
    except (RejectedError, ConflictError) as error:
        return _show_form(request, parts, user, template, options, form=form, problem=problem_of(error))
    return go_to(flow_page(flow.spec.key), said="created")


@wizard_pages.post("/explain")
def explain_flow(request: Request, parts: Parts, user: Asker, form: Form) -> Response:
    """The fragment beside the form: the plan, or why there is none."""
    template = get_visible_template(parts, user, form.text("template"))
    options = read_wizard(template, form)
    return render(request, "explanation.html", **_explain_options(parts, user, options))


@wizard_pages.get("/flows/{group}/{name}/edit")
def show_edit(request: Request, parts: Parts, user: Asker, key: Key) -> Response:
    """The same form, filled in. A flow without a template, or with several, is changed by REST."""
    flow = parts.flows.get(user, key)
    template = _get_template_of(parts, user, flow)
    options = flow.spec.config.model_dump(mode="json")
    return _show_form(request, parts, user, template, options, flow=flow)


@wizard_pages.post("/flows/{group}/{name}/edit")
def change_flow(request: Request, parts: Parts, user: Asker, key: Key, form: Form) -> Response:
    """Store the flow's next version, unless somebody else changed it since the form was shown."""
    flow = parts.flows.get(user, key)
    template = get_visible_template(parts, user, form.text("template"))
    options = read_wizard(template, form, key=key)
    if not form.has("create"):
        return _show_form(request, parts, user, template, options, form=form, flow=flow)
    try:
        condition = read_condition(form.text("etag"))
        condition.check(flow)
        parts.flows.update(user, key, read_flow_config(options), if_version=condition.version)
    except (RejectedError, ConflictError) as error:
        return _show_form(request, parts, user, template, options, form=form, flow=flow, problem=problem_of(error))
    return go_to(flow_page(key), said="changed")


def read_wizard(template: JobTemplate, form: SentForm, *, key: FlowKey | None = None) -> dict[str, Any]:
    """The options of a FlowConfig that the form gives."""
    options: dict[str, Any] = {
        "flow_group": form.text("flow_group") if key is None else key.group,
        "flow_name": form.text("flow_name") if key is None else key.name,
        "description": form.text("description"),
        "template_uris": [form.text("template")],
        "parameters": read_form(template.parameters, form.fields),
        "run_immediately": form.has("run_immediately"),
    }
    if source := form.text("source"):
        options["source"] = {"node": source, "format": template.source.format.value}
    if destinations := form.texts("destinations"):
        options["destinations"] = [{"node": each, "format": template.target.format.value} for each in destinations]
    return options


def _explain_options(parts: ServedParts, user: User, options: Mapping[str, Any]) -> dict[str, Any]:
    def compile_options() -> Any:
        config: FlowConfig = read_flow_config(options)
        return parts.flows.explain(user, config)

    return explain_for_page(compile_options)


def _show_form(
    request: Request,
    parts: ServedParts,
    user: User,
    template: JobTemplate,
    options: Mapping[str, Any],
    *,
    form: SentForm | None = None,
    flow: StoredFlow | None = None,
    problem: Problem | None = None,
) -> Response:
    nodes = find_nodes(parts, user)
    beside = {"explanation": None, "plan": None, "problem": None}
    if form is not None or flow is not None:
        beside = _explain_options(parts, user, options)
    return render(
        request,
        "wizard.html",
        status=200 if problem is None else problem.status,
        user=user,
        template=template,
        flow=flow,
        request_key=uuid.uuid4().hex,
        etag="" if flow is None else form.text("etag") if form is not None else etag_of(flow),
        options={**_NO_OPTIONS, **options},
        fields=plan_fields(
            template.parameters,
            options.get("parameters", {}),
            adds_to=form.text("add_row") if form is not None else "",
        ),
        sources=_fitting(template.source, nodes),
        targets=_fitting(template.target, nodes),
        chosen=[each["node"] for each in options.get("destinations", ())],
        runs=flow is None if form is None else form.has("run_immediately"),
        refused=problem,
        refused_field=None if problem is None else problem.field.removeprefix(_PARAMETERS),
        **beside,
    )


def _fitting(end: TemplateEnd, nodes: Sequence[DataNode]) -> list[DataNode]:
    return [node for node in nodes if end.fits(node)]


def _get_template_of(parts: ServedParts, user: User, flow: StoredFlow) -> JobTemplate:
    if len(flow.spec.template_uris) != 1:
        raise RejectedError(
            f"the flow has {len(flow.spec.template_uris)} templates, and the form is that of one",
            field="template_uris",
            hint="Change the flow by `gobblin-assets service flow update`, or by PUT.",
        )
    return get_visible_template(parts, user, flow.spec.template_uris[0])
