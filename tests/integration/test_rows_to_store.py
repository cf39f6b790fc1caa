"""Tables whose destination is an object store or HDFS: real servers, by the command line."""

import io
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from gobblin_assets import failpoints
from gobblin_assets.errors import ErrorFamily
from gobblin_assets.failpoints import Failpoint
from gobblin_assets.rows import task_writer
from gobblin_assets.sources.jdbc.connection import JdbcConnection
from tests.support.ingestion import Ingestion, run_in_child
from tests.support.postgres import Database
from tests.support.reached_stores import STORES, reach_destination
from tests.support.stored_lake import StoredLake, make_stored_lake
from tests.support.twins import write_twice

pytestmark = pytest.mark.turns(of=8)


@pytest.fixture(params=STORES)
def lake(
    request: pytest.FixtureRequest,
    database_url: str,
    fresh_database: Database,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> StoredLake:
    return make_stored_lake(*reach_destination(request), database_url, fresh_database, tmp_path, monkeypatch)


@pytest.mark.core
def test_rows_are_published_and_the_next_run_adds_only_new_ones(lake: StoredLake) -> None:
    with lake.source.connect() as sql:
        sql.execute("CREATE TABLE t AS SELECT n, 'row ' || n AS text FROM generate_series(1, 50) n")
    lake.describe({"table": "public.t", "extract": "append_only", "watermark": {"column": "n"}})
    lake.run()
    first = lake.files()
    with lake.source.connect() as sql:
        sql.execute("INSERT INTO t SELECT n, 'row ' || n FROM generate_series(51, 60) n")
    lake.run()

    assert lake.rows() == Counter(json.dumps({"n": n, "text": f"row {n}"}) for n in range(1, 61))
    assert first.items() <= lake.files().items()
    lake.check_whole()


def test_a_refresh_replaces_the_files_and_removes_the_old_ones(lake: StoredLake) -> None:
    with lake.source.connect() as sql:
        sql.execute("CREATE TABLE t AS SELECT n FROM generate_series(1, 50) n")
    lake.describe({"table": "public.t"}, retire_grace_s=0)
    lake.run()
    first = lake.files()
    with lake.source.connect() as sql:
        sql.execute("DELETE FROM t WHERE n > 10")
    lake.run()
    lake.run()

    assert lake.rows() == Counter(json.dumps({"n": n}) for n in range(1, 11))
    assert not first.keys() & lake.files().keys()
    lake.check_whole()


@pytest.fixture
def ingest(
    lake: StoredLake, spark: SparkSession, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Ingestion]:
    """Makes a job on Spark, whose Python workers have the environment of this test."""
    for name, value in lake.environment.items():
        monkeypatch.setitem(spark.sparkContext.environment, name, value)
    source = lake.source
    shop = JdbcConnection(url=source.jdbc_url, user=source.user, password=source.password, name="shop")

    def make(*datasets: Mapping[str, Any], **options: Any) -> Ingestion:
        lake.describe(*datasets, **options)
        return Ingestion(spark, database_url, shop, lake.uri, datasets, options=options)

    return make


def test_spark_s_tasks_write_directories_and_set_rows_aside(lake: StoredLake, ingest: Callable[..., Ingestion]) -> None:
    with lake.source.connect() as sql:
        sql.execute(
            """CREATE TABLE t AS
               SELECT n, CASE WHEN n % 5 = 0 THEN NULL ELSE 'a/b=' || (n % 3) || ' \u00fc%' END AS place,
                      ARRAY[n, NULL] AS list, now()::timestamptz AS at, (n / 7.0)::numeric(12, 4) AS part
                 FROM generate_series(1, 200) n"""
        )
    policy = {"name": "low", "check": "n <= 190", "on_failure": "err_file"}
    quality = {"rows": [policy], "samples": "values"}
    job = ingest({"table": "public.t", "writer": {"partition_by": ["place"], "file_rows_max": 20}, "quality": quality})

    report = job.run()

    assert not report.failed, job.lines
    assert lake.row_counts() == expect_places("data", range(1, 191)) + expect_places("quarantine", range(191, 201))
    assert sorted(json.loads(row)["n"] for row in lake.rows()) == list(range(1, 201))
    assert {len(pq.read_table(io.BytesIO(content))) <= 20 for content in lake.files().values()} == {True}
    (low,) = (check for check in report.datasets[0].checks if check.name == "low")
    assert "n: 19" in json.dumps(low.figures, default=str)
    lake.check_whole()


@pytest.mark.core
def test_what_a_twin_of_a_task_wrote_is_never_published_and_is_discarded(
    lake: StoredLake, ingest: Callable[..., Ingestion], spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    with lake.source.connect() as sql:
        sql.execute("CREATE TABLE t AS SELECT n, n % 3 AS place FROM generate_series(1, 100) n")
    job = ingest({"table": "public.t", "writer": {"partition_by": ["place"], "file_rows_max": 20}})
    monkeypatch.setitem(spark.sparkContext.environment, "PYTHONPATH", str(Path(__file__).parents[2]))
    monkeypatch.setattr(task_writer, "write_rows", write_twice)
    staged: list[int] = []

    def look(reached: Failpoint) -> None:
        if reached is Failpoint.ATTEMPT_WRITTEN:
            staged.append(lake.count_staged())

    with failpoints.install(look):
        report = job.run()

    assert not report.failed, job.lines
    assert staged == [2 * len(lake.files())], "there was no twin"
    assert lake.rows() == Counter(json.dumps({"n": n}) for n in range(1, 101))
    lake.check_whole()


def expect_places(role: str, numbers: Iterable[int]) -> Counter[str]:
    """The rows of the table of places, by directory."""
    places = ("__HIVE_DEFAULT_PARTITION__" if n % 5 == 0 else f"a%2Fb%3D{n % 3} \u00fc%25" for n in numbers)
    return Counter(f"{role}/public.t/place={place}" for place in places)


@pytest.mark.thorough
def test_executors_of_their_own_write_to_the_destination(lake: StoredLake, database_url: str, tmp_path: Path) -> None:
    """Two processes besides the driver's JVM, which get nothing but the pickled order and their environment."""
    with lake.source.connect() as sql:
        sql.execute("CREATE TABLE t AS SELECT n, n % 3 AS place, 'row ' || n AS text FROM generate_series(1, 200) n")
    policy = {"name": "low", "check": "n <= 190", "on_failure": "err_file"}
    writer = {"partition_by": ["place"], "file_rows_max": 20}
    dataset = {"table": "public.t", "urn": "public.t", "writer": writer, "quality": {"rows": [policy]}}
    source, split = lake.source, {"work_unit_rows": 40, "max_partitions": 3}
    settings = {
        "work": str(tmp_path / "spark"),
        "master": "local-cluster[2,1,1024]",
        "database_url": database_url,
        "connection": {"url": source.jdbc_url, "user": source.user, "password": source.password, "name": "shop"},
        "root": lake.uri,
        "datasets": [{**dataset, "split": split}],
        "partitions": {"public.t": [None]},
    }
    lake.describe(dataset)

    done = run_in_child(tmp_path, settings)

    assert done.returncode == 0, done.stdout + done.stderr
    places = Counter(f"{'data' if n <= 190 else 'quarantine'}/public.t/place={n % 3}" for n in range(1, 201))
    assert lake.row_counts() == places
    assert sorted(json.loads(row)["n"] for row in lake.rows()) == list(range(1, 201))
    lake.check_whole()


def test_a_type_that_the_files_can_t_hold_is_refused_by_its_column(
    lake: StoredLake, ingest: Callable[..., Ingestion]
) -> None:
    with lake.source.connect() as sql:
        sql.execute("CREATE TABLE t AS SELECT n FROM generate_series(1, 5) n")
    job = ingest({"table": "public.t", "converters": [{"sql": {"gap": "make_dt_interval(n)"}}]})

    (dataset,) = job.run().datasets

    assert dataset.error_family is ErrorFamily.REJECTED
    assert "the interval day to second column 'gap' can't be written" in str(dataset.error)
    assert not lake.files()


def test_executors_without_keys_say_so_and_show_none(
    lake: StoredLake, ingest: Callable[..., Ingestion], spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not lake.uri.startswith("s3:"):
        pytest.skip("HDFS asks for no keys")
    with lake.source.connect() as sql:
        sql.execute("CREATE TABLE t AS SELECT n FROM generate_series(1, 5) n")
    job = ingest({"table": "public.t"})
    monkeypatch.delitem(spark.sparkContext.environment, "GOBBLIN_S3_SECRET_ACCESS_KEY")

    (dataset,) = job.run().datasets

    assert dataset.error_family is ErrorFamily.REJECTED
    assert "in a process of Spark's executors" in str(dataset.error)
    assert lake.environment["GOBBLIN_S3_SECRET_ACCESS_KEY"] not in str(dataset.error)
