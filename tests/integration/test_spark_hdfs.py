"""Spark reads HDFS as the user that the product writes as, whoever the process's own user is."""

import shutil
import uuid
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from sqlalchemy import create_engine

from gobblin_assets.commit.destination import make_identity
from gobblin_assets.commit.postgres.destinations import PostgresDestinationStore
from gobblin_assets.errors import RejectedError
from gobblin_assets.fs.registry import open_file_system
from gobblin_assets.jobs.ingest.spark_engine import SparkEngine
from gobblin_assets.jobs.ingest.spark_work import find_warm
from gobblin_assets.rows.dataset_reader import read_dataset
from gobblin_assets.settings import read_settings
from gobblin_assets.spark import connect_server
from gobblin_assets.spark.session import open_session
from gobblin_assets.spark.spark_settings import SparkSettings
from gobblin_assets.spec.job_parsing import parse_job
from tests.support.command_lake import invoke
from tests.support.hdfs_place import HdfsClient
from tests.support.hdfs_server import GATEWAY, HdfsServer
from tests.support.publishing import JOB, Publisher
from tests.support.s3_spark import run_store_reader
from tests.support.spark import SMALL, in_child, open_remote

OWNER = "ann"


@pytest.fixture
def private_root(hdfs_server: HdfsServer) -> str:
    """A directory that nobody but ``OWNER`` may enter."""
    root, client = hdfs_server.make_root(), HdfsClient(hdfs_server.http_address)
    client.ask("PUT", root, "SETOWNER", owner=OWNER)
    client.ask("PUT", root, "SETPERMISSION", permission="700")
    return root


def _publish(spark: SparkSession, url: str, root: Path) -> None:
    engine = create_engine(url)
    Publisher(engine, root).publish(spark.range(3).toDF("id"), "t")
    files, path = open_file_system(str(root))
    identity = make_identity(files, path, uuid.uuid4())
    PostgresDestinationStore(engine).bind(JOB, root_uri=files.to_uri(path), identity=identity)
    engine.dispose()


def _move(server: HdfsServer, root: Path, place: str) -> None:
    """All files to HDFS, where the log finds them from now on."""
    client = HdfsClient(server.http_address)
    for path in (path for path in root.rglob("*") if path.is_file()):
        client.write(f"{place}/{path.relative_to(root)}", path.read_bytes())
    moved = invoke("destination", "move", JOB, server.uri(place))
    assert moved.exit_code == 0, moved.output
    for path, _status in list(client.walk(place)):
        client.ask("PUT", path, "SETOWNER", owner=OWNER)
    shutil.rmtree(root)


def _read(spark: SparkSession, url: str) -> list[int]:
    engine = create_engine(url)
    found = sorted(row[0] for row in read_dataset(spark, "t", job=JOB, database=engine).collect())
    engine.dispose()
    return found


def _open_as(spark: SparkSession, work_folder: Path, user: str) -> str:
    """What comes of a job whose files are another user's."""
    del spark
    try:
        open_session(SparkSettings(work_folder, master="local[2]", conf=SMALL, hdfs_user=user))
    except RejectedError as error:
        return error.message
    return ""


@pytest.mark.turns("what Spark meets", of=8)
def test_a_dataset_is_read_as_the_user_who_may_read_it_and_as_no_other(
    hdfs_server: HdfsServer, private_root: str, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = {**hdfs_server.environment, "HADOOP_USER_NAME": "", "GOBBLIN_HOME": str(tmp_path / "home")}
    for name, value in {**theirs, "GOBBLIN_DATABASE_URL": database_url}.items():
        monkeypatch.setenv(name, value)
    mine = {"GOBBLIN_HDFS_USER": GATEWAY, "GOBBLIN_HDFS_PROXY_USER": OWNER, "HADOOP_USER_NAME": "stranger"}
    with run_store_reader({**hdfs_server.environment, **mine}, {}, capabilities=()) as reader:
        reader.ask(_publish, database_url, tmp_path / "lake")
        _move(hdfs_server, tmp_path / "lake", private_root)
        assert reader.ask(_read, database_url) == [0, 1, 2]
        assert reader.ask(_open_as, reader.settings.work_folder, OWNER) == ""
        refused = reader.ask(_open_as, reader.settings.work_folder, "bob")
    assert refused.startswith("GOBBLIN_HDFS_USER: Spark runs as ann on HDFS")


def _read_remotely(server: connect_server.ConnectServer, uri: str) -> int:
    spark = open_remote(server)
    found = spark.read.parquet(uri).count()
    spark.stop()
    return found


@pytest.mark.thorough
def test_a_warm_server_is_left_to_those_who_have_its_user(
    hdfs_server: HdfsServer, private_root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pq.write_table(pa.table({"id": [1, 2]}), tmp_path / "file")
    HdfsClient(hdfs_server.http_address).write(f"{private_root}/f.parquet", (tmp_path / "file").read_bytes())
    variables = {"GOBBLIN_HDFS_USER": OWNER, "HADOOP_USER_NAME": "stranger", "GOBBLIN_HOME": str(tmp_path / "home")}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    said: list[str] = []
    try:
        started = invoke("spark", "start", "--master", "local[1]")
        assert started.exit_code == 0, started.output
        server = connect_server.find(read_settings().home)
        assert server is not None
        found = in_child(_read_remotely, server, hdfs_server.uri(f"{private_root}/f.parquet"))
        taken = [find_warm([], said.append, hdfs_user=user) for user in (OWNER, None, "bob")]
        monkeypatch.setenv("GOBBLIN_HDFS_USER", "bob")
        kept = invoke("spark", "start", "--master", "local[1]")
    finally:
        invoke("spark", "stop")
    assert found == 2
    assert taken == [server.url, server.url, None]
    assert "reaches HDFS as ann, and not as bob" in said[-1]
    assert kept.exit_code == 2


@pytest.mark.parametrize(("destination", "user"), [("hdfs://n:8020/lake", OWNER), ("/data/lake", None)])
def test_only_a_job_with_files_on_hdfs_asks_for_a_user(
    destination: str, user: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOBBLIN_HDFS_USER", OWNER)
    monkeypatch.setenv("GOBBLIN_JDBC_SALES_URL", "jdbc:postgresql://db/sales")
    job = parse_job({"job": "j", "source": {"connection": "sales"}, "destination": "/data", "datasets": [{"urn": "t"}]})
    job = job.model_copy(update={"destination": destination})
    assert SparkEngine(work_folder="/work").settings(job).hdfs_user == user
