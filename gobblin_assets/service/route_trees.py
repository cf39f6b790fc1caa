"""Routes to several destinations: the cheapest hops that lead to all of them, sharing what they can.

It is the algorithm of Dreyfus and Wagner in the order of Dijkstra. A label says by which hops a place delivers to some
of the destinations. It grows by a hop that leads to the place, and by another label of the same place for other
destinations. Those are taken first whose tree may be the cheapest, by what else it costs at least.

Labels do not know each other's nodes, so a tree may come to a node in two formats. Then the node is done without one of
them, and without the other, and the cheaper of both trees is taken.
"""

import heapq
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from gobblin_assets.service.routes import Goal, Hop, HopIdentity, HopMove, RouteMap, RouteRules
from gobblin_assets.service.topology import DataNode, NodeState

TREE_GOALS_MAX: Final = 5
"""With each destination more, a search takes two to three times as long."""

_SEARCHES_MAX: Final = 16

_Identities = tuple[HopIdentity, ...]


class _Label(NamedTuple):
    """Hops by which a place delivers to destinations. ``least``: what a whole tree with them costs at least.

    ``goals``: a bit for each; ``height``: the most hops behind one another; ``parts``: labels that it was made of.
    """

    least: int
    cost: int
    jobs: int
    identities: _Identities
    height: int
    state: NodeState
    goals: int
    hop: Hop | None = None
    parts: tuple["_Label", ...] = ()


class HopTree(NamedTuple):
    """Hops that lead from a source to all destinations. Trees are taken in this order."""

    cost: int
    jobs: int
    identities: _Identities
    hops: tuple[Hop, ...]


def find_tree(
    routes: RouteMap, source: NodeState, goals: Sequence[Goal], rules: RouteRules, known: Sequence[Hop] | None
) -> tuple[Hop, ...] | None:
    """The cheapest hops to all goals, each behind the one that it goes on from; of equal ones those that are fewer.

    ``known``: some hops that lead to all, by which the search is bounded, or None.
    """
    bound = None if known is None else sum(routes.cost_of(hop) for hop in known)
    waiting = [(tree, frozenset[NodeState]()) for tree in _search(routes, source, goals, rules, bound, frozenset())]
    for _number in range(_SEARCHES_MAX):
        if not waiting:
            return None if known is None else tuple(known)
        tree, without = heapq.heappop(waiting)
        twice = _find_twice(tree.hops)
        if not twice:
            return _put_in_order(routes, source, goals, tree.hops)
        for state in twice:
            fewer = without | {state}
            for other in _search(routes, source, goals, rules, bound, fewer):
                heapq.heappush(waiting, (other, fewer))
    return None if known is None else tuple(known)


def _search(
    routes: RouteMap,
    source: NodeState,
    goals: Sequence[Goal],
    rules: RouteRules,
    bound: int | None,
    without: frozenset[NodeState],
) -> Iterator[HopTree]:
    """The cheapest tree, if there is one."""
    ground = _Ground(routes, source, goals, rules, without)
    ground.explore(bound)
    found = _TreeSearch(ground, bound).run()
    if found is not None:
        yield HopTree(found.cost, found.jobs, found.identities, tuple(_list_label_hops(found)))


@dataclass(slots=True)
class _Ground:
    """What a search may use, found from the source on: places with the least cost and the fewest hops to come there.

    ``leading``: by place, the moves with hops to it; ``sources``: by move, the places where its hops begin.
    """

    map: RouteMap
    source: NodeState
    goals: Sequence[Goal]
    rules: RouteRules
    without: frozenset[NodeState]
    costs: dict[NodeState, int] = field(default_factory=dict)
    hops: dict[NodeState, int] = field(default_factory=dict)
    leading: dict[NodeState, list[HopMove]] = field(default_factory=dict)
    sources: dict[HopMove, list[NodeState]] = field(default_factory=dict)
    banned: frozenset[HopIdentity] = frozenset()
    open: dict[NodeState, bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.banned = self.rules.banned

    def explore(self, bound: int | None) -> None:
        """Fill in what is found, by Dijkstra, as far as ``bound``; and nothing if a destination is out of reach."""
        if bound is None:
            self._count_hops()
            if not all(self.list_met()):
                return
        self.costs[self.source] = 0
        waiting = [(0, self.source)]
        done: set[NodeState] = set()
        left: dict[HopMove, list[NodeState]] = {}
        while waiting:
            cost, place = heapq.heappop(waiting)
            if bound is not None and cost > bound:
                break
            if place in done:
                continue
            done.add(place)
            for move in self._list_usable(place):
                self.sources.setdefault(move, []).append(place)
                if move not in left:
                    for state in self._list_targets(move):
                        self.leading.setdefault(state, []).append(move)
                for state in self._pass(place, move, left):
                    if cost + move.cost < self.costs.get(state, cost + move.cost + 1):
                        self.costs[state] = cost + move.cost
                        heapq.heappush(waiting, (cost + move.cost, state))
        if bound is not None:
            self.costs = {state: cost for state, cost in self.costs.items() if cost <= bound}
            self._count_hops()

    def list_met(self) -> list[list[NodeState]]:
        """By destination, the places that are it."""
        return [[state for state in self.hops if goal.is_met(state)] for goal in self.goals]

    def _count_hops(self) -> None:
        """Of what is within the bound, if there is one."""
        self.hops[self.source] = 0
        layer = [self.source]
        left: dict[HopMove, list[NodeState]] = {}
        for count in range(1, self.rules.hops_max + 1):
            behind = []
            for place in layer:
                for move in self._list_usable(place):
                    for state in self._pass(place, move, left):
                        if state not in self.hops and (not self.costs or state in self.costs):
                            self.hops[state] = count
                            behind.append(state)
            layer = behind

    def _pass(self, place: NodeState, move: HopMove, left: dict[HopMove, list[NodeState]]) -> Iterator[NodeState]:
        """The targets of a move that no place before this one could come to by it."""
        states = left[move] if move in left else self._list_targets(move)
        left[move] = []
        for state in states:
            if self.allows_hop(place, move, state):
                yield state
            else:
                left[move].append(state)

    def _list_targets(self, move: HopMove) -> list[NodeState]:
        return [state for state, node in move.targets if self._may_come_to(state, node)]

    def _list_usable(self, place: NodeState) -> list[HopMove]:
        return [
            move
            for move in self.map.list_moves(place)
            if self.rules.allows(move.template.groups) and self.rules.allows(move.executor.groups)
        ]

    def _may_come_to(self, state: NodeState, node: DataNode) -> bool:
        known = self.open.get(state)
        if known is None:
            named = [goal for goal in self.goals if goal.node == node.name]
            is_passed = node.transit and self.rules.allows(node.groups)
            known = self.open[state] = (
                node.name != self.source.node
                and state not in self.without
                and (any(goal.is_met(state) for goal in named) if named else is_passed)
            )
        return known

    def allows_hop(self, source: NodeState, move: HopMove, target: NodeState) -> bool:
        if source.node == target.node:
            return False
        if self.banned and (*move.name, source, target) in self.banned:
            return False
        return not self.rules.bound or self.rules.keeps_binding(source.node, move, target.node)


@dataclass(slots=True)
class _TreeSearch:
    """One search. ``bound``: the cost of a tree that is known.

    ``least_to``: by place, what the last hop to it costs at least; ``needed``: by destination, what it costs at least
    to come there, and what the last hop does; ``behind``: by the destinations of a label, what the others need;
    ``bits``: by place of a destination, the destination.
    """

    ground: _Ground
    bound: int | None
    waiting: list[_Label] = field(default_factory=list)
    settled: dict[NodeState, list[_Label]] = field(default_factory=dict)
    best: dict[tuple[NodeState, int], list[_Label]] = field(default_factory=dict)
    followed: dict[tuple[HopMove, int], tuple[list[_Label], set[NodeState]]] = field(default_factory=dict)
    least_to: dict[NodeState, int] = field(default_factory=dict)
    needed: list[tuple[int, int]] = field(default_factory=list)
    bits: dict[NodeState, int] = field(default_factory=dict)
    behind: dict[int, tuple[int, int]] = field(default_factory=dict)

    def run(self) -> _Label | None:
        ground = self.ground
        met = ground.list_met()
        if not all(met):
            return None
        self.least_to = {state: min(move.cost for move in moves) for state, moves in ground.leading.items()}
        self.least_to[ground.source] = 0
        self.needed = [
            (min(ground.costs[state] for state in states), min(self.least_to[state] for state in states))
            for states in met
        ]
        self.bits = {state: 1 << number for number, states in enumerate(met) for state in states}
        for state, bit in self.bits.items():
            self._push(_Label(0, 0, 0, (), 0, state, bit))
        everything = (1 << len(ground.goals)) - 1
        while self.waiting:
            label = heapq.heappop(self.waiting)
            if label.goals == everything and label.state == ground.source:
                return label
            others = self.settled.setdefault(label.state, [])
            if _is_covered(label, (other for other in others if other.goals == label.goals)):
                continue
            others.append(label)
            for other in others:
                if not other.goals & label.goals:
                    self._join(label, other)
            if label.state != ground.source:
                self._grow(label)
        return None

    def _grow(self, label: _Label) -> None:
        """By each hop that leads to the label's place."""
        for move in self.ground.leading[label.state]:
            labels, left = self.followed.setdefault((move, label.goals), ([], set()))
            if _is_covered(label, labels):
                # Cheaper labels were led to from all others.
                sources: Collection[NodeState] = sorted(left)
            else:
                labels.append(label)
                sources = self.ground.sources[move]
            cost, height = label.cost + move.cost, label.height + 1
            for source in sources:
                if not self.ground.allows_hop(source, move, label.state):
                    left.add(source)
                elif self._is_worth(source, label.goals, cost, height):
                    hop = Hop(move.template, move.executor, source, label.state)
                    identities = tuple(sorted((*label.identities, hop.identity)))
                    self._push(_Label(0, cost, label.jobs + 1, identities, height, source, label.goals, hop, (label,)))

    def _join(self, one: _Label, other: _Label) -> None:
        cost, goals, height = one.cost + other.cost, one.goals | other.goals, max(one.height, other.height)
        if self._is_worth(one.state, goals, cost, height):
            identities = tuple(sorted(one.identities + other.identities))
            self._push(_Label(0, cost, one.jobs + other.jobs, identities, height, one.state, goals, None, (one, other)))

    def _push(self, label: _Label) -> None:
        known = self.best.setdefault((label.state, label.goals), [])
        if not _is_covered(label, known):
            known.append(label)
            least = self._count_least(label.state, label.goals, label.cost)
            heapq.heappush(self.waiting, label._replace(least=least))

    def _is_worth(self, state: NodeState, goals: int, cost: int, height: int) -> bool:
        ground = self.ground
        if ground.hops.get(state, ground.rules.hops_max + 1) + height > ground.rules.hops_max:
            return False
        return self.bound is None or self._count_least(state, goals, cost) <= self.bound

    def _count_least(self, state: NodeState, goals: int, cost: int) -> int:
        """What a whole tree costs at least: what leads to the place, and to the other destinations, is missing."""
        known = self.behind.get(goals)
        if known is None:
            missing = [each for number, each in enumerate(self.needed) if not goals >> number & 1]
            known = max((way for way, _last in missing), default=0), sum(last for _way, last in missing)
            self.behind[goals] = known
        way, hops = known
        # The last hop to a place that is a missing destination itself is counted with those to destinations.
        is_missing = self.bits.get(state, 0) & ~goals
        return cost + max(self.ground.costs[state], way, hops if is_missing else hops + self.least_to[state])


def _is_covered(label: _Label, others: Iterable[_Label]) -> bool:
    """Whether one of the others is as good, wherever it is led to from."""
    return any(other.height <= label.height and other[1:4] <= label[1:4] for other in others)


def _list_label_hops(label: _Label) -> Iterator[Hop]:
    if label.hop is not None:
        yield label.hop
    for part in label.parts:
        yield from _list_label_hops(part)


def _find_twice(hops: Sequence[Hop]) -> list[NodeState]:
    """Two places of the first node that hops come to in two formats; none if there is no such node."""
    by_node: dict[str, set[NodeState]] = {}
    for hop in hops:
        by_node.setdefault(hop.target.node, set()).add(hop.target)
    twice = sorted(node for node, states in by_node.items() if len(states) > 1)
    return sorted(by_node[twice[0]])[:2] if twice else []


def _put_in_order(routes: RouteMap, source: NodeState, goals: Sequence[Goal], hops: Sequence[Hop]) -> tuple[Hop, ...]:
    """The hops to the destination that costs least, then what leads on to the next."""
    leading: Mapping[str, Hop] = {hop.target.node: hop for hop in hops}
    ordered: dict[str, Hop] = {}

    def list_missing(node: str) -> list[Hop]:
        found: list[Hop] = []
        while node != source.node and node not in ordered:
            found.insert(0, leading[node])
            node = leading[node].source.node
        return found

    left = {goal.node for goal in goals}
    while left:
        ways = [(list_missing(node), node) for node in left]
        way, node = min(
            ways, key=lambda each: (sum(map(routes.cost_of, each[0])), len(each[0]), [hop.identity for hop in each[0]])
        )
        ordered |= {hop.target.node: hop for hop in way}
        left.discard(node)
    return tuple(ordered.values())
