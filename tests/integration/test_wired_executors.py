"""Flows of a service that reaches no executor's log, over Kafka and over https, with all in processes of their own."""

import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
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
from tests.support.postgres import Database
from tests.support.running_service import RunningService, run_own_service
from tests.support.wires import Authority, await_true, name_executor

pytestmark = pytest.mark.turns(of=4)

FLOWS = "/api/v1/flows"
RUN_S_MAX = 150.0
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
    site: Site


@contextmanager
def make_site(
    server: EmbeddedServer, pool: DatabasePool, folder: Path, name: str, secrets: Mapping[str, str], *options: str
) -> Iterator[Site]:
    with postgres.migrated_database(server, pool) as database, ExitStack() as stack:
        url = server.url(database)
        environment = {**secrets, "GOBBLIN_DATABASE_URL": url, "GOBBLIN_HOME": str(folder / f"home-{name}")}
        yield Site(name, folder, url, environment, options, stack)


@dataclass(frozen=True)
class Places:
    """Where all is that a world is made of."""

    server: EmbeddedServer
    pool: DatabasePool
    folder: Path
    secrets: Mapping[str, str]


@pytest.fixture
def places(server: EmbeddedServer, database_pool: DatabasePool, fresh_database: Database, tmp_path: Path) -> Places:
    with fresh_database.connect() as connection:
        connection.execute("CREATE TABLE customers (id int PRIMARY KEY, name text)")
        connection.execute("INSERT INTO customers SELECT n, 'c' || n FROM generate_series(1, 9) n")
    secrets = {
        "GOBBLIN_JDBC_SHOP_URL": fresh_database.jdbc_url,
        "GOBBLIN_JDBC_SHOP_USER": fresh_database.user,
        "GOBBLIN_JDBC_SHOP_PASSWORD": fresh_database.password,
    }
    return Places(server, database_pool, tmp_path, secrets)


@contextmanager
def serve(
    places: Places, site: Site, communication: str, location: str, variables: Mapping[str, str]
) -> Iterator[WiredWorld]:
    """A service to which nothing tells the URL of the site's log."""
    topology = {
        "nodes": {
            "shop": {"kind": "database", "connection": "shop"},
            "lake": {"kind": "files", "root": str(site.folder / site.name)},
        },
        "executors": {
            site.name: {
                "communication": communication,
                "location": location,
                "log": "away",
                "capabilities": ["ingest.jdbc"],
                "nodes": ["shop", "lake"],
            },
        },
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        with run_own_service(places.server, places.pool, places.folder, topology=topology, pack={}) as service:
            yield WiredWorld(service, site)


def create(world: WiredWorld) -> None:
    flow = {
        "flow_group": "g",
        "flow_name": "customers",
        "source": "shop",
        "destinations": ["lake"],
        "template_uris": ["FS:///jdbc-to-lake.template"],
        "parameters": {"datasets": [{"table": "public.customers", "primary_key": ["id"]}]},
    }
    answer = world.service.ask("POST", FLOWS, flow)
    assert answer.status == 201, answer.text


def ask_for_tables(world: WiredWorld) -> None:
    await_true(lambda: '"HEALTHY"' in world.service.ask("GET", "/api/v1/executors").text, world.site.say())
    asked = world.service.ask("POST", "/api/v1/nodes/shop:suggest?wait_s=10", {})
    assert "public.customers" in asked.text, (asked.text, world.site.say())


def check_complete(world: WiredWorld) -> None:
    until = time.monotonic() + RUN_S_MAX
    while True:
        answer = world.service.ask("GET", f"{FLOWS}/g/customers/executions")
        (execution, *_) = answer.json["executions"] or [{}]
        if execution.get("status") in ("COMPLETE", "FAILED", "CANCELLED") or time.monotonic() > until:
            break
        time.sleep(0.2)
    service = (world.service.folder / "service.log").read_text(encoding="utf-8")
    assert execution.get("status") == "COMPLETE", (answer.text, world.site.say(), service)
    assert world.site.lake_rows() == ROWS
    assert world.site.count_tickets() == 1
    (job,) = execution["jobs"]
    assert job["processed_count"] == sum(ROWS.values())
    output = f"{FLOWS}/g/customers/executions/{execution['execution_id']}/jobs/0/log"
    await_true(lambda: world.service.ask("GET", output).json["outputs"], "the last lines of the process")


def test_a_flow_runs_over_kafka_although_its_executor_was_killed(places: Places, kafka_broker: KafkaBroker) -> None:
    name = name_executor()
    brokers = {"GOBBLIN_KAFKA_MAIN_BOOTSTRAP_SERVERS": kafka_broker.bootstrap}
    secrets = {**places.secrets, **brokers}
    options = ("--kafka", "main", "--claim-ttl", "3")
    with make_site(places.server, places.pool, places.folder, name, secrets, *options) as site:
        site.serve()
        with serve(places, site, "kafka", "main", brokers) as world:
            ask_for_tables(world)
            # What is sent while nobody is there waits in the topic.
            site.kill()
            create(world)
            await_true(
                lambda: "ORCHESTRATED" in world.service.ask("GET", f"{FLOWS}/g/customers/executions").text, "sent"
            )
            site.serve()
            check_complete(world)
    delete_topics(kafka_broker.bootstrap, f"gobblin-tickets-{name}", f"gobblin-reports-{name}")


def test_a_flow_runs_over_https(places: Places) -> None:
    authority = Authority(places.folder)
    certificate, key = authority.sign("executor")
    options = ("--rest", "127.0.0.1:0", "--rest-certificate", str(certificate), "--rest-key", str(key))
    with make_site(
        *(places.server, places.pool, places.folder, "paris", places.secrets),
        *options,
        *("--rest-client-ca", str(authority.ca)),
    ) as site:
        site.serve()
        await_true(lambda: "tickets come over https" in site.say(), "the inbox")
        found = re.search(r"https://127\.0\.0\.1:(\d+)", site.say())
        assert found is not None
        files = dict(zip(("CERTIFICATE", "KEY"), authority.sign("service"), strict=True))
        variables = {f"GOBBLIN_EXECUTOR_PARIS_{end}": str(path) for end, path in {**files, "CA": authority.ca}.items()}
        with serve(places, site, "rest", found[0], variables) as world:
            ask_for_tables(world)
            create(world)
            check_complete(world)
