"""An executor is killed with the workers that it runs: until another executor's worker holds their lanes.

Two executors of one log take turns: the one whose worker follows the topic is killed, and is started again when the
other one has taken its lanes over. Everything has its defaults.
"""

import datetime as dt
import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import yaml

from benchmarks.kafka_world import make_topics, open_broker
from benchmarks.peers.watching import find_descendants
from benchmarks.service_world import Asker, executing, serve_flows
from benchmarks.sink_producer import records_meanwhile
from benchmarks.sink_world import SinkJob
from benchmarks.tables import Options, Samples, Table, verdict
from benchmarks.world import World
from gobblin_assets.spec.job_options import LeaseSpec
from gobblin_assets.spec.job_spec import SinkSpec

HELD_BEHIND_LEASE_S_MAX: Final = 15.0

_EXECUTORS: Final = ("east", "west")
_TOPIC: Final = "lanes"
_PARTITIONS: Final = 8
_RECORDS_PER_S: Final = 16.0
_WAIT_S_MAX: Final = 300.0
_LOOK_S: Final = 0.1
_HEARD_S: Final = 10.0
"""So long after its start an executor is known to the service."""

_LEASE_S: Final = LeaseSpec().ttl_s
_LANES: Final = SinkSpec().lanes
_HELD: Final = "until its lanes are held by a worker of the other executor"
_PUBLISHED: Final = "until all of them are published again"

_COUNT_HELD: Final = """
    SELECT count(*) FROM gobblin.lease l JOIN gobblin.lane n USING (lane_id) JOIN gobblin.dataset d USING (dataset_id)
      JOIN gobblin.run r USING (run_id)
     WHERE d.job = :job AND l.expires_at > clock_timestamp() AND r.started_at > :after
"""


def measure(world: World, options: Options) -> list[Table]:
    samples = Samples()
    with open_broker(world) as broker, ExitStack() as stack:
        make_topics(broker.bootstrap, [_TOPIC], _PARTITIONS)
        stack.enter_context(records_meanwhile(broker.bootstrap, _TOPIC, _PARTITIONS, _RECORDS_PER_S))
        variables = {"GOBBLIN_KAFKA_BENCH_BOOTSTRAP_SERVERS": broker.bootstrap}
        served = stack.enter_context(serve_flows(world, _write_topology(world)))
        running = {name: stack.enter_context(executing(world, name, variables)) for name in _EXECUTORS}
        time.sleep(_HEARD_S)
        begun_at = dt.datetime.now(dt.UTC)
        Asker(served.port).ask("POST", "/flows", _describe_flow())
        for _ in range(options.runs):
            found = _await_job(served.port)
            job = SinkJob(world, found["job_name"], world.home, {})
            _await(partial(_is_published, job, begun_at), "lanes that are published")
            _await(partial(_is_held, job, begun_at), "lanes that are held")
            holder = _await_job(served.port)["executor"]
            begun_at = dt.datetime.now(dt.UTC)
            _kill_all(running[holder])
            _await(partial(_is_held, job, begun_at), "lanes that are held again")
            samples.add(_HELD, (dt.datetime.now(dt.UTC) - begun_at).total_seconds())
            _await(partial(_is_published, job, begun_at), "lanes that are published again")
            samples.add(_PUBLISHED, (dt.datetime.now(dt.UTC) - begun_at).total_seconds())
            if _await_job(served.port)["executor"] == holder:
                raise RuntimeError(f"the executor {holder} was killed, and has the job still")
            running[holder] = stack.enter_context(executing(world, holder, variables))
            time.sleep(_HEARD_S)
    return [_write(samples)]


def _write_topology(world: World) -> Path:
    nodes = {
        "edge": {"kind": "cluster", "connection": "bench"},
        "lake": {"kind": "files", "root": str(world.destination)},
    }
    executors = {name: {"capabilities": ["sink.kafka"], "nodes": sorted(nodes)} for name in _EXECUTORS}
    path = world.home / "topology.yaml"
    path.write_text(yaml.safe_dump({"nodes": nodes, "executors": executors}), encoding="utf-8")
    return path


def _describe_flow() -> dict[str, Any]:
    return {
        "flow_group": "records",
        "flow_name": "orders",
        "source": "edge",
        "destinations": ["lake"],
        "schedule": "@continuous",
        "template_uris": ["FS:///topic-follow.template"],
        "parameters": {"datasets": [{"topic": _TOPIC, "keep": ["partition", "offset"]}]},
    }


def _await_job(port: int) -> Any:
    """The flow's job, once it runs."""
    asker = Asker(port)
    until = time.monotonic() + _WAIT_S_MAX
    while time.monotonic() < until:
        found = asker.ask("GET", "/flows/records/orders/executions?limit=1")["executions"]
        if found and found[0]["status"] == "RUNNING":
            return found[0]["jobs"][0]
        time.sleep(_LOOK_S)
    raise RuntimeError(f"the flow does not run: {found}")


def _await(is_met: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + _WAIT_S_MAX
    while not is_met():
        if time.monotonic() > until:
            raise RuntimeError(f"{what} did not come")
        time.sleep(_LOOK_S)


def _is_held(job: SinkJob, after: dt.datetime) -> bool:
    """Whether runs that began behind ``after`` hold all lanes."""
    return int(job.scalar(_COUNT_HELD, after=after)) == _LANES


def _is_published(job: SinkJob, after: dt.datetime) -> bool:
    return len({each.lane for each in job.list_published(after)}) == _LANES


def _kill_all(process: "subprocess.Popen[bytes]") -> None:
    """The executor and all that it runs, as when its machine dies."""
    for pid in find_descendants(process.pid):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _write(samples: Samples) -> Table:
    return Table(
        "An executor of two is killed with its worker",
        ("", "median", "min", "max"),
        tuple(samples.row(name) for name in samples.by_name),
        (
            f"`service serve` and `executor serve` with their defaults; a flow that follows a topic in {_LANES} lanes.",
            f"Its leases last {_LEASE_S:g} s. All processes of the executor are killed at once.",
            verdict("held elsewhere", samples.median(_HELD), _LEASE_S + HELD_BEHIND_LEASE_S_MAX),
        ),
    )
