"""The service as a cluster: three nodes behind a balancer, executors of three kinds, two logs; one of each is killed.

The four flows of ``demo.service.run_demo`` are at work meanwhile, two of them by a schedule. Nothing may be missing at
the end, and nothing there twice: no row, and no start of a schedule. Each demo starts from nothing, in the same folder
as that one.
"""

import os
import sys
import time
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final

from rich.table import Table

from demo.flights_source import let_arrive
from demo.kafka.broker import KafkaBroker
from demo.kafka.places import quicken_java
from demo.places import CLONE
from demo.server_process import find_port
from demo.service.arrivals import are_copied, are_published
from demo.service.balancer import find_nginx, run_balancer
from demo.service.client import ServiceClient, has_ended
from demo.service.flows import CHANGES, FLIGHTS, WEATHER, copy_of, path_of
from demo.service.machines import Machine, as_typed
from demo.service.minutes import say_minutes
from demo.service.places import DEMO, write_topology
from demo.service.processes import make_executor, make_machine, serve_words
from demo.service.run_demo import (
    Stage,
    begin,
    make,
    open_sources,
    prove,
    require,
    say_sent,
    say_status,
    show_jobs,
    start_anew,
    wait_until,
)
from demo.service.sources import change_tables
from demo.stage import act, console, join_counts
from gobblin_assets.db.embedded import EmbeddedServer, create_database
from gobblin_assets.errors import RejectedError
from gobblin_assets.settings import forget_unasked_variables

NODES: Final = 3
DAGSTER: Final = "warehouse"
PROCESS: Final = "office"
FAR: Final = "airports"
"""An executor whose log the service does not reach: its tickets and its reports go over the broker in the office."""

_FAR_LOG: Final = "far_log"
_EACH_MINUTE: Final = {"schedule": "* * * * *", "run_immediately": True}
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
    try:
        find_nginx(console.print)
    except RejectedError as error:
        raise SystemExit(f"error: {error}") from None
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
    url = f"http://127.0.0.1:{balancer}"
    console.print(f"[cyan]$ nginx -c {as_typed([str(DEMO)])}/nginx/nginx.conf[/cyan]")
    client = ServiceClient(url)
    wait_until(client.is_answered, "the answer of the service")
    console.print(f"The pages, while this runs: {url}/")
    executors = {
        DAGSTER: make_machine(DAGSTER, ["dagster", "--executor", DAGSTER, "dev", "-p", str(find_port())]),
        # A slot for each flow: all of them may come here.
        PROCESS: make_executor(PROCESS, "--slots", "4"),
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
            for config in (FLIGHTS | _EACH_MINUTE, WEATHER, CHANGES):
                make(client, config)
            require(client.wait(path_of(FLIGHTS), say_status), "COMPLETE")
            mirror = copy_of(stage.job_of(FLIGHTS)) | _EACH_MINUTE
            make(client, mirror)
            await_all(stage, mirror)
            show_jobs(client, FLIGHTS, mirror, WEATHER, CHANGES)
        with act("Act 2: more arrives; Dagster is killed amid a run, with it a node; then an executor and its broker"):
            arrive(stage, 11)
            cut = await_run(stage, DAGSTER)
            cluster.executors[DAGSTER].kill()
            cluster.nodes[0].kill()
            console.print("What an executor has begun is moved to another one on its log, once it is silent for 30 s.")
            await_move(stage, cut, PROCESS)
            cluster.executors[FAR].kill()
            cluster.broker.kill()
            console.print("[red]killed: the Kafka broker in the office (SIGKILL)[/red]")
        with act("Act 3: more arrives; the executor that had taken over is killed, with it a second node of the three"):
            arrive(stage, 12)
            cut = await_run(stage, PROCESS)
            cluster.executors[PROCESS].kill()
            cluster.nodes[1].kill()
            show_alerts(client)
        with act("Act 4: all comes back, and goes on by itself"):
            cluster.broker.restart()
            console.print("The Kafka broker in the office runs again.")
            for machine in (cluster.executors[DAGSTER], cluster.executors[FAR], *cluster.nodes[:2]):
                machine.start()
            await_move(stage, cut, DAGSTER)
            cluster.executors[PROCESS].start()
            await_all(stage, mirror)
            for config in (FLIGHTS, mirror, WEATHER, CHANGES):
                client.ask("POST", f"{path_of(config)}:pause")
                client.wait(path_of(config), say_status)
            show_jobs(client, FLIGHTS, mirror, WEATHER, CHANGES)
        with act("Act 5: the proof"):
            is_each_once = [say_minutes(client, config) for config in (FLIGHTS, mirror)]
            return prove(stage) and all(is_each_once)


def arrive(stage: Stage, month: int) -> None:
    rows = let_arrive(stage.source, month, month)["flights"]
    console.print(f"arrived at the source: the flights of one more month, which makes {rows:,}")
    say_sent(stage.stations.send(month, month))
    console.print(f"changed at the source: {join_counts(change_tables(stage.source))}")


def await_executors(client: ServiceClient, names: Collection[str]) -> None:
    """Until the service has heard of each."""
    for name in names:
        wait_until(lambda: _is_heard(client, name), f"a heartbeat of {name}")  # noqa: B023  it is called at once


def _is_heard(client: ServiceClient, name: str) -> bool:
    return bool(client.ask("GET", f"/executors/{name}")["health"]["state"] == "HEALTHY")


def await_all(stage: Stage, mirror: Mapping[str, Any]) -> None:
    """Until all that is at the sources is published, by all four flows."""
    job = stage.job_of(FLIGHTS)
    wait_until(lambda: are_published(stage.source, job), "the publication of all flights")
    # What is copied is what is published: its own next minute would come later.
    stage.client.start(path_of(mirror))
    wait_until(lambda: are_copied(stage.source), "the copy of all that is published")
    wait_until(stage.are_followed, "the publication of all records and changes")
    console.print("All that is at the sources is published, by all four flows.")


def await_run(stage: Stage, executor: str) -> int:
    """Start the flow of the flights, and return its execution once its job runs on this executor, or has run."""
    before = stage.client.ask("GET", f"{path_of(FLIGHTS)}/status")
    least = before["execution_id"] + has_ended(before)
    stage.client.start(path_of(FLIGHTS))

    def runs(status: Mapping[str, Any]) -> bool:
        on = {each["executor"] for each in status["jobs"] if each["status"] in {"RUNNING", "COMPLETE"}}
        return status["execution_id"] >= least and on == {executor}

    return int(stage.client.wait_until(path_of(FLIGHTS), runs, say_status)["execution_id"])


def await_move(stage: Stage, cut: int, executor: str) -> None:
    """Until the flow of the flights has completed on this executor: the execution that was cut, or a later one."""

    def has_moved(status: Mapping[str, Any]) -> bool:
        on = {each["executor"] for each in status["jobs"]}
        return status["execution_id"] >= cut and status["status"] == "COMPLETE" and on == {executor}

    stage.client.wait_until(path_of(FLIGHTS), has_moved, say_status)


def show_alerts(client: ServiceClient) -> None:
    """Once the executors that were killed are known to be silent."""
    wait_until(lambda: not any(_is_heard(client, name) for name in (DAGSTER, PROCESS, FAR)), "the silence of executors")
    table = Table("alert", title="GET /api/v1/alerts", title_justify="left")
    table.add_column("what")
    for each in client.ask("GET", "/alerts"):
        table.add_row(each["kind"], each["what"])
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
