"""Schedules of many flows: how fast nodes fire, how late flows begin that are due at once, and what many flows cost.

Nodes are processes. They only fire: what a launch takes is in the measure of the service.
"""

import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Engine, text

from benchmarks.process_times import tree_s
from benchmarks.service_world import GROUP_FLOWS, Asker, fill, serve_flows, write_topology
from benchmarks.sink_world import percentile, postgres_s
from benchmarks.tables import Options, Samples, Table, seconds, timed, verdict, verdict_at_least
from benchmarks.world import World
from gobblin_assets.service.postgres.schedules import PostgresScheduleStore
from gobblin_assets.service.scheduler import Scheduler

FIRES_PER_S_MIN: Final = 2_000.0
LATE_S_MAX: Final = 5.0
KILLED_LATE_S_MAX: Final = 10.0
NODE_MB_MAX: Final = 400.0
STATUS_S_MAX: Final = 0.1

_FLOWS, _FLOWS_QUICK = 100_000, 1_000
_AT_ONCE, _AT_ONCE_QUICK = 10_000, 500
_EXECUTIONS, _EXECUTIONS_QUICK = 1_000_000, 10_000
_REQUESTS, _REQUESTS_QUICK = 100, 20
_NODES: Final = 3
_DUE_IN_S: Final = 3.0
_KILL_BEHIND_S: Final = 0.3
_WAIT_S_MAX: Final = 60.0

_ONE, _TOGETHER, _KILLED, _MINUTE = (
    "one node, fires /s",
    "at once, 3 nodes",
    "at once, 3 nodes, one of which is killed",
    "within a minute, 3 nodes",
)

# What is fired is not due again in this measure.
_SCHEDULES: Final = (
    'UPDATE gobblin_service.flow_version SET config = config || \'{"schedule": "30 4 1 1 *"}\'',
    """
    UPDATE gobblin_service.flow_execution SET status = 'CANCELLED', launch_at = NULL, ended_at = now()
     WHERE ended_at IS NULL
    """,
)

_DUE: Final = """
    UPDATE gobblin_service.flow f SET next_fire_at = d.at, due_at = d.at
      FROM (SELECT flow_id, now() + make_interval(secs => :after_s + :within_s * row_number() OVER () / :count) AS at
              FROM gobblin_service.flow WHERE deleted_at IS NULL LIMIT :count) AS d
     WHERE f.flow_id = d.flow_id
"""

_LATENESS: Final = text("""
    SELECT extract(epoch FROM started_at - fire_at) FROM gobblin_service.flow_execution
     WHERE fire_at IS NOT NULL AND launch_at IS NOT NULL
""")

_PAST_EXECUTIONS: Final = """
    INSERT INTO gobblin_service.flow_execution
           (request_id, flow_id, flow_version, status, asked_by, selection, ended_at)
    SELECT gen_random_uuid(), f.flow_id, f.version, 'COMPLETE', f.owner, '{}', now()
      FROM generate_series(1, :each) n, gobblin_service.flow f WHERE f.flow_name <> 'model'
"""

_PAST_JOBS: Final = """
    INSERT INTO gobblin_service.job_execution
           (execution_id, number, job_name, executor, log, ticket_id, ticket, "after", status, send_begun_at,
            started_at, ended_at, forgotten_at)
    SELECT e.execution_id, 0, b.job_name, 'local', '', gen_random_uuid(), '{}', '[]', 'COMPLETE', now(), now(), now(),
           now()
      FROM gobblin_service.flow_execution e JOIN gobblin_service.flow_job b USING (flow_id)
     WHERE NOT EXISTS (SELECT FROM gobblin_service.job_execution j WHERE j.execution_id = e.execution_id)
"""


def measure(world: World, options: Options) -> list[Table]:
    flows = _FLOWS_QUICK if options.quick else _FLOWS
    at_once = _AT_ONCE_QUICK if options.quick else _AT_ONCE
    topology = write_topology(world)
    fill(world, topology, flows)
    rates, lateness, worst = Samples(), Samples(), Samples()
    for _ in range(options.runs):
        _fire_alone(world.engine, at_once, rates)
        _fire_together(world, at_once, _TOGETHER, lateness, worst)
        _fire_together(world, at_once, _KILLED, lateness, worst, kills=1)
        _fire_together(world, at_once, _MINUTE, lateness, worst, within_s=0.0 if options.quick else 60.0)
    held = _hold_many(world, topology)
    asked = _ask_among_many(world, topology, options, flows)
    return [
        _write_fires(rates, at_once),
        _write_lateness(lateness, worst, at_once),
        _write_sizes(held, asked, flows, options),
    ]


def _make_due(engine: Engine, count: int, after_s: float, within_s: float = 0.0) -> None:
    with engine.begin() as connection:
        for statement in _SCHEDULES:
            connection.execute(text(statement.replace(": ", r"\: ")))
        connection.execute(text("UPDATE gobblin_service.flow SET next_fire_at = NULL, due_at = NULL"))
        connection.execute(text("TRUNCATE gobblin_service.flow_slot"))
        connection.execute(text("DELETE FROM gobblin_service.flow_execution WHERE fire_at IS NOT NULL"))
    with engine.begin() as connection:
        connection.execute(text(_DUE), {"after_s": after_s, "within_s": within_s, "count": count})
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        for name in ("flow", "flow_version", "flow_execution", "flow_slot"):
            connection.execute(text(f"VACUUM ANALYZE gobblin_service.{name}"))


def _fire_alone(engine: Engine, count: int, rates: Samples) -> None:
    """In this process: all have been due for an hour."""
    _make_due(engine, count, -3600.0)
    scheduler = Scheduler(PostgresScheduleStore(engine))
    fired = 0

    def fire() -> None:
        nonlocal fired
        fired = scheduler.look()

    taken_s = timed(fire)
    if fired != count:
        raise RuntimeError(f"{fired} of {count} flows were fired")
    rates.add(_ONE, count / taken_s)


def _fire_together(
    world: World, count: int, name: str, lateness: Samples, worst: Samples, *, kills: int = 0, within_s: float = 0.0
) -> None:
    url = world.engine.url.render_as_string(hide_password=False)
    with _nodes(url, _DUE_IN_S + within_s + 2 * _WAIT_S_MAX) as nodes:
        _make_due(world.engine, count, _DUE_IN_S, within_s)
        begun = time.monotonic()
        if kills:
            time.sleep(_DUE_IN_S + _KILL_BEHIND_S)
            for node in nodes[:kills]:
                node.send_signal(signal.SIGKILL)
        late: list[float] = []
        while len(late) < count:
            if time.monotonic() > begun + _DUE_IN_S + within_s + _WAIT_S_MAX:
                raise RuntimeError(f"{name}: {len(late)} of {count} flows were fired")
            time.sleep(0.5)
            with world.engine.connect() as connection:
                late = [float(each) for each in connection.execute(_LATENESS).scalars()]
    lateness.add(name, percentile(late, 0.99))
    worst.add(name, percentile(late, 0.5))


@contextmanager
def _nodes(url: str, seconds_: float) -> Iterator[Sequence["subprocess.Popen[str]"]]:
    order = json.dumps({"url": url, "seconds": seconds_}) + "\n"
    command = [sys.executable, "-m", "benchmarks.schedule_node"]
    with contextlib.ExitStack() as stack:
        nodes = []
        for _ in range(_NODES):
            node = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            stack.callback(node.wait)
            stack.callback(node.kill)
            nodes.append(node)
            assert node.stdin is not None
            node.stdin.write(order)
            node.stdin.flush()
        for node in nodes:
            assert node.stdout is not None
            if node.stdout.readline().strip() != "ready":
                raise RuntimeError("a node did not start")
        yield nodes


def _hold_many(world: World, topology: Path) -> dict[str, float]:
    """A node that serves all flows, each of them with a schedule."""
    _make_due(world.engine, 10, 3600.0)
    with serve_flows(world, topology) as served:
        before = tree_s(served.pid), postgres_s(world.server)
        begun = time.monotonic()
        time.sleep(10.0)
        spent_s = time.monotonic() - begun
        return {
            "mb": _resident_mb(served.pid),
            "node_share": (tree_s(served.pid) - before[0]) / spent_s,
            "postgres_share": (postgres_s(world.server) - before[1]) / spent_s,
        }


def _resident_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) * 1024 / 1_000_000


def _ask_among_many(world: World, topology: Path, options: Options, flows: int) -> Samples:
    executions = _EXECUTIONS_QUICK if options.quick else _EXECUTIONS
    with world.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        # Each statement is a transaction, and takes longer than one of the product may.
        connection.execute(text("SET transaction_timeout = 0"))
        connection.execute(text(_PAST_EXECUTIONS), {"each": executions // flows})
        connection.execute(text(_PAST_JOBS))
        for name in ("flow_execution", "job_execution"):
            connection.execute(text(f"VACUUM ANALYZE gobblin_service.{name}"))
        connection.invalidate()
    found = Samples()
    count = _REQUESTS_QUICK if options.quick else _REQUESTS
    with serve_flows(world, topology) as served:
        asker = Asker(served.port)
        for name, path in {"its status": "status", "a page of its executions": "executions?limit=50"}.items():

            def ask(number: int, path: str = path) -> Any:
                flow = 1 + number * (flows - 2) // count
                return asker.ask("GET", f"/flows/group{flow // GROUP_FLOWS}/flow{flow}/{path}")

            ask(0)
            for number in range(count):
                found.add(name, timed(partial(ask, number)))
    return found


def _write_fires(rates: Samples, count: int) -> Table:
    values = rates.by_name[_ONE]
    return Table(
        "Fires of flows that are due",
        ("", "median", "smallest", "largest"),
        ((_ONE, *(f"{value:,.0f}" for value in (rates.median(_ONE), min(values), max(values)))),),
        (
            f"{count:,} flows, each with a slot and an execution; a Postgres that waits for its disk.",
            verdict_at_least("fires", rates.median(_ONE), FIRES_PER_S_MIN, "/s"),
        ),
    )


def _write_lateness(lateness: Samples, middle: Samples, count: int) -> Table:
    rows = tuple((*lateness.row(name), seconds(middle.median(name))) for name in lateness.by_name)
    goals = {_TOGETHER: LATE_S_MAX, _KILLED: KILLED_LATE_S_MAX, _MINUTE: LATE_S_MAX}
    return Table(
        f"{count:,} flows that are due",
        ("p99 of their lateness", "median", "smallest", "largest", "p50"),
        rows,
        (
            "From the slot to the execution's row, by the database's clock.",
            *(verdict(f"{name}, p99", lateness.median(name), goal) for name, goal in goals.items()),
        ),
    )


def _write_sizes(held: dict[str, float], asked: Samples, flows: int, options: Options) -> Table:
    executions = _EXECUTIONS_QUICK if options.quick else _EXECUTIONS
    pages = tuple(asked.row(name) for name in asked.by_name)
    return Table(
        f"A node of {flows:,} flows, and a flow among {executions:,} executions",
        ("", "median", "smallest", "largest"),
        (
            ("memory of `service serve`", f"{held['mb']:.0f} MB", "", ""),
            ("processor of it at rest", f"{held['node_share']:.3f}", "", ""),
            ("processor of Postgres at rest", f"{held['postgres_share']:.3f}", "", ""),
            *pages,
        ),
        (
            verdict("memory", held["mb"], NODE_MB_MAX, "MB"),
            *(verdict(f"{name}, p50", asked.median(name), STATUS_S_MAX) for name in asked.by_name),
        ),
    )
