"""Jobs of the shipped templates, as executors run them: what was compiled becomes rows and files."""

import json
import os
import uuid
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from demo.kafka.broker import KafkaBroker
from gobblin_assets.service.job_plan import PlannedJob
from tests.support.changed_tables import ChangedTables
from tests.support.flow_templates import Names, make_compiler, make_flow, make_topology, plan_flow
from tests.support.kafka import delete_topics, open_admin, read_all
from tests.support.log_lake import expire_leases
from tests.support.postgres import Database
from tests.support.postgres_rows import CONNECTION, variables_for
from tests.support.spark import wait_until
from tests.support.ticket_shop import NAME, Executor, TicketShop, require_complete, send_planned, ticket_shop

__all__ = ["ticket_shop"]

pytestmark = pytest.mark.turns(of=2)


def plan_one(shop: TicketShop, source: str, target: str, parameters: Mapping[str, Any]) -> PlannedJob:
    nodes = {
        "shop": {"kind": "database", "connection": "shop"},
        "lake": {"kind": "files", "root": str(shop.folder / "lake")},
        "mirror": {"kind": "files", "root": str(shop.folder / "mirror")},
        "warehouse": {"kind": "tables", "connection": "shop", "root": str(shop.folder / "staged")},
    }
    executors = {NAME: {"capabilities": ["ingest.jdbc", "distcp", "sink.into.postgres"], "nodes": list(nodes)}}
    flow = make_flow(source, target, parameters=dict(parameters))
    (job,) = plan_flow(make_compiler(make_topology(nodes, executors)), flow).jobs
    return job


@pytest.mark.every_run
def test_tables_become_datasets(ticket_shop: TicketShop) -> None:
    job = plan_one(
        ticket_shop,
        "shop",
        "lake",
        {
            "datasets": [
                {
                    "table": "public.orders",
                    "columns": ["id", "amount", "at"],
                    "primary_key": ["id"],
                    "watermark_column": "at",
                    "partitions": "monthly",
                    "start": "2024-01-01",
                    "end": "2024-04-01",
                },
                {"table": "public.customers"},
            ]
        },
    )
    ticket_shop.serve()
    require_complete(ticket_shop, send_planned(ticket_shop, job))
    assert ticket_shop.lake_rows(job.job_name) == ticket_shop.source_rows()
    assert not list((ticket_shop.folder / "mirror").glob("*"))
    # What was published is not published again.
    require_complete(ticket_shop, send_planned(ticket_shop, job))
    assert ticket_shop.lake_rows(job.job_name) == ticket_shop.source_rows()


def test_tables_are_loaded_into_tables(ticket_shop: TicketShop) -> None:
    orders = {"table": "public.orders", "primary_key": ["id"], "watermark_column": "at"}
    parameters = {"schema": "lake", "datasets": [orders, {"table": "public.customers", "to_table": "clients"}]}
    job = plan_one(ticket_shop, "shop", "warehouse", parameters)
    ticket_shop.serve()
    for _run in range(2):
        require_complete(ticket_shop, send_planned(ticket_shop, job))
        for source, target in {"orders": "public_orders", "customers": "clients"}.items():
            with ticket_shop.source.connect() as connection:
                wanted = Counter(connection.execute(f"SELECT * FROM public.{source}").fetchall())
                assert Counter(connection.execute(f"SELECT * FROM lake.{target}").fetchall()) == wanted
        # The rows of a snapshot change; of what is appended there are new ones.
        with ticket_shop.source.connect() as connection:
            connection.execute("UPDATE customers SET name = name || '!'")


def list_files(root: Path) -> dict[str, bytes]:
    files = [path for path in root.rglob("*") if path.is_file() and ".gobblin" not in path.parts]
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


def test_directories_are_copied_with_their_names(ticket_shop: TicketShop) -> None:
    photos = ticket_shop.folder / "lake" / "photos"
    for name, content in {"2026/1.jpg": b"one", "2026/2.jpg": b"two", "2026/3.tmp": b"half"}.items():
        (photos / name).parent.mkdir(parents=True, exist_ok=True)
        (photos / name).write_bytes(content)
    job = plan_one(
        ticket_shop,
        "lake",
        "mirror",
        {"datasets": [{"path": "photos", "to": "albums", "exclude": ["*.tmp"], "deletes": "ours"}]},
    )
    ticket_shop.serve()
    require_complete(ticket_shop, send_planned(ticket_shop, job))
    mirror = ticket_shop.folder / "mirror"
    assert list_files(mirror / "albums") == {"2026/1.jpg": b"one", "2026/2.jpg": b"two"}
    (photos / "2026/2.jpg").unlink()
    (photos / "2026/4.jpg").write_bytes(b"four")
    require_complete(ticket_shop, send_planned(ticket_shop, job))
    assert list_files(mirror / "albums") == {"2026/1.jpg": b"one", "2026/4.jpg": b"four"}


class NamesOfTables(Names):
    """Job names as the changed tables look for them."""

    def __init__(self, tables: ChangedTables) -> None:
        super().__init__()
        self._job = str(tables.described["job"])

    def offer_name(self, node: str) -> str:
        return self._job


def test_changes_are_followed_by_a_worker(
    source_database: Database, engine: Engine, database_url: str, tmp_path: Path
) -> None:
    tables = ChangedTables(tmp_path, source_database, engine, ["orders"])
    tables.do(
        "CREATE TABLE orders (id bigint PRIMARY KEY, customer text)",
        "CREATE PUBLICATION lake FOR TABLE orders",
        "INSERT INTO orders SELECT n, 'c' || n FROM generate_series(1, 300) n",
    )
    described = tables.described
    nodes = {
        "log": {"kind": "change_log", "connection": described["source"]["connection"]},
        "lake": {"kind": "files", "root": described["destination"]},
    }
    topology = make_topology(nodes, {NAME: {"capabilities": ["sink.postgres_log"], "nodes": list(nodes)}})
    parameters = {"publication": "lake", "datasets": [{"table": "public.orders"}]}
    flow = make_flow("log", "lake", parameters=parameters)
    (job,) = plan_flow(make_compiler(topology), flow, NamesOfTables(tables)).jobs
    environment = {
        **os.environ,
        **tables.variables,
        "GOBBLIN_HOME": str(tmp_path / "home"),
        "GOBBLIN_DATABASE_URL": database_url,
    }
    shop = TicketShop(tmp_path, source_database, engine, environment)
    try:
        with Executor(shop, slots=1):
            send_planned(shop, job)
            tables.await_published()
            tables.require_same("orders", "id")
            tables.do("UPDATE orders SET customer = 'new' WHERE id < 10", "DELETE FROM orders WHERE id > 290")
            tables.await_published()
            tables.require_same("orders", "id")
    finally:
        shop.close()


def test_changes_are_loaded_into_a_table_and_a_topic(
    source_database: Database,
    fresh_database: Database,
    kafka_broker: KafkaBroker,
    engine: Engine,
    database_url: str,
    tmp_path: Path,
) -> None:
    tables = ChangedTables(tmp_path, source_database, engine, ["orders"])
    tables.do(
        "CREATE TABLE orders (id bigint PRIMARY KEY, customer text)",
        "CREATE PUBLICATION lake FOR TABLE orders",
        "INSERT INTO orders SELECT n, 'c' || n FROM generate_series(1, 30) n",
    )
    nodes = {
        "log": {"kind": "change_log", "connection": "shop"},
        "warehouse": {"kind": "tables", "connection": CONNECTION, "root": str(tmp_path / "rows")},
        "bus": {"kind": "cluster", "connection": "bus", "root": str(tmp_path / "records")},
    }
    able = {"capabilities": ["sink.into.postgres", "sink.into.kafka"], "nodes": list(nodes)}
    name = f"orders_{uuid.uuid4().hex[:8]}"
    parameters = {"publication": "lake", "schema": "lake", "datasets": [{"table": "public.orders", "to_table": name}]}
    compiler = make_compiler(make_topology(nodes, {NAME: able}))
    (into_table,) = plan_flow(compiler, make_flow("log", "warehouse", parameters=parameters)).jobs
    parameters = {"publication": "lake", "key": ["id"], "datasets": [{"table": "public.orders"}]}
    (into_topic,) = plan_flow(compiler, make_flow("log", "bus", parameters=parameters)).jobs
    environment = {
        **os.environ,
        **tables.variables,
        **variables_for(fresh_database),
        "GOBBLIN_KAFKA_BUS_BOOTSTRAP_SERVERS": kafka_broker.bootstrap,
        "GOBBLIN_HOME": str(tmp_path / "home"),
        "GOBBLIN_DATABASE_URL": database_url,
    }

    def read_table() -> "Counter[tuple[object, ...]]":
        with fresh_database.connect() as connection:
            if connection.execute(f"SELECT to_regclass('lake.{name}')").fetchall() == [(None,)]:
                return Counter()
            return Counter(connection.execute(f"SELECT _op, id FROM lake.{name}").fetchall())

    def read_topic() -> "Counter[tuple[object, ...]]":
        if "public.orders" not in open_admin(kafka_broker.bootstrap).list_topics(timeout=30).topics:
            return Counter()
        rows = [json.loads(each.value or b"") for each in read_all(kafka_broker.bootstrap, "public.orders")]
        return Counter((row["_op"], row["id"]) for row in rows)

    shop = TicketShop(tmp_path, source_database, engine, environment)
    wanted = Counter(("r", n) for n in range(1, 31))
    try:
        with Executor(shop) as executor:
            for job in (into_table, into_topic):
                send_planned(shop, job)
            for read in (read_table, read_topic):
                wait_until(lambda read=read: read() == wanted, lambda read=read: f"{wanted}: {read()}; {shop.say()}")
            for attempt in executor.attempts[:2]:
                attempt.kill()
            expire_leases(engine)
            tables.do("UPDATE orders SET customer = 'new' WHERE id < 10", "DELETE FROM orders WHERE id > 25")
            wanted += Counter([*(("u", n) for n in range(1, 10)), *(("d", n) for n in range(26, 31))])
            for read in (read_table, read_topic):
                wait_until(lambda read=read: read() == wanted, lambda read=read: f"{wanted}: {read()}; {shop.say()}")
    finally:
        shop.close()
        delete_topics(kafka_broker.bootstrap, "public.orders", "gobblin_lane")
