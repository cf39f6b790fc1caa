"""A service of 100,000 flows, each of which has run: its start, requests, and how soon a flow runs.

The service and its executor are the commands as a person types them, over an embedded Postgres that waits for its disk.
"""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from sqlalchemy import text

from benchmarks.child import run_child
from benchmarks.process_times import tree_s
from benchmarks.service_world import (
    GROUP_FLOWS,
    Asker,
    ServedFlows,
    describe_flow,
    executing,
    fill,
    serve_flows,
    write_topology,
)
from benchmarks.sink_world import percentile, postgres_s
from benchmarks.tables import Options, Samples, Table, seconds, timed, verdict, verdict_at_least
from benchmarks.world import World

START_S_MAX, LIST_S_MAX, CREATE_S_MAX, RUNNING_S_MAX = 10.0, 0.1, 0.05, 3.0
GETS_PER_S_MIN: Final = 500.0

_FLOWS, _FLOWS_QUICK = 100_000, 1_000
_REQUESTS, _REQUESTS_QUICK = 100, 20
_GETS, _GETS_QUICK = 500, 50
"""Of each connection."""
_CONNECTIONS: Final = (1, 8)
_ROWS: Final = 10_000
_RUN_S_MAX: Final = 120.0
_LOOK_S: Final = 0.02
_RARE_SHARE: Final = 10
"""Of the slow search only every so many."""

_START, _LIST, _MIDDLE, _IN_GROUP, _COMMON, _RARE, _STORE, _CREATE = (
    "`service serve`, until it answers",
    "a page of 50 flows",
    "a page in the middle",
    "a page of a group",
    "a page of a search, of a word that all have",
    "a page of a search, of one flow",
    "create, without a run",
    "create",
)
_CLAIMED, _RUNNING, _ENDED = (
    "the executor's claim until its job runs",
    "`:run` until RUNNING",
    "`:run` until COMPLETE",
)

_CLAIM_TO_RUNNING: Final = text("""
    SELECT extract(epoch FROM r.at - c.claimed_at) AS waited_s
      FROM gobblin.ticket_claim c JOIN gobblin.ticket_report r USING (ticket_id, attempt)
     WHERE c.ticket_id = CAST(:ticket_id AS uuid) AND c.attempt = 1 AND r.kind = 'running'
""")


@dataclass(slots=True)
class _Found:
    """Seconds by name: of each request its median in a round, and the processor's of the service and of Postgres."""

    walls: Samples = field(default_factory=Samples)
    slow: Samples = field(default_factory=Samples)
    service: Samples = field(default_factory=Samples)
    postgres: Samples = field(default_factory=Samples)
    rates: Samples = field(default_factory=Samples)
    runs: Samples = field(default_factory=Samples)


def measure(world: World, options: Options) -> list[Table]:
    flows = _FLOWS_QUICK if options.quick else _FLOWS
    world.make_events(_ROWS)
    topology = write_topology(world)
    fill(world, topology, flows)
    found = _Found()
    # First of all: flows that are created later are launched too, and nobody runs them.
    with serve_flows(world, topology) as served, executing(world):
        for round_ in range(2 * options.runs):
            _run_flow(world, Asker(served.port), f"run{round_}", found.runs)
    for round_ in range(options.runs):
        before = postgres_s(world.server)
        with serve_flows(world, topology) as served:
            found.walls.add(_START, served.start_s)
            found.slow.add(_START, served.start_s)
            found.service.add(_START, served.start_cpu_s)
            found.postgres.add(_START, postgres_s(world.server) - before)
            _ask_all(world, options, served, flows, round_, found)
    return [_write_requests(found, flows), _write_rates(found), _write_runs(found)]


def _ask_all(world: World, options: Options, served: ServedFlows, flows: int, round_: int, found: _Found) -> None:
    count = _REQUESTS_QUICK if options.quick else _REQUESTS
    asker = Asker(served.port)
    chance = random.Random(round_)
    groups = [f"group{chance.randrange(flows // GROUP_FLOWS)}" for _ in range(count + 1)]
    cursors = [asker.ask("GET", f"/flows?group={group}&limit=1")["next"] for group in groups]

    def create(number: int, **more: Any) -> None:
        asker.ask("POST", "/flows", describe_flow(f"made{round_}", f"{len(more)}flow{number}") | more)

    requests: dict[str, Callable[[int], object]] = {
        _LIST: lambda _number: asker.ask("GET", "/flows"),
        _MIDDLE: lambda number: asker.ask("GET", f"/flows?cursor={cursors[number]}"),
        _IN_GROUP: lambda number: asker.ask("GET", f"/flows?group={groups[number]}"),
        _COMMON: lambda _number: asker.ask("GET", "/flows?search=table"),
        _RARE: lambda _number: asker.ask("GET", f"/flows?search=table%20{chance.randrange(flows)}"),
        _STORE: lambda number: create(number, run_immediately=False),
        _CREATE: create,
    }
    for name, request in requests.items():
        asked = count // _RARE_SHARE if name == _RARE else count
        # The first request finds nothing prepared; no flow is asked for twice in a round.
        request(count)
        before = tree_s(served.pid), postgres_s(world.server)
        walls = [timed(partial(request, number)) for number in range(asked)]
        found.service.add(name, (tree_s(served.pid) - before[0]) / asked)
        found.postgres.add(name, (postgres_s(world.server) - before[1]) / asked)
        found.walls.add(name, percentile(walls, 0.5))
        found.slow.add(name, percentile(walls, 0.95))
    for connections in _CONNECTIONS:
        _read_flows(world, options, served, flows, connections, found)


def _read_flows(
    world: World, options: Options, served: ServedFlows, flows: int, connections: int, found: _Found
) -> None:
    gets = connections * (_GETS_QUICK if options.quick else _GETS)
    order = {
        "port": served.port,
        "flows": flows,
        "group_flows": GROUP_FLOWS,
        "requests": gets,
        "connections": connections,
    }
    name = f"{connections} connection{'s' if connections > 1 else ''}"
    before = tree_s(served.pid), postgres_s(world.server)
    [read] = run_child("benchmarks.service_reader", order, timeout_s=600)
    found.rates.add(name, read["per_s"])
    found.service.add(name, (tree_s(served.pid) - before[0]) / gets)
    found.postgres.add(name, (postgres_s(world.server) - before[1]) / gets)


def _run_flow(world: World, asker: Asker, name: str, runs: Samples) -> None:
    """A new flow's first run. A status is looked at more often than the service itself looks for reports."""
    asker.ask("POST", "/flows", describe_flow("runs", name) | {"run_immediately": False})
    begun = time.monotonic()
    asker.ask("POST", f"/flows/runs/{name}:run")
    seen: dict[str, float] = {}
    while "COMPLETE" not in seen:
        found = asker.ask("GET", f"/flows/runs/{name}/status")
        waited_s = time.monotonic() - begun
        seen.setdefault(found["status"], waited_s)
        if found["status"] in {"FAILED", "CANCELLED"} or waited_s > _RUN_S_MAX:
            raise RuntimeError(f"the flow {name} is {found['status']}: {found['message']}")
        time.sleep(_LOOK_S)
    # A run may be over before the service looks for reports again.
    runs.add(_RUNNING, seen.get("RUNNING", seen["COMPLETE"]))
    runs.add(_ENDED, seen["COMPLETE"])
    with world.engine.connect() as connection:
        given = {"ticket_id": found["jobs"][0]["ticket_id"]}
        runs.add(_CLAIMED, float(connection.execute(_CLAIM_TO_RUNNING, given).scalar_one()))


def _write_requests(found: _Found, flows: int) -> Table:
    rows = [
        (
            name,
            *found.walls.row(name)[1:],
            seconds(found.slow.median(name)),
            *(f"{samples.median(name):.4f} s" for samples in (found.service, found.postgres)),
        )
        for name in found.walls.by_name
    ]
    goals = {_START: START_S_MAX, _LIST: LIST_S_MAX, _MIDDLE: LIST_S_MAX, _CREATE: CREATE_S_MAX, _STORE: CREATE_S_MAX}
    return Table(
        f"A service of {flows:,} flows: its start and requests",
        ("", "median", "smallest", "largest", "p95", "service's processor", "Postgres' processor"),
        tuple(rows),
        (
            "Each flow has run once. Of a round: the median of the requests, one after another over one connection.",
            "The processors' seconds are those of one request, and of what happens beside requests.",
            *(verdict(f"{name}, p50", found.walls.median(name), goal) for name, goal in goals.items()),
        ),
    )


def _write_rates(found: _Found) -> Table:
    rows = tuple(
        (
            name,
            *(f"{value:,.0f} /s" for value in (found.rates.median(name), min(rates), max(rates))),
            *(f"{samples.median(name):.5f} s" for samples in (found.service, found.postgres)),
        )
        for name, rates in found.rates.by_name.items()
    )
    needed = max(found.rates.by_name, key=found.rates.median)
    return Table(
        "GET of one flow, by a program",
        ("", "median", "smallest", "largest", "service's processor", "Postgres' processor"),
        rows,
        (
            "Flows at random; the program that asks takes processors as well.",
            verdict_at_least(needed, found.rates.median(needed), GETS_PER_S_MIN, "/s"),
        ),
    )


def _write_runs(found: _Found) -> Table:
    return Table(
        "A flow's run, with an executor that waits for it",
        ("", "median", "smallest", "largest"),
        tuple(found.runs.row(name) for name in found.runs.by_name),
        (
            f"`service serve` and `executor serve` with their defaults; a table of {_ROWS:,} rows.",
            "Of the claim by the log's clock; of `:run` by that of who asks for the status.",
            verdict(_CLAIMED, found.runs.median(_CLAIMED), RUNNING_S_MAX),
            verdict(_RUNNING, found.runs.median(_RUNNING), RUNNING_S_MAX),
        ),
    )
