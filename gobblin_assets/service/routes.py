"""Routes of data: the cheapest hops from where it is to where it shall be.

A place of the search is a (node, format). A hop is a template, which says what kinds of nodes and formats it leads from
and to, and an executor that can do it and reaches both nodes. Hops are found when the search comes to their place.

A flow comes to a node once, in whatever format, and never to its source's node: datasets keep their names at each hop,
so the second hop would write over what the first one wrote, or over what the flow reads.
"""

import heapq
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from gobblin_assets.service.job_plan import BoundHop
from gobblin_assets.service.job_template import JobTemplate
from gobblin_assets.service.topology import DataNode, ExecutorSpec, Format, NodeKind, NodeState, Topology

HOPS_MAX: Final = 6

_COST_UNITS: Final = 1_000_000
"""Costs are added as whole numbers: a sum of fractions would depend on its order."""


HopIdentity = tuple[str, str, NodeState, NodeState]
"""What tells a hop from others, and orders those of equal cost: template, executor, source, target."""


class Hop(NamedTuple):
    """One job of a route."""

    template: JobTemplate
    executor: ExecutorSpec
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

    @property
    def banned(self) -> frozenset[HopIdentity]:
        """What tells the hops to leave out."""
        return frozenset(hop.identity for hop in self.without)

    def allows(self, groups: frozenset[str]) -> bool:
        """Whether something for these groups may be used; for none means for all."""
        return not groups or not groups.isdisjoint(self.groups)

    def keeps_binding(self, source: str, move: "HopMove", target: str) -> bool:
        """Whether a flow's jobs are bound otherwise. ``source`` and ``target``: nodes."""
        bound = self.bound.get(target)
        return bound is None or (
            source == bound.source_node
            and bound.template_uri == move.template.plain_uri
            and bound.allows_log(move.executor.way)
        )


@dataclass(slots=True, eq=False)
class HopMove:
    """All hops of one template by one executor: they cost the same, whichever nodes they join.

    ``cost``: in whole units, of which a template's or an executor's 1.0 has a million.
    """

    template: JobTemplate
    executor: ExecutorSpec
    cost: int
    name: tuple[str, str]
    targets: tuple[tuple[NodeState, DataNode], ...]


_KindFormat = tuple[NodeKind, Format]


class _Label(NamedTuple):
    """A way to a place. In the order in which the search takes them: by cost, hops, and names.

    ``nodes``: those that it has come to. ``crossed``: those of them that a way on from here might come to again, in
    another format, and may not.
    """

    cost: int
    hops: int
    names: tuple[tuple[str, ...], ...]
    state: NodeState
    nodes: frozenset[str]
    crossed: frozenset[NodeState]
    before: "_Label | None"
    move: HopMove | None


class RouteMap:
    """The hops of one topology by some templates."""

    def __init__(self, topology: Topology, templates: Iterable[JobTemplate]) -> None:
        self.topology = topology
        self.templates = tuple(sorted(templates, key=lambda each: each.uri))
        self._from: dict[_KindFormat, list[JobTemplate]] = {}
        for template in self.templates:
            for kind in template.source.kinds:
                self._from.setdefault((kind, template.source.format), []).append(template)
        self._returning = _find_returning(self._from)
        self._reaching: dict[str, list[ExecutorSpec]] = {}
        for _name, spec in sorted(topology.executors.items()):
            for node in spec.executor.nodes:
                self._reaching.setdefault(node, []).append(spec.executor)
        self._lacking: dict[str, list[ExecutorSpec]] = {}
        for name, state in topology.states.items():
            for node in state.no_nodes:
                self._lacking.setdefault(node, []).append(topology.executors[name].executor)
        self._moves: dict[NodeState, tuple[HopMove, ...]] = {}
        self._made: dict[tuple[str, str], HopMove] = {}

    def find_route(
        self, starts: Mapping[NodeState, int], goals: Sequence[Goal], rules: RouteRules
    ) -> tuple[Hop, ...] | None:
        """The cheapest hops from a start to the goal that is nearest; of equal ones the first by name.

        ``starts``: each with the hops that were made to reach it. No hop leads to a node twice.
        """
        search = _Search(self, goals, rules, frozenset(state[0] for state in starts))
        for state, hops in starts.items():
            search.push(_Label(0, hops, (tuple(state),), state, frozenset((state[0],)), frozenset(), None, None))
        found = search.run()
        return None if found is None else tuple(_list_hops(found))

    def cost_of(self, hop: Hop) -> int:
        """In the units of ``HopMove``."""
        return self._move_of(hop.template, hop.executor).cost

    def list_reaching(self, node: str) -> Sequence[ExecutorSpec]:
        """The executors that reach the node, by name."""
        return self._reaching.get(node, ())

    def list_meant(self, node: str) -> Sequence[ExecutorSpec]:
        """The same, with those that are to reach the node, and can't."""
        return [*self.list_reaching(node), *self._lacking.get(node, ())]

    def list_moves(self, state: NodeState) -> tuple[HopMove, ...]:
        """What leads away from a place."""
        known = self._moves.get(state)
        if known is None:
            known = self._moves[state] = tuple(self._make_moves(state))
        return known

    def list_crossed(self, before: frozenset[NodeState], state: NodeState) -> frozenset[NodeState]:
        """The places of a way that has come to ``state`` whose nodes a way on from there might come to again.

        ``before``: those of the way before it came there.
        """
        nodes = self.topology.nodes
        here = (nodes[state.node].kind, state.format)
        again = self._returning.get(here)
        if not again:
            return frozenset()
        kept = [each for each in before if (nodes[each.node].kind, each.format) in again] if before else []
        return frozenset((*kept, state) if here in again else kept)

    def _make_moves(self, state: NodeState) -> Iterator[HopMove]:
        node = self.topology.nodes[state[0]]
        for template in self._from.get((node.kind, state.format), ()):
            if not template.source.fits(node) or not has_what_is_needed(node, template, "from"):
                continue
            for executor in self.list_reaching(node.name):
                if template.capability in executor.capabilities:
                    yield self._move_of(template, executor)

    def _move_of(self, template: JobTemplate, executor: ExecutorSpec) -> HopMove:
        name = (template.uri, executor.name)
        known = self._made.get(name)
        if known is None:
            nodes = [self.topology.nodes[each] for each in sorted(executor.nodes)]
            targets = tuple(
                (NodeState(node.name, template.target.format), node)
                for node in nodes
                if template.target.fits(node) and has_what_is_needed(node, template, "to")
            )
            cost = round(template.cost * _COST_UNITS) + round(executor.cost * _COST_UNITS)
            # Less than any difference of costs that somebody writes: it decides between equal ones.
            cost += not self.topology.get_state(executor.name).is_well
            known = self._made[name] = HopMove(template, executor, cost, name, targets)
        return known


def _find_returning(templates: Mapping[_KindFormat, Sequence[JobTemplate]]) -> Mapping[_KindFormat, set[_KindFormat]]:
    """By kind and format of a place, the kinds and formats of nodes that ways on from it may come to in another format.

    Of most there are none: who has come to files as a tree finds no template that makes them a dataset.
    """
    steps = {
        place: {(kind, each.target.format) for each in leaving for kind in each.target.kinds} & templates.keys()
        for place, leaving in templates.items()
    }
    found = {}
    for place, first in steps.items():
        reached, waiting = set(first), list(first)
        while waiting:
            more = steps[waiting.pop()] - reached
            reached |= more
            waiting += more
        found[place] = {(kind, other) for kind, form in reached for other in Format if other is not form}
    return found


@dataclass(slots=True)
class _Search:
    """One search, by Dijkstra, where a place may be reached again: by fewer hops at more cost, or by other nodes."""

    map: RouteMap
    goals: Sequence[Goal]
    rules: RouteRules
    closed: frozenset[str]
    waiting: list[_Label] = field(default_factory=list)
    best: dict[NodeState, list[_Label]] = field(default_factory=dict)
    settled: dict[NodeState, list[_Label]] = field(default_factory=dict)
    followed: dict[HopMove, list[_Label]] = field(default_factory=dict)
    left: dict[HopMove, set[str]] = field(default_factory=dict)
    usable: dict[HopMove, bool] = field(default_factory=dict)
    banned: frozenset[HopIdentity] = frozenset()

    def __post_init__(self) -> None:
        self.banned = self.rules.banned

    def push(self, label: _Label) -> None:
        known = self.best.setdefault(label.state, [])
        if not self._is_redundant(label, known):
            known.append(label)
            heapq.heappush(self.waiting, label)

    def run(self) -> _Label | None:
        goal_nodes = {goal.node for goal in self.goals}
        while self.waiting:
            label = heapq.heappop(self.waiting)
            if label.move is not None and label.state[0] in goal_nodes:
                return label
            known = self.settled.setdefault(label.state, [])
            if self._is_redundant(label, known):
                continue
            known.append(label)
            if label.hops < self.rules.hops_max:
                self._expand(label, goal_nodes)
        return None

    def _is_redundant(self, label: _Label, others: Sequence[_Label]) -> bool:
        """Whether each way on from this label is as good from one of the others.

        A way on is barred to another label whose crossed nodes it comes to. It comes to fewer nodes before the goal
        than it has hops; when so few can't bar all others, one of them is always free.
        """
        barred: list[set[str]] = []
        for other in others:
            if other.hops <= label.hops and other[:3] <= label[:3]:
                nodes = {state.node for state in other.crossed} - label.nodes if other.crossed else None
                if not nodes:
                    return True
                barred.append(nodes)
        return bool(barred) and not _can_hit(barred, self.rules.hops_max - label.hops - 1)

    def _expand(self, label: _Label, goal_nodes: set[str]) -> None:
        for move in self.map.list_moves(label.state):
            usable = self.usable.get(move)
            if usable is None:
                usable = self.usable[move] = self.rules.allows(move.template.groups) and self.rules.allows(
                    move.executor.groups
                )
            if not usable:
                continue
            before = self.followed.get(move)
            if before is None:
                self.followed[move] = [label]
                self._follow(label, move, goal_nodes, None)
            elif not self._is_redundant(label, before):
                before.append(label)
                self._follow(label, move, goal_nodes, None)
            elif left := self.left.get(move):
                # Cheaper labels led to all others.
                self._follow(label, move, goal_nodes, left)

    def _follow(self, label: _Label, move: HopMove, goal_nodes: set[str], only: set[str] | None) -> None:
        cost, hops = label.cost + move.cost, label.hops + 1
        passed = label.nodes
        for state, node in move.targets:
            name = state[0]
            if name in passed or (only is not None and name not in only):
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
                self.rules.bound and not self.rules.keeps_binding(label.state[0], move, name)
            ):
                self.left.setdefault(move, set()).add(name)
                continue
            names = (*label.names, (*move.name, *state))
            crossed = self.map.list_crossed(label.crossed, state)
            self.push(_Label(cost, hops, names, state, label.nodes | {name}, crossed, label, move))


def _can_hit(groups: Sequence[set[str]], count: int) -> bool:
    """Whether so many nodes can be chosen that each group has one of them."""
    if not groups:
        return True
    if count <= 0:
        return False
    first, *others = groups
    return any(_can_hit([group for group in others if node not in group], count - 1) for node in first)


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
