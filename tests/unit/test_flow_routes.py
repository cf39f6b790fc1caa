"""Routes over random topologies, against the shortest paths of networkx, and against a search of everything."""

import heapq
import itertools
import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gobblin_assets.service.flow_request import FlowRequest
from gobblin_assets.service.job_plan import BoundHop
from gobblin_assets.service.job_template import JobTemplate, TemplateEnd
from gobblin_assets.service.multi_hop_compiler import grow_hops, plan_hops
from gobblin_assets.service.route_trees import TREE_GOALS_MAX, find_tree
from gobblin_assets.service.routes import HOPS_MAX, Goal, Hop, RouteMap, RouteRules
from gobblin_assets.service.topology import (
    DataNode,
    ExecutorSpec,
    Format,
    NodeKind,
    NodeState,
    Topology,
    TopologySpec,
    topology_uri,
)
from tests.support.flow_templates import make_pack, write_template

# Of each kind one format: which node a hop leads to says which format.
KINDS = {NodeKind.DATABASE: Format.TABLE, NodeKind.TABLES: Format.TABLE, NodeKind.FILES: Format.TREE}
CAPABILITIES = ("ingest.jdbc", "distcp")
COSTS = (0, 0.1, 0.2, 0.3, 1, 2.5)


# Parsed once: examples differ by what the search looks at.
TEMPLATE = make_pack({"t": write_template({"kind": "files", "format": "tree"}, {"kind": "files", "format": "tree"})})
KIND_GROUPS = ([NodeKind.FILES], [NodeKind.FILES], [NodeKind.DATABASE, NodeKind.TABLES], [NodeKind.TABLES])


def make_topology(seed: random.Random) -> Topology:
    """A few nodes, most of them joined by executors that reach two or three."""
    names = [f"n{number}" for number in range(seed.randint(3, 9))]
    nodes = {
        name: DataNode(
            name,
            seed.choice([NodeKind.FILES, NodeKind.FILES, NodeKind.TABLES, NodeKind.DATABASE]),
            root=f"/{name}",
            transit=seed.random() < 0.8,
            groups=pick_groups(seed),
        )
        for name in names
    }
    executors = {}
    for number in range(seed.randint(len(names) // 2, len(names) + 4)):
        executor = ExecutorSpec(
            f"e{number}",
            "process",
            "",
            "log",
            frozenset(seed.sample(CAPABILITIES, seed.randint(1, 2))),
            frozenset(seed.sample(names, seed.choice([2, 2, 3]))),
            groups=pick_groups(seed),
            cost=seed.choice(COSTS),
        )
        executors[executor.name] = TopologySpec(topology_uri(executor.name), "1", "", executor)
    return Topology("1", nodes, executors)


def make_templates(seed: random.Random) -> list[JobTemplate]:
    (template,) = TEMPLATE.templates.values()
    return [
        replace(
            template,
            uri=f"t{number}",
            plain_uri=f"t{number}",
            source=pick_end(seed),
            target=pick_end(seed),
            capability=seed.choice(CAPABILITIES),
            cost=seed.choice(COSTS),
            groups=pick_groups(seed),
        )
        for number in range(seed.randint(3, 9))
    ]


def pick_end(seed: random.Random) -> TemplateEnd:
    kinds = seed.choice(KIND_GROUPS)
    return TemplateEnd(frozenset(kinds), KINDS[kinds[0]])


def pick_groups(seed: random.Random) -> frozenset[str]:
    return frozenset(seed.choice(["a", "b"])) if seed.random() < 0.1 else frozenset()


@dataclass(frozen=True)
class World:
    """A topology, templates and a user; ``names``: of its nodes, in any order."""

    topology: Topology
    templates: list[JobTemplate]
    user: frozenset[str]
    names: list[str]

    @property
    def routes(self) -> RouteMap:
        return RouteMap(self.topology, self.templates)


def make_world(number: int) -> World:
    """Not drawn bit by bit: what hypothesis draws is small, and seldom leads anywhere."""
    seed = random.Random(number)
    topology = make_topology(seed)
    user = seed.choice([frozenset[str](), frozenset({"a"}), frozenset({"a", "b"})])
    return World(topology, make_templates(seed), user, seed.sample(sorted(topology.nodes), len(topology.nodes)))


worlds = st.integers(0, 2**32).map(make_world)


def may_use(groups: frozenset[str], user: frozenset[str]) -> bool:
    return not groups or bool(groups & user)


def list_all_hops(world: World) -> list[Hop]:
    """Every hop between two nodes, by trying all."""
    topology, templates, user = world.topology, world.templates, world.user
    executors = [spec.executor for spec in topology.executors.values() if may_use(spec.executor.groups, user)]
    return [
        Hop(template, executor, NodeState(a, template.source.format), NodeState(b, template.target.format))
        for template, executor in itertools.product(templates, executors)
        for a, b in itertools.permutations(sorted(executor.nodes), 2)
        if may_use(template.groups, user)
        and template.capability in executor.capabilities
        and template.source.fits(topology.nodes[a])
        and template.target.fits(topology.nodes[b])
    ]


def cost_of(hop: Hop) -> Fraction:
    return Fraction(str(hop.template.cost)) + Fraction(str(hop.executor.cost))


def find_least(world: World, hops: list[Hop], source: str, target: str) -> tuple[Fraction, int] | None:
    """The least cost, and the fewest hops of that cost, by networkx: a layer for each number of hops."""
    graph: Any = nx.DiGraph()
    graph.add_node((source, 0))
    for hop in hops:
        a, b = hop.source.node, hop.target.node
        node = world.topology.nodes[b]
        passes = node.transit and may_use(node.groups, world.user)
        if b == source or a == target or (b != target and not passes):
            continue
        for layer in range(HOPS_MAX):
            before, after = (a, layer), (b, layer + 1)
            known = graph.get_edge_data(before, after)
            if known is None or cost_of(hop) < known["cost"]:
                graph.add_edge(before, after, cost=cost_of(hop))
    costs = nx.single_source_dijkstra_path_length(graph, (source, 0), weight="cost")
    reached = [(costs[target, layer], layer) for layer in range(1, HOPS_MAX + 1) if (target, layer) in costs]
    return min(reached, default=None)


def request(world: World, source: str, *targets: str) -> FlowRequest:
    begin = NodeState(source, KINDS[world.topology.nodes[source].kind])
    return FlowRequest(begin, tuple(Goal(target, None) for target in targets), RouteRules(world.user))


def check_plan(found: tuple[Hop, ...], world: World, asked: FlowRequest) -> None:
    goals = {goal.node for goal in asked.goals}
    reached = {asked.source}
    for hop in found:
        assert hop.source in reached, "a hop reads what one before it published"
        node = world.topology.nodes[hop.target.node]
        assert node.name not in {state.node for state in reached}, "a flow publishes to a node once"
        assert node.name in goals or (node.transit and may_use(node.groups, world.user))
        assert hop.template.capability in hop.executor.capabilities
        assert {hop.source.node, hop.target.node} <= hop.executor.nodes
        assert may_use(hop.executor.groups, world.user)
        assert may_use(hop.template.groups, world.user)
        reached.add(hop.target)
    assert goals <= {state.node for state in reached}


@settings(max_examples=300, deadline=None)
@given(world=worlds)
def test_the_way_to_one_destination_is_the_cheapest(world: World) -> None:
    source, target = world.names[:2]
    asked = request(world, source, target)
    found = plan_hops(world.routes, asked)
    least = find_least(world, list_all_hops(world), source, target)
    if found is None:
        assert least is None
        return
    check_plan(found, world, asked)
    assert (sum(map(cost_of, found)), len(found)) == least
    assert len(found) <= HOPS_MAX


@settings(max_examples=200, deadline=None)
@given(world=worlds)
def test_several_destinations_are_all_reached_and_share_hops(world: World) -> None:
    source, *targets = world.names[:4]
    asked = request(world, source, *targets)
    found = plan_hops(world.routes, asked)
    hops = list_all_hops(world)
    alone = [find_least(world, hops, source, target) for target in targets]
    if found is not None:
        check_plan(found, world, asked)
        known = [each[0] for each in alone if each is not None]
        assert len(known) < len(targets) or sum(map(cost_of, found)) <= sum(known)
    else:
        assert None in alone, "each destination is in reach by itself, and all together are not"


@settings(max_examples=100, deadline=None)
@given(world=worlds, number=st.integers(0, 2**16))
def test_the_same_hops_are_found_in_whatever_order_things_are_known(world: World, number: int) -> None:
    source, target = world.names[:2]
    asked = request(world, source, target)
    seed = random.Random(number)
    shuffled = Topology("1", shuffle(world.topology.nodes, seed), shuffle(world.topology.executors, seed))
    turned = plan_hops(RouteMap(shuffled, seed.sample(world.templates, len(world.templates))), asked)
    routes = world.routes
    found = plan_hops(routes, asked)
    assert name_hops(turned) == name_hops(found)
    for other in world.names[1:]:
        plan_hops(routes, request(world, source, other))
    assert name_hops(plan_hops(routes, asked)) == name_hops(found), "what was asked before does not count"


def add_executors(topology: Topology, seed: random.Random) -> Topology:
    """More executors, cheaper ones among them; those that there are cost something else."""
    names = sorted(topology.nodes)
    executors = {
        name: replace(spec, executor=replace(spec.executor, cost=seed.choice(COSTS)))
        for name, spec in topology.executors.items()
    }
    for number in range(seed.randint(1, 6)):
        name = f"new{number}"
        reached = frozenset(seed.sample(names, 2))
        executor = ExecutorSpec(name, "process", "", "log", frozenset(CAPABILITIES), reached, cost=seed.choice(COSTS))
        executors[name] = TopologySpec(topology_uri(name), "1", "", executor)
    return replace(topology, executors=executors)


def test_200_changes_of_the_topology_never_change_what_a_job_is_bound_to() -> None:
    changed = moved = 0
    for number in range(1_000):
        world = make_world(number)
        asked = request(world, *world.names[:3])
        first = plan_hops(world.routes, asked)
        if first is None:
            continue
        bound = {hop.target.node: bind_to(hop) for hop in first}
        other = RouteMap(add_executors(world.topology, random.Random(number)), world.templates)
        found = plan_hops(other, replace(asked, rules=replace(asked.rules, bound=bound)))
        assert found is not None
        assert {(hop.target.node, hop.source.node, hop.template.plain_uri) for hop in found} == {
            (node, hop.source_node, hop.template_uri) for node, hop in bound.items()
        }
        moved += name_hops(found) != name_hops(first)
        changed += name_hops(plan_hops(other, asked)) != name_hops(first)
        if changed == 200:
            break
    assert changed == 200
    assert moved > 20, "executors may change"


def test_the_random_worlds_have_ways_of_all_lengths() -> None:
    found = [plan_hops(world.routes, request(world, *world.names[:2])) for world in map(make_world, range(300))]
    assert {1, 2, 3, 4} <= {len(hops) for hops in found if hops is not None}
    assert sum(hops is not None for hops in found) > 60
    assert None in found


COPY, CONVERT = CAPABILITIES
DATASET, TREE = Format.DATASET, Format.TREE


def bind_to(hop: Hop) -> BoundHop:
    return BoundHop(hop.source.node, hop.template.plain_uri, lambda log: log == "")


def make_files_template(number: int, source: Format, target: Format, capability: str, cost: float) -> JobTemplate:
    (template,) = TEMPLATE.templates.values()
    kinds = frozenset([NodeKind.FILES])
    return replace(
        template,
        uri=f"t{number}",
        plain_uri=f"t{number}",
        source=TemplateEnd(kinds, source),
        target=TemplateEnd(kinds, target),
        capability=capability,
        cost=cost,
    )


def make_files_topology(*executors: ExecutorSpec, transit: Mapping[str, bool] | None = None) -> Topology:
    names = sorted({node for executor in executors for node in executor.nodes} | set(transit or {}))
    nodes = {
        name: DataNode(name, NodeKind.FILES, root=f"/{name}", transit=(transit or {}).get(name, True)) for name in names
    }
    return Topology("1", nodes, {each.name: TopologySpec(topology_uri(each.name), "1", "", each) for each in executors})


def make_executor(name: str, capability: str, *nodes: str, cost: float = 1) -> ExecutorSpec:
    return ExecutorSpec(name, "process", "", "log", frozenset([capability]), frozenset(nodes), cost=cost)


def make_two_formats_world(number: int) -> tuple[World, FlowRequest]:
    """A few directories with datasets and trees, and a flow to one to four of them.

    Some hops are left out, and some destinations were published to before.
    """
    seed = random.Random(number)
    names = [f"n{each}" for each in range(seed.randint(5, 7))]
    executors = [
        make_executor(
            f"e{each}",
            seed.choice(CAPABILITIES),
            *seed.sample(names, seed.choice([2, 2, 2, 3])),
            cost=seed.choice(COSTS),
        )
        for each in range(seed.randint(len(names), len(names) + 4))
    ]
    ways = [(DATASET, DATASET, COPY), (TREE, TREE, COPY), (DATASET, TREE, CONVERT)]
    ways += [(TREE, DATASET, CONVERT)] * (seed.random() < 0.3)
    templates = [make_files_template(each, *way, seed.choice(COSTS)) for each, way in enumerate(ways)]
    topology = make_files_topology(*executors, transit={name: seed.random() < 0.9 for name in names})
    world = World(topology, templates, frozenset(), seed.sample(names, len(names)))
    goals = [Goal(name, seed.choice([None, DATASET, TREE, TREE])) for name in world.names[1 : 1 + seed.randint(1, 4)]]
    hops = list_all_hops(world)
    rules = RouteRules(hops_max=seed.choice([2, 3, 4, HOPS_MAX]))
    if seed.random() < 0.3:
        rules = replace(rules, without=seed.sample(hops, min(len(hops), 4)))
    if seed.random() < 0.3:
        binding = {hop.target.node: hop for hop in seed.sample(hops, min(len(hops), 2))}
        bound = {
            node: BoundHop(hop.source.node, hop.template.plain_uri, lambda log: log == "")
            for node, hop in binding.items()
        }
        rules = replace(rules, bound=bound)
    return world, FlowRequest(NodeState(world.names[0], DATASET), tuple(goals), rules)


def find_least_tree(world: World, asked: FlowRequest) -> tuple[Fraction, int] | None:
    """The least cost, and the fewest hops of that cost, by trying all sets of places that a flow can come to."""
    goals = {goal.node: goal for goal in asked.goals}
    banned = {hop.identity for hop in asked.rules.without}
    hops = [
        hop
        for hop in list_all_hops(world)
        if hop.identity not in banned
        and hop.target.node != asked.source.node
        and (bound := asked.rules.bound.get(hop.target.node, bind_to(hop)))
        and (bound.source_node, bound.template_uri) == (hop.source.node, hop.template.plain_uri)
        and (
            goals[hop.target.node].is_met(hop.target)
            if hop.target.node in goals
            else world.topology.nodes[hop.target.node].transit
        )
    ]
    number = itertools.count()
    waiting = [(Fraction(0), 0, next(number), frozenset([(asked.source, 0)]))]
    seen = set()
    while waiting:
        cost, count, _number, reached = heapq.heappop(waiting)
        if reached in seen:
            continue
        seen.add(reached)
        depths = dict(reached)
        nodes = {state.node for state in depths}
        if goals.keys() <= nodes:
            return cost, count
        for hop in hops:
            if depths.get(hop.source, HOPS_MAX) < asked.rules.hops_max and hop.target.node not in nodes:
                more = reached | {(hop.target, depths[hop.source] + 1)}
                heapq.heappush(waiting, (cost + cost_of(hop), count + 1, next(number), more))
    return None


def measure_depth(hops: tuple[Hop, ...], asked: FlowRequest) -> int:
    depths = {asked.source: 0}
    for hop in hops:
        depths[hop.target] = depths[hop.source] + 1
    return max(depths.values())


@pytest.mark.parametrize(("first", "last"), [(0, 500), pytest.param(500, 3_000, marks=pytest.mark.thorough)])
def test_hops_to_all_destinations_are_the_cheapest_that_come_to_each_node_once(first: int, last: int) -> None:
    found_by_count: dict[int, int] = {}
    beaten = refused = 0
    for number in range(first, last):
        world, asked = make_two_formats_world(number)
        kept = [asked] if asked.rules.bound else []
        # A bound flow that finds no way of its own is planned as if it were free.
        least = find_least_tree(world, asked)
        if least is None and kept:
            asked = replace(asked, rules=replace(asked.rules, bound={}))
            least = find_least_tree(world, asked)
        found = plan_hops(world.routes, kept[0] if kept else asked)
        if found is None:
            assert least is None, number
            refused += 1
            continue
        check_plan(found, world, asked)
        assert measure_depth(found, asked) <= asked.rules.hops_max
        assert (sum(map(cost_of, found)), len(found)) == least, number
        found_by_count[len(asked.goals)] = found_by_count.get(len(asked.goals), 0) + 1
        one_by_one = grow_hops(world.routes, asked)
        if len(asked.goals) > 1:
            unbounded = find_tree(world.routes, asked.source, asked.goals, asked.rules, None)
            assert name_hops(unbounded) == name_hops(found), "what is known bounds the search, and changes nothing"
        beaten += one_by_one is None or sum(map(cost_of, one_by_one)) > sum(map(cost_of, found))
    assert min(found_by_count.get(count, 0) for count in (1, 2, 3, 4)) > 20
    assert refused > 50
    assert beaten > 10, "the nearest first is not always the cheapest"


def test_a_cheaper_way_that_crosses_a_node_does_not_hide_the_one_that_needs_it_later() -> None:
    """The cheap way to a tree at ``c`` crosses ``n``, which is needed as a tree behind ``c``; the dear one does not."""
    topology = make_files_topology(
        make_executor("copy1", COPY, "s", "n", cost=0),
        make_executor("make1", CONVERT, "n", "c", cost=0),
        make_executor("copy2", COPY, "s", "m", cost=5),
        make_executor("make2", CONVERT, "m", "c", cost=5),
        make_executor("copy3", COPY, "n", "c", cost=0),
        make_executor("copy4", COPY, "n", "g", cost=0),
        transit={"g": False},
    )
    templates = [
        make_files_template(0, DATASET, DATASET, COPY, 1),
        make_files_template(1, TREE, TREE, COPY, 1),
        make_files_template(2, DATASET, TREE, CONVERT, 1),
    ]
    routes = RouteMap(topology, templates)
    asked = FlowRequest(NodeState("s", DATASET), (Goal("g", TREE),), RouteRules(hops_max=4))
    found = plan_hops(routes, asked)
    assert found is not None
    assert [hop.target.node for hop in found] == ["m", "c", "n", "g"]
    assert plan_hops(routes, replace(asked, rules=RouteRules(hops_max=3))) is None


def test_a_dear_way_of_few_hops_is_kept_for_places_that_are_far_away() -> None:
    """The hub is cheap to come to by two hops, and cheap to go on from by two. There are three."""
    topology = make_files_topology(
        make_executor("dear_to_hub", COPY, "s", "hub", cost=10),
        make_executor("cheap1", COPY, "s", "x", cost=1),
        make_executor("cheap2", COPY, "x", "hub", cost=1),
        make_executor("cheap3", COPY, "hub", "y", cost=0.5),
        make_executor("cheap4", COPY, "y", "a", cost=0.5),
        make_executor("dear_to_a", COPY, "hub", "a", cost=3),
        make_executor("other", COPY, "s", "b", cost=1),
    )
    routes = RouteMap(topology, [make_files_template(0, TREE, TREE, COPY, 0)])
    found = find_tree(routes, NodeState("s", TREE), [Goal("a", None), Goal("b", None)], RouteRules(hops_max=3), None)
    assert found is not None
    assert [hop.executor.name for hop in found] == ["other", "cheap1", "cheap2", "dear_to_a"]


@pytest.mark.parametrize("count", [TREE_GOALS_MAX, TREE_GOALS_MAX + 1])
def test_more_destinations_than_a_few_are_reached_one_after_the_other(count: int) -> None:
    """The hub is no nearer than the first leaf; over it, all leaves cost less."""
    leaves = [f"leaf{number}" for number in range(count)]
    topology = make_files_topology(
        *(make_executor(f"straight{leaf}", CONVERT, "s", leaf, cost=3) for leaf in leaves),
        make_executor("to_hub", COPY, "s", "hub", cost=3),
        *(make_executor(f"fan{leaf}", CONVERT, "hub", leaf, cost=1) for leaf in leaves),
    )
    templates = [
        make_files_template(0, DATASET, DATASET, COPY, 0),
        make_files_template(1, DATASET, TREE, CONVERT, 0),
    ]
    asked = FlowRequest(NodeState("s", DATASET), tuple(Goal(leaf, TREE) for leaf in leaves), RouteRules())
    found = plan_hops(RouteMap(topology, templates), asked)
    assert found is not None
    assert sum(map(cost_of, found)) == (3 + count if count <= TREE_GOALS_MAX else 3 * count)


def shuffle(things: Mapping[str, Any], seed: random.Random) -> dict[str, Any]:
    return dict(seed.sample(sorted(things.items()), len(things)))


def name_hops(hops: tuple[Hop, ...] | None) -> Any:
    return None if hops is None else [hop.identity for hop in hops]
