"""Flows of a service that reaches no executor's log: one executor is reached over Kafka, and one over https."""

import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from sqlalchemy import text

from demo.kafka.broker import KafkaBroker
from demo.server_process import run_guarded
from gobblin_assets.db.embedded import EmbeddedServer
from gobblin_assets.db.engine import open_external
from tests.support import postgres
from tests.support.database_pool import DatabasePool
from tests.support.kafka import delete_topics
from tests.support.running_service import RunningService, run_own_service
from tests.support.wires import Authority, await_true, name_executor

FLOWS = "/api/v1/flows"
RUN_S_MAX = 90.0
ROWS = Counter({(n, f"c{n}"): 1 for n in range(1, 10)})


@dataclass
class Site:
    """An executor with a log of its own. ``environment``: of its processes."""

    name: str
    folder: Path
    database_url: str
    environment: dict[str, str]
    options: tuple[str, ...]
    stack: ExitStack
    started: list[Any] = field(default_factory=list)

    def serve(self) -> None:
        command = [sys.executable, "-m", "gobblin_assets.cli", "executor", "serve", "--name", self.name, *self.options]
        log = self.folder / f"{self.name}-{len(self.started)}.log"
        self.started.append(self.stack.enter_context(run_guarded(command, log, self.environment)))

    def say(self) -> str:
        return "".join(each.read_text(encoding="utf-8") for each in sorted(self.folder.glob(f"{self.name}-*.log")))

    def kill(self) -> None:
        self.started[-1].send_signal(signal.SIGKILL)
        self.started[-1].wait()

    def lake_rows(self) -> Counter[tuple[object, ...]]:
        files = (self.folder / self.name).rglob("*.parquet")
        tables = [pq.read_table(each, columns=["id", "name"], partitioning=None) for each in files]
        return Counter(tuple(row.values()) for table in tables for row in table.to_pylist())

    def count_tickets(self) -> int:
        engine = open_external(self.database_url)
        with engine.connect() as connection:
            found: int = connection.execute(
                text("SELECT count(*) FROM gobblin.job_ticket WHERE verb = 'ADD'")
            ).scalar_one()
        engine.dispose()
        return found


@dataclass(frozen=True)
class WiredWorld:
    service: RunningService
    berlin: Site
    paris: Site


@contextmanager
def make_site(
    server: EmbeddedServer, pool: DatabasePool, folder: Path, name: str, secrets: dict[str, str], *options: str
) -> Iterator[Site]:
    with postgres.migrated_database(server, pool) as database, ExitStack() as stack:
        url = server.url(database)
        environment = {**secrets, "GOBBLIN_DATABASE_URL": url, "GOBBLIN_HOME": str(folder / f"home-{name}")}
        yield Site(name, folder, url, environment, options, stack)


@pytest.fixture(scope="module")
def world(
    server: EmbeddedServer,
    database_pool: DatabasePool,
    kafka_broker: KafkaBroker,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[WiredWorld]:
    """Berlin is reached over Kafka, and Paris over https. Nothing tells the service the URL of their logs."""
    folder = tmp_path_factory.mktemp("wired")
    authority = Authority(folder)
    certificate, key = authority.sign("paris")
    service_certificate, service_key = authority.sign("service")
    berlin_name = name_executor()
    with ExitStack() as stack:
        source = postgres.describe_database(server, stack.enter_context(postgres.temporary_database(server)))
        with source.connect() as connection:
            connection.execute("CREATE TABLE customers (id int PRIMARY KEY, name text)")
            connection.execute("INSERT INTO customers SELECT n, 'c' || n FROM generate_series(1, 9) n")
        kafka = {"GOBBLIN_KAFKA_MAIN_BOOTSTRAP_SERVERS": kafka_broker.bootstrap}
        secrets = {
            "GOBBLIN_JDBC_SHOP_URL": source.jdbc_url,
            "GOBBLIN_JDBC_SHOP_USER": source.user,
            "GOBBLIN_JDBC_SHOP_PASSWORD": source.password,
            **kafka,
        }
        berlin = stack.enter_context(
            make_site(server, database_pool, folder, berlin_name, secrets, "--kafka", "main", "--claim-ttl", "3")
        )
        files = ("--rest-certificate", str(certificate), "--rest-key", str(key), "--rest-client-ca", str(authority.ca))
        paris = stack.enter_context(
            make_site(server, database_pool, folder, "paris", secrets, "--rest", "127.0.0.1:0", *files)
        )
        for site in (berlin, paris):
            site.serve()
        await_true(lambda: "tickets come over https" in paris.say(), "the inbox of Paris")
        found = re.search(r"https://127\.0\.0\.1:(\d+)", paris.say())
        assert found is not None
        nodes = {name: {"kind": "files", "root": str(folder / name)} for name in (berlin.name, "paris")}
        topology = {
            "nodes": {
                "shop": {"kind": "database", "connection": "shop"},
                "market": {"kind": "database", "connection": "shop"},
                **nodes,
            },
            "executors": {
                berlin.name: {
                    "communication": "kafka",
                    "location": "main",
                    "log": "berlin",
                    "capabilities": ["ingest.jdbc"],
                    "nodes": ["shop", berlin.name],
                },
                "paris": {
                    "communication": "rest",
                    "location": f"https://127.0.0.1:{found[1]}",
                    "log": "paris",
                    "capabilities": ["ingest.jdbc"],
                    "nodes": ["market", "paris"],
                },
            },
        }
        with pytest.MonkeyPatch.context() as patch:
            variables = {
                **kafka,
                "GOBBLIN_EXECUTOR_PARIS_CERTIFICATE": str(service_certificate),
                "GOBBLIN_EXECUTOR_PARIS_KEY": str(service_key),
                "GOBBLIN_EXECUTOR_PARIS_CA": str(authority.ca),
            }
            for name, value in variables.items():
                patch.setenv(name, value)
            service = stack.enter_context(run_own_service(server, database_pool, folder, topology=topology, pack={}))
        yield WiredWorld(service, berlin, paris)
    delete_topics(kafka_broker.bootstrap, f"gobblin-tickets-{berlin_name}", f"gobblin-reports-{berlin_name}")


def create(world: WiredWorld, source: str, site: Site) -> None:
    flow = {
        "flow_group": "g",
        "flow_name": site.name,
        "source": source,
        "destinations": [site.name],
        "template_uris": ["FS:///jdbc-to-lake.template"],
        "parameters": {"datasets": [{"table": "public.customers", "primary_key": ["id"]}]},
    }
    answer = world.service.ask("POST", FLOWS, flow)
    assert answer.status == 201, answer.text


def await_complete(world: WiredWorld, site: Site) -> dict[str, Any]:
    until = time.monotonic() + RUN_S_MAX
    while True:
        answer = world.service.ask("GET", f"{FLOWS}/g/{site.name}/executions")
        (execution, *_) = answer.json["executions"] or [{}]
        if execution.get("status") in ("COMPLETE", "FAILED", "CANCELLED") or time.monotonic() > until:
            service = (world.service.folder / "service.log").read_text(encoding="utf-8")
            assert execution.get("status") == "COMPLETE", (answer.text, site.say(), service)
            return dict(execution)
        time.sleep(0.2)


@pytest.mark.parametrize("wire", ["kafka", "rest"])
def test_a_flow_runs_at_an_executor_whose_log_is_out_of_reach(world: WiredWorld, wire: str) -> None:
    source, site = ("shop", world.berlin) if wire == "kafka" else ("market", world.paris)
    asked = world.service.ask("POST", f"/api/v1/nodes/{source}:suggest?wait_s=10", {})
    assert "public.customers" in asked.text, (asked.text, site.say())
    if wire == "kafka":
        # What is sent while nobody is there waits in the topic.
        site.kill()
    create(world, source, site)
    if wire == "kafka":
        time.sleep(1)
        site.serve()
    execution = await_complete(world, site)
    assert site.lake_rows() == ROWS
    assert site.count_tickets() == 1
    (job,) = execution["jobs"]
    assert job["processed_count"] == sum(ROWS.values())
    output = f"{FLOWS}/g/{site.name}/executions/{execution['execution_id']}/jobs/0/log"
    await_true(lambda: "public.customers" in world.service.ask("GET", output).text, "the last lines of the process")
