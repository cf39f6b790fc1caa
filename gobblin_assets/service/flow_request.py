"""Requests of flows to a compiler, checked: mistakes that only a flow's author can mend are refused."""

import difflib
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from gobblin_assets.errors import RejectedError
from gobblin_assets.service.flow_config import FlowConfig, NodeChoice
from gobblin_assets.service.job_template import JobTemplate
from gobblin_assets.service.routes import Goal, RouteRules
from gobblin_assets.service.specs import FlowSpec
from gobblin_assets.service.template_pins import get_pinned_pack
from gobblin_assets.service.template_store import TemplateStore, get_template, parse_template_uri
from gobblin_assets.service.topology import FORMAT_OF, DataNode, Format, NodeKind, NodeState, Topology

_SHOWN_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class FlowRequest:
    """A flow's ends, and what may be used between them."""

    source: NodeState
    goals: tuple[Goal, ...]
    rules: RouteRules


def select_templates(store: TemplateStore, spec: FlowSpec, rules: RouteRules) -> tuple[JobTemplate, ...]:
    """The templates that the flow names; else all of all packs. Of each pack, the pinned version or the newest.

    RejectedError for one that there is none of that the user may use.
    """
    named = spec.template_uris or spec.config.template_uris
    pinned = {name: get_pinned_pack(store, name, version) for name, version in spec.pins.items()}
    if not named:
        packs = {pack.name: pack for pack in store.list_packs()} | pinned
        return tuple(template for pack in packs.values() for template in pack.templates.values())
    found: dict[str, JobTemplate] = {}
    for number, text in enumerate(named):
        field = f"template_uris[{number}]"
        uri = parse_template_uri(text, field)
        versioned = uri._replace(version=uri.version or spec.pins.get(uri.pack))
        template = get_template(store, versioned, field, rules.allows)
        found[template.uri] = template
    return tuple(found.values())


def read_request(
    spec: FlowSpec, topology: Topology, templates: Collection[JobTemplate], rules: RouteRules
) -> FlowRequest:
    """The flow's ends. RejectedError for a node that there is none of, and for ends that no template could join."""
    config = _fill_in_nodes(spec.config, templates)
    if config.source is None:
        raise RejectedError(
            "is missing", field="source", hint=_offer_nodes("", topology, rules, "Write the node that data comes from.")
        )
    if not config.destinations:
        raise RejectedError(
            "expected at least one node, found none", field="destinations", hint="Write the node that data goes to."
        )
    node = find_node(config.source.node, topology, rules, "source")
    source = NodeState(node.name, _read_format(config.source, "source") or _find_meant_format(node, templates))
    goals: dict[str, Goal] = {}
    for number, choice in enumerate(config.destinations):
        field = f"destinations[{number}]"
        target = find_node(choice.node, topology, rules, field)
        if target.name in goals or target.name == node.name:
            other = "the source" if target.name == node.name else "another destination"
            raise RejectedError(f"{target.name} is {other} too", field=field, hint="Name each node once.")
        goal = Goal(target.name, _read_format(choice, field))
        goals[target.name] = goal
        _require_leading(templates, node, source.format, target, goal, rules.hops_max, field)
    return FlowRequest(source, tuple(goals.values()), rules)


def _fill_in_nodes(config: FlowConfig, templates: Collection[JobTemplate]) -> FlowConfig:
    """The flow with the nodes that its one template names, where it says none."""
    if len(templates) != 1:
        return config
    (template,) = templates
    filled: dict[str, object] = {}
    if config.source is None and template.source.node is not None:
        filled["source"] = NodeChoice(node=template.source.node, format=template.source.format)
    if not config.destinations and template.target.node is not None:
        filled["destinations"] = (NodeChoice(node=template.target.node, format=template.target.format),)
    return config.model_copy(update=filled)


def _find_meant_format(node: DataNode, templates: Collection[JobTemplate]) -> Format:
    """The format at a flow's begin where none is written: that which the flow's one template reads there."""
    formats = {each.source.format for each in templates if len(templates) == 1 and each.source.fits(node)}
    return formats.pop() if formats else FORMAT_OF[node.kind]


def find_node(name: str, topology: Topology, rules: RouteRules, field: str) -> DataNode:
    """RejectedError with the nearest name if there is none that the user may use."""
    node = topology.nodes.get(name)
    if node is None or not rules.allows(node.groups):
        raise RejectedError(
            f"no node that you may use is called {name!a}",
            field=field,
            hint=_offer_nodes(name, topology, rules, "Ask an administrator to add it to the topology."),
        )
    return node


def _offer_nodes(word: str, topology: Topology, rules: RouteRules, fix: str) -> str:
    usable = [name for name, node in topology.nodes.items() if rules.allows(node.groups)]
    close = difflib.get_close_matches(word, usable, n=1)
    if close:
        return f"Did you mean {close[0]!r}?"
    return f"Known: {', '.join(usable)}." if 0 < len(usable) <= _SHOWN_MAX else fix


def _read_format(choice: NodeChoice, field: str) -> Format | None:
    if choice.format is None:
        return None
    if choice.format in set(Format):
        return Format(choice.format)
    close = difflib.get_close_matches(choice.format, list(Format), n=1)
    raise RejectedError(
        f"expected {', '.join(Format)}; found {choice.format[:80]!a}",
        field=f"{field}.format",
        hint=f"Did you mean {str(close[0])!r}?" if close else "Write one of these, or leave it out.",
    )


def _require_leading(
    templates: Collection[JobTemplate],
    node: DataNode,
    form: Format,
    target: DataNode,
    goal: Goal,
    hops_max: int,
    field: str,
) -> None:
    """RejectedError if no topology at all could join the ends by these templates."""
    usable = [each for each in templates if each.source.fits(node) and each.source.format is form]
    found: set[tuple[NodeKind, Format]] = set()
    for _hop in range(hops_max):
        if any(each.target.fits(target) and goal.format in {None, each.target.format} for each in usable):
            return
        found |= {(kind, each.target.format) for each in usable for kind in each.target.kinds}
        usable = [each for each in templates if any((kind, each.source.format) in found for kind in each.source.kinds)]
    ends = ", ".join(sorted({f"{form} in {kind}" for kind, form in found}))
    wanted = (
        f"{target.name} ({target.kind})" if goal.format is None else f"{goal.format} in {target.name} ({target.kind})"
    )
    raise RejectedError(
        f"no template leads from {form} in {node.name} ({node.kind}) to {wanted}",
        field=field,
        hint=f"Templates lead to: {ends}." if ends else "Correct the format, or publish a template for it.",
    )
