"""Forms that describe flows: of one template, or of a way from one place to others, whose jobs the service finds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gobblin_assets.service.access import User
from gobblin_assets.service.api.request_parts import ServedParts
from gobblin_assets.service.api.service_routes import find_nodes, get_visible_template
from gobblin_assets.service.flow_config import LATER_OPTIONS, FlowConfig, NodeChoice, read_flow_config
from gobblin_assets.service.job_template import JobTemplate, TemplateEnd
from gobblin_assets.service.template_parameters import leave_out_given
from gobblin_assets.service.topology import DataNode, Format, TopologySpec

_ANY_NAME: Final = "new"


@dataclass(frozen=True, slots=True)
class FlowForm:
    """What a form asks for. ``parameters``: a JSON Schema; ``template_uris``: empty, if the service finds them.

    ``is_joined``: whether templates were found, which say what parameters there are.
    ``needs_source``, ``needs_target``: whether the flow must name its nodes, because no template does.
    """

    title: str
    template_uris: tuple[str, ...]
    parameters: Mapping[str, Any]
    sources: tuple[DataNode, ...]
    targets: tuple[DataNode, ...]
    source_format: str | None = None
    target_format: str | None = None
    needs_source: bool = True
    needs_target: bool = True
    is_joined: bool = True


def plan_form(
    parts: ServedParts, user: User, template_uris: Sequence[str], source: str, targets: Sequence[str]
) -> FlowForm:
    """The form of one template; else that of a way, with the parameters of all jobs on it.

    Raises RejectedError: there is no such template or node.
    """
    nodes = find_nodes(parts, user)
    if len(template_uris) == 1:
        template = get_visible_template(parts, user, template_uris[0])
        return FlowForm(
            title=template.description or template.uri,
            template_uris=tuple(template_uris),
            parameters=template.parameters,
            sources=_fitting(template.source, nodes),
            targets=_fitting(template.target, nodes),
            source_format=template.source.format.value,
            target_format=template.target.format.value,
            needs_source=template.source.node is None,
            needs_target=template.target.node is None,
        )
    config: dict[str, Any] = {
        "flow_group": _ANY_NAME,
        "flow_name": _ANY_NAME,
        "template_uris": template_uris,
        "destinations": targets,
    }
    found = parts.flows.list_templates(user, read_flow_config({**config, "source": source} if source else config))
    return FlowForm(
        title=f"From {source} to {', '.join(targets)}",
        template_uris=tuple(template_uris),
        parameters=merge_parameters(_list_asked(found)),
        sources=tuple(node for node in nodes if node.name == source),
        targets=tuple(node for node in nodes if node.name in targets),
        is_joined=bool(found),
    )


def _list_asked(templates: Sequence[JobTemplate]) -> Sequence[Mapping[str, Any]]:
    """The parameters that people give: not those that a hop gets from the one before it."""
    if not any(each.target.format is Format.DATASET for each in templates):
        return [each.parameters for each in templates]
    return [leave_out_given(each.parameters) for each in templates]


def plan_form_of(parts: ServedParts, user: User, config: FlowConfig) -> FlowForm:
    """The form that a flow's config is changed by."""
    source = "" if config.source is None else config.source.node
    return plan_form(parts, user, config.template_uris, source, [each.node for each in config.destinations])


def find_hindrance(template: JobTemplate, nodes: Sequence[DataNode], executors: Sequence[TopologySpec]) -> str:
    """Why the user can't make a flow of the template now, as a sentence; "" if nothing hinders."""
    sources, targets = _fitting(template.source, nodes), _fitting(template.target, nodes)
    for end, fitting, word in ((template.source, sources, "begin"), (template.target, targets, "end")):
        if not fitting:
            schemes = f" ({', '.join(sorted(end.schemes))})" if end.schemes else ""
            return f"There is no node of the kind {' or '.join(sorted(end.kinds))}{schemes} to {word} at."
    able = [each.executor for each in executors if template.capability in each.executor.capabilities]
    if not able:
        return f"No executor has the capability {template.capability}."
    if not any(
        source.name in each.nodes and target.name in each.nodes and source is not target
        for each in able
        for source in sources
        for target in targets
    ):
        return f"No executor with the capability {template.capability} reaches both of its nodes."
    return ""


def keep_unasked(options: dict[str, Any], config: FlowConfig) -> None:
    """Give the options of a form what no field asks for, from the flow's config: such as the formats of nodes."""
    stored = config.model_dump(mode="json", include=set(LATER_OPTIONS))
    for name, value in stored.items():
        options.setdefault(name, value)
    chosen: dict[str, NodeChoice] = {each.node: each for each in config.destinations}
    for each in options.get("destinations", ()):
        if each["node"] in chosen:
            each["format"] = chosen[each["node"]].format
    source = options.get("source")
    if source is not None and config.source is not None and source["node"] == config.source.node:
        source["format"] = config.source.format


def merge_parameters(schemas: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One schema for the parameters of several templates. Of lists of objects, the fields of all."""
    merged: dict[str, Any] = {"type": "object", "required": [], "properties": {}}
    for schema in schemas:
        merged["required"] = [*dict.fromkeys([*merged["required"], *schema.get("required", ())])]
        for name, each in schema["properties"].items():
            known = merged["properties"].get(name)
            merged["properties"][name] = each if known is None else _merge_lists(known, each)
    return merged


def _merge_lists(known: Mapping[str, Any], other: Mapping[str, Any]) -> Mapping[str, Any]:
    if "properties" not in known.get("items", {}) or "properties" not in other.get("items", {}):
        return known
    return {**known, "items": merge_parameters([known["items"], other["items"]])}


def _fitting(end: TemplateEnd, nodes: Sequence[DataNode]) -> tuple[DataNode, ...]:
    return tuple(node for node in nodes if end.fits(node))
