"""Dagster runs that are workers of a sink, over a real broker: their ends, their reports, and what they refuse."""

import datetime as dt
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pyspark.sql import SparkSession
from sqlalchemy import Engine, text

from demo.kafka.broker import KafkaBroker
from gobblin_assets.dagster.factory import build_gobblin_definitions
from gobblin_assets.dagster.resources import CommitStoreResource, KafkaConnectionResource, gobblin_resources
from gobblin_assets.model.urn import JobName
from gobblin_assets.run.postgres import open_stores
from gobblin_assets.spark.spark_settings import SparkSettings
from tests.support.dagster_instance import open_instance
from tests.support.dagster_topics import spark_resource
from tests.support.kafka import produce
from tests.support.spark import wait_until

pytestmark = pytest.mark.turns(of=8)

DAILY = {"kind": "daily", "start": "2026-01-01"}


@dataclass
class Shop:
    """One topic, the job that has a sink over it, and its Dagster instance."""

    instance: dg.DagsterInstance
    engine: Engine
    database_url: str
    bootstrap: str
    folder: Path
    topic: str
    options: dict[str, Any] = field(default_factory=dict)
    spark: SparkSettings | None = None

    def define(self) -> dg.Definitions:
        job = {
            "job": "events",
            "source": {"type": "kafka", "connection": "kafka"},
            "destination": str(self.folder / "lake"),
            "datasets": [{"topic": self.topic, "kafka": {"value": {"format": "string"}}, "partitions": DAILY}],
            "sink": {"lanes": 2, "every_s": 0.2, "roll": {"age_s": 0}},
            "lease": {"ttl_s": 5},
            **self.options,
        }
        resources = gobblin_resources(
            {"kafka": KafkaConnectionResource(bootstrap_servers=self.bootstrap, timeout_s=15.0)},
            spark=None if self.spark is None else spark_resource(self.spark),
            stores=CommitStoreResource(database_url=self.database_url),
        )
        return dg.Definitions.merge(build_gobblin_definitions(job), dg.Definitions(resources=resources))

    def run(self, config: Mapping[str, object], *, partition: str | None = None) -> dg.DagsterRun:
        result = (
            self.define()
            .resolve_job_def("events_daily")
            .execute_in_process(
                instance=self.instance,
                run_config={"ops": {"events": {"config": dict(config)}}},
                partition_key=partition,
                raise_on_error=False,
            )
        )
        run = self.instance.get_run_by_id(result.run_id)
        assert run is not None
        return run

    def failure_of(self, run: dg.DagsterRun) -> str:
        told = [record.dagster_event for record in self.instance.all_logs(run.run_id)]
        (failure,) = [event.step_failure_data.user_failure_data for event in told if event and event.is_step_failure]
        assert failure is not None
        return str(failure.description)

    def said(self, run: dg.DagsterRun) -> list[str]:
        return [record.user_message for record in self.instance.all_logs(run.run_id)]

    def rows(self) -> int:
        query = "SELECT coalesce(sum(row_count), 0) FROM gobblin.commit_sequence WHERE state = 'DONE'"
        return int(str(self.ask(query)))

    def ask(self, query: str) -> object:
        with self.engine.connect() as connection:
            return connection.execute(text(query)).scalar()

    def materializations(self) -> int:
        key = dg.AssetKey(["events", self.topic])
        return len(self.instance.fetch_materializations(key, limit=10).records)


@pytest.fixture
def shop(
    tmp_path: Path, kafka_broker: KafkaBroker, engine: Engine, database_url: str, topic: Callable[..., str]
) -> Iterator[Shop]:
    name = topic("orders", 2)
    with open_instance(tmp_path) as instance:
        yield Shop(instance, engine, database_url, kafka_broker.bootstrap, tmp_path, name)


def in_thread(*steps: Callable[[], object]) -> threading.Thread:
    """Begin the steps, one after the other, in a thread of their own."""
    thread = threading.Thread(target=lambda: [step() for step in steps])
    thread.start()
    return thread


@pytest.mark.core
def test_a_run_works_for_its_time_and_ends_behind_a_cut_without_a_materialization(shop: Shop) -> None:
    produce(shop.bootstrap, shop.topic, [b"one", b"two"])
    seen: list[object] = []
    more = in_thread(
        lambda: wait_until(lambda: shop.rows() == 2, "the first publication"),
        lambda: seen.append(shop.ask("SELECT state FROM gobblin.run")),
        lambda: seen.extend(open_stores(shop.engine).sink_workers.list_live(JobName("events"))),
        lambda: produce(shop.bootstrap, shop.topic, [b"three"]),
    )
    run = shop.run({"sink_s": 4.0})
    more.join()

    assert run.status is dg.DagsterRunStatus.SUCCESS
    assert shop.rows() == 3
    state, worker = seen
    assert state == "RUNNING"
    assert getattr(worker, "dagster_run_id", None) == run.run_id
    assert shop.ask("SELECT state FROM gobblin.run") == "COMMITTED"
    assert shop.ask("SELECT count(*) FROM gobblin.lease WHERE expires_at > clock_timestamp()") == 0
    assert any("2 of 2 lanes held" in line for line in shop.said(run))
    assert shop.materializations() == 0


def test_a_run_that_a_person_terminates_ends_behind_a_cut(shop: Shop) -> None:
    produce(shop.bootstrap, shop.topic, [b"one", b"two"])

    def terminate() -> None:
        (run,) = shop.instance.get_runs()
        shop.instance.report_run_canceling(run)
        os.kill(os.getpid(), signal.SIGINT)

    terminating = in_thread(lambda: wait_until(lambda: shop.rows() == 2, "the publication"), terminate)
    run = shop.run({"sink_s": 200.0}, partition=dt.datetime.now(dt.UTC).strftime("%Y-%m-%d"))
    terminating.join()

    assert run.status is dg.DagsterRunStatus.CANCELED
    assert any("given back" in line for line in shop.said(run))
    assert shop.ask("SELECT state FROM gobblin.run") == "COMMITTED"


def test_a_dataset_that_is_no_sink_s_fails_the_run_with_its_field(shop: Shop) -> None:
    dataset = {"topic": shop.topic, "partitions": DAILY, "writer": {"partition_by": ["value"]}}
    shop.options = {"datasets": [dataset], "sink": {"format": "json"}}
    run = shop.run({"sink_s": 5.0})
    assert run.status is dg.DagsterRunStatus.FAILURE
    assert "sink.format: " in shop.failure_of(run)


def test_a_run_has_spark_for_the_rows_that_need_it(
    shop: Shop, spark: SparkSession, spark_settings: SparkSettings
) -> None:
    shop.spark = spark_settings
    produce(shop.bootstrap, shop.topic, [b'{"n": {"a": 1}}', b'{"m": {"k": 2}}'])
    value = {"format": "json", "schema": "n struct<a: int>, m map<string,int>"}
    shop.options = {
        "datasets": [{"topic": shop.topic, "partitions": DAILY, "kafka": {"value": value}}],
        "lease": {"ttl_s": 30},
    }

    run = shop.run({"sink_s": 10.0})

    assert spark.version
    assert run.status is dg.DagsterRunStatus.SUCCESS
    assert any("rows by Spark, since its values are JSON of types" in line for line in shop.said(run))
    assert shop.rows() == 2
