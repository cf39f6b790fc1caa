"""From a table's row to a published file: Postgres and Derby, through Spark, the commit log and back."""

import datetime as dt
from collections import Counter
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pyspark.sql import SparkSession
from sqlalchemy import text

from gobblin_assets.dagster.metadata import describe_publication
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.urn import Role
from gobblin_assets.sources.discovery import write_discovery
from gobblin_assets.sources.jdbc.connection import JdbcConnection
from gobblin_assets.sources.jdbc.jdbc_kind import JdbcSourceSpec
from gobblin_assets.sources.jdbc.source import JdbcSource
from gobblin_assets.spark.connect_server import ConnectServer
from tests.support.expired import expire_all_leases
from tests.support.ingestion import Ingestion, run_in_child
from tests.support.postgres import Database
from tests.support.shop import CUSTOMERS, ORDERS, WHOLE_ORDERS, ingestion, shop

__all__ = ["ingestion", "shop"]

pytestmark = pytest.mark.turns(of=8)


def source_rows(shop: Database, query: str) -> Counter[tuple[object, ...]]:
    with shop.connect() as connection:
        return Counter(tuple(row) for row in connection.execute(query).fetchall())


@pytest.mark.core
def test_months_are_loaded_in_any_order_and_snapshots_replaced(ingestion: Ingestion, shop: Database) -> None:
    first = ingestion.run({"public.orders": ["2024-02-01", "2024-01-01"], "public.customers": [None]})

    assert [d.error for d in first.datasets] == [None, None, None], ingestion.lines
    assert ingestion.rows("public.orders", "id", "amount", "note") == source_rows(
        shop, "SELECT id, amount, note FROM orders WHERE at >= '2024-01-01Z' AND at < '2024-03-01Z'"
    )
    assert ingestion.read("public.orders", partitions=["2024-01-01"]).count() == 1240
    with shop.connect() as connection:
        connection.execute("DELETE FROM customers WHERE id = 1")
    assert not ingestion.run({"public.customers": [None]}).failed
    assert ingestion.rows("public.customers") == source_rows(shop, "SELECT id, name FROM customers")
    with ingestion.engine.connect() as connection_to_log:
        left = connection_to_log.execute(text("SELECT count(*) FROM gobblin.attempt WHERE cleaned_at IS NULL")).scalar()
    assert left == 0
    assert not list(Path(ingestion.root).rglob(".staging/*"))


def test_a_month_materialized_again_is_read_anew(ingestion: Ingestion, shop: Database) -> None:
    ingestion.run({"public.orders": ["2024-01-01"]})
    with shop.connect() as connection:
        connection.execute("UPDATE orders SET note = 'changed' WHERE id < 5")
        connection.execute("DELETE FROM orders WHERE id = 7")

    report = ingestion.run({"public.orders": ["2024-01-01"]})

    assert report.datasets[0].publication is not None
    assert report.datasets[0].publication.mode is Mode.REFRESH
    assert ingestion.rows("public.orders", "id", "note") == source_rows(
        shop, "SELECT id, note FROM orders WHERE at >= '2024-01-01Z' AND at < '2024-02-01Z'"
    )


@pytest.mark.core
def test_appends_continue_and_a_late_row_is_published_once(ingestion: Ingestion, shop: Database) -> None:
    ingestion.datasets = [{**WHOLE_ORDERS, "watermark": {**ORDERS["watermark"], "late_window": 86_400 * 40}}]
    ingestion.run()
    for _ in range(2):
        assert not ingestion.run(mode=Mode.APPEND).failed
    with shop.connect() as connection:
        connection.execute("INSERT INTO orders VALUES (90001, '2024-02-10 00:00Z', 1, 'late')")
    report = ingestion.run(mode=Mode.APPEND)

    assert [d.error for d in report.datasets] == [None]
    assert report.datasets[0].publication is not None
    assert report.datasets[0].publication.row_count == 1, "the late row, and nothing that was published before"
    with shop.connect() as connection:
        connection.execute(
            "INSERT INTO orders SELECT n, now() - interval '1 hour', 2, 'new' FROM generate_series(91000, 91049) n"
        )
        connection.execute("INSERT INTO orders VALUES (90002, '2024-02-11 00:00Z', 1, 'too late')")
    assert not ingestion.run(mode=Mode.APPEND).failed
    expected = source_rows(shop, "SELECT id, note FROM orders WHERE id <> 90002")
    found = ingestion.rows("public.orders", "id", "note")
    assert found - expected in (Counter(), Counter({(90002, "too late"): 1}))
    assert not expected - found


def test_late_rows_are_told_by_what_was_compacted(ingestion: Ingestion, shop: Database) -> None:
    """The late window compares with published rows. Compaction keeps their positions, in fewer files."""
    window = {**ORDERS["watermark"], "late_window": 86_400 * 40}
    ingestion.datasets = [{**WHOLE_ORDERS, "watermark": window, "writer": {"file_rows_max": 100}}]
    ingestion.run()
    files = ingestion.events[-1].publication.file_count  # type: ignore[union-attr]  # it was published
    events = len(ingestion.events)
    ingestion.options = {"compaction": {"files_min": 2, "quiet_s": 0}}
    before = ingestion.rows("public.orders")

    report = ingestion.run(mode=Mode.APPEND)

    assert not report.failed
    assert len(ingestion.events) == events + 1, "an empty append is an event, and a compaction is none"
    (compacted,) = [line for line in ingestion.lines if "compacted to" in line]
    assert int(compacted.split()[-2]) < files
    assert ingestion.rows("public.orders") == before
    with shop.connect() as connection:
        connection.execute("INSERT INTO orders VALUES (90001, '2024-02-10 00:00Z', 1, 'late')")
    report = ingestion.run(mode=Mode.APPEND)
    assert report.datasets[0].publication is not None
    assert report.datasets[0].publication.row_count == 1, "the late row, and nothing that was published before"


def test_bad_rows_go_to_quarantine_in_the_same_sequence(ingestion: Ingestion, shop: Database) -> None:
    checked = {
        **WHOLE_ORDERS,
        "converters": [{"sql": {"day": "date_format(at, 'yyyy-MM-dd')"}}, {"rename": {"note": "remark"}}],
        "quality": {"rows": [{"name": "round", "check": "id % 100 <> 0", "on_failure": "err_file"}],
                    "tasks": [{"name": "all_in", "kind": "row_count"}]},
        "writer": {"partition_by": ["day"]},
    }  # fmt: skip
    ingestion.datasets = [checked]
    with shop.connect() as connection:
        connection.execute("COMMENT ON TABLE orders IS 'what was sold'; COMMENT ON COLUMN orders.note IS 'by hand'")

    report = ingestion.run()

    assert [d.error for d in report.datasets] == [None], ingestion.lines
    publication = report.datasets[0].publication
    assert publication is not None
    shown = describe_publication(ingestion.events[0], Role.DATA, uri="/lake")
    assert shown["gobblin/source_description"].value == "what was sold"
    schema = shown["dagster/column_schema"].value
    assert isinstance(schema, dg.TableSchema)
    assert {each.name: each.description for each in schema.columns if each.description} == {"remark": "by hand"}
    assert publication.rows_by_role == {"data": 2178, "quarantine": 22}
    good = ingestion.rows("public.orders", "id", "remark")
    bad = ingestion.rows("public.orders", "id", "remark", role=Role.QUARANTINE)
    assert good + bad == source_rows(shop, "SELECT id, note FROM orders")
    found = {check.name: (check.passed, check.blocking) for check in report.datasets[0].checks}
    assert found["round"] == (False, False), "rows were set aside"
    assert all(passed for name, (passed, _blocking) in found.items() if name != "round")
    assert ingestion.read("public.orders").select("day").distinct().count() == 55


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"quality": {"rows": [{"name": "small", "check": "amount < 3000"}]}}, "small"),
        ({"quality": {"tasks": [{"name": "many", "kind": "row_count", "min_row_count": 9999}]}}, "many"),
        ({"watermark": {"column": "nope"}}, "nope"),
        ({"watermark": {"column": "note"}}, "note"),
        ({"converters": [{"select": ["nope"]}]}, "nope"),
        ({"table": "public.ordrs"}, "ordrs"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_and_nothing_is_published(
    ingestion: Ingestion, change: dict[str, Any], says: str
) -> None:
    ingestion.datasets = [{**WHOLE_ORDERS, **change}, CUSTOMERS]

    report = ingestion.run()

    failed = {d.urn: d for d in report.failed}
    assert set(failed) == {"public.orders"}, "the sibling goes on"
    assert says in (failed["public.orders"].error or "")
    assert [check.passed for check in failed["public.orders"].checks] == [False] * ("quality" in change)
    assert not [path for path in Path(ingestion.root).rglob("*.parquet") if "orders" in str(path)]
    assert ingestion.rows("public.customers")


def test_derby_is_read_like_postgres(spark: SparkSession, database_url: str, tmp_path: Path) -> None:
    url = f"jdbc:derby:memory:shop_{tmp_path.name};create=true"
    frame = spark.range(500).selectExpr(
        "id AS ID", "timestamp_seconds(1700000000 + id div 5) AS AT", "cast(id AS string) AS NOTE"
    )
    frame.write.jdbc(url, "EVENTS", properties={"driver": "org.apache.derby.iapi.jdbc.AutoloadedDriver"})
    root = tmp_path / "lake"
    root.mkdir()
    dataset = {
        "urn": "APP.EVENTS",
        "extract": "append_only",
        "watermark": {"column": "ID"},
        "split": {"work_unit_rows": 100},
    }
    connection = JdbcConnection(url=url, name="shop")
    ingestion = Ingestion(spark, database_url, connection, str(root), [dataset])

    assert [d.error for d in ingestion.run().datasets] == [None], ingestion.lines
    more = spark.range(500, 600).selectExpr(
        "id AS ID", "timestamp_seconds(1700000000 + id) AS AT", "cast(id AS string) AS NOTE"
    )
    more.write.mode("append").jdbc(url, "EVENTS", properties={"driver": "org.apache.derby.iapi.jdbc.AutoloadedDriver"})
    assert [d.error for d in ingestion.run(mode=Mode.APPEND).datasets] == [None]

    assert ingestion.rows("APP.EVENTS", "ID", "NOTE") == Counter((n, str(n)) for n in range(600))
    ingestion.close()


def test_a_changed_set_of_tables_is_said_by_the_next_run(ingestion: Ingestion, shop: Database, tmp_path: Path) -> None:
    source = JdbcSourceSpec(connection="shop", include=("public.*",))
    names = JdbcSource(ingestion.connection, source).discover(lambda: ingestion.spark)
    assert list(names) == ["public.customers", "public.orders"]
    known = write_discovery(tmp_path / "shop.json", names, source, dt.datetime.now(dt.UTC))
    with shop.connect() as connection:
        connection.execute("CREATE TABLE refunds (id int)")
        connection.execute("DROP TABLE orders")
    said: list[str] = []

    with JdbcSource(ingestion.connection, source, known=known).open_plan(lambda: ingestion.spark, said.append):
        pass

    assert any("new: public.refunds" in line and "gone: public.orders" in line for line in said), said


@pytest.mark.rotating(of=3)
@pytest.mark.core
@pytest.mark.parametrize(
    "failpoint",
    [
        "step_after=kill",
        pytest.param("seal_committed=kill", marks=pytest.mark.thorough),
        pytest.param("attempt_written=kill", marks=pytest.mark.thorough),
    ],
)
def test_a_run_on_spark_that_is_killed_is_completed_by_the_next(
    ingestion: Ingestion, shop: Database, tmp_path: Path, failpoint: str
) -> None:
    connection = {"url": shop.jdbc_url, "user": shop.user, "password": shop.password, "name": "shop"}
    settings = {
        "work": str(tmp_path / "spark"),
        "database_url": ingestion.database_url,
        "connection": connection,
        "root": ingestion.root,
        "datasets": [ORDERS, CUSTOMERS],
        "partitions": {"public.orders": ["2024-01-01", "2024-02-01"], "public.customers": [None]},
    }
    killed = run_in_child(tmp_path, settings, failpoint=failpoint)
    assert killed.returncode == -9, killed.stdout + killed.stderr
    assert (tmp_path / "failpoints.log").read_text(encoding="utf-8"), "the failpoint was never reached"
    expire_all_leases(ingestion.engine)

    report = ingestion.run({"public.orders": ["2024-01-01", "2024-02-01"], "public.customers": [None]})

    assert not report.failed, ingestion.lines
    assert ingestion.rows("public.orders", "id", "amount") == source_rows(
        shop, "SELECT id, amount FROM orders WHERE at >= '2024-01-01Z' AND at < '2024-03-01Z'"
    )
    assert ingestion.rows("public.customers") == source_rows(shop, "SELECT id, name FROM customers")


@pytest.mark.turns("rows on Spark Connect")
def test_on_connect_a_killed_client_s_run_is_completed_by_the_next_client(
    ingestion: Ingestion, connect: ConnectServer, shop: Database, tmp_path: Path
) -> None:
    settings = {
        "work": str(tmp_path / "spark"),
        "remote": connect.url,
        "database_url": ingestion.database_url,
        "connection": {"url": shop.jdbc_url, "user": shop.user, "password": shop.password, "name": "shop"},
        "root": ingestion.root,
        "datasets": [ORDERS, CUSTOMERS],
        "partitions": {"public.orders": ["2024-01-01", "2024-02-01"], "public.customers": [None]},
    }
    killed = run_in_child(tmp_path, settings, failpoint="attempt_written=kill@2")
    assert killed.returncode == -9, killed.stdout + killed.stderr
    expire_all_leases(ingestion.engine)

    done = run_in_child(tmp_path, settings)

    assert done.returncode == 0, done.stdout + done.stderr
    assert ingestion.rows("public.orders", "id", "amount", "note") == source_rows(
        shop, "SELECT id, amount, note FROM orders WHERE at < '2024-03-01Z'"
    )
    assert not list(Path(ingestion.root).rglob(".staging/*"))


@pytest.mark.thorough
def test_a_local_cluster_ends_with_the_same_rows(ingestion: Ingestion, shop: Database, tmp_path: Path) -> None:
    settings = {
        "work": str(tmp_path / "spark"),
        "master": "local-cluster[2,1,1024]",
        "database_url": ingestion.database_url,
        "connection": {"url": shop.jdbc_url, "user": shop.user, "password": shop.password, "name": "shop"},
        "root": ingestion.root,
        "datasets": [ORDERS],
        "partitions": {"public.orders": ["2024-01-01"]},
    }
    done = run_in_child(tmp_path, settings)

    assert done.returncode == 0, done.stdout + done.stderr
    assert ingestion.rows("public.orders", "id", "amount") == source_rows(
        shop, "SELECT id, amount FROM orders WHERE at < '2024-02-01Z'"
    )
