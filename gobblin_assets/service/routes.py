"""Routes of data: the cheapest hops from where it is to where it shall be.

A place of the search is a (node, format). A hop is a template, which says what kinds of nodes and formats it leads from
and to, and an executor that can do it and reaches both nodes. Hops are found when the search comes to their place.
"""

import heapq
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from gobblin_assets.service.job_plan import BoundHop
from gobblin_assets.service.job_template import JobTemplate
from gobblin_assets.service.topology import DataNode, Format, NodeKind, NodeState, SpecExecutor, Topology

HOPS_MAX: Final = 6

_COST_UNITS: Final = 1_000_000
"""Costs are added as whole numbers: a sum of fractions would depend on its order."""


HopIdentity = tuple[str, str, NodeState, NodeState]
"""What tells a hop from others, and orders those of equal cost: template, executor, source, target."""


class Hop(NamedTuple):
    """One job of a route."""

    template: JobTemplate
    executor: SpecExecutor
    source: NodeState
    target: NodeState

    @property
    def identity(self) -> HopIdentity:
        return self.template.uri, self.executor.name, self.source, self.target

    @property
    def cost(self) -> float:
        return self.template.cost + self.executor.cost


class Goal(NamedTuple):
    """Where data shall be. ``format``: None for any."""

    node: str
    format: Format | None

    def is_met(self, state: NodeState) -> bool:
        return state.node == self.node and self.format in {None, state.format}


@dataclass(frozen=True, slots=True)
class RouteRules:
    """What a search may use. ``groups``: of the user. ``without``: hops to leave out.

    ``bound``: the only hops that may lead to these nodes.
    """

    groups: frozenset[str] = frozenset()
    hops_max: int = HOPS_MAX
    without: Collection[Hop] = ()
    bound: Mapping[str, BoundHop] = field(default_factory=dict)

    def allows(self, groups: frozenset[str]) -> bool:
        """Whether something for these groups may be used; for none means for all."""
        return not groups or not groups.isdisjoint(self.groups)


@dataclass(slots=True, eq=False)
class _Move:
    """All hops of one template by one executor: they cost the same, whichever nodes they join."""

    template: JobTemplate
    executor: SpecExecutor
    cost: int
    name: tuple[str, str]
    targets: tuple[tuple[NodeState, DataNode], ...]


class _Label(NamedTuple):
    """A way to a place. In the order in which the search takes them: by cost, hops, and names."""

    cost: int
    hops: int
    names: tuple[tuple[str, ...], ...]
    state: NodeState
    nodes: frozenset[str]
    before: "_Label | None"
    move: _Move | None


class RouteMap:
    """The hops of one topology by some templates."""

    def __init__(self, topology: Topology, templates: Iterable[JobTemplate]) -> None:
        self.topology = topology
        self.templates = tuple(sorted(templates, key=lambda each: each.uri))
        self._from: dict[tuple[NodeKind, Format], list[JobTemplate]] = {}
        for template in self.templates:
            for kind in template.source.kinds:
                self._from.setdefault((kind, template.source.format), []).append(template)
        self._reaching: dict[str, list[SpecExecutor]] = {}
        for _name, spec in sorted(topology.executors.items()):
            for node in spec.spec_executor.nodes:
                self._reaching.setdefault(node, []).append(spec.spec_executor)
        self._moves: dict[NodeState, tuple[_Move, ...]] = {}
        self._made: dict[tuple[str, str], _Move] = {}

    def find_route(
        self, starts: Mapping[NodeState, int], goals: Sequence[Goal], rules: RouteRules
    ) -> tuple[Hop, ...] | None:
        """The cheapest hops from a start to the goal that is nearest; of equal ones the first by name.

        ``starts``: each with the hops that were made to reach it. No hop leads to a node twice.
        """
        search = _Search(self, goals, rules, frozenset(state[0] for state in starts))
        for state, hops in starts.items():
            search.push(_Label(0, hops, (), state, frozenset((state[0],)), None, None))
        found = search.run()
        return None if found is None else tuple(_list_hops(found))

    def list_reaching(self, node: str) -> Sequence[SpecExecutor]:
        """The executors that reach the node, by name."""
        return self._reaching.get(node, ())

    def list_moves(self, state: NodeState) -> tuple[_Move, ...]:
        """What leads away from a place."""
        known = self._moves.get(state)
        if known is None:
            known = self._moves[state] = tuple(self._make_moves(state))
        return known

    def _make_moves(self, state: NodeState) -> Iterator[_Move]:
        node = self.topology.nodes[state[0]]
        for template in self._from.get((node.kind, state.format), ()):
            if not template.source.fits(node) or not has_what_is_needed(node, template, "from"):
                continue
            for executor in self.list_reaching(node.name):
                if template.capability in executor.capabilities:
                    yield self._move_of(template, executor)

    def _move_of(self, template: JobTemplate, executor: SpecExecutor) -> _Move:
        name = (template.uri, executor.name)
        known = self._made.get(name)
        if known is None:
            nodes = [self.topology.nodes[each] for each in sorted(executor.nodes)]
            targets = tuple(
                (NodeState((node.name, template.target.format)), node)
                for node in nodes
                if template.target.fits(node) and has_what_is_needed(node, template, "to")
            )
            cost = round(template.cost * _COST_UNITS) + round(executor.cost * _COST_UNITS)
            known = self._made[name] = _Move(template, executor, cost, name, targets)
        return known


@dataclass(slots=True)
class _Search:
    """One search, by Dijkstra, where a place may be reached again by fewer hops at more cost."""

    map: RouteMap
    goals: Sequence[Goal]
    rules: RouteRules
    closed: frozenset[str]
    waiting: list[_Label] = field(default_factory=list)
    best: dict[NodeState, list[_Label]] = field(default_factory=dict)
    expanded: dict[_Move, tuple[int, set[str]]] = field(default_factory=dict)
    usable: dict[_Move, bool] = field(default_factory=dict)
    banned: frozenset[HopIdentity] = frozenset()

    def __post_init__(self) -> None:
        self.banned = frozenset(hop.identity for hop in self.rules.without)

    def push(self, label: _Label) -> None:
        known = self.best.setdefault(label.state, [])
        for other in known:
            if other.hops <= label.hops and other[:3] <= label[:3]:
                return
        known.append(label)
        heapq.heappush(self.waiting, label)

    def run(self) -> _Label | None:
        goal_nodes = {goal.node for goal in self.goals}
        settled: dict[NodeState, int] = {}
        while self.waiting:
            label = heapq.heappop(self.waiting)
            if label.hops >= settled.get(label.state, HOPS_MAX + 1):
                continue
            settled[label.state] = label.hops
            if label.move is not None and label.state[0] in goal_nodes:
                return label
            if label.hops < self.rules.hops_max:
                self._expand(label, goal_nodes)
        return None

    def _expand(self, label: _Label, goal_nodes: set[str]) -> None:
        for move in self.map.list_moves(label.state):
            usable = self.usable.get(move)
            if usable is None:
                usable = self.usable[move] = self.rules.allows(move.template.groups) and self.rules.allows(
                    move.executor.groups
                )
            if not usable:
                continue
            before = self.expanded.get(move)
            # An earlier label was cheaper: all that is left are the nodes that it could not lead to.
            left = None if before is None or label.hops < before[0] else before[1]
            if left is not None and not left:
                continue
            self._follow(label, move, goal_nodes, left)

    def _follow(self, label: _Label, move: _Move, goal_nodes: set[str], left: set[str] | None) -> None:
        cost, hops = label.cost + move.cost, label.hops + 1
        skipped: set[str] = set()
        passed = label.nodes
        for state, node in move.targets:
            name = state[0]
            if name in passed:
                skipped.add(name)
                continue
            if left is not None and name not in left:
                continue
            if name in goal_nodes:
                if not any(goal.is_met(state) for goal in self.goals):
                    continue
            elif (
                hops == self.rules.hops_max
                or name in self.closed
                or not node.transit
                or not self.rules.allows(node.groups)
            ):
                continue
            if (self.banned and (*move.name, label.state, state) in self.banned) or (
                self.rules.bound and not self._keeps_binding(label.state[0], move, name)
            ):
                skipped.add(name)
                continue
            names = (*label.names, (*move.name, *state))
            self.push(_Label(cost, hops, names, state, label.nodes | {name}, label, move))
        self.expanded[move] = (label.hops if left is None else self.expanded[move][0], skipped)

    def _keeps_binding(self, source: str, move: _Move, target: str) -> bool:
        bound = self.rules.bound.get(target)
        return bound is None or (
            source == bound.source_node
            and bound.template_uri == move.template.plain_uri
            and bound.allows_log(move.executor.log)
        )


def has_what_is_needed(node: DataNode, template: JobTemplate, end: str) -> bool:
    """Whether the node has the connection and the root that the template's job is told."""
    return not (
        (node.connection is None and f"{end}.connection" in template.needs)
        or (node.root is None and f"{end}.root" in template.needs)
    )


def _list_hops(label: _Label) -> Iterator[Hop]:
    if label.before is not None and label.move is not None:
        yield from _list_hops(label.before)
        yield Hop(label.move.template, label.move.executor, label.before.state, label.state)
