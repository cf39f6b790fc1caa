"""The service as a cluster: three nodes behind a balancer, executors of three kinds, two logs; one of each is killed.

The four flows of ``demo.service.run_demo`` are at work meanwhile, two of them by a schedule. Nothing may be missing at
the end, and nothing there twice. Each demo starts from nothing, in the same folder as that one.
"""

import os
import sys
import time
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final

from demo.flights_source import let_arrive
from demo.kafka.broker import KafkaBroker
from demo.kafka.places import quicken_java
from demo.places import CLONE
from demo.server_process import find_port
from demo.service.balancer import run_balancer
from demo.service.client import ServiceClient
from demo.service.flows import CHANGES, FLIGHTS, WEATHER, copy_of, path_of
from demo.service.machines import Machine
from demo.service.places import DEMO, write_topology
from demo.service.processes import make_executor, make_machine, serve_words
from demo.service.proof import are_equal, compare_copy, compare_tables
from demo.service.run_demo import Stage, begin, make, open_sources, prove, say_sent, say_status, start_anew, wait_until
from demo.service.sources import change_tables
from demo.stage import act, console
from gobblin_assets.db.embedded import EmbeddedServer, create_database
from gobblin_assets.settings import forget_unasked_variables

NODES: Final = 3
EACH_MINUTE: Final = "* * * * *"
DAGSTER: Final = "warehouse"
PROCESS: Final = "office"
FAR: Final = "airports"
"""An executor whose log the service does not reach: its tickets and its reports go over the broker in the office."""

_FAR_LOG: Final = "far_log"
_MOVED_S_MAX: Final = 240.0
_SHARED: Final = ["nyc", "nyc_log", "lake", "mirror"]
_EXECUTORS: Final = {
    DAGSTER: {
        "technology": "dagster",
        "capabilities": ["ingest.jdbc", "distcp", "sink.postgres_log"],
        "nodes": _SHARED,
        "description": "Dagster, with its runs.",
    },
    PROCESS: {
        "capabilities": ["ingest.jdbc", "distcp", "sink.postgres_log", "sink.into.iceberg"],
        "nodes": [*_SHARED, "office", "lakehouse"],
        "cost": 2,
        "description": "Processes, on the same log.",
    },
    FAR: {
        "communication": "kafka",
        "location": "office",
        "capabilities": ["sink.into.kafka"],
        "nodes": ["edge", "office"],
        "log": "far",
        "description": "Processes on a log of their own.",
    },
}


@dataclass(frozen=True, slots=True)
class Cluster:
    """What is killed, beside what all acts use."""

    stage: Stage
    nodes: tuple[Machine, ...]
    executors: Mapping[str, Machine]
    broker: KafkaBroker


def main() -> int:
    begun = time.monotonic()
    os.chdir(CLONE)
    forget_unasked_variables(os.environ)
    quicken_java()
    start_anew()
    with ExitStack() as stack:
        with act("Servers: two Postgres (two logs, and a source), two Kafka brokers, three nodes behind nginx"):
            cluster = open_cluster(stack)
        is_equal = play(cluster)
    console.rule(f"[bold]Done in {time.monotonic() - begun:.0f} s", align="left")
    return 0 if is_equal else 1


def open_cluster(stack: ExitStack) -> Cluster:
    sources = open_sources(stack)
    far = open_far_log(sources.log)
    write_topology(_EXECUTORS)
    ports = [find_port() for _ in range(NODES)]
    nodes = tuple(make_machine(f"node-{number}", serve_words(port)) for number, port in enumerate(ports, 1))
    for node in nodes:
        begin(node, stack)
    balancer = stack.enter_context(run_balancer(ports, DEMO / "nginx"))
    client = ServiceClient(f"http://127.0.0.1:{balancer}")
    wait_until(client.is_answered, "the answer of the service")
    executors = {
        DAGSTER: make_machine(DAGSTER, ["dagster", "--executor", DAGSTER, "dev", "-p", str(find_port())]),
        PROCESS: make_executor(PROCESS),
        FAR: make_executor(FAR, "--kafka", "office", database_url=far),
    }
    stage = Stage(sources.source, sources.stations, client)
    return Cluster(stage, nodes, executors, sources.brokers["office"])


def open_far_log(server: EmbeddedServer) -> str:
    """The URL of the second log, whose tables are there."""
    create_database(server, _FAR_LOG)
    url = server.url(_FAR_LOG)
    upgrade = make_machine("far-log", ["db", "upgrade"], {"GOBBLIN_DATABASE_URL": url})
    upgrade.run()
    return url


def play(cluster: Cluster) -> bool:
    stage, client = cluster.stage, cluster.stage.client
    with ExitStack() as machines:
        with act("Act 1: four flows are made, on three executors; two of them run each minute"):
            say_sent(stage.stations.send(1, 10))
            for executor in cluster.executors.values():
                begin(executor, machines)
            await_executors(client, cluster.executors)
            for config in (FLIGHTS | {"schedule": EACH_MINUTE, "run_immediately": True}, WEATHER, CHANGES):
                make(client, config)
            client.wait(path_of(FLIGHTS), say_status)
            mirror = copy_of(stage.job_of(FLIGHTS)) | {"schedule": EACH_MINUTE, "run_immediately": True}
            make(client, mirror)
            await_all(cluster)
        with act("Act 2: rows, records and changes arrive, and one of everything is killed"):
            arrive(stage, 11)
            cluster.nodes[0].kill()
            cluster.executors[DAGSTER].kill()
            await_executor(stage, FLIGHTS, PROCESS)
            cluster.executors[FAR].kill()
            cluster.broker.kill()
            console.print("[red]killed: the Kafka broker in the office (SIGKILL)[/red]")
        with act("Act 3: what was killed comes back, more arrives, and the executor that had taken over is killed"):
            cluster.broker.restart()
            cluster.executors[DAGSTER].start()
            cluster.executors[FAR].start()
            cluster.nodes[0].start()
            arrive(stage, 12)
            cluster.executors[PROCESS].kill()
            cluster.nodes[1].kill()
            await_executor(stage, FLIGHTS, DAGSTER)
            cluster.executors[PROCESS].start()
            await_all(cluster)
            for config in (FLIGHTS, mirror, WEATHER, CHANGES):
                client.ask("POST", f"{path_of(config)}:pause")
                client.wait(path_of(config), say_status)
        with act("Act 4: the proof"):
            return prove(stage)


def arrive(stage: Stage, month: int) -> None:
    let_arrive(stage.source, month, month)
    say_sent(stage.stations.send(month, month))
    console.print(f"changed at the source: {change_tables(stage.source)}")


def await_executors(client: ServiceClient, names: Collection[str]) -> None:
    """Until the service has heard of each."""
    for name in names:
        wait_until(lambda: _is_heard(client, name), f"a heartbeat of {name}")  # noqa: B023  it is called at once


def _is_heard(client: ServiceClient, name: str) -> bool:
    return bool(client.ask("GET", f"/executors/{name}")["health"]["state"] == "HEALTHY")


def await_all(cluster: Cluster) -> None:
    """Until all that is at the sources is published, by all four flows."""
    stage = cluster.stage

    def is_published() -> bool:
        return (
            stage.are_followed()
            and are_equal(lambda: compare_tables(stage.source, stage.job_of(FLIGHTS)))
            and are_equal(lambda: compare_copy(stage.source))
        )

    wait_until(is_published, "the publication of all that is at the sources", _MOVED_S_MAX)


def await_executor(stage: Stage, config: Mapping[str, Any], executor: str) -> None:
    """Until an execution of the flow has completed on this executor, which began behind the executions of now."""
    last = stage.client.ask("GET", f"{path_of(config)}/status")["execution_id"]

    def has_moved() -> bool:
        status = stage.client.ask("GET", f"{path_of(config)}/status")
        on = {job["executor"] for job in status["jobs"]}
        return status["execution_id"] >= last and status["status"] == "COMPLETE" and on == {executor}

    wait_until(has_moved, f"an execution of {config['flow_name']} on {executor}", _MOVED_S_MAX)
    console.print(f"{config['flow_name']} has run on {executor}")


if __name__ == "__main__":
    sys.exit(main())
