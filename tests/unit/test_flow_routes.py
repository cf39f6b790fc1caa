"""Routes over random topologies, against the shortest paths of networkx."""

import itertools
import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import networkx as nx
from hypothesis import given, settings
from hypothesis import strategies as st

from gobblin_assets.service.flow_request import FlowRequest
from gobblin_assets.service.job_plan import BoundHop
from gobblin_assets.service.job_template import JobTemplate, TemplateEnd
from gobblin_assets.service.multi_hop_compiler import plan_hops
from gobblin_assets.service.routes import HOPS_MAX, Goal, Hop, RouteMap, RouteRules
from gobblin_assets.service.topology import (
    DataNode,
    Format,
    NodeKind,
    NodeState,
    SpecExecutor,
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
        executor = SpecExecutor(
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
    executors = [spec.spec_executor for spec in topology.executors.values() if may_use(spec.spec_executor.groups, user)]
    return [
        Hop(template, executor, NodeState((a, template.source.format)), NodeState((b, template.target.format)))
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
    begin = NodeState((source, KINDS[world.topology.nodes[source].kind]))
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
        name: replace(spec, spec_executor=replace(spec.spec_executor, cost=seed.choice(COSTS)))
        for name, spec in topology.executors.items()
    }
    for number in range(seed.randint(1, 6)):
        name = f"new{number}"
        reached = frozenset(seed.sample(names, 2))
        executor = SpecExecutor(name, "process", "", "log", frozenset(CAPABILITIES), reached, cost=seed.choice(COSTS))
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
        bound = {
            hop.target.node: BoundHop(hop.source.node, hop.template.plain_uri, lambda log: log == "") for hop in first
        }
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


def shuffle(things: Mapping[str, Any], seed: random.Random) -> dict[str, Any]:
    return dict(seed.sample(sorted(things.items()), len(things)))


def name_hops(hops: tuple[Hop, ...] | None) -> Any:
    return None if hops is None else [hop.identity for hop in hops]
