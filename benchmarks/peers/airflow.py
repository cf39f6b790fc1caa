"""Minutely flows beside minutely DAGs of Airflow: how late they begin, and what a kill of the scheduler costs.

Both are on this machine at once, and in the same server of Postgres: Airflow's slots are at second 0, ours at second
30. A task of Airflow's does nothing; a job of ours looks for new rows of a table, and finds none. Ours is one node.
"""

import contextlib
import http.client
import math
import os
import secrets
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sqlalchemy import create_engine, make_url, text

from benchmarks.peers.environments import make_environment
from benchmarks.peers.watching import find_descendants, spent_of
from benchmarks.service_world import Asker, describe_flow, executing, serve_flows, write_topology
from benchmarks.sink_world import percentile
from benchmarks.tables import Options, Table, seconds
from benchmarks.world import World
from demo.server_process import find_port, read_end, run_guarded
from gobblin_assets.db import embedded

AIRFLOW: Final = ("apache-airflow==3.3.2", "apache-airflow-providers-postgres==7.1.1", "asyncpg==0.32.0")

_DATABASE: Final = "airflow"
_GROUP: Final = "minutely"
_FLOWS: Final = 10
_ROWS: Final = 1_000
_DOWN_S, _DOWN_S_QUICK = 150.0, 70.0
_BEHIND_S: Final = 100.0
"""Behind the restart: the schedulers are up again, and what they make up for is done."""
_WARM_S: Final = 75.0
_START_S_MAX: Final = 180.0
_LOOK_S: Final = 0.2
_MB: Final = 1_000_000
_OURS, _PEER = "ours", "Airflow"

_DAGS: Final = f"""\
import pendulum
from airflow.sdk import dag, task

for number in range({_FLOWS}):

    @dag(dag_id=f"minutely{{number}}", schedule="* * * * *", start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
         catchup=False, is_paused_upon_creation=False)
    def minutely():
        @task
        def do_nothing():
            pass

        do_nothing()

    minutely()
"""

_OWN_RUNS: Final = text("""
    SELECT extract(epoch FROM e.fire_at)::float8 AS slot, extract(epoch FROM e.started_at)::float8 AS fired,
           extract(epoch FROM c.claimed_at)::float8 AS begun
      FROM gobblin_service.flow f
      JOIN gobblin_service.flow_execution e USING (flow_id)
      JOIN gobblin_service.job_execution j USING (execution_id)
      JOIN gobblin.ticket_claim c ON c.ticket_id = j.ticket_id AND c.attempt = 1
     WHERE f.flow_group = :group AND e.fire_at IS NOT NULL
""")
_OWN_SLOTS: Final = text("""
    SELECT coalesce(sum(s.count), 0) FROM gobblin_service.flow_slot s JOIN gobblin_service.flow f USING (flow_id)
     WHERE f.flow_group = :group AND s.slot_at > to_timestamp(:first) AND s.slot_at <= to_timestamp(:last)
""")
_PEER_RUNS: Final = text("""
    SELECT extract(epoch FROM r.run_after)::float8 AS slot, extract(epoch FROM r.queued_at)::float8 AS fired,
           extract(epoch FROM t.start_date)::float8 AS begun
      FROM dag_run r JOIN task_instance t ON (t.dag_id, t.run_id) = (r.dag_id, r.run_id)
     WHERE t.start_date IS NOT NULL
""")


@dataclass(frozen=True, slots=True)
class MinutelyRun:
    """Its slot, when it was made, and when its job or task began (Unix time, s)."""

    slot: float
    fired: float
    begun: float


@dataclass(frozen=True, slots=True)
class WayFound:
    """``slots``: that were in the outage; ``told``: of these, what the database says of them."""

    runs: Sequence[MinutelyRun]
    missed: int
    slots: int
    told: int
    memory_mb: float
    cores: float


def measure(world: World, options: Options) -> list[Table]:
    folder = world.home / "airflow"
    try:
        programs = make_environment(folder / "environment", AIRFLOW)
    except RuntimeError as error:
        return [Table("Airflow: not measured", ("reason",), ((f"it could not be installed: {error}",),))]
    world.make_events(_ROWS)
    airflow = _Airflow(world, programs, folder)
    airflow.prepare()
    down_s = _DOWN_S_QUICK if options.quick else _DOWN_S
    with ExitStack() as stack:
        processor = stack.enter_context(airflow.run("dag-processor"))
        api = stack.enter_context(airflow.run("api-server"))
        airflow.await_answer()
        executor = stack.enter_context(executing(world))
        with airflow.run("scheduler") as scheduler, serve_flows(world, write_topology(world)) as served:
            asker = Asker(served.port)
            for number in range(_FLOWS):
                config = describe_flow(_GROUP, f"flow{number}")
                asker.ask("POST", "/flows", config | {"schedule": "30 * * * * ?", "run_immediately": False})
            time.sleep(_WARM_S)
            roots = {_OURS: [served.pid, executor.pid], _PEER: [scheduler.pid, api.pid, processor.pid]}
            begun, before = time.time(), {name: _spent(pids) for name, pids in roots.items()}
            time.sleep(60.0 * (1 if options.quick else options.runs))
            used = {name: _spent(pids) for name, pids in roots.items()}
            killed = time.time()
            for pid in (*find_descendants(scheduler.pid), served.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, 9)
        time.sleep(down_s)
        up = time.time()
        with airflow.run("scheduler"), serve_flows(world, write_topology(world)):
            time.sleep(_BEHIND_S)
        found = {}
        for name in roots:
            runs = _list_own(world) if name == _OURS else airflow.list_runs()
            slots = _FLOWS * _count_slots(killed, up, 30.0 if name == _OURS else 0.0)
            had = sum(killed < run.slot <= up for run in runs)
            found[name] = WayFound(
                [run for run in runs if begun < run.slot <= killed - 30.0],
                slots - had,
                slots,
                _count_told(world, killed, up) if name == _OURS else had,
                used[name][1] / _MB,
                (used[name][0] - before[name][0]) / (killed - begun),
            )
    return [_write(found, down_s)]


class _Airflow:
    """Airflow with its defaults, but for its database: Postgres, as its documentation asks for."""

    def __init__(self, world: World, programs: Path, folder: Path) -> None:
        self._programs, self._folder = programs, folder
        embedded.create_database(world.server, _DATABASE)
        self._url = make_url(world.server.tcp_url(_DATABASE)).set(drivername="postgresql+psycopg2")
        self._port = find_port()
        self._environment: Mapping[str, str] = {
            "AIRFLOW_HOME": str(folder / "home"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": self._url.render_as_string(hide_password=False),
            "AIRFLOW__API__PORT": str(self._port),
            "AIRFLOW__API__WORKERS": "1",
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{self._port}/execution/",
            "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_hex(32),
        }

    def prepare(self) -> None:
        dags = self._folder / "home" / "dags"
        dags.mkdir(parents=True)
        (dags / "minutely.py").write_text(_DAGS, encoding="utf-8")
        command = [str(self._programs / "airflow"), "db", "migrate"]
        done = subprocess.run(
            command, env={**os.environ, **self._environment}, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"airflow db migrate: {done.stderr[-1_000:]}")

    @contextmanager
    def run(self, name: str) -> Iterator["subprocess.Popen[bytes]"]:
        """One of its programs, which is killed at the end of the block with all that it started."""
        log = self._folder / f"{name}.log"
        with run_guarded([str(self._programs / "airflow"), name], log, self._environment) as process:
            try:
                yield process
            finally:
                for pid in find_descendants(process.pid):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, 9)

    def await_answer(self) -> None:
        """Tasks ask the API server for what they need."""
        until = time.monotonic() + _START_S_MAX
        while time.monotonic() < until:
            with contextlib.suppress(OSError):
                connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=10)
                connection.request("GET", "/api/v2/version")
                if connection.getresponse().status == http.client.OK:
                    return
            time.sleep(_LOOK_S)
        raise RuntimeError(f"Airflow's API server did not start:\n{read_end(self._folder / 'api-server.log')}")

    def list_runs(self) -> list[MinutelyRun]:
        engine = create_engine(self._url.set(drivername="postgresql+psycopg"))
        try:
            with engine.connect() as connection:
                return [MinutelyRun(*row) for row in connection.execute(_PEER_RUNS)]
        finally:
            engine.dispose()


def _list_own(world: World) -> list[MinutelyRun]:
    with world.engine.connect() as connection:
        return [MinutelyRun(*row) for row in connection.execute(_OWN_RUNS, {"group": _GROUP})]


def _count_told(world: World, first: float, last: float) -> int:
    given: dict[str, Any] = {"group": _GROUP, "first": first, "last": last}
    with world.engine.connect() as connection:
        return int(connection.execute(_OWN_SLOTS, given).scalar_one())


def _count_slots(first: float, last: float, second: float) -> int:
    """How many times of this second of a minute are behind ``first``, up to ``last``."""
    return math.floor((last - second) / 60.0) - math.floor((first - second) / 60.0)


def _spent(roots: Sequence[int]) -> tuple[float, float]:
    """Processor seconds so far and resident bytes of the processes and all that they started."""
    spent = [spent_of(pid) for root in roots for pid in find_descendants(root)]
    return sum(each[0] for each in spent), sum(each[1] for each in spent)


def _write(found: Mapping[str, WayFound], down_s: float) -> Table:
    def of_lateness(values: Sequence[float]) -> tuple[str, str]:
        return seconds(percentile(values, 0.5)), seconds(max(values))

    rows = [
        (
            name,
            *of_lateness([run.fired - run.slot for run in each.runs]),
            *of_lateness([run.begun - run.slot for run in each.runs]),
            f"{each.missed} of {each.slots}",
            f"{each.told} of {each.slots}",
            f"{each.memory_mb:.0f} MB",
            f"{each.cores:.2f}",
        )
        for name, each in found.items()
    ]
    return Table(
        f"{_FLOWS} minutely flows, beside {_FLOWS} minutely DAGs of Airflow",
        (
            *("way", "slot until its run is made, p50", "largest", "until its job or task begins, p50", "largest"),
            *("slots without a run after a kill", "slots of these that the database tells of", "memory", "cores"),
        ),
        tuple(rows),
        (
            f"{AIRFLOW[0]} with LocalExecutor and Postgres; `service serve` and `executor serve`. Both with defaults.",
            f"{sum(len(each.runs) for each in found.values())} runs, by the clock of the database and of Airflow.",
            (
                f"Then both schedulers are killed, and start again after {down_s:g} s."
                " By default neither makes up for all slots (`catch_up: latest`, `catchup=False`)."
            ),
            "Memory and cores: of the service and its executor; of Airflow's scheduler, API server and DAG processor.",
        ),
    )
