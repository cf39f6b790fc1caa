"""How long a flow takes from its config to its plan, on a large topology: 1,000 nodes, and 5,000 hops between them."""

import gc
import random
import time

from benchmarks.tables import Options, Samples, Table, verdict
from benchmarks.world import World
from gobblin_assets.service.flow_config import FlowConfig, read_flow_config
from gobblin_assets.service.job_plan import BoundHop, FlowPlan
from gobblin_assets.service.multi_hop_compiler import MultiHopCompiler
from gobblin_assets.service.specs import FlowKey, FlowSpec
from gobblin_assets.service.template_store import TemplatesInMemory, read_shipped_packs
from gobblin_assets.service.topology import DataNode, ExecutorSpec, NodeKind, Topology, TopologySpec, topology_uri

NODES = 1_000
HOPS = 5_000
FLOWS = 1_000
FLOWS_QUICK = 50
P50_MS_MAX, P99_MS_MAX = 5.0, 50.0

DESTINATIONS = 3

FIRST, P50, P99, EXPLAINED, SEVERAL, SEVERAL_P99 = (
    "the first of a topology",
    "a flow, p50",
    "a flow, p99",
    "explained, p50",
    f"of {DESTINATIONS} destinations, p50",
    f"of {DESTINATIONS} destinations, p99",
)


class _Names:
    def list_bound_hops(self) -> dict[str, BoundHop]:
        return {}

    def find_name(self, node: str) -> str | None:  # noqa: ARG002  as the port has it
        return None

    def offer_name(self, node: str) -> str:
        return f"flow_to_{node}"


def measure(world: World, options: Options) -> list[Table]:  # noqa: ARG001  every measure is given one
    flows = FLOWS_QUICK if options.quick else FLOWS
    samples = Samples()
    hops = 0
    # As the service does once it has read its flows.
    gc.freeze()
    for run in range(options.runs):
        found, hops = _compile_all(make_large_topology(random.Random(run)), flows, random.Random(run))
        samples.add_all(found)
    notes = (
        f"{NODES:,} nodes, half of them transit; {HOPS // 2:,} executors that copy between two nodes, there and back.",
        f"{flows:,} flows between random nodes. {hops:,} could be planned, and the others say why not.",
        f"A tenth as many have {DESTINATIONS} destinations, which are reached by the hops that cost least together.",
        "With the check of the parameters and of each job's options; without storing.",
        verdict("a flow, p50", samples.median(P50) * 1_000, P50_MS_MAX, "ms"),
        verdict("a flow, p99", samples.median(P99) * 1_000, P99_MS_MAX, "ms"),
    )
    rows = tuple(samples.row(name) for name in (FIRST, P50, P99, SEVERAL, SEVERAL_P99, EXPLAINED))
    return [Table(f"Compile flows on {NODES:,} nodes", ("", "median", "smallest", "largest"), rows, notes)]


def make_large_topology(seed: random.Random) -> Topology:
    """Directories, and executors that reach two of them: each is a hop there and a hop back."""
    names = [f"node{number:04}" for number in range(NODES)]
    nodes = {
        name: DataNode(name, NodeKind.FILES, root=f"/data/{name}", transit=number % 2 == 0)
        for number, name in enumerate(names)
    }
    executors = {}
    for number in range(HOPS // 2):
        reached = frozenset(seed.sample(names, 2))
        executor = ExecutorSpec(
            f"executor{number:04}",
            "process",
            "",
            "log",
            frozenset({"distcp"}),
            reached,
            cost=seed.randint(1, 100) / 10,
        )
        executors[executor.name] = TopologySpec(topology_uri(executor.name), "1", "", executor)
    return Topology("1", nodes, executors)


def _compile_all(topology: Topology, count: int, seed: random.Random) -> tuple[dict[str, float], int]:
    compiler = MultiHopCompiler(TemplatesInMemory(read_shipped_packs()), topology)
    names = sorted(topology.nodes)
    specs = [_make_spec(*seed.sample(names, 2)) for _flow in range(count)]
    taken_s, planned = _compile_each(compiler, specs)
    several = [_make_spec(*seed.sample(names, 1 + DESTINATIONS)) for _flow in range(count // 10)]
    several_s = sorted(_compile_each(compiler, several)[0])
    explained_s = []
    for spec in specs[: count // 10]:
        began = time.perf_counter()
        compiler.explain_flow(spec, _Names(), frozenset())
        explained_s.append(time.perf_counter() - began)
    rest = sorted(taken_s[1:])
    return {
        FIRST: taken_s[0],
        P50: rest[len(rest) // 2],
        P99: rest[len(rest) * 99 // 100],
        SEVERAL: several_s[len(several_s) // 2],
        SEVERAL_P99: several_s[len(several_s) * 99 // 100],
        EXPLAINED: sorted(explained_s)[len(explained_s) // 2],
    }, planned


def _compile_each(compiler: MultiHopCompiler, specs: list[FlowSpec]) -> tuple[list[float], int]:
    """The seconds of each, and how many could be planned."""
    taken_s = []
    planned = 0
    for spec in specs:
        began = time.perf_counter()
        compiled = compiler.compile_flow(spec, _Names(), frozenset()).compiled
        taken_s.append(time.perf_counter() - began)
        planned += isinstance(compiled, FlowPlan)
    return taken_s, planned


def _make_spec(source: str, *destinations: str) -> FlowSpec:
    config: FlowConfig = read_flow_config(
        {
            "flow_group": "bench",
            "flow_name": "copy",
            "source": source,
            "destinations": destinations,
            "parameters": {"datasets": [{"path": "a"}]},
        }
    )
    return FlowSpec(FlowKey("bench", "copy").uri, "1", "", config)
