"""Pages that describe a flow: a form made from the schemas of templates, with the plan beside it."""

import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request, Response

from gobblin_assets.errors import ConflictError, RejectedError
from gobblin_assets.service.access import User
from gobblin_assets.service.api.problems import Problem, problem_of
from gobblin_assets.service.api.request_parts import Asker, Key, Parts, ServedParts, etag_of, read_condition
from gobblin_assets.service.api.service_routes import find_nodes, find_templates
from gobblin_assets.service.flow_config import FlowConfig, read_flow_config
from gobblin_assets.service.flow_store import StoredFlow
from gobblin_assets.service.specs import FlowKey
from gobblin_assets.service.ui.flow_forms import FlowForm, keep_formats, plan_form, plan_form_of
from gobblin_assets.service.ui.flow_pages import explain_for_page
from gobblin_assets.service.ui.forms import Form, SentForm
from gobblin_assets.service.ui.rendering import PAGES, flow_page, go_to, render
from gobblin_assets.service.ui.wizard_fields import WizardField, WizardRows, plan_fields, read_form

wizard_pages = APIRouter(prefix=PAGES, include_in_schema=False)

_PARAMETERS: Final = "parameters."
_NO_OPTIONS: Final[Mapping[str, Any]] = {"flow_group": "", "flow_name": "", "description": "", "source": None}

_NAMES: Final = ("flow_group", "flow_name")
_CHOICES: Final = ("source", "destinations")

_Several = Annotated[tuple[str, ...], Query()]
_NOWHERE: Final = ()


@wizard_pages.get("/new")
def show_wizard(
    request: Request, parts: Parts, user: Asker, template: str = "", source: str = "", to: _Several = _NOWHERE
) -> Response:
    """Without a template and a way, the choice of either; else the form for it.

    The address may have values of fields, such as ``datasets[0].table``.
    """
    if not template and not (source and to):
        return render(
            request,
            "choose.html",
            user=user,
            templates=find_templates(parts, user),
            nodes=find_nodes(parts, user),
            is_half=bool(source or to),
        )
    asked = plan_form(parts, user, [template] if template else [], source, to)
    options: dict[str, Any] = {
        "source": {"node": source} if source else None,
        "destinations": [{"node": each} for each in to],
        "parameters": read_form(asked.parameters, request.query_params),
    }
    return _show_form(request, parts, user, asked, options)


@wizard_pages.post("/new")
def create_flow(request: Request, parts: Parts, user: Asker, form: Form) -> Response:
    """Create the flow that the form describes, show its plan, or show the form with one more row."""
    asked = _plan_sent(parts, user, form)
    options = read_wizard(asked, form)
    if not form.has("create"):
        return _show_form(request, parts, user, asked, options, form=form)
    try:
        flow = parts.flows.create(user, read_flow_config(options), request_key=form.text("request_key") or None)
    except (RejectedError, ConflictError) as error:
        return _show_form(request, parts, user, asked, options, form=form, problem=problem_of(error))
    return go_to(flow_page(flow.spec.key), said="created")


@wizard_pages.post("/explain")
def explain_flow(request: Request, parts: Parts, user: Asker, form: Form) -> Response:
    """The fragment beside the form: the plan, or why there is none."""
    options = read_wizard(_plan_sent(parts, user, form), form)
    return render(request, "explanation.html", **_explain_options(parts, user, options))


@wizard_pages.get("/flows/{group}/{name}/edit")
def show_edit(request: Request, parts: Parts, user: Asker, key: Key) -> Response:
    """The same form, filled in."""
    flow = parts.flows.get(user, key)
    asked = plan_form_of(parts, user, flow.spec.config)
    return _show_form(request, parts, user, asked, flow.spec.config.model_dump(mode="json"), flow=flow)


@wizard_pages.post("/flows/{group}/{name}/edit")
def change_flow(request: Request, parts: Parts, user: Asker, key: Key, form: Form) -> Response:
    """Store the flow's next version, unless somebody else changed it since the form was shown."""
    flow = parts.flows.get(user, key)
    asked = _plan_sent(parts, user, form)
    options = read_wizard(asked, form, key=key)
    options["parameters"] = read_form(asked.parameters, form.fields, flow.spec.config.parameters)
    keep_formats(options, flow.spec.config)
    if not form.has("create"):
        return _show_form(request, parts, user, asked, options, form=form, flow=flow)
    try:
        condition = read_condition(form.text("etag"))
        condition.check(flow)
        parts.flows.update(user, key, read_flow_config(options), if_version=condition.version)
    except (RejectedError, ConflictError) as error:
        return _show_form(request, parts, user, asked, options, form=form, flow=flow, problem=problem_of(error))
    return go_to(flow_page(key), said="changed")


def read_wizard(asked: FlowForm, form: SentForm, *, key: FlowKey | None = None) -> dict[str, Any]:
    """The options of a FlowConfig that the form gives."""
    options: dict[str, Any] = {
        "flow_group": form.text("flow_group") if key is None else key.group,
        "flow_name": form.text("flow_name") if key is None else key.name,
        "description": form.text("description"),
        "template_uris": list(asked.template_uris),
        "parameters": read_form(asked.parameters, form.fields),
        "run_immediately": form.has("run_immediately"),
    }
    if source := form.text("source"):
        options["source"] = {"node": source, "format": asked.source_format}
    if destinations := form.texts("destinations"):
        options["destinations"] = [{"node": each, "format": asked.target_format} for each in destinations]
    return options


def _plan_sent(parts: ServedParts, user: User, form: SentForm) -> FlowForm:
    return plan_form(parts, user, form.texts("template"), form.text("source"), form.texts("destinations"))


def _list_names(fields: Iterable[WizardField | WizardRows]) -> Iterator[str]:
    """The names of all controls."""
    for each in fields:
        yield each.name
        if isinstance(each, WizardRows):
            yield from (field.name for row in each.rows for field in row)


def _explain_options(parts: ServedParts, user: User, options: Mapping[str, Any]) -> dict[str, Any]:
    def compile_options() -> Any:
        config: FlowConfig = read_flow_config(options)
        return parts.flows.explain(user, config)

    return explain_for_page(compile_options)


def _show_form(
    request: Request,
    parts: ServedParts,
    user: User,
    asked: FlowForm,
    options: Mapping[str, Any],
    *,
    form: SentForm | None = None,
    flow: StoredFlow | None = None,
    problem: Problem | None = None,
) -> Response:
    beside = {"explanation": None, "plan": None, "problem": None}
    # What was refused is said beside its field.
    if problem is None and (form is not None or flow is not None):
        beside = _explain_options(parts, user, options)
    fields = plan_fields(
        asked.parameters, options.get("parameters", {}), adds_to=form.text("add_row") if form is not None else ""
    )
    wrong = "" if problem is None else problem.field.removeprefix(_PARAMETERS)
    return render(
        request,
        "wizard.html",
        status=200 if problem is None else problem.status,
        user=user,
        asked=asked,
        is_joined=asked.is_joined,
        flow=flow,
        request_key=uuid.uuid4().hex,
        etag="" if flow is None else form.text("etag") if form is not None else etag_of(flow),
        options={**_NO_OPTIONS, **options},
        fields=fields,
        chosen=[each["node"] for each in options.get("destinations", ())],
        runs=flow is None if form is None else form.has("run_immediately"),
        refused=problem,
        refused_field=wrong if wrong in {*_list_names(fields), *_CHOICES, *(_NAMES if flow is None else ())} else None,
        **beside,
    )
