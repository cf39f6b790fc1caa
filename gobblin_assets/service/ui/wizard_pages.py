"""Pages that describe a flow: a form made from the schemas of templates, with the plan beside it."""

import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request, Response

from gobblin_assets.errors import ConflictError, GobblinError, RejectedError
from gobblin_assets.service.access import User
from gobblin_assets.service.api.problems import Problem, problem_of
from gobblin_assets.service.api.request_parts import Asker, Key, Parts, ServedParts, etag_of, read_condition
from gobblin_assets.service.api.service_routes import find_executors, find_nodes, find_templates
from gobblin_assets.service.flow_config import FlowConfig, read_flow_config
from gobblin_assets.service.flow_store import StoredFlow
from gobblin_assets.service.guarded_probes import DryRun
from gobblin_assets.service.specs import FlowKey
from gobblin_assets.service.topology import DataNode
from gobblin_assets.service.ui.flow_forms import FlowForm, find_hindrance, keep_unasked, plan_form, plan_form_of
from gobblin_assets.service.ui.flow_pages import explain_for_page
from gobblin_assets.service.ui.forms import Form, SentForm
from gobblin_assets.service.ui.rendering import PAGES, flow_page, go_to, render
from gobblin_assets.service.ui.wizard_fields import WizardField, WizardRows, plan_fields, read_form
from gobblin_assets.service.ui.wizard_suggestions import (
    Suggestions,
    ask_names,
    propose_publication,
    recall_suggestions,
    take_names,
)

wizard_pages = APIRouter(prefix=PAGES, include_in_schema=False)

DRY_RUN_WAIT_S: Final = 9.0

_PARAMETERS: Final = "parameters."
_NO_OPTIONS: Final[Mapping[str, Any]] = {"flow_group": "", "flow_name": "", "description": "", "source": None}
_WHEN: Final[Mapping[str, str]] = {"schedule": "", "timezone": "UTC"}

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
        templates = find_templates(parts, user)
        nodes, executors = find_nodes(parts, user), find_executors(parts, user)
        hindrances = {each.uri: find_hindrance(each, nodes, executors) for each in templates}
        return render(
            request,
            "choose.html",
            user=user,
            templates=templates,
            hindrances=hindrances,
            nodes=nodes,
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
    """Create the flow that the form describes; or show the form again, with its plan, with what a button asks for."""
    form = form.without_row(form.text("remove_row"))
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


@wizard_pages.post("/suggest")
def suggest(request: Request, parts: Parts, user: Asker, form: Form) -> Response:
    """The fragment in the form with what its source has; until an executor has answered, it is asked for again."""
    asked = _plan_sent(parts, user, form)
    found = recall_suggestions(parts, user, asked.parameters, _find_source(asked, form.text("source")), form)
    ask_names(parts, user, found)
    return render(request, "suggestions.html", found=found)


@wizard_pages.get("/flows/{group}/{name}/edit")
def show_edit(request: Request, parts: Parts, user: Asker, key: Key) -> Response:
    """The same form, filled in."""
    flow = parts.flows.get(user, key)
    asked = plan_form_of(parts, user, flow.spec.config)
    return _show_form(request, parts, user, asked, flow.spec.config.model_dump(mode="json"), flow=flow)


@wizard_pages.post("/flows/{group}/{name}/edit")
def change_flow(request: Request, parts: Parts, user: Asker, key: Key, form: Form) -> Response:
    """Store the flow's next version, unless somebody else changed it since the form was shown."""
    form = form.without_row(form.text("remove_row"))
    flow = parts.flows.get(user, key)
    asked = _plan_sent(parts, user, form)
    options = read_wizard(asked, form, key=key)
    options["parameters"] = read_form(asked.parameters, form.fields, flow.spec.config.parameters)
    keep_unasked(options, flow.spec.config)
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
        "schedule": form.text("schedule").strip(),
        "timezone": form.text("timezone").strip() or _WHEN["timezone"],
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


def _find_source(asked: FlowForm, name: str) -> DataNode | None:
    """The node of the name; without one, the only one that there is."""
    if not name and len(asked.sources) == 1:
        return asked.sources[0]
    return next((each for each in asked.sources if each.name == name), None)


def _suggest(
    parts: ServedParts, user: User, asked: FlowForm, options: Mapping[str, Any], form: SentForm | None
) -> tuple[Suggestions, str]:
    """What is known of the source, and the field to go on at. What was chosen and proposed is put into the options."""
    source = options.get("source") or {"node": ""}
    node = _find_source(asked, source["node"])
    found = recall_suggestions(parts, user, asked.parameters, node, form)
    if form is None or found.into is None:
        return found, ""
    if form.has("suggest"):
        ask_names(parts, user, found)
    if not form.has("take"):
        return found, ""
    values, name = options["parameters"], found.into.name
    rows = values.get(name, [])
    values[name] = take_names(parts, user, found, rows if isinstance(rows, list) else [], form)
    propose_publication(found, values, asked.parameters)
    return found, f"{name}[{min(len(rows), len(values[name]) - 1)}].{found.into.member}"


def _find_last(fields: Iterable[WizardField | WizardRows], name: str) -> str:
    """The first field of the last row."""
    return next((each.rows[-1][0].name for each in fields if isinstance(each, WizardRows) and each.name == name), "")


def _plan_dry(parts: ServedParts, user: User, options: Mapping[str, Any]) -> DryRun | None:
    """None: the plan itself says what is wrong."""
    try:
        return parts.probes.plan_dry_run(user, read_flow_config(options), wait_s=DRY_RUN_WAIT_S)
    except GobblinError:
        return None


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
    found, focus = _suggest(parts, user, asked, options, form)
    beside = {"explanation": None, "plan": None, "problem": None}
    # What was refused is said beside its field.
    if problem is None and (form is not None or flow is not None):
        beside = _explain_options(parts, user, options)
    fields = plan_fields(
        asked.parameters, options.get("parameters", {}), adds_to=form.text("add_row") if form is not None else ""
    )
    if form is not None and form.has("add_row"):
        focus = _find_last(fields, form.text("add_row"))
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
        options={**_NO_OPTIONS, **_WHEN, **options},
        fields=fields,
        found=found,
        focus=focus,
        dry_run=_plan_dry(parts, user, options) if form is not None and form.has("dry_run") else None,
        chosen=[each["node"] for each in options.get("destinations", ())],
        runs=flow is None if form is None else form.has("run_immediately"),
        refused=problem,
        refused_field=wrong
        if wrong in {*_list_names(fields), *_CHOICES, *_WHEN, *(_NAMES if flow is None else ())}
        else None,
        **beside,
    )
