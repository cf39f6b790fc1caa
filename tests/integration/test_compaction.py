"""Compaction on a real Spark session: the same rows, schemas, roles and directories, in fewer files."""

import json
import os
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession
from sqlalchemy import Engine

from gobblin_assets.cli import main
from gobblin_assets.commit.driver import Driver
from gobblin_assets.commit.postgres import PostgresCommitStepStore
from gobblin_assets.commit.published.postgres import PostgresPublishedFiles
from gobblin_assets.commit.sequence import Publication
from gobblin_assets.destinations.files.rooted import Directories
from gobblin_assets.errors import CorruptionError
from gobblin_assets.fs.registry import open_file_system
from gobblin_assets.jobs.ingest.rewriter import SparkRewriter
from gobblin_assets.model.clock import SystemClock
from gobblin_assets.model.state import RunId
from gobblin_assets.model.urn import DatasetUrn, JobName, Role
from gobblin_assets.rows.dataset_reader import read_dataset
from gobblin_assets.run.compaction import Compaction
from gobblin_assets.run.destination import DestinationRequest
from gobblin_assets.run.postgres import open_stores
from gobblin_assets.sources.jdbc.jdbc_kind import JdbcSourceSpec
from gobblin_assets.spark.connect_server import ConnectServer
from gobblin_assets.spec.job_spec import CompactionSpec, DatasetSpec, JobSpec, RowPolicySpec, WriterSpec
from gobblin_assets.state.datasets import NewRun
from gobblin_assets.state.leases import Holder
from gobblin_assets.state.postgres import PostgresDatasetStore, PostgresLeaseStore, PostgresRunStore
from tests.support.forked_commands import Commands
from tests.support.publishing import JOB, Publisher

pytestmark = pytest.mark.turns(of=8)

URN = DatasetUrn("public.orders")


@pytest.fixture
def publisher(engine: Engine, tmp_path: Path) -> Publisher:
    return Publisher(engine, tmp_path / "la ke~%20")


def compact(spark: SparkSession, publisher: Publisher, partition: str) -> Publication | None:
    engine, clock = publisher.engine, SystemClock()
    fs, root = open_file_system(str(publisher.root))
    job = JobSpec(job=JOB, source=JdbcSourceSpec(connection="none"), destination=str(publisher.root))
    run_id = RunId(uuid.uuid4())
    PostgresRunStore(engine).begin(NewRun(run_id, JobName(JOB), "test"))
    dataset_id = PostgresDatasetStore(engine).load(JobName(JOB), [URN])[URN].dataset_id
    leases = PostgresLeaseStore(engine)
    (lease,) = leases.take([dataset_id], Holder("test", run_id), ttl_s=60.0)
    compaction = Compaction(
        job=job,
        run_id=run_id,
        store=PostgresCommitStepStore(engine),
        driver=Driver(PostgresCommitStepStore(engine), open_file_system, lambda _lease: None),
        published=PostgresPublishedFiles(engine),
        destination=Directories(
            DestinationRequest(
                JobName(JOB), job.destination, fs, root, open_stores(engine), open_file_system, clock.new_id
            )
        ),
        clock=clock,
        say=lambda _line: None,
        require=lambda _lease: None,
        open_rewriter=lambda: SparkRewriter(spark, fs, {URN: DatasetSpec()}),
    )
    try:
        return compaction.compact(URN, partition, lease, spec=CompactionSpec())
    finally:
        leases.release([lease])


def rows(spark: SparkSession, publisher: Publisher, **how: Any) -> tuple[str, Counter[tuple[Any, ...]]]:
    frame = read_dataset(spark, URN, job=JOB, database=publisher.engine, **how)
    return frame.schema.simpleString(), Counter(str(row) for row in frame.collect())


def all_rows(spark: SparkSession, publisher: Publisher) -> list[Any]:
    return [
        rows(spark, publisher, role=role, partitions=partitions)
        for role in (Role.DATA, Role.QUARANTINE)
        for partitions in (None, ["day 1"], ["day 2"])
    ]


def count_files(publisher: Publisher) -> Counter[str]:
    found = PostgresPublishedFiles(publisher.engine).list_partitions(JOB, URN)
    return Counter({each.partition: each.file_count for each in found})


@pytest.mark.core
def test_rows_roles_schemas_and_directories_stay(spark: SparkSession, publisher: Publisher) -> None:
    """Files of two schemas and two sets of directories, rows set aside, and a map, which can't be hashed."""
    first = "SELECT id, id % 2 AS half, CAST(id AS string) AS v, map('k', id) AS m FROM range({}, {})"
    later = "SELECT id, id % 2 AS half, id AS w, -0.0D AS zero, CAST(NULL AS string) AS v FROM range({}, {})"
    policies = (RowPolicySpec(name="odd", check="id % 5 <> 0", on_failure="err_file"),)
    for number in range(2):
        low = 20 * number
        frame = spark.sql(first.format(low, low + 10)).repartition(4)
        publisher.publish(frame, URN, partition="day 1", policies=policies, writer=WriterSpec(partition_by=("half",)))
        publisher.publish(spark.sql(later.format(low + 10, low + 20)).repartition(3), URN, partition="day 1")
    publisher.publish(spark.sql(first.format(100, 110)), URN, partition="day 2")
    before, files = all_rows(spark, publisher), count_files(publisher)

    publication = compact(spark, publisher, "day 1")

    assert publication is not None
    assert all_rows(spark, publisher) == before
    after = count_files(publisher)
    assert after["day 2"] == files["day 2"]
    # Data: one file in each of two directories, and one beside them. Quarantine: two files.
    assert after["day 1"] == 5 < files["day 1"]
    directories = {path.parents[1].name for path in publisher.files(URN) if publication.sequence_id.hex in str(path)}
    assert directories == {"half=0", "half=1", "day 1", "day%201"} & directories
    assert {"half=0", "half=1"} < directories

    compact(spark, publisher, "day 1")
    assert all_rows(spark, publisher) == before
    assert compact(spark, publisher, "day 3") is None


def test_a_partition_that_is_older_keeps_its_place_among_the_schemas(spark: SparkSession, publisher: Publisher) -> None:
    publisher.publish(spark.sql("SELECT 1 AS id"), URN, partition="day 1")
    publisher.publish(spark.sql("SELECT 3000000000 AS id"), URN, partition="day 2")
    before = rows(spark, publisher)
    assert before[0] == "struct<id:bigint>"

    compact(spark, publisher, "day 1")

    assert rows(spark, publisher) == before, "what was written anew is not newer"


def test_the_command_compacts_what_has_come_to_rest(
    spark: SparkSession,
    publisher: Publisher,
    database_url: str,
    connect: ConnectServer,
    commands: Commands,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GOBBLIN_DATABASE_URL", database_url)
    monkeypatch.setenv("GOBBLIN_HOME", str(tmp_path / "home"))
    for day in ("day 1", "day 2"):
        for number in range(3):
            publisher.publish(spark.sql(f"SELECT {number} AS id"), URN, partition=day)
    before = rows(spark, publisher)
    job = {
        "job": str(JOB),
        "source": {"connection": "none"},
        "destination": str(publisher.root),
        "datasets": [{"table": str(URN)}],
        "compaction": {"files_min": 3},
    }
    job_file = tmp_path / "shop.json.yaml"

    job_file.write_text(json.dumps(job), encoding="utf-8")
    result = CliRunner().invoke(main, ["compact", str(job_file), "--json"])
    assert (result.exit_code, json.loads(result.stdout)) == (0, []), "published a moment ago"

    job["compaction"] = {"files_min": 3, "quiet_s": 0}
    job_file.write_text(json.dumps(job), encoding="utf-8")
    # In a process of its own, since this one has a session with other settings.
    environment = {**os.environ, "GOBBLIN_SPARK_REMOTE": connect.url}
    done = commands.run("compact", str(job_file), "--json", environment=environment, folder=tmp_path)

    assert done.returncode == 0, done.stderr
    found = [(each["partition"], each["row_count"], each["file_count"]) for each in json.loads(done.stdout)]
    assert found == [("day 1", 3, 1), ("day 2", 3, 1)]
    assert rows(spark, publisher) == before
    assert count_files(publisher) == {"day 1": 1, "day 2": 1}


def test_a_damaged_file_stops_it(spark: SparkSession, publisher: Publisher) -> None:
    for number in range(2):
        publisher.publish(spark.sql(f"SELECT {number} AS id"), URN)
    publisher.files(URN)[0].unlink()

    with pytest.raises(CorruptionError, match="missing"):
        compact(spark, publisher, "")

    state = PostgresDatasetStore(publisher.engine).load(JOB, [URN])[URN]
    assert state.version == 2
