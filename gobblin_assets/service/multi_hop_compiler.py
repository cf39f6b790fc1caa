"""The compiler ``multi_hop``: finds the jobs that bring data from a flow's source to its destinations."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from gobblin_assets.errors import RejectedError
from gobblin_assets.service.flow_request import FlowRequest, read_request, select_templates
from gobblin_assets.service.job_compiler import JobCompiler
from gobblin_assets.service.job_plan import Explanation, FlowPlan, JobNames, PendingFlow
from gobblin_assets.service.job_template import JobTemplate
from gobblin_assets.service.published_datasets import prefer_ledgers
from gobblin_assets.service.route_trees import TREE_GOALS_MAX, find_tree
from gobblin_assets.service.routes import HOPS_MAX, Goal, Hop, HopIdentity, RouteMap, RouteRules
from gobblin_assets.service.specs import FlowSpec
from gobblin_assets.service.template_store import TemplateStore
from gobblin_assets.service.topology import Topology, TopologySpec
from gobblin_assets.service.untaken import explain_lack, list_untaken

ALTERNATIVES_MAX: Final = 3

_ONE_BY_ONE: Final = (
    f"Of more than {TREE_GOALS_MAX} destinations, the nearest is reached first, and each next one from what the flow"
    " publishes then: other hops to all of them together may cost less."
)

_MAPS_KEPT_MAX: Final = 64


class MultiHopCompiler:
    """Compiles flows to the cheapest jobs over several hops.

    Destinations share hops. Up to ``TREE_GOALS_MAX`` are reached by those that cost least together. Of more of them the
    nearest is reached first, and each next one from any node that the flow publishes to.
    """

    hops_max = HOPS_MAX

    def __init__(self, templates: TemplateStore, topology: Topology) -> None:
        self._templates = templates
        self._topology = topology
        self._maps: dict[tuple[str, ...], RouteMap] = {}

    def get_topology_spec_map(self) -> Mapping[str, TopologySpec]:
        return {spec.uri: spec for spec in self._topology.executors.values()}

    def on_topology(self, topology: Topology) -> None:
        self._topology = topology
        self._maps = {}

    def compile_flow(self, spec: FlowSpec, names: JobNames, groups: frozenset[str]) -> Explanation:
        routes, request = self.read(spec, groups)
        request = keep_bound(request, names)
        return Explanation(self._compile(spec, names, routes, request, plan_readable(routes, request, spec, names)))

    def explain_flow(self, spec: FlowSpec, names: JobNames, groups: frozenset[str]) -> Explanation:
        routes, request = self.read(spec, groups)
        request = keep_bound(request, names)
        hops = plan_readable(routes, request, spec, names)
        compiled = self._compile(spec, names, routes, request, hops)
        others = [] if hops is None else self._list_alternatives(spec, names, routes, request, hops)
        untaken = list_untaken(routes, request, hops or ())
        is_each_alone = hops is not None and len(request.goals) > TREE_GOALS_MAX
        return Explanation(compiled, tuple(others), untaken, (_ONE_BY_ONE,) if is_each_alone else ())

    def list_templates(self, spec: FlowSpec, groups: frozenset[str]) -> Sequence[JobTemplate]:
        routes, request = self.read(spec, groups)
        hops = plan_hops(routes, request) or ()
        return tuple({hop.template.uri: hop.template for hop in hops}.values())

    def read(self, spec: FlowSpec, groups: frozenset[str]) -> tuple[RouteMap, FlowRequest]:
        """The hops that there are for a flow, and what it asks for. RejectedError for what its author must mend."""
        rules = RouteRules(groups, self.hops_max)
        templates = select_templates(self._templates, spec, rules)
        key = tuple(sorted(template.uri for template in templates))
        routes = self._maps.get(key)
        if routes is None:
            if len(self._maps) >= _MAPS_KEPT_MAX:
                self._maps = {}
            routes = self._maps[key] = RouteMap(self._topology, templates)
        return routes, read_request(spec, routes.topology, templates, rules)

    def _compile(
        self, spec: FlowSpec, names: JobNames, routes: RouteMap, request: FlowRequest, hops: Sequence[Hop] | None
    ) -> FlowPlan | PendingFlow:
        compiler = JobCompiler(routes.topology, spec, names)
        if hops is None:
            compiler.require_known(routes.templates)
            return PendingFlow(tuple(explain_lack(routes, request, goal) for goal in _list_lacking(routes, request)))
        compiler.require_known([hop.template for hop in hops])
        return compiler.make_plan(hops)

    def _list_alternatives(
        self, spec: FlowSpec, names: JobNames, routes: RouteMap, request: FlowRequest, hops: Sequence[Hop]
    ) -> list[FlowPlan]:
        """The best plans that lack one of the hops, cheapest first. One that asks for other parameters is left out.

        Of a flow whose jobs are bound, the best plan of all is one of them: ``:replan`` takes it.
        """
        found: dict[tuple[HopIdentity, ...], FlowPlan] = {}
        compiler = JobCompiler(routes.topology, spec, names)
        free = set_free(request)
        taken = tuple(hop.identity for hop in hops)
        for without in ((), *((hop,) for hop in hops)):
            without_it = replace(free, rules=replace(free.rules, without=without))
            other = plan_readable(routes, without_it, spec, names)
            identity = tuple(each.identity for each in other or ())
            if other is None or identity == taken or identity in found:
                continue
            try:
                found[identity] = compiler.make_plan(other)
            except RejectedError:
                continue
        ordered = sorted(found.items(), key=lambda each: (each[1].cost, len(each[0]), each[0]))
        return [plan for _hops, plan in ordered[:ALTERNATIVES_MAX]]


def plan_hops(routes: RouteMap, request: FlowRequest) -> tuple[Hop, ...] | None:
    """The hops that lead to all destinations, each behind the one that it goes on from; None if one is out of reach.

    Where the flow's jobs are bound, and no way keeps to that, it is a way that does not: a launch refuses it.
    """
    kept = _find_hops(routes, request)
    if kept is None and request.rules.bound:
        return _find_hops(routes, set_free(request))
    return kept


def plan_readable(routes: RouteMap, request: FlowRequest, spec: FlowSpec, names: JobNames) -> tuple[Hop, ...] | None:
    """The same, by executors that can read the ledgers of what they copy, where there are such."""
    hops = plan_hops(routes, request)
    return None if hops is None else prefer_ledgers(routes, request.rules, hops, spec.config.parameters, names)


def _list_lacking(routes: RouteMap, request: FlowRequest) -> Sequence[Goal]:
    """Of goals that can't all be reached, those that can't be reached alone."""
    if len(request.goals) == 1:
        return request.goals
    alone = {goal: replace(request, goals=(goal,)) for goal in request.goals}
    return [goal for goal, each in alone.items() if plan_hops(routes, each) is None] or request.goals


def keep_bound(request: FlowRequest, names: JobNames) -> FlowRequest:
    """The request for hops under the names that jobs have."""
    return replace(request, rules=replace(request.rules, bound=names.list_bound_hops()))


def set_free(request: FlowRequest) -> FlowRequest:
    """The request as of a flow that has published nothing."""
    return replace(request, rules=replace(request.rules, bound={}))


def _find_hops(routes: RouteMap, request: FlowRequest) -> tuple[Hop, ...] | None:
    grown = grow_hops(routes, request)
    if not 1 < len(request.goals) <= TREE_GOALS_MAX:
        return grown
    return find_tree(routes, request.source, sorted(request.goals), request.rules, grown)


def grow_hops(routes: RouteMap, request: FlowRequest) -> tuple[Hop, ...] | None:
    """The nearest destination by the cheapest way, then the next one from what is reached."""
    starts = {request.source: 0}
    goals = list(request.goals)
    planned: list[Hop] = []
    while goals:
        found = routes.find_route(starts, goals, request.rules)
        if found is None:
            return None
        for hop in found:
            starts[hop.target] = starts[hop.source] + 1
        planned += found
        goals = [goal for goal in goals if goal.node != found[-1].target.node]
    return tuple(planned)
