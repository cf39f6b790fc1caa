"""A service of many flows: its database is filled from one flow that was made by a request, and then it is served."""

import http.client
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml
from sqlalchemy import Engine, text

from benchmarks.process_times import tree_s
from benchmarks.world import TABLE, World, environment_of
from demo.server_process import find_port, read_end, run_guarded

EXECUTOR: Final = "local"
GROUP_FLOWS: Final = 200
"""So many flows have the same group."""

_MODEL: Final = "model"
_ANSWER_S_MAX: Final = 120.0
_LOOK_S: Final = 0.01
_IDLE_S_MAX: Final = 2.0
"""The service closes a connection that nobody uses for 5 s."""


_MODEL_ENDS: Final = (
    "UPDATE gobblin_service.job_execution SET status = 'COMPLETE', started_at = now(), ended_at = now()",
    "UPDATE gobblin_service.flow_execution SET status = 'COMPLETE', ended_at = now()",
)

# Each has what its model has: a version, a name of its job, and an execution that has ended.
_COPY: Final = (
    """
    INSERT INTO gobblin_service.flow
           (flow_id, flow_group, flow_name, version, state, reasons, runs_when_able, owner, owner_groups, change)
    SELECT md5('flow' || n)::uuid, 'group' || n / :group_flows, 'flow' || n, 1, m.state, m.reasons, m.runs_when_able,
           m.owner, m.owner_groups, m.change + n
      FROM generate_series(1, :count) n, gobblin_service.flow m WHERE m.flow_name = :model
    """,
    """
    INSERT INTO gobblin_service.flow_version (flow_id, version, request_id, config, made_by)
    SELECT md5('flow' || n)::uuid, 1, md5('version' || n)::uuid,
           v.config || jsonb_build_object('flow_group', 'group' || n / :group_flows, 'flow_name', 'flow' || n,
                                          'description', 'Rows of the table ' || n), v.made_by
      FROM generate_series(1, :count) n,
           gobblin_service.flow m JOIN gobblin_service.flow_version v USING (flow_id) WHERE m.flow_name = :model
    """,
    """
    INSERT INTO gobblin_service.flow_job
           (job_name, flow_id, node, generation, log_id, template_uri, source_node, source_place, root)
    SELECT 'flow' || n || '_to_lake', md5('flow' || n)::uuid, j.node, 0, j.log_id, j.template_uri, j.source_node,
           j.source_place, j.root
      FROM generate_series(1, :count) n,
           gobblin_service.flow m JOIN gobblin_service.flow_job j USING (flow_id) WHERE m.flow_name = :model
    """,
    """
    INSERT INTO gobblin_service.flow_execution
           (request_id, flow_id, flow_version, status, asked_by, selection, ended_at)
    SELECT md5('execution' || n)::uuid, md5('flow' || n)::uuid, 1, e.status, e.asked_by, e.selection, e.ended_at
      FROM generate_series(1, :count) n,
           gobblin_service.flow m JOIN gobblin_service.flow_execution e USING (flow_id) WHERE m.flow_name = :model
    """,
    """
    INSERT INTO gobblin_service.job_execution
           (execution_id, number, job_name, executor, log, ticket_id, ticket, "after", status, send_begun_at,
            started_at, ended_at)
    SELECT e.execution_id, t.number, 'flow' || n || '_to_lake', t.executor, t.log, md5('ticket' || n)::uuid, t.ticket,
           t."after", t.status, t.started_at, t.started_at, t.ended_at
      FROM generate_series(1, :count) n
      JOIN gobblin_service.flow_execution e ON e.flow_id = md5('flow' || n)::uuid,
           gobblin_service.flow m JOIN gobblin_service.flow_execution l USING (flow_id)
           JOIN gobblin_service.job_execution t ON t.execution_id = l.execution_id WHERE m.flow_name = :model
    """,
    "UPDATE gobblin_service.catalog_change SET number = number + :count WHERE catalog = 'flows'",
)


@dataclass(frozen=True, slots=True)
class ServedFlows:
    """A service that answers. ``start_s``: from its command to its first answer; ``start_cpu_s``: of its process."""

    port: int
    pid: int
    start_s: float
    start_cpu_s: float


class Asker:
    """Requests to the service, one after another over one connection, which is a new one behind a pause."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_ANSWER_S_MAX)
        self._used_at = time.monotonic()

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """RuntimeError for what the service refuses: it gives no figure."""
        return json.loads(self._send(method, f"/api/v1{path}", None if body is None else json.dumps(body)))

    def read(self, path: str) -> bytes:
        """What a GET of any path gives, such as a page for people. RuntimeError as of ``ask``."""
        return self._send("GET", path, None)

    def _send(self, method: str, path: str, given: str | None) -> bytes:
        if time.monotonic() > self._used_at + _IDLE_S_MAX:
            self._connection.close()
        self._connection.request(method, path, given)
        answer = self._connection.getresponse()
        data = answer.read()
        self._used_at = time.monotonic()
        # Pages lead elsewhere what they refuse.
        if answer.status >= http.client.MULTIPLE_CHOICES:
            raise RuntimeError(f"{method} {path}: {answer.status} {data.decode()}")
        return data


def describe_flow(group: str, name: str) -> dict[str, Any]:
    """The config of a flow as a person writes it: a table, its key, its watermark column, into the lake."""
    dataset = {"table": TABLE, "primary_key": ["id"], "watermark_column": "id"}
    return {
        "flow_group": group,
        "flow_name": name,
        "description": "The events as they come.",
        "source": "shop",
        "destinations": ["lake"],
        "parameters": {"datasets": [dataset]},
    }


def write_topology(world: World) -> Path:
    nodes = {
        "shop": {"kind": "database", "connection": "bench"},
        "lake": {"kind": "files", "root": str(world.destination)},
    }
    executor = {"capabilities": ["ingest.jdbc"], "nodes": sorted(nodes)}
    path = world.home / "topology.yaml"
    path.write_text(yaml.safe_dump({"nodes": nodes, "executors": {EXECUTOR: executor}}), encoding="utf-8")
    return path


def fill(world: World, topology: Path, count: int) -> None:
    """Flows up to ``count``. As after a while with them, the tables are vacuumed and analyzed."""
    with serve_flows(world, topology) as served:
        Asker(served.port).ask("POST", "/flows", describe_flow("models", _MODEL))
    _copy_model(world.engine, count)


@contextmanager
def serve_flows(world: World, topology: Path) -> Iterator[ServedFlows]:
    """``service serve`` as it is typed, until the end of the block."""
    port = find_port()
    words = ["service", "serve", "--topology", str(topology), "--port", str(port), "--no-auth"]
    log = world.home / "service.log"
    command = [sys.executable, "-m", "gobblin_assets.cli", *words]
    begun = time.monotonic()
    with run_guarded(command, log, environment_of(world)) as process:
        while not _answers(port):
            if process.poll() is not None or time.monotonic() > begun + _ANSWER_S_MAX:
                raise RuntimeError(f"the service did not start:\n{read_end(log)}")
            time.sleep(_LOOK_S)
        yield ServedFlows(port, process.pid, time.monotonic() - begun, tree_s(process.pid))


@contextmanager
def executing(
    world: World, name: str = EXECUTOR, variables: Mapping[str, str] | None = None
) -> Iterator["subprocess.Popen[bytes]"]:
    """``executor serve`` with its defaults, until the end of the block."""
    command = [sys.executable, "-m", "gobblin_assets.cli", "executor", "serve", "--name", name]
    log = world.home / f"executor.{name}.log"
    begun = time.monotonic()
    with run_guarded(command, log, {**environment_of(world), **(variables or {})}) as process:
        while "slots" not in read_end(log):
            if process.poll() is not None or time.monotonic() > begun + _ANSWER_S_MAX:
                raise RuntimeError(f"the executor did not start:\n{read_end(log)}")
            time.sleep(_LOOK_S)
        yield process


def _answers(port: int) -> bool:
    try:
        Asker(port).ask("GET", "/health")
    except OSError:
        return False
    return True


def _copy_model(engine: Engine, count: int) -> None:
    with engine.connect() as connection:
        with connection.begin():
            for statement in _MODEL_ENDS:
                connection.execute(text(statement))
            for statement in _COPY:
                given = {"count": count - 1, "model": _MODEL, "group_flows": GROUP_FLOWS}
                wanted = {name: value for name, value in given.items() if f":{name}" in statement}
                connection.execute(text(statement.replace("::uuid", r"\:\:uuid")), wanted)
        settled = connection.execution_options(isolation_level="AUTOCOMMIT")
        names = ("flow", "flow_version", "flow_job", "flow_execution", "job_execution")
        for name in names:
            settled.execute(text(f"VACUUM ANALYZE gobblin_service.{name}"))
