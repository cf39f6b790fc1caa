"""Templates of topics, as executors run them: over two brokers into Iceberg, into tables, as files; behind kills."""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sqlalchemy import Engine

from demo.kafka.broker import KafkaBroker
from gobblin_assets.model.urn import DatasetUrn, JobName, Role
from gobblin_assets.service.job_plan import PlannedJob
from gobblin_assets.state.tickets import TicketReportKind
from tests.support.flow_templates import make_compiler, make_flow, make_topology, plan_flow
from tests.support.iceberg_rows import CATALOG, find_table, iceberg_variables
from tests.support.kafka import MakeTopic, office_broker, produce
from tests.support.log_lake import expire_leases
from tests.support.postgres import Database
from tests.support.postgres_rows import CONNECTION, variables_for
from tests.support.ticket_shop import NAME, Executor, TicketShop, require_complete, send_planned
from tests.support.typed_records import (
    TYPED_COLUMNS,
    TypedRows,
    await_typed_rows,
    count_typed_rows,
    expect_typed_rows,
    list_typed_names,
    make_typed_record,
)

__all__ = ["office_broker"]

pytestmark = pytest.mark.turns(of=4)

CAPABILITIES = ["ingest.kafka", "sink.kafka", "sink.into.kafka", "sink.into.iceberg", "sink.into.postgres"]


@pytest.fixture
def shop(
    tmp_path: Path, engine: Engine, database_url: str, fresh_database: Database, kafka_broker: KafkaBroker
) -> Iterator[TicketShop]:
    """Its database is loaded, and has the catalog of Iceberg."""
    (tmp_path / "warehouse").mkdir()
    environment = {
        **os.environ,
        "GOBBLIN_HOME": str(tmp_path / "home"),
        "GOBBLIN_DATABASE_URL": database_url,
        "GOBBLIN_KAFKA_EDGE_BOOTSTRAP_SERVERS": kafka_broker.bootstrap,
        **variables_for(fresh_database),
        **iceberg_variables(fresh_database, f"file://{tmp_path}/warehouse"),
    }
    made = TicketShop(tmp_path, fresh_database, engine, environment)
    yield made
    made.close()


def plan_jobs(
    shop: TicketShop, template: Sequence[str], target: str, topic: str, **parameters: Any
) -> Sequence[PlannedJob]:
    nodes = {
        "edge": {"kind": "cluster", "connection": "edge"},
        "office": {
            "kind": "cluster",
            "connection": "office",
            "root": str(shop.folder / "staged_records"),
            "transit": True,
        },
        "lakehouse": {"kind": "iceberg", "connection": CATALOG, "root": str(shop.folder / "staged_files")},
        "tables": {"kind": "tables", "connection": CONNECTION, "root": str(shop.folder / "staged_rows")},
        "lake": {"kind": "files", "root": str(shop.folder / "lake")},
    }
    executors = {
        "edge": {"capabilities": CAPABILITIES, "nodes": ["edge", "office"]},
        "office": {"capabilities": CAPABILITIES, "nodes": ["office", "lakehouse"]},
        NAME: {"capabilities": CAPABILITIES, "nodes": ["edge", "tables", "lake"]},
    }
    topology = make_topology(nodes, executors)
    datasets = [{"topic": topic, "schema": TYPED_COLUMNS, **parameters.pop("dataset", {})}]
    uris = [f"FS:///{each}.template" for each in template]
    flow = make_flow("edge", target, template_uris=uris, parameters={"datasets": datasets, **parameters})
    return plan_flow(make_compiler(topology), flow).jobs


def test_a_topic_becomes_a_table_of_iceberg_over_two_brokers_behind_kills(
    shop: TicketShop, kafka_broker: KafkaBroker, office_broker: KafkaBroker, topic: MakeTopic
) -> None:
    shop.environment["GOBBLIN_KAFKA_OFFICE_BOOTSTRAP_SERVERS"] = office_broker.bootstrap
    name = topic("events", partitions=2)
    templates = ("topic-to-topic", "topic-to-iceberg")
    first, second = plan_jobs(shop, templates, "lakehouse", name, namespace="shop", dataset={"to_table": "events"})
    assert second.after == (first.number,)

    def read() -> TypedRows:
        table = find_table(shop.environment, "shop", "events")
        return count_typed_rows([] if table is None else table.scan().to_arrow().to_pylist())

    produce(kafka_broker.bootstrap, name, [make_typed_record(n) for n in range(60)])
    with Executor(shop) as executor:
        sent = send_planned(shop, first)
        shop.await_report(sent, has_published)
        send_planned(shop, second)
        await_typed_rows(read, 60, shop.say)
        for attempt in executor.attempts[:2]:
            attempt.kill()
        expire_leases(shop.engine)
        produce(kafka_broker.bootstrap, name, [make_typed_record(n) for n in range(60, 120)])
        await_typed_rows(read, 120, shop.say)


def has_published(report: Any) -> bool:
    """Whether it says up to where a worker has published."""
    return report.kind is TicketReportKind.PROGRESS and any(
        each["watermarks"] for each in report.details["datasets"].values()
    )


def test_topics_are_followed_into_tables_and_files(
    shop: TicketShop, kafka_broker: KafkaBroker, topic: MakeTopic
) -> None:
    name = topic("events")
    (table,) = plan_jobs(shop, ["topic-to-table"], "tables", name, schema="lake", dataset={"to_table": "events"})
    (files,) = plan_jobs(shop, ["topic-follow"], "lake", name, dataset={"format": "json"})

    def read_table() -> TypedRows:
        with shop.source.connect() as connection:
            if connection.execute("SELECT to_regclass('lake.events')").fetchall() == [(None,)]:
                return Counter()
            with connection.cursor() as cursor:
                cursor.execute("SELECT * FROM lake.events")
                names = [each.name for each in cursor.description or ()]
                return count_typed_rows([dict(zip(names, row, strict=True)) for row in cursor.fetchall()])

    def read_files() -> TypedRows:
        return count_typed_rows(read_lake(shop, files.job_name, name).to_pylist())

    produce(kafka_broker.bootstrap, name, [make_typed_record(n) for n in range(20)])
    with Executor(shop) as executor:
        for each in (table, files):
            send_planned(shop, each)
        for read in (read_table, read_files):
            await_typed_rows(read, 20, shop.say)
        for attempt in executor.attempts[:2]:
            attempt.kill()
        expire_leases(shop.engine)
        produce(kafka_broker.bootstrap, name, [make_typed_record(n) for n in range(20, 40)])
        for read in (read_table, read_files):
            await_typed_rows(read, 40, shop.say)


def test_a_run_of_a_topic_publishes_what_it_has(shop: TicketShop, kafka_broker: KafkaBroker, topic: MakeTopic) -> None:
    name = topic("events")
    (job,) = plan_jobs(shop, ["topic-to-lake"], "lake", name, dataset={"format": "json"})
    shop.serve()
    produce(kafka_broker.bootstrap, name, [make_typed_record(n) for n in range(20)])
    require_complete(shop, send_planned(shop, job))
    assert count_typed_rows(read_lake(shop, job.job_name, name).to_pylist()) == expect_typed_rows(20)


def read_lake(shop: TicketShop, job_name: str, topic: str) -> pa.Table:
    """The rows in the files that the ledger has."""
    published = shop.stores.published.find(JobName(job_name), DatasetUrn(topic), role=Role.DATA)
    paths = [each.path for segment in (published.segments if published else ()) for each in segment.files()]
    tables = [pq.read_table(path, partitioning=None).select(list_typed_names()) for path in paths]
    return pa.concat_tables(tables) if tables else pa.table({})
