"""Spark reads what lies in a bucket: a real store, and sessions of our own factory with the capability s3."""

import io
import json
import os
import shutil
import urllib.request
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from sqlalchemy import create_engine

from gobblin_assets.commit.destination import make_identity
from gobblin_assets.commit.postgres.destinations import PostgresDestinationStore
from gobblin_assets.errors import GobblinError
from gobblin_assets.fs.registry import open_file_system
from gobblin_assets.jobs.ingest.spark_work import find_warm
from gobblin_assets.rows import dataset_reader
from gobblin_assets.rows.dataset_reader import read_dataset
from gobblin_assets.settings import read_settings
from gobblin_assets.spark import connect_server
from gobblin_assets.spark.errors import spark_families
from gobblin_assets.spec.job_spec import WriterSpec
from tests.support.command_lake import invoke
from tests.support.publishing import JOB, Publisher
from tests.support.s3_servers import SECRET, USER, S3Server
from tests.support.s3_spark import StoreReader, run_store_reader
from tests.support.spark import in_child, open_remote

pytestmark = pytest.mark.turns(of=8)

ROOT: Final = "la ke~%20"
DENIED: Final = "denied-to-spark"
WITHOUT_KEYS: Final = "without-keys"
WRONG_SECRET: Final = "another se/cret"
BUCKET_CONF: Final = "spark.hadoop.fs.s3a.bucket"


@pytest.fixture(scope="module")
def store_reader(versitygw: S3Server) -> Iterator[StoreReader]:
    theirs = {
        "spark.ui.enabled": "true",
        "spark.ui.port": "0",
        f"{BUCKET_CONF}.{DENIED}.access.key": USER,
        f"{BUCKET_CONF}.{DENIED}.secret.key": WRONG_SECRET,
        f"{BUCKET_CONF}.{WITHOUT_KEYS}.aws.credentials.provider": (
            "software.amazon.awssdk.auth.credentials.EnvironmentVariableCredentialsProvider"
        ),
    }
    with run_store_reader({**versitygw.environment, "AWS_ACCESS_KEY_ID": ""}, theirs) as reader:
        yield reader


@pytest.fixture
def put(versitygw: S3Server) -> Callable[[str, Mapping[str, int]], None]:
    """Puts a Parquet file with one row into each directory below a place, by the product's own client."""

    def put(place: str, ids: Mapping[str, int]) -> None:
        for directory, number in ids.items():
            content = io.BytesIO()
            pq.write_table(pa.table({"id": [number]}), content)
            versitygw.open().put_if_absent(f"{place}/{directory}/part-{number}.parquet", content.getvalue())

    return put


def _read(spark: SparkSession, base: str, paths: list[str]) -> set[tuple[object, ...]]:
    frame = spark.read.option("basePath", base).parquet(*paths)
    return {tuple(row) for row in frame.selectExpr("id", "p", "q").collect()}


@pytest.mark.turns("what Spark meets", of=8)
def test_directories_with_any_names_are_read_with_their_values(
    store_reader: StoreReader, versitygw: S3Server, put: Callable[[str, Mapping[str, int]], None]
) -> None:
    bucket = versitygw.make_bucket()
    directories = {
        "p=a%2Fb/q=x y": 0,
        "p=ü=1/q=100%25": 1,
        "p=+&;'/q=漢~#": 2,
        "p=__HIVE_DEFAULT_PARTITION__/q=%3F": 3,
    }
    put(f"/{bucket}/{ROOT}", directories)
    base = f"s3://{bucket}/{ROOT}"
    rows = [(0, "a/b", "x y"), (1, "ü=1", "100%"), (2, "+&;'", "漢~#"), (3, None, "?")]

    assert store_reader.ask(_read, base, [base]) == set(rows)
    for (directory, number), row in zip(directories.items(), rows, strict=True):
        of_one = [f"{base}/{directory.partition('/')[0]}", f"{base}/{directory}/part-{number}.parquet"]
        assert [store_reader.ask(_read, base, [path]) for path in of_one] == [{row}, {row}]


def _publish(spark: SparkSession, url: str, root: Path) -> None:
    engine = create_engine(url)
    publisher = Publisher(engine, root)
    rows = "SELECT id, 'x y/%=' AS region FROM VALUES (1), (2) AS t(id)"
    publisher.publish(spark.sql(rows), "a/b ü%20", partition="p=1/ü ~", writer=WriterSpec(partition_by=("region",)))
    publisher.publish(spark.sql("SELECT 3 AS id, '' AS region"), "a/b ü%20", partition="p=2")
    fs, path = open_file_system(str(root))
    identity = make_identity(fs, path, uuid.uuid4())
    PostgresDestinationStore(engine).bind(JOB, root_uri=fs.to_uri(path), identity=identity)
    engine.dispose()


def _read_dataset(spark: SparkSession, url: str, directories_max: int) -> Counter[tuple[object, ...]]:
    dataset_reader.DIRECTORIES_MAX = directories_max
    engine = create_engine(url)
    frame = read_dataset(spark, "a/b ü%20", job=JOB, database=engine)
    found = Counter(tuple(row) for row in frame.select("id", "region").collect())
    engine.dispose()
    return found


@pytest.mark.turns("what Spark meets", of=8)
def test_a_dataset_whose_files_were_moved_to_a_bucket_is_read_there(
    store_reader: StoreReader,
    versitygw: S3Server,
    database_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in versitygw.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("GOBBLIN_DATABASE_URL", database_url)
    monkeypatch.setenv("GOBBLIN_HOME", str(tmp_path / "home"))
    root, bucket = tmp_path / ROOT, versitygw.make_bucket()
    store_reader.ask(_publish, database_url, root)
    for path in (path for path in root.rglob("*") if path.is_file()):
        versitygw.open().put_if_absent(f"/{bucket}/{ROOT}/{path.relative_to(root)}", path.read_bytes())
    moved = invoke("destination", "move", JOB, f"s3://{bucket}/{ROOT}")
    assert moved.exit_code == 0, moved.output
    shutil.rmtree(root)

    rows = Counter({(1, "x y/%="): 1, (2, "x y/%="): 1, (3, ""): 1})
    assert store_reader.ask(_read_dataset, database_url, dataset_reader.DIRECTORIES_MAX) == rows
    assert store_reader.ask(_read_dataset, database_url, 0) == rows, "by each row's path"


def _show(spark: SparkSession, path: str) -> dict[str, Any]:
    spark.read.parquet(path).collect()
    context = spark.sparkContext
    page = f"{context.uiWebUrl}/api/v1/applications/{context.applicationId}/environment"
    with urllib.request.urlopen(page, timeout=60) as answer:
        shown = json.load(answer)
    return {
        "shown": shown,
        "conf": dict(context.getConf().getAll()),
        "sql": [tuple(row) for row in spark.sql("SET -v").collect()],
        "commands": [path.read_bytes().decode(errors="replace") for path in Path("/proc").glob("[0-9]*/cmdline")],
    }


@pytest.mark.core
def test_no_secret_shows_in_spark_s_configuration_its_pages_logs_and_command_line(
    store_reader: StoreReader, versitygw: S3Server, put: Callable[[str, Mapping[str, int]], None]
) -> None:
    bucket = versitygw.make_bucket()
    put(f"/{bucket}", {"a": 1})
    found = store_reader.ask(_show, f"s3://{bucket}/a")
    assert {name for name, _value in found["shown"]["hadoopProperties"]} >= {"fs.s3a.secret.key", "fs.s3.impl"}
    # The other secret, which a user wrote into Spark's configuration, is the user's own.
    assert SECRET not in json.dumps(found)
    logs = list(store_reader.settings.work_folder.glob("driver-*.log"))
    assert logs
    assert not [log for log in logs if SECRET in log.read_text(errors="replace")]


def _fail(spark: SparkSession, path: str) -> tuple[str, str, str]:
    try:
        with spark_families("read the files"):
            spark.read.schema("id long").parquet(path).collect()
    except GobblinError as error:
        return type(error).__name__, str(error.fields.get("field")), str(error)
    return "", "", ""


@pytest.mark.parametrize(
    ("bucket", "said", "field"),
    [
        (DENIED, "the store denies access to", "GOBBLIN_S3_ACCESS_KEY_ID"),
        (WITHOUT_KEYS, "Spark's processes have no keys for", "GOBBLIN_S3_ACCESS_KEY_ID"),
        ("not-made", "there is no bucket not-made", "destination"),
    ],
)
def test_what_the_store_refuses_is_rejected_without_a_secret(
    store_reader: StoreReader, bucket: str, said: str, field: str
) -> None:
    family, named, text = store_reader.ask(_fail, f"s3://{bucket}/{ROOT}/a.parquet")
    assert (family, named) == ("RejectedError", field), text
    assert said in text
    assert not [secret for secret in (SECRET, WRONG_SECRET) if secret in text]


def _read_remotely(server: connect_server.ConnectServer, bucket: str) -> tuple[object, ...]:
    spark = open_remote(server)
    found = [tuple(row) for row in spark.read.parquet(f"s3://{bucket}/a").collect()]
    missing = _fail(spark, "s3://not-made/a")
    spark.stop()
    return found, missing[0]


@pytest.mark.thorough
def test_a_warm_server_reads_buckets_and_is_left_to_those_who_have_its_keys(
    versitygw: S3Server,
    put: Callable[[str, Mapping[str, int]], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in {**versitygw.environment, "GOBBLIN_HOME": str(tmp_path / "ho me")}.items():
        monkeypatch.setenv(name, value)
    bucket = versitygw.make_bucket()
    put(f"/{bucket}", {"a": 1})
    said: list[str] = []
    try:
        started = invoke("spark", "start", "--master", "local[1]", "--capability", "s3")
        assert started.exit_code == 0, started.output
        server = connect_server.find(read_settings().home)
        assert server is not None
        found = in_child(_read_remotely, server, bucket)
        taken = find_warm(["s3"], said.append)
        monkeypatch.setenv("GOBBLIN_S3_SECRET_ACCESS_KEY", "another")
        left = find_warm(["s3"], said.append), invoke("spark", "start", "--master", "local[1]", "--capability", "s3")
        without = find_warm([], said.append)
        files = [path for path in server.log_path.parent.rglob("*") if path.is_file()]
        holders = [path for path in files if SECRET in path.read_text(errors="replace")]
    finally:
        invoke("spark", "stop")
    assert found == ([(1,)], "RejectedError")
    assert taken == without == server.url
    assert left[0] is None
    assert left[1].exit_code == 2
    assert "other variables of S3" in said[1]
    assert not holders
    assert os.environ["GOBBLIN_S3_SECRET_ACCESS_KEY"] not in " ".join(said)
