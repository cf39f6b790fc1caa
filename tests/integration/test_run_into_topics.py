"""Runs that load rows into topics of real brokers, and runs and streams that load records of topics into tables."""

import json
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark.sql import SparkSession

from demo.kafka.broker import KafkaBroker
from gobblin_assets.jobs.ingest.running import open_run, plan_stream_job, read_job_datasets
from gobblin_assets.run.log import open_log
from gobblin_assets.run.run_values import RunReport, RunRequest
from gobblin_assets.run.runner import run_request, stream_request
from gobblin_assets.spec.job_parsing import parse_job
from gobblin_assets.spec.selection import select_open_partitions
from tests.support.command_lake import ask, run_job
from tests.support.kafka import MakeTopic, delete_topics, produce, read_all
from tests.support.kafka_rows import new_topics
from tests.support.postgres import Database
from tests.support.spark_sink import OpenSpark

pytestmark = pytest.mark.turns("runs into topics and from them")


@pytest.fixture
def shop(
    database_url: str,
    fresh_database: Database,
    kafka_broker: KafkaBroker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Database:
    variables = {
        "GOBBLIN_DATABASE_URL": database_url,
        "GOBBLIN_HOME": str(tmp_path / "home"),
        "GOBBLIN_JDBC_SHOP_URL": fresh_database.jdbc_url,
        "GOBBLIN_JDBC_SHOP_USER": fresh_database.user,
        "GOBBLIN_JDBC_SHOP_PASSWORD": fresh_database.password,
        "GOBBLIN_KAFKA_BUS_BOOTSTRAP_SERVERS": kafka_broker.bootstrap,
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    return fresh_database


@pytest.fixture
def names(kafka_broker: KafkaBroker) -> Iterator[tuple[str, str]]:
    made = new_topics()
    yield made
    delete_topics(kafka_broker.bootstrap, *made)


def test_rows_of_a_table_become_records_once(
    shop: Database, kafka_broker: KafkaBroker, names: tuple[str, str], tmp_path: Path
) -> None:
    records, marks = names
    with shop.connect() as sql:
        sql.execute("CREATE TABLE orders (id bigint PRIMARY KEY, item text)")
        sql.execute("INSERT INTO orders SELECT n, 'item ' || n FROM generate_series(1, 20) n")
    job = tmp_path / "job.yaml"
    dataset = {"urn": "public.orders", "extract": "append_only", "watermark": {"column": "id", "type": "long"}}
    described = {
        "job": "shop",
        "source": {"connection": "shop"},
        "destination": str(tmp_path / "lake"),
        "into": {"type": "kafka", "connection": "bus", "topic": records, "key": ["id"], "marks_topic": marks},
        "datasets": [dataset],
    }
    job.write_text(yaml.safe_dump(described), encoding="utf-8")

    run_job(str(job))
    with shop.connect() as sql:
        sql.execute("INSERT INTO orders VALUES (21, 'new')")
    run_job(str(job))
    run_job(str(job))

    found = read_all(kafka_broker.bootstrap, records)
    rows = [json.loads(each.value or b"") for each in found]
    assert Counter(row["id"] for row in rows) == Counter(range(1, 22))
    assert all(each.key == str(row["id"]).encode() for each, row in zip(found, rows, strict=True))
    (verified,) = ask("verify", str(job))
    assert not verified["faults"]


class SharedEngine(OpenSpark):
    """``Engine`` over the tests' session, as far as runs use it."""

    master = None

    def count_slots(self) -> int | None:
        return None


def run_topics(spark: SparkSession, options: Mapping[str, Any], *, until: Any = None) -> RunReport:
    """A run, or a stream until ``until()`` is true."""
    job = parse_job(options)
    job = job if until is None else plan_stream_job(job)
    specs = read_job_datasets(job)
    request = RunRequest(job, select_open_partitions(job, specs, urns=()), by_hand=False)
    lines: list[str] = []
    with (
        open_log(lines.append) as log,
        open_run(job, specs, SharedEngine(spark), log.stores, lines.append, lambda _report: None) as ports,  # type: ignore[arg-type]  # the part of an engine that runs use
    ):
        if until is None:
            return run_request(request, ports)
        return stream_request(request, ports, lambda seconds: until() or threading.Event().wait(min(seconds, 0.2)))


def test_records_are_loaded_into_a_table_by_runs_and_a_stream(
    shop: Database, kafka_broker: KafkaBroker, topic: MakeTopic, spark: SparkSession, tmp_path: Path
) -> None:
    name = topic("clicks", partitions=2)
    options = {
        "job": "clicks",
        "source": {"type": "kafka", "connection": "bus"},
        "destination": str(tmp_path / "lake"),
        "into": {"type": "postgres", "connection": "shop", "tables_schema": "lake"},
        "stream": {"publish_every_s": 0.2},
        "datasets": [{"topic": name, "urn": "clicks", "kafka": {"value": {"format": "json", "schema": "n bigint"}}}],
    }

    def send(first: int, last: int) -> None:
        produce(kafka_broker.bootstrap, name, [json.dumps({"n": n}).encode() for n in range(first, last)])

    def loaded() -> Counter[int]:
        with shop.connect() as sql:
            return Counter(row[0] for row in sql.execute("SELECT n FROM lake.clicks").fetchall())

    send(0, 30)
    assert not run_topics(spark, options).failed
    assert loaded() == Counter(range(30))

    send(30, 50)
    report = run_topics(spark, options, until=lambda: loaded().total() >= 50)
    assert not report.failed
    assert loaded() == Counter(range(50))
    assert not run_topics(spark, options).failed
    assert loaded() == Counter(range(50))
