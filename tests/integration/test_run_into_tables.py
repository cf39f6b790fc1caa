"""Runs that load rows into tables of a real Postgres, by the command line and without Spark."""

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml

from gobblin_assets.dagster import build_definitions
from gobblin_assets.db.embedded import EmbeddedServer
from tests.support.command_lake import ask, fail_job, invoke, run_job
from tests.support.postgres import Database, describe_database, temporary_database

pytestmark = pytest.mark.turns(of=4)

JOB = "shop"


class Shop:
    """A source with orders and a destination in another database. ``job``: the job's file."""

    def __init__(self, source: Database, target: Database, folder: Path) -> None:
        self.source, self.target, self.job = source, target, str(folder / "job.yaml")
        self._folder = folder

    def write(self, *datasets: Mapping[str, Any], **more: Any) -> None:
        job = {
            "job": JOB,
            "source": {"connection": "shop"},
            "destination": str(self._folder / "lake"),
            "into": {"type": "postgres", "connection": "warehouse", "tables_schema": "lake"},
            "retry": {"task_tries_max": 1, "back_off_s": 0},
            "datasets": list(datasets),
            **more,
        }
        Path(self.job).write_text(yaml.safe_dump(job), encoding="utf-8")

    def sql(self, *statements: str) -> None:
        with self.source.connect() as session:
            for each in statements:
                session.execute(each)

    def rows(self, table: str = "lake.public_orders") -> Counter[tuple[Any, ...]]:
        with self.target.connect() as session:
            return Counter(session.execute(f"SELECT * FROM {table} ORDER BY 1").fetchall())


@pytest.fixture
def shop(
    server: EmbeddedServer, database_url: str, fresh_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Shop]:
    monkeypatch.setenv("GOBBLIN_DATABASE_URL", database_url)
    monkeypatch.setenv("GOBBLIN_HOME", str(tmp_path / "home"))
    for name in ("GOBBLIN_SPARK_MASTER", "GOBBLIN_SPARK_REMOTE", "DAGSTER_HOME"):
        monkeypatch.delenv(name, raising=False)
    with temporary_database(server) as name:
        target = describe_database(server, name)
        for connection, database in (("SHOP", fresh_database), ("WAREHOUSE", target)):
            monkeypatch.setenv(f"GOBBLIN_JDBC_{connection}_URL", database.jdbc_url)
            monkeypatch.setenv(f"GOBBLIN_JDBC_{connection}_USER", database.user)
            monkeypatch.setenv(f"GOBBLIN_JDBC_{connection}_PASSWORD", database.password)
        made = Shop(fresh_database, target, tmp_path)
        made.sql(
            "CREATE TABLE orders (id bigint PRIMARY KEY, item text, day date)",
            "INSERT INTO orders SELECT n, 'item ' || n, date '2026-01-01' + n % 3 FROM generate_series(1, 30) n",
        )
        yield made


APPENDED = {"urn": "public.orders", "extract": "append_only", "watermark": {"column": "id", "type": "long"}}


def test_rows_are_added_to_a_table_once(shop: Shop) -> None:
    shop.write(APPENDED)
    said = run_job(shop.job)
    assert "30" in said
    assert shop.rows().total() == 30
    shop.sql("INSERT INTO orders SELECT n, 'new', date '2026-01-01' FROM generate_series(31, 35) n")
    run_job(shop.job)
    run_job(shop.job)

    assert sorted(row[0] for row in shop.rows().elements()) == list(range(1, 36))
    (verified,) = ask("verify", shop.job, "--checksums")
    assert not verified["faults"]


def test_a_snapshot_takes_the_place_of_all_rows(shop: Shop) -> None:
    shop.write({"urn": "public.orders"})
    run_job(shop.job)
    shop.sql("DELETE FROM orders WHERE id > 10", "UPDATE orders SET item = 'changed' WHERE id = 1")
    run_job(shop.job)
    assert {row[:2] for row in shop.rows()} == {(1, "changed"), *((n, f"item {n}") for n in range(2, 11))}

    shop.sql("DELETE FROM orders")
    run_job(shop.job)
    assert not shop.rows()
    (verified,) = ask("verify", shop.job, "--checksums")
    assert not verified["faults"]


def test_rows_of_somebody_else_are_no_snapshot_s_to_replace(shop: Shop) -> None:
    with shop.target.connect() as session:
        session.execute("CREATE SCHEMA lake")
        session.execute("CREATE TABLE lake.public_orders (id bigint, item text, day date)")
        session.execute("INSERT INTO lake.public_orders VALUES (-1, 'theirs', NULL)")
    shop.write({"urn": "public.orders"})
    said = " ".join(fail_job(shop.job).split())
    assert "has rows that this dataset never loaded" in said
    assert [row[0] for row in shop.rows()] == [-1]


def test_a_dataset_names_its_own_table(shop: Shop) -> None:
    shop.write({**APPENDED, "into": {"table": "Bestellungen"}})
    run_job(shop.job)
    assert shop.rows('lake."Bestellungen"').total() == 30


def test_a_table_that_is_gone_is_not_made_again_and_is_adopted_by_a_person(shop: Shop) -> None:
    shop.write(APPENDED)
    run_job(shop.job)
    with shop.target.connect() as session:
        session.execute("DROP TABLE lake.public_orders")
    shop.sql("INSERT INTO orders VALUES (31, 'new', NULL)")

    said = " ".join(fail_job(shop.job).split())
    assert "is gone, the table into which 30 rows of public.orders were loaded" in said
    assert "gobblin-assets sink adopt JOB_FILE --dataset public.orders" in said

    adopted = invoke("sink", "adopt", shop.job, "--dataset", "public.orders")
    assert adopted.exit_code == 0, adopted.output
    run_job(shop.job)
    assert [row[0] for row in shop.rows()] == [31]


PARTITIONED = {
    **APPENDED,
    "watermark": {"column": "day"},
    "partitions": {"kind": "daily", "start": "2026-01-01", "end": "2026-01-04"},
}


def test_partitions_are_added_and_no_partition_is_overwritten(shop: Shop) -> None:
    shop.write(PARTITIONED)
    done = invoke("run", shop.job, "--no-dagster", "--partition-range", "2026-01-01...2026-01-03")
    assert done.exit_code == 0, done.output
    assert shop.rows().total() == 30
    again = invoke("run", shop.job, "--no-dagster", "--partition", "2026-01-02")
    assert again.exit_code != 0
    assert "rows in jdbc:warehouse/lake.public_orders are only added" in " ".join(again.output.split())
    assert shop.rows().total() == 30


def test_dagster_s_button_loads_rows_and_shows_the_table(shop: Shop) -> None:
    shop.write(APPENDED)
    with dg.DagsterInstance.ephemeral() as instance:
        job = build_definitions([shop.job], os.environ).resolve_job_def("shop_whole")
        assert job.execute_in_process(instance=instance).success
        event = instance.get_latest_materialization_event(dg.AssetKey(["shop", "public.orders"]))
    assert shop.rows().total() == 30
    assert event is not None
    assert event.asset_materialization is not None
    shown = event.asset_materialization.metadata
    texts = {str(each.value) for each in shown.values()}
    assert {"jdbc:warehouse/lake.public_orders", "30"} <= texts
