"""What 100,000 flows with schedules cost a node, and how soon a flow's pages come among 1,000,000 executions."""

import time
from functools import partial
from pathlib import Path
from typing import Final

from sqlalchemy import text

from benchmarks.process_times import tree_s
from benchmarks.service_world import GROUP_FLOWS, Asker, ServedFlows, fill, serve_flows, write_topology
from benchmarks.sink_world import percentile, postgres_s
from benchmarks.tables import Options, Samples, Table, timed, verdict
from benchmarks.world import World

NODE_MB_MAX: Final = 400.0
STATUS_S_MAX: Final = 0.1

_FLOWS, _FLOWS_QUICK = 100_000, 1_000
_EXECUTIONS, _EXECUTIONS_QUICK = 1_000_000, 10_000
_REQUESTS, _REQUESTS_QUICK = 100, 20
_AT_REST_S: Final = 10.0

_MEMORY, _NODE, _POSTGRES = "memory of `service serve`", "processor of it at rest", "processor of Postgres at rest"
_PAGES: Final = {
    "its status": "/api/v1/flows/{}/status",
    "a page of its executions": "/api/v1/flows/{}/executions?limit=50",
    "its page for people": "/ui/flows/{}",
}

_SCHEDULES: Final = (
    'UPDATE gobblin_service.flow_version SET config = config || \'{"schedule": "30 4 1 1 *"}\'',
    "UPDATE gobblin_service.flow SET next_fire_at = now() + interval '30 days', due_at = now() + interval '30 days'",
)

_PAST_EXECUTIONS: Final = text("""
    INSERT INTO gobblin_service.flow_execution
           (request_id, flow_id, flow_version, status, asked_by, selection, ended_at)
    SELECT gen_random_uuid(), f.flow_id, f.version, 'COMPLETE', f.owner, '{}', now()
      FROM generate_series(1, :each) n, gobblin_service.flow f WHERE f.flow_name <> 'model'
""")

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
    executions = _EXECUTIONS_QUICK if options.quick else _EXECUTIONS
    topology = write_topology(world)
    fill(world, topology, flows)
    _add_executions(world, executions // flows)
    held, pages = Samples(), Samples()
    for round_ in range(options.runs):
        with serve_flows(world, topology) as served:
            _hold(world, served, held)
            _ask_all(served, flows, round_, _REQUESTS_QUICK if options.quick else _REQUESTS, pages)
    return [_write(held, pages, flows, executions)]


def _add_executions(world: World, each: int) -> None:
    with world.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        # Each statement is a transaction, and takes longer than one of the product may.
        connection.exec_driver_sql("SET transaction_timeout = 0")
        for statement in _SCHEDULES:
            connection.exec_driver_sql(statement)
        connection.execute(_PAST_EXECUTIONS, {"each": each})
        connection.exec_driver_sql("ANALYZE gobblin_service.flow_execution")
        connection.exec_driver_sql(_PAST_JOBS)
        for name in ("flow", "flow_version", "flow_execution", "job_execution"):
            connection.exec_driver_sql(f"VACUUM ANALYZE gobblin_service.{name}")
        connection.invalidate()


def _hold(world: World, served: ServedFlows, held: Samples) -> None:
    before = tree_s(served.pid), postgres_s(world.server)
    begun = time.monotonic()
    time.sleep(_AT_REST_S)
    spent_s = time.monotonic() - begun
    held.add(_NODE, (tree_s(served.pid) - before[0]) / spent_s)
    held.add(_POSTGRES, (postgres_s(world.server) - before[1]) / spent_s)
    held.add(_MEMORY, _resident_mb(served.pid))


def _resident_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) * 1024 / 1_000_000


def _ask_all(served: ServedFlows, flows: int, round_: int, count: int, pages: Samples) -> None:
    """Of flows that were not asked for in another round."""
    asker = Asker(served.port)

    def ask(path: str, number: int) -> None:
        flow = 1 + (round_ + number * (flows - 1) // count) % (flows - 1)
        asker.read(path.format(f"group{flow // GROUP_FLOWS}/flow{flow}"))

    for name, path in _PAGES.items():
        # The first request finds nothing prepared.
        ask(path, 0)
        pages.add(name, percentile([timed(partial(ask, path, number)) for number in range(count)], 0.5))


def _write(held: Samples, pages: Samples, flows: int, executions: int) -> Table:
    def row(name: str, form: str) -> tuple[str, ...]:
        values = held.by_name[name]
        return (name, *(form.format(value) for value in (held.median(name), min(values), max(values))))

    return Table(
        f"A node of {flows:,} flows, and a flow among {executions:,} executions",
        ("", "median", "smallest", "largest"),
        (
            row(_MEMORY, "{:.0f} MB"),
            row(_NODE, "{:.3f}"),
            row(_POSTGRES, "{:.3f}"),
            *(pages.row(name) for name in pages.by_name),
        ),
        (
            f"Each flow has a schedule. Of a round: the memory after {_AT_REST_S:g} s, the median of the requests.",
            verdict("memory", held.median(_MEMORY), NODE_MB_MAX, "MB"),
            *(verdict(f"{name}, p50", pages.median(name), STATUS_S_MAX) for name in pages.by_name),
        ),
    )
