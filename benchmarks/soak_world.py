"""The world of a soak: two Postgres, nodes of the service, executors, many small flows, a writer of their sources."""

import os
import random
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml
from psycopg import sql

from demo.flights_source import connect_source
from demo.logical_cluster import start_logical
from demo.places import SOURCE_DATABASE
from demo.server_process import find_port
from demo.service.client import ServiceClient
from demo.service.machines import Machine
from demo.service.places import child_environment
from demo.service.run_demo import begin, wait_until
from demo.stage import console
from gobblin_assets.db import embedded
from gobblin_assets.db.embedded import EmbeddedServer
from gobblin_assets.service.schedules import CONTINUOUS

GROUP: Final = "soak"
PROCESS, DAGSTER = "processes", "dagster"
FOLLOWED: Final = "followed"
COPIED_TABLE: Final = "table_0"
KEPT_MINUTES: Final = 10
"""So long the service keeps tickets, reports and slots, and the pack of the soak keeps history and retired files."""

NODES: Final = 2
_SLOTS: Final = 4
_SLOW_S: Final = 150
_FOLLOWED_ROWS_MAX: Final = 200
_APPENDED_MAX: Final = 3
_SNAPSHOT_ROWS: Final = 20
_PUBLICATION: Final = "soak"
_PROGRAM: Final = ("-m", "gobblin_assets.cli")

_BOUNDS: Final = f"""
  log: {{fold_keep: 5, fold_min: 5, fold_age_s: 60, history_days: {KEPT_MINUTES / 1440:.5f}}}
  retire_grace_s: 60
"""

_TABLE_TEMPLATE: Final = f"""
capability: ingest.jdbc
shape: run
from: {{kind: database, format: table}}
to: {{kind: files, format: dataset}}
parameters:
  type: object
  required: [datasets]
  properties:
    datasets:
      type: array
      items:
        type: object
        required: [table]
        properties:
          table: {{type: string, pattern: '^[a-z0-9_.]{{1,60}}$'}}
          watermark_column: {{type: string, pattern: '^[a-z_]{{1,60}}$'}}
job:
  source: {{connection: "${{from.connection}}"}}
  destination: ${{to.root}}{_BOUNDS}
  datasets:
    - for_each: datasets
      given: watermark_column
      make:
        table: ${{each.table}}
        primary_key: [id]
        extract: append_only
        watermark: {{column: "${{each.watermark_column}}"}}
    - for_each: datasets
      without: watermark_column
      make: {{table: "${{each.table}}", primary_key: [id], extract: snapshot_only}}
"""

_CHANGES_TEMPLATE: Final = f"""
capability: sink.postgres_log
shape: worker
from: {{kind: change_log, format: changes}}
to: {{kind: files, format: dataset}}
parameters:
  type: object
  required: [publication, datasets]
  properties:
    publication: {{type: string, pattern: '^[a-z]{{1,60}}$'}}
    datasets:
      type: array
      items:
        type: object
        required: [table]
        properties:
          table: {{type: string, pattern: '^[a-z0-9_.]{{1,60}}$'}}
job:
  source: {{type: postgres_log, connection: "${{from.connection}}", publication: "${{publication}}"}}
  destination: ${{to.root}}{_BOUNDS}
  sink: {{every_s: 1}}
  datasets:
    - for_each: datasets
      make: {{urn: "${{each.table}}", table: "${{each.table}}"}}
"""


@dataclass(frozen=True, slots=True)
class SoakPlan:
    """``flows``: of tables; each runs every ``period`` minutes, at another minute than its neighbours."""

    home: Path
    flows: int
    period: int
    has_dagster: bool

    @property
    def tables(self) -> Sequence[str]:
        return [f"table_{number}" for number in range(self.flows)]

    def is_appended(self, table: str) -> bool:
        """Whether the table grows; another one is changed, and read whole."""
        return self.tables.index(table) % 2 == 0

    @property
    def lake(self) -> Path:
        return self.home / "lake"

    @property
    def mirror(self) -> Path:
        return self.home / "mirror"

    @property
    def log_home(self) -> Path:
        return self.home / "log"

    @property
    def source_home(self) -> Path:
        return self.home / "source"

    @property
    def said(self) -> Path:
        """What the processes say."""
        return self.home / "said"

    @property
    def scratch(self) -> Path:
        """Their temporary files."""
        return self.home / "scratch"


@dataclass(frozen=True, slots=True)
class SoakWorld:
    plan: SoakPlan
    log: EmbeddedServer
    source: EmbeddedServer
    machines: Sequence[Machine]
    client: ServiceClient
    flows: Mapping[str, Mapping[str, Any]]
    """By their names, as they were made; the flows of ``@continuous`` among them."""

    def job_of(self, flow: str) -> str:
        return str(self.client.ask("GET", f"/flows/{GROUP}/{flow}/jobs")[0]["job_name"])


def open_world(plan: SoakPlan, stack: ExitStack) -> SoakWorld:
    """All of it is at work, until the stack ends. What an earlier soak left in the home is removed first."""
    for home in (plan.log_home, plan.source_home):
        if home.exists():
            embedded.stop(home)
    if plan.home.exists():
        shutil.rmtree(plan.home)
    for folder in (plan.log_home, plan.source_home, plan.lake, plan.mirror, plan.said, plan.scratch):
        folder.mkdir(parents=True)
    plan.home.chmod(0o755)
    # Away from the clone, whose workspace.yaml Dagster would load.
    os.chdir(plan.home)
    source = start_logical(plan.source_home)
    stack.callback(embedded.stop, plan.source_home)
    _fill(plan, source)
    log = embedded.start(plan.log_home, console.print)
    stack.callback(embedded.stop, plan.log_home)
    _apply_environment(plan, source)
    topology = _write_topology(plan)
    ports = [find_port() for _ in range(NODES)]
    machines = [_make_node(plan, number, port, topology) for number, port in enumerate(ports, 1)]
    begin(machines[0], stack)
    client = ServiceClient(f"http://127.0.0.1:{ports[0]}")
    wait_until(client.is_answered, "the answer of the service")
    words = ["executor", "serve", "--name", PROCESS, "--slots", str(_SLOTS)]
    others = [*machines[1:], _make_machine(plan, PROCESS, [*_PROGRAM, *words])]
    if plan.has_dagster:
        words = ["dagster", "--executor", DAGSTER, "dev", "-p", str(find_port())]
        others.append(_make_machine(plan, DAGSTER, [*_PROGRAM, *words]))
    for machine in others:
        begin(machine, stack)
    for name in (PROCESS, DAGSTER) if plan.has_dagster else (PROCESS,):
        wait_until(lambda: _is_heard(client, name), f"a heartbeat of {name}", 300.0)  # noqa: B023  it is called at once
    flows = {}
    for config in _describe_flows(plan):
        client.ask("POST", "/flows", config)
        flows[config["flow_name"]] = config
    world = SoakWorld(plan, log, source, [machines[0], *others], client, flows)
    # A job has its name from its first run on.
    client.ask("POST", f"/flows/{GROUP}/{COPIED_TABLE}:run", {})
    client.wait(f"/flows/{GROUP}/{COPIED_TABLE}", lambda _status: None)
    mirror = _describe_mirror(world)
    client.ask("POST", "/flows", mirror)
    flows["mirror"] = mirror
    return world


class SourceWriter:
    """Writes slowly: some rows to each table of the runs, and changes to the table that a worker follows."""

    def __init__(self, plan: SoakPlan, source: EmbeddedServer) -> None:
        self._plan = plan
        self._source = source
        self._dice = random.Random(1)
        self._next = 0

    def write_tables(self) -> None:
        with connect_source(self._source) as connection:
            for table in self._plan.tables:
                if self._plan.is_appended(table):
                    connection.execute(
                        sql.SQL("INSERT INTO {0} (value) SELECT md5(n::text) FROM generate_series(1, {1}) n").format(
                            sql.Identifier(table), sql.Literal(self._dice.randint(1, _APPENDED_MAX))
                        )
                    )
                else:
                    statement = sql.SQL("UPDATE {} SET value = md5(random()::text) WHERE id = %s")
                    connection.execute(statement.format(sql.Identifier(table)), [self._dice.randint(1, _SNAPSHOT_ROWS)])

    def change_followed(self) -> None:
        """An insertion, an update, and beyond some size a deletion: the table does not grow."""
        with connect_source(self._source) as connection:
            connection.execute("INSERT INTO followed VALUES (%s, 'new')", [self._next])
            connection.execute(
                "UPDATE followed SET value = value || '.' WHERE id = %s",
                [self._dice.randint(max(0, self._next - _FOLLOWED_ROWS_MAX), self._next)],
            )
            connection.execute("DELETE FROM followed WHERE id <= %s", [self._next - _FOLLOWED_ROWS_MAX])
            self._next += 1


def _describe_flows(plan: SoakPlan) -> list[dict[str, Any]]:
    """Most tables are read by processes; some by Dagster, whose run costs several times as much."""
    found = []
    for number, table in enumerate(plan.tables):
        dataset = {"table": f"public.{table}"}
        if plan.is_appended(table):
            dataset["watermark_column"] = "id"
        found.append(_describe(table, "tables", "lake", [dataset], schedule=_every(plan.period, number)))
    # Most of its slots come while it still reads.
    found.append(_describe("slow", "tables", "lake", [{"table": "public.slow"}], schedule=_every(1, 0)))
    if plan.has_dagster:
        dataset = {"table": f"public.{COPIED_TABLE}", "watermark_column": "id"}
        config = _describe("by_dagster", "tables", "dagster_lake", [dataset], schedule=_every(5, 1))
        found.append(config)
    changes = _describe(FOLLOWED, "changes", "lake", [{"table": f"public.{FOLLOWED}"}], schedule=CONTINUOUS)
    changes["source"] = "shop_log"
    changes["parameters"]["publication"] = _PUBLICATION
    return [*found, changes]


def _describe(name: str, template: str, destination: str, datasets: Sequence[Any], *, schedule: str) -> dict[str, Any]:
    return {
        "flow_group": GROUP,
        "flow_name": name,
        "source": "shop",
        "destinations": [destination],
        "template_uris": [f"FS:///soak/{template}.template"],
        "parameters": {"datasets": list(datasets)},
        "schedule": schedule,
    }


def _describe_mirror(world: SoakWorld) -> dict[str, Any]:
    """The copy of what the first flow publishes."""
    dataset = {"dataset": f"public.{COPIED_TABLE}", "job": world.job_of(COPIED_TABLE)}
    return {
        "flow_group": GROUP,
        "flow_name": "mirror",
        "source": {"node": "lake", "format": "dataset"},
        "destinations": ["mirror"],
        "parameters": {"datasets": [dataset]},
        "schedule": _every(world.plan.period, 3),
    }


def _every(period: int, offset: int) -> str:
    return f"{offset % period}-59/{period} * * * *"


def _is_heard(client: ServiceClient, name: str) -> bool:
    return bool(client.ask("GET", f"/executors/{name}")["health"]["state"] == "HEALTHY")


def _fill(plan: SoakPlan, source: EmbeddedServer) -> None:
    embedded.create_database(source, SOURCE_DATABASE)
    with connect_source(source) as connection:
        for table in plan.tables:
            create = "CREATE TABLE {} (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, value text)"
            fill = "INSERT INTO {} (value) SELECT md5(n::text) FROM generate_series(1, {}) n"
            connection.execute(sql.SQL(create).format(sql.Identifier(table)))
            connection.execute(sql.SQL(fill).format(sql.Identifier(table), sql.Literal(_SNAPSHOT_ROWS)))
        connection.execute("CREATE TABLE followed (id bigint PRIMARY KEY, value text)")
        connection.execute(
            sql.SQL("CREATE VIEW slow AS SELECT 1::bigint AS id, pg_sleep({})::text AS value").format(_SLOW_S)
        )
        connection.execute("CREATE PUBLICATION soak FOR TABLE followed")


def _apply_environment(plan: SoakPlan, source: EmbeddedServer) -> None:
    """Set it for this process and for those that it starts; it holds passwords."""
    for name in ("DAGSTER_HOME", "GOBBLIN_DATABASE_URL", "GOBBLIN_SPARK_REMOTE", "GOBBLIN_SPARK_MASTER"):
        os.environ.pop(name, None)
    for prefix in ("GOBBLIN_JDBC_SHOP", "GOBBLIN_POSTGRES_LOG_SHOP"):
        os.environ |= {
            f"{prefix}_URL": source.jdbc_url(SOURCE_DATABASE).removeprefix("jdbc:"),
            f"{prefix}_USER": source.user,
            f"{prefix}_PASSWORD": source.password(),
        }
    os.environ["GOBBLIN_HOME"] = str(plan.log_home)


def _write_topology(plan: SoakPlan) -> Path:
    nodes = {
        "shop": {"kind": "database", "connection": "shop"},
        "shop_log": {"kind": "change_log", "connection": "shop"},
        "lake": {"kind": "files", "root": str(plan.lake)},
        "dagster_lake": {"kind": "files", "root": str(plan.home / "dagster_lake")},
        "mirror": {"kind": "files", "root": str(plan.mirror)},
    }
    executors = {
        PROCESS: {
            "capabilities": ["ingest.jdbc", "distcp", "sink.postgres_log"],
            "nodes": ["shop", "shop_log", "lake", "mirror"],
        },
        DAGSTER: {"technology": "dagster", "capabilities": ["ingest.jdbc"], "nodes": ["shop", "dagster_lake"]},
    }
    path = plan.home / "topology.yaml"
    path.write_text(yaml.safe_dump({"nodes": nodes, "executors": executors}), encoding="utf-8")
    pack = plan.home / "pack"
    pack.mkdir()
    (pack / "pack.yaml").write_text("pack: soak\nversion: '1'\n", encoding="utf-8")
    (pack / "tables.template").write_text(_TABLE_TEMPLATE, encoding="utf-8")
    (pack / "changes.template").write_text(_CHANGES_TEMPLATE, encoding="utf-8")
    return path


def _make_node(plan: SoakPlan, number: int, port: int, topology: Path) -> Machine:
    words = ["service", "serve", "--topology", str(topology), "--pack", str(plan.home / "pack"), "--no-auth"]
    words += ["--port", str(port), "--tickets-kept-days", str(KEPT_MINUTES)]
    return _make_machine(plan, f"node-{number}", ["-m", "benchmarks.soak_node", *words])


def _make_machine(plan: SoakPlan, name: str, words: Sequence[str]) -> Machine:
    environment = {**os.environ, **child_environment(), "TMPDIR": str(plan.scratch)}
    return Machine(name, [sys.executable], words, environment, {}, plan.said)
