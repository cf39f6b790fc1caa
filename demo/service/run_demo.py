"""Flows as a service: tables, a copy of them, records and changes, by REST; executors are killed; the proof.

Each demo starts from nothing: it first removes what an earlier one left below .demo-service. ``--keep``: the service
and its executors stay up, with their pages, until Ctrl-C.
"""

import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

from rich.table import Table

from demo.flights_source import let_arrive, load_source
from demo.kafka.broker import COORDINATES, KafkaBroker, start_broker
from demo.kafka.jars import resolve_jars
from demo.kafka.places import quicken_java
from demo.logical_cluster import start_logical
from demo.places import CLONE
from demo.service.client import ServiceClient
from demo.service.flows import CHANGES, FLIGHTS, WEATHER, copy_of, path_of
from demo.service.machines import Machine
from demo.service.places import DEMO, HOME, LAKE, MIRROR, SOURCE_HOME, WAREHOUSE, apply_environment, write_topology
from demo.service.processes import make_executor, serving
from demo.service.proof import (
    are_equal,
    compare_changes,
    compare_copy,
    compare_records,
    compare_tables,
    say_comparisons,
)
from demo.service.sources import WeatherStations, change_tables, count_source, publish_changes
from demo.stage import act, console, join_counts, say_counts
from gobblin_assets.db import embedded
from gobblin_assets.db.embedded import EmbeddedServer
from gobblin_assets.model.urn import JobName
from gobblin_assets.run.log import open_log
from gobblin_assets.settings import forget_unasked_variables

FAILPOINT: Final = "step_after=kill"
PORT_OF_PAGES: Final = 8080
RUNS: Final = "runs"
FOLLOWERS: Final = ("edge", "office")

_OPEN_S_MAX: Final = 90.0
_PUBLISHED_S_MAX: Final = 300.0
_LOOK_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Stage:
    """What all acts use."""

    source: EmbeddedServer
    stations: WeatherStations
    client: ServiceClient

    def job_of(self, config: Mapping[str, Any]) -> str:
        return str(self.client.ask("GET", f"{path_of(config)}/jobs")[0]["job_name"])

    def are_followed(self) -> bool:
        """Whether all records and changes are published."""
        changes = self.job_of(CHANGES)
        return are_equal(lambda: compare_changes(self.source, changes)) and are_equal(
            lambda: compare_records(self.stations)
        )


def main() -> int:
    begun, keeps = time.monotonic(), "--keep" in sys.argv[1:]
    os.chdir(CLONE)
    forget_unasked_variables(os.environ)
    quicken_java()
    start_anew()
    with ExitStack() as stack:
        with act("Servers: two Postgres (the log, and a source), two Kafka brokers, and the service"):
            stage, port = open_stage(stack, PORT_OF_PAGES if keeps else None)
        is_equal = play(stage)
        if keeps:
            keep_up(port)
    console.rule(f"[bold]Done in {time.monotonic() - begun:.0f} s", align="left")
    return 0 if is_equal else 1


def start_anew() -> None:
    for home in (HOME, SOURCE_HOME):
        if home.exists():
            embedded.stop(home)
    if DEMO.exists():
        shutil.rmtree(DEMO)
    for folder in (HOME, SOURCE_HOME, LAKE, MIRROR, WAREHOUSE):
        folder.mkdir(parents=True)


@dataclass(frozen=True, slots=True)
class Sources:
    """The servers: of the log, of the tables, of the topics by connection; and the producer of a topic."""

    log: EmbeddedServer
    source: EmbeddedServer
    brokers: Mapping[str, KafkaBroker]
    stations: WeatherStations


def open_sources(stack: ExitStack) -> Sources:
    resolve_jars("kafka", COORDINATES, say=console.print)
    brokers = {}
    for name in ("edge", "office"):
        broker = start_broker(DEMO / name)
        stack.callback(broker.kill)  # its data is not needed again
        brokers[name] = broker
    log = embedded.start(HOME, console.print)
    stack.callback(embedded.stop, HOME)
    source = start_logical(SOURCE_HOME)
    stack.callback(embedded.stop, SOURCE_HOME)
    load_source(source)
    publish_changes(source)
    say_counts("at the source", count_source(source))
    apply_environment(log, source, {name: broker.bootstrap for name, broker in brokers.items()})
    return Sources(log, source, brokers, WeatherStations(source, brokers["edge"].bootstrap))


def open_stage(stack: ExitStack, port: int | None) -> tuple[Stage, int]:
    sources = open_sources(stack)
    write_topology()
    found = stack.enter_context(serving(port))
    return Stage(sources.source, sources.stations, ServiceClient(f"http://127.0.0.1:{found}")), found


def play(stage: Stage) -> bool:
    client = stage.client
    with ExitStack() as machines:
        with act("Act 1: four flows are explained, made, and run"):
            say_sent(stage.stations.send(1, 10))
            executors = {name: make_executor(name) for name in (RUNS, *FOLLOWERS)}
            for executor in executors.values():
                begin(executor, machines)
            for config in (FLIGHTS, WEATHER, CHANGES):
                make(client, config)
            require(client.wait(path_of(FLIGHTS), say_status), "COMPLETE")
            mirror = copy_of(stage.job_of(FLIGHTS))
            make(client, mirror)
            require(client.wait(path_of(mirror), say_status), "COMPLETE")
            wait_until(stage.are_followed, "the publication of all records and changes")
            show_jobs(client, FLIGHTS, mirror, WEATHER, CHANGES)
        with act("Act 2: rows, records and changes arrive; all executors are killed, one of them amid a publication"):
            let_arrive(stage.source, 11, 12)
            say_sent(stage.stations.send(11, 12))
            console.print(f"changed at the source: {join_counts(change_tables(stage.source))}")
            for executor in executors.values():
                executor.kill()
            client.ask("POST", f"{path_of(FLIGHTS)}:run")
            wreck = make_executor(RUNS, failpoint=FAILPOINT)
            begin(wreck, machines)
            wait_for_wreck(stage.job_of(FLIGHTS))
            wreck.kill()
        with act("Act 3: other executors take the tickets over, complete what is open, and go on"):
            for executor in executors.values():
                executor.start()
            require(client.wait(path_of(FLIGHTS), say_status), "COMPLETE")
            client.ask("POST", f"{path_of(mirror)}:run")
            require(client.wait(path_of(mirror), say_status), "COMPLETE")
            wait_until(stage.are_followed, "the publication of all records and changes")
            for config in (WEATHER, CHANGES):
                client.ask("POST", f"{path_of(config)}:pause")
                client.wait(path_of(config), say_status)
            show_jobs(client, FLIGHTS, mirror, WEATHER, CHANGES)
        with act("Act 4: the proof"):
            return prove(stage)


def begin(machine: Machine, machines: ExitStack) -> None:
    machines.callback(machine.close)
    machine.start()


def make(client: ServiceClient, config: Mapping[str, Any]) -> None:
    found = client.ask("POST", f"{path_of(config)}:explain", config)
    console.print(f"[cyan]POST /api/v1/flows[/cyan]  {config['flow_group']}/{config['flow_name']}")
    for job in found["plan"]["jobs"]:
        hop = f"{job['source']['node']} ({job['source']['format']}) to {job['target']['node']}"
        console.print(f"  {hop} by {job['template_uri']} on {job['executor']}")
    client.ask("POST", "/flows", config)


def wait_for_wreck(job: str) -> None:
    """Until a publication of the job is sealed, some of it visible, and nobody completes it."""
    with open_log() as log:
        wait_until(
            lambda: bool(log.stores.commits.list_open(JobName(job), limit=1)),
            "the kill of the run between its first visible file and its watermark",
            _OPEN_S_MAX,
            0.1,
        )


def wait_until(
    is_reached: Callable[[], bool], what: str, wait_s_max: float = _PUBLISHED_S_MAX, look_s: float = _LOOK_S
) -> None:
    until = time.monotonic() + wait_s_max
    while not is_reached():
        if time.monotonic() > until:
            raise SystemExit(f"{what} has not come in {wait_s_max:.0f} s. {DEMO} has the logs.")
        time.sleep(look_s)


def say_sent(records: int) -> None:
    console.print(f"sent to the broker at the edge: {records:,} records")


def say_status(status: dict[str, Any]) -> None:
    jobs = ", ".join(f"{job['job_name']} {job['status']} on {job['executor']}" for job in status["jobs"])
    console.print(f"execution {status['execution_id']}: {status['status']}  ({jobs})")


def show_jobs(client: ServiceClient, *flows: Mapping[str, Any]) -> None:
    table = Table("job", title="GET /api/v1/flows/nyc/…/status", title_justify="left")
    for name in ("executor", "status", "processed"):
        table.add_column(name)
    for config in flows:
        for job in client.ask("GET", f"{path_of(config)}/status")["jobs"]:
            table.add_row(job["job_name"], job["executor"], job["status"], f"{job['processed_count']:,}")
    console.print(table)


def require(status: dict[str, Any], expected: str) -> None:
    if status["status"] != expected:
        raise SystemExit(f"Expected {expected}, found {status['status']}: {status['message']}")


def prove(stage: Stage) -> bool:
    return say_comparisons(
        list(
            chain(
                compare_tables(stage.source, stage.job_of(FLIGHTS)),
                compare_copy(stage.source),
                compare_records(stage.stations),
                compare_changes(stage.source, stage.job_of(CHANGES)),
            )
        )
    )


def keep_up(port: int) -> None:
    with ExitStack() as machines:
        for name in (RUNS, *FOLLOWERS):
            begin(make_executor(name), machines)
        console.print(
            f"The pages: http://localhost:{port}/      the interface: http://localhost:{port}/api/v1/openapi.json"
        )
        console.print("Ctrl-C ends the service, its executors, the brokers, and both Postgres.")
        try:
            while True:
                time.sleep(60)
        except KeyboardInterrupt:
            console.print("ended")


if __name__ == "__main__":
    sys.exit(main())
