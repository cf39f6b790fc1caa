"""Tables whose destination is an object store or HDFS: real servers, by the command line."""

import io
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml
from pyspark.sql import SparkSession

from gobblin_assets.errors import ErrorFamily
from gobblin_assets.fs.objects import HoldsObjects
from gobblin_assets.fs.registry import open_file_system
from gobblin_assets.sources.jdbc.connection import JdbcConnection
from tests.support import hdfs_server as hdfs_servers
from tests.support import s3_servers
from tests.support.command_lake import invoke
from tests.support.ingestion import JOB, Ingestion
from tests.support.postgres import Database
from tests.support.shares import rotating

versitygw = s3_servers.versitygw
hdfs_server = hdfs_servers.hdfs_server


@dataclass(frozen=True)
class Lake:
    """``uri``: the job's destination. ``job``: its file. ``environment``: how processes reach the destination."""

    uri: str
    source: Database
    job: Path
    environment: Mapping[str, str]

    def describe(self, *datasets: Mapping[str, Any], **more: Any) -> None:
        job = {
            "job": JOB,
            "source": {"connection": "shop"},
            "destination": self.uri,
            "retry": {"task_tries_max": 1, "back_off_s": 0},
            "datasets": list(datasets),
            **more,
        }
        self.job.write_text(yaml.safe_dump(job), encoding="utf-8")

    def run(self, *options: str) -> str:
        done = invoke("run", str(self.job), "--no-dagster", *options)
        assert done.exit_code == 0, done.output
        return done.output

    def files(self) -> dict[str, bytes]:
        """The published files, by their paths below the job's directory."""
        fs, root = open_file_system(self.uri)
        found = {}
        for each in fs.list_files(f"{root}/{JOB}"):
            path = each.path.removeprefix(f"{root}/{JOB}/")
            if not path.startswith("."):
                with fs.open_input(each.path) as stream:
                    found[path] = stream.read()
        return found

    def rows(self) -> Counter[str]:
        tables = [pq.read_table(io.BytesIO(content)) for content in self.files().values()]
        return Counter(json.dumps(row, default=str) for table in tables for row in table.to_pylist())

    def row_counts(self) -> Counter[str]:
        """By the directories above the one of the sequence."""
        counts = Counter[str]()
        for path, content in self.files().items():
            counts[path.rpartition("/")[0].rpartition("/")[0]] += pq.read_metadata(io.BytesIO(content)).num_rows
        return counts

    def check_whole(self) -> None:
        """What the log says is what is there, and nothing else."""
        verified = invoke("verify", str(self.job), "--checksums")
        assert verified.exit_code == 0, verified.output
        fs, root = open_file_system(self.uri)
        assert not isinstance(fs, HoldsObjects) or not list(fs.objects.list_uploads(root))
        assert not fs.list_files(f"{root}/{JOB}/.staging")


@pytest.fixture(params=["store", rotating("hdfs")])
def lake(
    request: pytest.FixtureRequest,
    database_url: str,
    fresh_database: Database,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Lake:
    monkeypatch.setenv("GOBBLIN_DATABASE_URL", database_url)
    monkeypatch.setenv("GOBBLIN_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("GOBBLIN_JDBC_SHOP_URL", fresh_database.jdbc_url)
    monkeypatch.setenv("GOBBLIN_JDBC_SHOP_USER", fresh_database.user)
    monkeypatch.setenv("GOBBLIN_JDBC_SHOP_PASSWORD", fresh_database.password)
    if request.param == "store":
        store = request.getfixturevalue("versitygw")
        environment, uri = store.environment, f"s3://{store.make_bucket()}/lake"
    else:
        cluster = request.getfixturevalue("hdfs_server")
        environment, uri = cluster.environment, cluster.uri(cluster.make_root())
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return Lake(uri, fresh_database, tmp_path / "job.yaml", environment)


def test_rows_are_published_and_the_next_run_adds_only_new_ones(lake: Lake) -> None:
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


def test_a_refresh_replaces_the_files_and_removes_the_old_ones(lake: Lake) -> None:
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
    lake: Lake, spark: SparkSession, database_url: str, monkeypatch: pytest.MonkeyPatch
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


def test_spark_s_tasks_write_directories_and_set_rows_aside(lake: Lake, ingest: Callable[..., Ingestion]) -> None:
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


def expect_places(role: str, numbers: Iterable[int]) -> Counter[str]:
    """The rows of the table of places, by directory."""
    places = ("__HIVE_DEFAULT_PARTITION__" if n % 5 == 0 else f"a%2Fb%3D{n % 3} \u00fc%25" for n in numbers)
    return Counter(f"{role}/public.t/place={place}" for place in places)


def test_a_type_that_the_files_can_t_hold_is_refused_by_its_column(
    lake: Lake, ingest: Callable[..., Ingestion]
) -> None:
    with lake.source.connect() as sql:
        sql.execute("CREATE TABLE t AS SELECT n FROM generate_series(1, 5) n")
    job = ingest({"table": "public.t", "converters": [{"sql": {"gap": "make_dt_interval(n)"}}]})

    (dataset,) = job.run().datasets

    assert dataset.error_family is ErrorFamily.REJECTED
    assert "the interval day to second column 'gap' can't be written" in str(dataset.error)
    assert not lake.files()


def test_executors_without_keys_say_so_and_show_none(
    lake: Lake, ingest: Callable[..., Ingestion], spark: SparkSession, monkeypatch: pytest.MonkeyPatch
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
