"""Hops that a plan does not take, and why not; and why a destination can't be reached.

Of templates, executors and nodes for other groups of users, no name is told.
"""

from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import Final

from gobblin_assets.service.flow_request import FlowRequest
from gobblin_assets.service.job_plan import UntakenEdge
from gobblin_assets.service.job_template import JobTemplate
from gobblin_assets.service.published_datasets import reads_datasets
from gobblin_assets.service.routes import Goal, Hop, RouteMap, has_what_is_needed
from gobblin_assets.service.topology import DataNode, ExecutorSpec, NodeState

UNTAKEN_MAX: Final = 50

_REASONS_MAX: Final = 5
_OF_OTHERS: Final = "some executors or templates are for other groups of users"
_OTHER_NODES_MAX: Final = 3
"""Beside the flow's own: a large topology has thousands that a hop could lead to."""


def list_untaken(routes: RouteMap, request: FlowRequest, taken: Sequence[Hop]) -> tuple[UntakenEdge, ...]:
    """Hops that begin at the source or end at a destination and are not taken: those between both first."""
    made = {hop.identity for hop in taken}
    found: dict[tuple[str, str, NodeState, NodeState], UntakenEdge] = {}
    goal_nodes = [goal.node for goal in request.goals]
    passed = [hop.target.node for hop in taken if hop.target.node not in goal_nodes]
    edges = chain(
        _list_near_source(routes, request, goal_nodes),
        _list_near_goals(routes, request, [request.source.node, *passed]),
        _list_near_source(routes, request, None),
        _list_near_goals(routes, request, None),
    )
    for template, executor, source, target in edges:
        identity = (template.uri, executor.name, source, target)
        if identity in made or identity in found or not _may_use(request, template, executor):
            continue
        reason = _say_unread(taken, template, executor, source, target)
        reason = reason or _say_why(routes, request, template, executor, source, target)
        found[identity] = UntakenEdge(template.uri, executor.name, source, target, reason)
        if len(found) == UNTAKEN_MAX:
            break
    return tuple(found.values())


def explain_lack(routes: RouteMap, request: FlowRequest, goal: Goal) -> str:
    """Why a destination is out of reach, and what would reach it."""
    hops_max = request.rules.hops_max
    joined = f"{goal.node} can't be reached from {request.source.node} by "
    joined += "one hop" if hops_max == 1 else f"up to {hops_max} hops over transit nodes"
    direct: dict[str, None] = {}
    for template, executor, source, target in _list_near_source(routes, request, [goal.node]):
        is_usable = _may_use(request, template, executor)
        reason = _say_why(routes, request, template, executor, source, target) if is_usable else _OF_OTHERS
        direct[reason] = None
        if len(direct) == _REASONS_MAX:
            break
    if direct:
        return f"{joined}. By one: {'; '.join(direct)}."
    wanted = sorted(
        {
            template.capability
            for template in routes.templates
            if request.rules.allows(template.groups)
            and template.target.fits(routes.topology.nodes[goal.node])
            and goal.format in {None, template.target.format}
        }
    )
    if not wanted:
        return f"{joined}. The templates that lead to {goal.node} are for other groups of users."
    return f"{joined}. The last needs an executor that reaches {goal.node} and can do {' or '.join(wanted)}."


_Edge = tuple[JobTemplate, ExecutorSpec, NodeState, NodeState]


def _list_near_source(routes: RouteMap, request: FlowRequest, nodes: Sequence[str] | None) -> Iterator[_Edge]:
    """Hops from the source to these nodes, or to a few that an executor reaches."""
    begin = routes.topology.nodes[request.source.node]
    for template in routes.templates:
        if template.source.fits(begin) and template.source.format is request.source.format:
            for executor, node in _list_pairs(routes, request, begin.name, nodes):
                if template.target.fits(node) and _may_end(request, template, node):
                    yield template, executor, request.source, NodeState(node.name, template.target.format)


def _list_near_goals(routes: RouteMap, request: FlowRequest, nodes: Sequence[str] | None) -> Iterator[_Edge]:
    """Hops to the destinations from these nodes, or from a few that an executor reaches."""
    for goal in request.goals:
        end = routes.topology.nodes[goal.node]
        for template in routes.templates:
            if not template.target.fits(end) or goal.format not in {None, template.target.format}:
                continue
            target = NodeState(end.name, template.target.format)
            for executor, node in _list_pairs(routes, request, end.name, nodes):
                source = NodeState(node.name, template.source.format)
                if template.source.fits(node) and (node.name != request.source.node or source == request.source):
                    yield template, executor, source, target


def _may_use(request: FlowRequest, template: JobTemplate, executor: ExecutorSpec) -> bool:
    return request.rules.allows(template.groups) and request.rules.allows(executor.groups)


def _may_end(request: FlowRequest, template: JobTemplate, node: DataNode) -> bool:
    return all(goal.format in {None, template.target.format} for goal in request.goals if goal.node == node.name)


def _list_concerned(routes: RouteMap, *nodes: str) -> list[ExecutorSpec]:
    """Executors that reach one of the nodes, or are to."""
    found = {executor.name: executor for node in nodes for executor in routes.list_meant(node)}
    return [executor for _name, executor in sorted(found.items())]


def _list_pairs(
    routes: RouteMap, request: FlowRequest, end: str, others: Sequence[str] | None
) -> Iterator[tuple[ExecutorSpec, DataNode]]:
    """Executors with other ends of a hop: these nodes, or a few that each executor reaches from ``end``."""
    nodes = routes.topology.nodes
    if others is None:
        for executor in routes.list_meant(end):
            usable = (each for each in sorted(executor.nodes) if request.rules.allows(nodes[each].groups))
            for name in islice((each for each in usable if each != end), _OTHER_NODES_MAX):
                yield executor, nodes[name]
        return
    for name in others:
        for executor in _list_concerned(routes, end, name) if name != end else ():
            yield executor, nodes[name]


def _say_unread(
    taken: Sequence[Hop], template: JobTemplate, executor: ExecutorSpec, source: NodeState, target: NodeState
) -> str:
    """Why a dearer executor makes the same hop; empty if none does."""
    if not reads_datasets(template):
        return ""
    for hop in taken:
        is_same = (hop.template.uri, hop.source, hop.target) == (template.uri, source, target)
        if is_same and hop.executor.cost > executor.cost and hop.executor.log != executor.log:
            return (
                f"the executor {executor.name} works with another log, and can't read the ledger of what it would copy"
            )
    return ""


def _say_why(
    routes: RouteMap,
    request: FlowRequest,
    template: JobTemplate,
    executor: ExecutorSpec,
    source: NodeState,
    target: NodeState,
) -> str:
    goal_nodes = {goal.node for goal in request.goals}
    nodes = routes.topology.nodes
    found = routes.topology.get_state(executor.name)
    if template.capability not in executor.capabilities:
        said = f"the executor {executor.name} can't do {template.capability}"
        return found.no_capabilities.get(template.capability, said)
    for state in (source, target):
        if state.node not in executor.nodes:
            return found.no_nodes.get(state.node, f"the executor {executor.name} does not reach {state.node}")
    for state, end in ((source, "from"), (target, "to")):
        node = nodes[state.node]
        if not has_what_is_needed(node, template, end):
            return (
                f"{state.node} has no {'connection' if node.connection is None else 'root'}, which the template needs"
            )
        if state.node in goal_nodes or state.node == request.source.node:
            continue
        if not node.transit:
            return f"{state.node} is no transit node"
    return "another way costs less, or has fewer hops, or comes first by name"
