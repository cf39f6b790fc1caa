"""Jobs of the shipped templates, as executors run them: what was compiled becomes rows and files."""

import io
import json
import os
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from sqlalchemy import Engine

from demo.kafka.broker import KafkaBroker
from gobblin_assets.service.job_plan import PlannedJob
from gobblin_assets.state.tickets import TicketReportKind
from tests.support.changed_tables import ChangedTables
from tests.support.flow_templates import Names, make_compiler, make_flow, make_topology, plan_flow
from tests.support.kafka import delete_topics, open_admin, read_all
from tests.support.log_lake import expire_leases
from tests.support.postgres import Database
from tests.support.postgres_rows import CONNECTION, variables_for
from tests.support.s3_servers import S3Server
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


def read_directory(files: Iterable[bytes]) -> Counter[tuple[object, ...]]:
    """The rows of the customers' files, as whoever reads a directory finds them."""
    found: Counter[tuple[object, ...]] = Counter()
    for each in files:
        table = pq.ParquetFile(io.BytesIO(each)).read(columns=["id", "name"])
        found.update(tuple(row.values()) for row in table.to_pylist())
    return found


def list_objects(server: S3Server, bucket: str) -> dict[str, bytes]:
    files = server.open()
    found = {}
    for entry in files.list_objects(f"/{bucket}"):
        if ".gobblin" not in entry.path:
            with files.open_input(entry.path) as stream:
                found[entry.path.removeprefix(f"/{bucket}/")] = stream.read()
    return found


def plan_copies(shop: TicketShop, bucket: str, parameters: Mapping[str, Any]) -> Sequence[PlannedJob]:
    """From the shop to the lake, and from there to a directory and to a bucket."""
    nodes = {
        "shop": {"kind": "database", "connection": "shop"},
        "lake": {"kind": "files", "root": str(shop.folder / "lake")},
        "second": {"kind": "files", "root": str(shop.folder / "second")},
        "store": {"kind": "files", "root": f"s3://{bucket}/mirror"},
    }
    executors = {NAME: {"capabilities": ["ingest.jdbc", "distcp"], "nodes": list(nodes)}}
    flow = make_flow("shop", ["lake", "second", "store"], parameters=dict(parameters))
    return plan_flow(make_compiler(make_topology(nodes, executors)), flow).jobs


def test_datasets_are_copied_as_their_ledger_has_them(ticket_shop: TicketShop, versitygw: S3Server) -> None:
    """To a directory and to a bucket, and again after a refresh."""
    bucket = versitygw.make_bucket()
    job, *copies = plan_copies(ticket_shop, bucket, {"datasets": [{"table": "public.customers"}]})
    assert [(copy.source.node, copy.after) for copy in copies] == [("lake", (0,)), ("lake", (0,))]
    ticket_shop.environment.update(versitygw.environment)
    second = ticket_shop.folder / "second"
    with Executor(ticket_shop):
        require_complete(ticket_shop, send_planned(ticket_shop, copies[0]))
        assert not list(second.rglob("*.parquet")), "nothing is published yet, which is no error"
        for version in (1, 2):
            require_complete(ticket_shop, send_planned(ticket_shop, job))
            tickets = [send_planned(ticket_shop, copy) for copy in copies]
            for ticket_id in tickets:
                require_complete(ticket_shop, ticket_id)
            with ticket_shop.source.connect() as connection:
                wanted = Counter(connection.execute("SELECT id, name FROM customers").fetchall())
                connection.execute("UPDATE customers SET name = name || '!'")
            copied = [path for path in second.rglob("*.parquet") if ".gobblin" not in path.parts]
            assert read_directory(path.read_bytes() for path in copied) == wanted
            assert read_directory(list_objects(versitygw, bucket).values()) == wanted
            told = ticket_shop.await_kind(tickets[0], TicketReportKind.PUBLISHED)
            assert told.details["watermarks"]["version"][1] == str(version)
    published = (ticket_shop.folder / "lake").rglob("data/**/*.parquet")
    assert sum(read_directory(path.read_bytes() for path in published).values()) == 2 * 9, "what was retired stays"


def test_directories_are_copied_to_a_bucket_and_back(ticket_shop: TicketShop, versitygw: S3Server) -> None:
    bucket = versitygw.make_bucket()
    photos = ticket_shop.folder / "lake" / "photos"
    for name, content in {"2026/1.jpg": b"one", "2026/2.jpg": b"two", "2026/3.tmp": b"half"}.items():
        (photos / name).parent.mkdir(parents=True, exist_ok=True)
        (photos / name).write_bytes(content)
    ticket_shop.environment.update(versitygw.environment)
    nodes = {
        "lake": {"kind": "files", "root": str(ticket_shop.folder / "lake")},
        "store": {"kind": "files", "root": f"s3://{bucket}/albums"},
        "mirror": {"kind": "files", "root": str(ticket_shop.folder / "mirror")},
    }
    compiler = make_compiler(make_topology(nodes, {NAME: {"capabilities": ["distcp"], "nodes": list(nodes)}}))
    chosen = {"path": "photos", "exclude": ["*.tmp"], "deletes": "ours"}
    (there,) = plan_flow(compiler, make_flow("lake", "store", parameters={"datasets": [chosen]})).jobs
    (back,) = plan_flow(compiler, make_flow("store", "mirror", parameters={"datasets": [chosen]})).jobs
    assert [job.template_uri.rpartition("/")[2] for job in (there, back)] == [
        "tree-to-bucket.template",
        "bucket-to-tree.template",
    ]
    with Executor(ticket_shop):
        for wanted in ({"2026/1.jpg": b"one", "2026/2.jpg": b"two"}, {"2026/1.jpg": b"one", "2026/4.jpg": b"four"}):
            for job in (there, back):
                require_complete(ticket_shop, send_planned(ticket_shop, job))
            assert list_objects(versitygw, bucket) == {f"albums/photos/{name}": each for name, each in wanted.items()}
            assert list_files(ticket_shop.folder / "mirror" / "photos") == wanted
            (photos / "2026/2.jpg").unlink(missing_ok=True)
            (photos / "2026/4.jpg").write_bytes(b"four")


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
