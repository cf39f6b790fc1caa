"""Tables are read by a base generation and the changes behind it, as by the whole log, whatever came between."""

import json
import os
import signal
import subprocess
import uuid
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t
from sqlalchemy import Engine, text

from gobblin_assets import failpoints
from gobblin_assets.commit.published.postgres import PostgresPublishedFiles
from gobblin_assets.dagster.factory import build_gobblin_definitions
from gobblin_assets.dagster.ports import SPARK_KEY
from gobblin_assets.dagster.resources import CommitStoreResource, gobblin_resources
from gobblin_assets.dagster.resources.connections import connection_from_environment
from gobblin_assets.errors import ConflictError
from gobblin_assets.failpoints import Failpoint
from gobblin_assets.fs.posix import PosixFileSystem
from gobblin_assets.fs.registry import open_file_system
from gobblin_assets.model.files import FileStat
from gobblin_assets.rows.base_generations import name_base
from gobblin_assets.rows.current_reader import find_current
from gobblin_assets.spark.connect_server import ConnectServer
from gobblin_assets.spec.job_parsing import parse_job
from tests.integration.test_compaction import compact
from tests.support.forked_commands import Commands
from tests.support.publishing import JOB, Publisher
from tests.support.shares import Share, rotating
from tests.support.table_history import TableHistory
from tests.support.written_logs import LOG, OwnSpark, WrittenLog

SAME: tuple[list[Any], list[Any]] = ([], [])
TABLES = 8


def make_log(spark: SparkSession, engine: Engine, folder: Path, share: Share, **kind: Any) -> WrittenLog:
    history = TableHistory(f"{share.seed}", **kind)
    return WrittenLog(spark, Publisher(engine, folder / "lake"), history, folder)


def run_all(log: WrittenLog, transactions: int) -> None:
    for table in range(TABLES):
        log.history.run(transactions, table=table)


@pytest.mark.turns("what Spark meets", of=8)
@pytest.mark.parametrize("kind", [rotating({}), rotating({"is_full": True, "has_key": False})], ids=["by key", "whole"])
def test_a_base_and_what_is_behind_it_are_the_table(
    spark: SparkSession, engine: Engine, tmp_path: Path, share: Share, kind: dict[str, Any]
) -> None:
    log = make_log(spark, engine, tmp_path, share, **kind)
    run_all(log, 2)
    log.history.copy()
    log.publish()
    run_all(log, 2)
    log.publish()
    (base,), failures = log.write_base()
    assert not failures
    assert base.urn == name_base(LOG)
    assert base.row_count == log.history.current().total()
    assert log.difference() == SAME

    for _round in range(2):
        run_all(log, 3)
        log.publish()
        assert log.difference() == SAME
    view = find_current(PostgresPublishedFiles(engine), JOB, LOG)
    assert view.base is not None
    assert len(view.base.later.segments) == 2 < len(view.log.files.segments), "older files are left out"
    assert log.write_base(changes_min=view.changes_behind + 1) == ([], {})
    (base,), failures = log.write_base(changes_min=view.changes_behind)

    # The base's files say nothing of themselves once the log is cleared, or the table is copied again.
    log.history.truncate()
    run_all(log, 1)
    log.publish()
    assert log.difference() == SAME
    log.history.copy()
    log.publish(copy=2)
    assert find_current(PostgresPublishedFiles(engine), JOB, LOG).base is None
    assert log.difference() == SAME


class LossyDisk(PosixFileSystem):
    """Without the first file that Spark wrote, as if that file were on the disk of an executor elsewhere."""

    def list_files(self, directory: str) -> Sequence[FileStat]:
        found = super().list_files(directory)
        written = [each for each in found if each.path.endswith(".parquet")]
        return [each for each in found if each not in written[:1]]


@pytest.mark.turns("what Spark meets", of=8)
def test_a_base_whose_files_lack_rows_is_not_published(
    spark: SparkSession, engine: Engine, tmp_path: Path, share: Share
) -> None:
    log = make_log(spark, engine, tmp_path, share)
    run_all(log, 2)
    log.publish()
    total = log.history.current().total()

    done, failures = log.write_base(
        open_files=lambda uri, umask=None: (LossyDisk(umask), open_file_system(uri, umask=umask)[1])
    )
    assert not done
    assert f"a base has {total:,} rows, and its files hold " in str(next(iter(failures.values())))
    assert find_current(PostgresPublishedFiles(engine), JOB, LOG).base is None
    assert log.difference() == SAME

    (base,), failures = log.write_base()
    assert not failures
    assert base.row_count == total
    assert log.difference() == SAME


@pytest.mark.turns("what Spark meets", of=8)
def test_workers_publish_while_a_base_is_written(
    spark: SparkSession, engine: Engine, tmp_path: Path, share: Share
) -> None:
    """What comes after the log was looked at stands behind the base, also in a file that it is joined into."""
    log = make_log(spark, engine, tmp_path, share)
    run_all(log, 3)
    log.publish()

    def publish_more(point: Failpoint) -> None:
        if point is Failpoint.STAGED_BEFORE_SEAL and log.publisher.published == 1:
            # Also a second compactor: it finds the base's dataset held, and leaves it.
            _done, failures = log.write_base()
            assert isinstance(failures[LOG], ConflictError)
            run_all(log, 2)
            log.publish()

    with failpoints.install(publish_more):
        done, failures = log.write_base()
    assert len(done) == 1
    assert not failures
    assert log.difference() == SAME
    assert log.said[-1].endswith("files")

    joined = compact(spark, log.publisher, "")
    assert joined is not None
    view = find_current(PostgresPublishedFiles(engine), JOB, LOG)
    assert view.base is not None
    assert [segment.sequence_id for segment in view.base.later.segments] == [joined.sequence_id]
    assert log.difference() == SAME


@pytest.mark.turns("what Spark meets", of=8)
def test_columns_that_come_and_types_that_widen(
    spark: SparkSession, engine: Engine, tmp_path: Path, share: Share
) -> None:
    log = make_log(spark, engine, tmp_path, share)
    run_all(log, 3)
    log.publish(change=lambda frame: frame.withColumn("n", f.col("n").cast("int")))
    log.write_base()
    log.history.wander(1, table=TABLES)
    log.publish(change=lambda frame: frame.withColumn("later", f.lit(7)))
    assert log.difference() == SAME
    read = log.read()
    assert (read.schema["n"].dataType, read.schema["later"].dataType) == (t.LongType(), t.IntegerType())
    assert Counter(row.later for row in read.collect()) == {7: 1, None: log.history.current().total() - 1}


@pytest.mark.turns("what Spark meets", of=8)
def test_a_base_that_does_not_count_is_passed_over(
    spark: SparkSession, engine: Engine, tmp_path: Path, share: Share
) -> None:
    """Its log lacks the publication that it was made of, as after a restore; or it is one of another log."""
    log = make_log(spark, engine, tmp_path, share)
    run_all(log, 1)
    log.publish()
    log.write_base()
    for name, value in {"newest": str(uuid.uuid4()), "of": "public.others"}.items():
        with engine.begin() as connection:
            connection.execute(
                text(
                    "UPDATE gobblin.dataset "
                    "SET source_facts = jsonb_set(source_facts, :path, to_jsonb(CAST(:value AS text))) WHERE urn = :urn"
                ),
                {"path": ["base_generation", name], "value": value, "urn": name_base(LOG)},
            )
        assert find_current(PostgresPublishedFiles(engine), JOB, LOG).base is None
    assert log.difference() == SAME


@pytest.mark.turns("what Spark meets", of=8)
def test_the_command_is_killed_and_begins_anew(
    spark: SparkSession,
    engine: Engine,
    database_url: str,
    connect: ConnectServer,
    commands: Commands,
    tmp_path: Path,
    share: Share,
) -> None:
    log = make_log(spark, engine, tmp_path, share)
    run_all(log, 2)
    log.publish()
    job_file = tmp_path / "shop.yaml"
    job_file.write_text(json.dumps(log.described), encoding="utf-8")
    environment = {
        **os.environ,
        "GOBBLIN_SPARK_REMOTE": connect.url,
        "GOBBLIN_DATABASE_URL": database_url,
        "GOBBLIN_HOME": str(tmp_path / "home"),
    }

    def run(**more: str) -> "subprocess.CompletedProcess[str]":
        with engine.begin() as connection:
            connection.execute(text("UPDATE gobblin.lease SET expires_at = clock_timestamp() - interval '1 second'"))
        return commands.run(
            "sink", "compact", str(job_file), "--json", environment={**environment, **more}, folder=tmp_path
        )

    for point in (Failpoint.ATTEMPT_WRITTEN, Failpoint.SEAL_COMMITTED, Failpoint.FINISH_COMMITTED):
        assert run(GOBBLIN_FAILPOINT=f"{point}=kill").returncode == -signal.SIGKILL
        run_all(log, 1)
        log.publish()
        assert log.difference() == SAME
    done = run()
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)
    assert (found["urn"], found["row_count"]) == (name_base(LOG), log.history.current().total())
    assert log.difference() == SAME
    with engine.connect() as connection:
        states = connection.execute(
            text(
                "SELECT s.state, count(*) AS number FROM gobblin.commit_sequence s "
                "JOIN gobblin.dataset d USING (dataset_id) WHERE d.urn = :urn GROUP BY s.state"
            ),
            {"urn": name_base(LOG)},
        ).all()
    # The one that was killed before its seal; the one that the next command completed, and its own.
    assert {row.state: row.number for row in states} == {"ABORTED": 1, "DONE": 2}


@pytest.mark.turns("what Spark meets", of=8)
def test_dagster_writes_bases_by_the_schedule_of_the_job_file(
    spark: SparkSession,
    engine: Engine,
    database_url: str,
    tmp_path: Path,
    share: Share,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = make_log(spark, engine, tmp_path, share)
    run_all(log, 1)
    log.publish()
    for name in ("URL", "USER", "PASSWORD"):
        monkeypatch.setenv(f"GOBBLIN_POSTGRES_LOG_SHOP_{name}", "jdbc:postgresql://nowhere/shop")
    job = parse_job(log.described)
    resources: dict[str, object] = {
        **gobblin_resources(
            {"shop": connection_from_environment(job.source)}, stores=CommitStoreResource(database_url=database_url)
        ),
        SPARK_KEY: dg.ResourceDefinition.hardcoded_resource(OwnSpark(spark)),
    }
    defined = dg.Definitions.merge(build_gobblin_definitions(job), dg.Definitions(resources=resources))
    (schedule,) = defined.schedules or ()
    assert isinstance(schedule, dg.ScheduleDefinition)
    assert (schedule.job_name, schedule.cron_schedule) == ("shop_bases", "0 3 * * *")
    with dg.DagsterInstance.ephemeral() as instance:
        result = defined.resolve_job_def("shop_bases").execute_in_process(instance=instance)
        said = "\n".join(record.user_message for record in instance.all_logs(result.run_id))
    assert result.success
    assert f"{LOG}: a base of {log.history.current().total():,} rows" in said
    assert log.difference() == SAME
