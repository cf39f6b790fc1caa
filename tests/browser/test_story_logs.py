"""Flows that follow logs, as people make them on pages: a topic over two brokers into Iceberg, changes into a lake."""

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from playwright.sync_api import Browser, Page, expect

from demo.kafka.broker import KafkaBroker
from demo.server_process import run_guarded
from gobblin_assets.db.embedded import EmbeddedServer
from tests.support import postgres
from tests.support.chromium import open_page
from tests.support.database_pool import DatabasePool
from tests.support.iceberg_rows import CATALOG, find_table, iceberg_variables
from tests.support.kafka import MakeTopic, office_broker, produce
from tests.support.logical_postgres import logical_database
from tests.support.page_checks import Typist
from tests.support.postgres import Database
from tests.support.running_service import RunningService, prepare_database, run_service
from tests.support.spark import wait_until
from tests.support.typed_records import (
    TYPED_COLUMNS,
    TypedRows,
    await_typed_rows,
    count_typed_rows,
    make_typed_record,
)

__all__ = ["office_broker"]

pytestmark = pytest.mark.turns(of=6)

expect.set_options(timeout=10_000)

TOPIC_FIELDS_MAX = 7
CHANGES_FIELDS_MAX = 5
WAIT_MS = 90_000


@dataclass(frozen=True)
class LogShop:
    """``source``: the database whose changes are followed; ``variables``: how executors reach it, and the catalog."""

    service: RunningService
    folder: Path
    source: Database
    variables: dict[str, str]

    def say(self) -> str:
        """What all processes said."""
        return "\n".join(each.read_text(encoding="utf-8") for each in sorted(self.folder.glob("*.log")))


@pytest.fixture(scope="module")
def shop(
    browser: Browser,
    server: EmbeddedServer,
    logical_server: EmbeddedServer,
    database_pool: DatabasePool,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[LogShop]:
    folder = tmp_path_factory.mktemp("shop")
    (folder / "warehouse").mkdir()
    topology = {
        "nodes": {
            "edge": {"kind": "cluster", "connection": "edge", "zone": "edge"},
            "office": {
                "kind": "cluster",
                "connection": "office",
                "zone": "office",
                "root": str(folder / "records"),
                "transit": True,
            },
            "lakehouse": {"kind": "iceberg", "connection": CATALOG, "zone": "office", "root": str(folder / "files")},
            "orders": {"kind": "change_log", "connection": "shop"},
            "lake": {"kind": "files", "root": str(folder / "lake")},
            "archive": {"kind": "files", "root": str(folder / "archive")},
        },
        "executors": {
            "edge": {"capabilities": ["sink.into.kafka"], "nodes": ["edge", "office"]},
            "office": {
                "capabilities": ["sink.into.iceberg", "sink.postgres_log"],
                "nodes": ["office", "lakehouse", "orders", "lake"],
            },
        },
    }
    with ExitStack() as stack:
        url = server.url(stack.enter_context(postgres.migrated_database(server, database_pool)))
        prepare_database(url)
        source = stack.enter_context(logical_database(logical_server))
        catalog = postgres.describe_database(server, stack.enter_context(postgres.temporary_database(server)))
        service = stack.enter_context(run_service(folder, url, "--no-auth", topology=topology, pack={}))
        variables = {
            **service.environment,
            "GOBBLIN_POSTGRES_LOG_SHOP_URL": source.jdbc_url,
            "GOBBLIN_POSTGRES_LOG_SHOP_USER": source.user,
            "GOBBLIN_POSTGRES_LOG_SHOP_PASSWORD": source.password,
            **iceberg_variables(catalog, f"file://{folder}/warehouse"),
        }
        yield LogShop(service, folder, source, variables)


@pytest.fixture
def page(browser: Browser, shop: LogShop) -> Iterator[Page]:
    yield from open_page(browser, shop.service.url)
    shop.service.delete_flows()


@contextmanager
def run_executor(shop: LogShop, name: str, **variables: str) -> Iterator[None]:
    command = [sys.executable, "-m", "gobblin_assets.cli", "executor", "serve", "--name", name]
    with run_guarded(command, shop.folder / f"{name}.log", {**shop.variables, **variables}):
        yield


def test_a_topic_becomes_a_table_in_another_zone(
    shop: LogShop, page: Page, kafka_broker: KafkaBroker, office_broker: KafkaBroker, topic: MakeTopic
) -> None:
    name = topic("events", partitions=2)
    produce(kafka_broker.bootstrap, name, [make_typed_record(n) for n in range(40)])
    page.goto("/")
    page.get_by_role("link", name="New flow").click()
    typist = Typist(page)
    typist.choose("From", "edge")
    typist.check("lakehouse")
    page.get_by_role("button", name="Go on").click()
    typist.type("Group", "web")
    typist.type("Name", "events")
    typist.type("Topic", name)
    typist.type("Schema", TYPED_COLUMNS)
    typist.type("Namespace", "web")
    plan = page.get_by_role("complementary", name="Plan")
    expect(plan).to_contain_text("edge topic → office topic by the executor edge")
    expect(plan).to_contain_text("office topic → lakehouse iceberg by the executor office")
    assert len(typist.typed) <= TOPIC_FIELDS_MAX
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_role("status")).to_have_text("The flow is created.")

    def read() -> TypedRows:
        table = find_table(shop.variables, "web", name.replace("-", "_"))
        return count_typed_rows([] if table is None else table.scan().to_arrow().to_pylist())

    brokers = {"EDGE": kafka_broker, "OFFICE": office_broker}
    addresses = {f"GOBBLIN_KAFKA_{each}_BOOTSTRAP_SERVERS": brokers[each].bootstrap for each in brokers}
    with run_executor(shop, "edge", **addresses), run_executor(shop, "office", **addresses):
        await_typed_rows(read, 40, shop.say)
        produce(kafka_broker.bootstrap, name, [make_typed_record(n) for n in range(40, 80)])
        await_typed_rows(read, 80, shop.say)
        page.get_by_role("row").filter(has_text="RUNNING").get_by_role("link").click()
        jobs = page.locator("#execution tbody tr").filter(has_text="RUNNING")
        expect(jobs, "both follow their topics").to_have_count(2, timeout=WAIT_MS)
        end_by_pause(page)


def end_by_pause(page: Page) -> None:
    page.get_by_role("link", name=" / ").click()
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("row").filter(has_text="CANCELLED"), "workers are drained").to_be_visible(timeout=WAIT_MS)


def test_changes_of_a_table_become_rows_of_a_dataset(shop: LogShop, page: Page) -> None:
    with shop.source.connect() as source:
        source.execute("CREATE TABLE orders (id bigint PRIMARY KEY, customer text)")
        source.execute("CREATE PUBLICATION lake FOR TABLE orders")
        source.execute("INSERT INTO orders SELECT n, 'c' || n FROM generate_series(1, 50) n")
    page.goto("/ui/new")
    page.get_by_role("link", name="Changes of tables of Postgres, as datasets of files").click()
    typist = Typist(page)
    typist.type("Group", "sales")
    typist.type("Name", "changes")
    typist.check("lake")
    typist.type("Publication", "lake")
    typist.type("Table", "public.orders")
    expect(page.get_by_role("complementary", name="Plan")).to_contain_text(
        "orders changes → lake dataset by the executor office"
    )
    assert len(typist.typed) <= CHANGES_FIELDS_MAX
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_role("status")).to_have_text("The flow is created.")

    def read() -> "Counter[str]":
        files = [each for each in (shop.folder / "lake").rglob("*.parquet") if "/." not in str(each)]
        return Counter(op for each in files for op in pq.read_table(each, partitioning=None)["_op"].to_pylist())

    with run_executor(shop, "office"):
        wait_until(lambda: read() == {"r": 50}, lambda: f"the copy, found {read()}; {shop.say()}")
        with shop.source.connect() as source:
            source.execute("UPDATE orders SET customer = 'new' WHERE id <= 5")
            source.execute("DELETE FROM orders WHERE id > 40")
        wanted = {"r": 50, "u": 5, "d": 10}
        wait_until(lambda: read() == wanted, lambda: f"{wanted}, found {read()}; {shop.say()}")
        page.get_by_role("row").filter(has_text="RUNNING").get_by_role("link").click()
        end_by_pause(page)
