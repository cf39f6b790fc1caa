"""The worked example of the commit design: a topic of two partitions, three files on two days, two watermarks."""

import datetime as dt
import json
import os
import signal
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from demo.kafka.broker import KafkaBroker
from gobblin_assets.failpoints import Failpoint
from gobblin_assets.spark.connect_server import ConnectServer
from tests.support.forked_commands import Commands
from tests.support.kafka import Record, make_topic, produce
from tests.support.topics import Ingestion

KILLED = -signal.SIGKILL
TOPIC = "MyTopic"
DAYS = (dt.datetime(2013, 1, 30, 12, tzinfo=dt.UTC), dt.datetime(2013, 1, 31, 12, tzinfo=dt.UTC))

# The numbers of the records by partition and day: the first partition has records of one day, the second of both.
EXAMPLE = {(0, DAYS[0]): range(100), (1, DAYS[0]): range(100, 220), (1, DAYS[1]): range(220, 300)}
SENT = Counter((number,) for numbers in EXAMPLE.values() for number in numbers)

DATASET = {
    "topic": TOPIC,
    "kafka": {"value": {"format": "json", "schema": "at bigint, number bigint"}},
    "writer": {"event_time": {"column": "at"}},
    "split": {"max_multi_work_units": 2, "task_rows_min": 1},
}

# In the order in which a run reaches them after planning. The second time is for the other partition, or file.
KILLS = (
    (Failpoint.SEQUENCE_BEGUN, 1),
    (Failpoint.ATTEMPT_REGISTERED, 1),
    (Failpoint.ATTEMPT_WRITTEN, 1),
    (Failpoint.ATTEMPT_DURABLE, 2),
    (Failpoint.STAGE_COMMITTED, 1),
    (Failpoint.STAGE_COMMITTED, 2),
    (Failpoint.STAGED_BEFORE_SEAL, 1),
    (Failpoint.SEAL_COMMITTED, 1),
    (Failpoint.SEALED_BEFORE_EXECUTE, 1),
    (Failpoint.MARKER_WRITTEN, 1),
    (Failpoint.STEP_BEFORE, 1),
    (Failpoint.STEP_AFTER, 1),
    (Failpoint.STEP_AFTER, 2),
    (Failpoint.EXECUTED_BEFORE_SYNC, 1),
    (Failpoint.SYNCED_BEFORE_VERIFY, 1),
    (Failpoint.VERIFIED_BEFORE_FINISH, 1),
    (Failpoint.FINISH_COMMITTED, 1),
    (Failpoint.FINISHED_BEFORE_EVENTS, 1),
    (Failpoint.EVENTS_BEFORE_CLEANUP, 1),
    (Failpoint.CLEANUP_MARKED, 1),
    (Failpoint.CLEANUP_CAPTURED, 1),
    (Failpoint.CLEANUP_REMOVED, 1),
)

# A kill here leaves the same as a kill at a neighbouring point, with nothing more visible.
BETWEEN = {
    Failpoint.SEQUENCE_BEGUN,
    Failpoint.ATTEMPT_REGISTERED,
    Failpoint.ATTEMPT_DURABLE,
    Failpoint.STAGED_BEFORE_SEAL,
    Failpoint.SEALED_BEFORE_EXECUTE,
    Failpoint.STEP_BEFORE,
    Failpoint.EXECUTED_BEFORE_SYNC,
    Failpoint.VERIFIED_BEFORE_FINISH,
    Failpoint.EVENTS_BEFORE_CLEANUP,
    Failpoint.CLEANUP_MARKED,
    Failpoint.CLEANUP_CAPTURED,
}


def _param(point: Failpoint, count: int) -> object:
    return pytest.param(point, count, marks=pytest.mark.thorough if point in BETWEEN else pytest.mark.rotating)


@pytest.fixture(scope="module")
def example(kafka_broker: KafkaBroker) -> str:
    """The broker's address, once the broker has the records."""
    make_topic(kafka_broker.bootstrap, TOPIC, partitions=2)
    for (partition, day), numbers in EXAMPLE.items():
        at = round(day.timestamp() * 1000)
        values = [json.dumps({"at": at, "number": number}).encode() for number in numbers]
        produce(kafka_broker.bootstrap, TOPIC, [Record(value, partition=partition) for value in values])
    return kafka_broker.bootstrap


@pytest.mark.parametrize(("point", "count"), [_param(*each) for each in KILLS], ids=str)
def test_a_run_killed_anywhere_is_completed_by_the_next(
    spark: SparkSession,
    connect: ConnectServer,
    commands: Commands,
    example: str,
    database_url: str,
    tmp_path: Path,
    point: Failpoint,
    count: int,
) -> None:
    job = {"database_url": database_url, "bootstrap": example, "root": str(tmp_path / "lake"), "datasets": [DATASET]}

    arguments = (str(tmp_path / "child"), connect.url, {**job, "failpoint": f"{point}=kill@{count}"})
    code = f"from tests.support.topics import run_on_connect; raise SystemExit(run_on_connect(*{arguments!r}))"
    killed = commands.run_code(code, environment=os.environ)

    assert killed.returncode == KILLED, killed.stdout + killed.stderr
    ingestion = Ingestion(spark, **job, remote=connect.url)  # type: ignore[arg-type]  # as it stands in the example
    ingestion.expire_leases()
    report = ingestion.run()
    assert not report.failed, report.failed
    assert ingestion.watermarks(TOPIC) == {f"{TOPIC}:0": "100", f"{TOPIC}:1": "200"}
    assert ingestion.rows(TOPIC, "number") == SENT
    assert Counter(Path(file).parts[-3] for file in ingestion.read(TOPIC).inputFiles()) == Counter(
        {"event_time=2013-01-30": 2, "event_time=2013-01-31": 1}
    )
    assert not [path for path in tmp_path.rglob("*.parquet") if ".staging" in str(path)], "what was given up stays"
    ingestion.close()
