"""Schedules of many flows: how fast nodes fire and launch, and how late flows begin that are due at once.

Nodes are processes. They only fire: what is behind a fire is in the measures of the service and of flows that are due.
"""

import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from sqlalchemy import Engine, text

from benchmarks.service_world import fill, write_topology
from benchmarks.sink_world import percentile, postgres_s
from benchmarks.tables import Options, Samples, Table, seconds, verdict, verdict_at_least
from benchmarks.world import World
from gobblin_assets.service.flow_manager import FlowManager
from gobblin_assets.service.launcher import Launcher
from gobblin_assets.service.opening import open_service
from gobblin_assets.service.postgres.flows import PostgresFlowStore
from gobblin_assets.service.postgres.schedules import PostgresScheduleStore
from gobblin_assets.service.roles import NodeRole
from gobblin_assets.service.scheduler import Scheduler
from gobblin_assets.settings import Settings

FIRES_PER_S_MIN: Final = 2_000.0
LATE_S_MAX: Final = 5.0
KILLED_LATE_S_MAX: Final = 10.0

_FLOWS, _FLOWS_QUICK = 100_000, 1_000
_AT_ONCE, _AT_ONCE_QUICK = 10_000, 500
_LAUNCHES, _LAUNCHES_QUICK = 200, 20
_MINUTE_S, _MINUTE_S_QUICK = 60.0, 3.0
_NODES: Final = 3
_DUE_IN_S: Final = 3.0
_KILL_BEHIND_S: Final = 0.3
_WAIT_S_MAX: Final = 60.0
_LOOK_S: Final = 0.5
_NODE_S_MAX: Final = 600.0

_FIRE, _LAUNCH = "a fire", "a launch"
_OF_NODE, _OF_POSTGRES = ": the node's processor", ": Postgres' processor"
_TOGETHER, _KILLED, _MINUTE = (
    "at once, 3 nodes",
    "at once, 3 nodes, one of which is killed",
    "within a minute, 3 nodes",
)

# What is fired is not due again in this measure: its slots are a year apart.
_SCHEDULE: Final = 'UPDATE gobblin_service.flow_version SET config = config || \'{"schedule": "30 4 1 1 *"}\''


_RESET: Final = (
    "UPDATE gobblin_service.flow SET next_fire_at = NULL, due_at = NULL WHERE next_fire_at IS NOT NULL",
    "TRUNCATE gobblin_service.flow_slot",
    """
    UPDATE gobblin_service.flow_execution
       SET status = 'CANCELLED', launch_at = NULL, ended_at = now(), fire_at = NULL WHERE fire_at IS NOT NULL
    """,
)

_DUE: Final = text("""
    UPDATE gobblin_service.flow f SET next_fire_at = d.at, due_at = d.at
      FROM (SELECT flow_id, clock_timestamp() + make_interval(secs => :after_s + :within_s * random()) AS at
              FROM gobblin_service.flow WHERE deleted_at IS NULL LIMIT :count) AS d
     WHERE f.flow_id = d.flow_id
""")
_FIRST_DUE_IN: Final = text("""
    SELECT extract(epoch FROM min(due_at) - clock_timestamp())::float8 FROM gobblin_service.flow
     WHERE due_at < clock_timestamp() + interval '1 day'
""")

_LATENESS: Final = text("""
    SELECT extract(epoch FROM started_at - fire_at)::float8 FROM gobblin_service.flow_execution
     WHERE fire_at IS NOT NULL
""")


def measure(world: World, options: Options) -> list[Table]:
    flows = _FLOWS_QUICK if options.quick else _FLOWS
    at_once = _AT_ONCE_QUICK if options.quick else _AT_ONCE
    launches = _LAUNCHES_QUICK if options.quick else _LAUNCHES
    minute_s = _MINUTE_S_QUICK if options.quick else _MINUTE_S
    topology = write_topology(world)
    fill(world, topology, flows)
    with world.engine.begin() as connection:
        connection.exec_driver_sql(_SCHEDULE)
    found, late, middle = Samples(), Samples(), Samples()
    settings, roles = Settings(world.home), {NodeRole.API}
    with open_service(settings, topology, [], "multi_hop", {}, lambda _line: None, roles=roles) as opened:
        for _ in range(options.runs):
            _fire_alone(world, at_once, found)
            _launch_alone(world, opened.flows, launches, found)
    for _ in range(options.runs):
        with _nodes(world) as nodes:
            for name, within_s, killed in ((_TOGETHER, 0.0, None), (_MINUTE, minute_s, None), (_KILLED, 0.0, nodes[0])):
                seen = _fire_together(world.engine, at_once, within_s, killed)
                late.add(name, percentile(seen, 0.99))
                middle.add(name, percentile(seen, 0.5))
    return [_write_rates(found, at_once, launches), _write_lateness(late, middle, at_once)]


def _make_due(engine: Engine, count: int, after_s: float, within_s: float = 0.0) -> None:
    with engine.begin() as connection:
        for statement in _RESET:
            connection.exec_driver_sql(statement)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        for name in ("flow", "flow_execution", "flow_slot"):
            connection.exec_driver_sql(f"VACUUM ANALYZE gobblin_service.{name}")
    with engine.begin() as connection:
        connection.execute(_DUE, {"after_s": after_s, "within_s": within_s, "count": count})


def _fire_alone(world: World, count: int, found: Samples) -> None:
    """One node, which is this process: all have been due for an hour."""
    _make_due(world.engine, count, -3600.0)
    scheduler = Scheduler(PostgresScheduleStore(world.engine))
    _measure_look(world, _FIRE, scheduler.look, count, found)


def _launch_alone(world: World, flows: FlowManager, count: int, found: Samples) -> None:
    """One node, which is this process: from executions that wait to their jobs, which nobody sends."""
    _make_due(world.engine, count, -3600.0)
    schedules = PostgresScheduleStore(world.engine)
    Scheduler(schedules).look()
    # Jobs of earlier rounds are not begun either.
    store = PostgresFlowStore(world.engine)
    launcher = Launcher(schedules, store, flows.compiling, flows.writes, lambda _executor: 1_000_000)
    _measure_look(world, _LAUNCH, launcher.look, count, found)


def _measure_look(world: World, name: str, look: Callable[[], int], count: int, found: Samples) -> None:
    """Milliseconds of each of ``count``, which one look does."""
    before = time.monotonic(), time.process_time(), postgres_s(world.server)
    done = look()
    after = time.monotonic(), time.process_time(), postgres_s(world.server)
    if done != count:
        raise RuntimeError(f"{name}: {done} of {count} were done")
    for what, begun, ended in zip(("", _OF_NODE, _OF_POSTGRES), before, after, strict=True):
        found.add(name + what, 1_000.0 * (ended - begun) / count)


def _fire_together(
    engine: Engine, count: int, within_s: float, killed: "subprocess.Popen[str] | None"
) -> Sequence[float]:
    """How late each of the flows was (s). ``killed``: this node is killed while flows are fired."""
    _make_due(engine, count, _DUE_IN_S, within_s)
    with engine.connect() as connection:
        time.sleep(max(0.0, connection.execute(_FIRST_DUE_IN).scalar_one()) + _KILL_BEHIND_S)
    if killed is not None:
        killed.send_signal(signal.SIGKILL)
    until = time.monotonic() + within_s + _WAIT_S_MAX
    while True:
        with engine.connect() as connection:
            found = connection.execute(_LATENESS).scalars().all()
        if len(found) == count:
            return found
        if time.monotonic() > until:
            raise RuntimeError(f"{len(found)} of {count} flows were fired")
        time.sleep(_LOOK_S)


@contextmanager
def _nodes(world: World) -> Iterator[Sequence["subprocess.Popen[str]"]]:
    url = world.engine.url.render_as_string(hide_password=False)
    order = json.dumps({"url": url, "seconds": _NODE_S_MAX}) + "\n"
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


def _write_rates(found: Samples, at_once: int, launches: int) -> Table:
    def row(name: str) -> tuple[str, ...]:
        values = found.by_name[name]
        return (name, *(f"{value:.2f} ms" for value in (found.median(name), min(values), max(values))))

    return Table(
        "Fires and launches of flows that are due",
        ("one node", "median", "smallest", "largest"),
        tuple(row(name) for name in found.by_name),
        (
            f"{at_once:,} flows are fired, each with a slot and an execution; a Postgres that waits for its disk.",
            f"{launches:,} executions are launched: compiled, and given a job whose ticket nobody sends.",
            verdict_at_least("fires", 1_000.0 / found.median(_FIRE), FIRES_PER_S_MIN, "/s"),
        ),
    )


def _write_lateness(late: Samples, middle: Samples, count: int) -> Table:
    goals = {_TOGETHER: LATE_S_MAX, _MINUTE: LATE_S_MAX, _KILLED: KILLED_LATE_S_MAX}
    return Table(
        f"{count:,} flows that are due",
        ("p99 of their lateness", "median", "smallest", "largest", "p50"),
        tuple((*late.row(name), seconds(middle.median(name))) for name in late.by_name),
        (
            "From the slot to the execution's row, by the database's clock.",
            *(verdict(f"{name}, p99", late.median(name), goal) for name, goal in goals.items()),
        ),
    )
