"""Workers whose rows come from Spark are killed between Spark's write and the end: each record is published once."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from sqlalchemy import Engine

from demo.kafka.broker import KafkaBroker
from gobblin_assets.cli.output import EXIT_FAILED
from gobblin_assets.failpoints import Failpoint
from gobblin_assets.model.urn import Role
from gobblin_assets.spark.connect_server import ConnectServer
from tests.support.forked_commands import Commands
from tests.support.kafka import MakeTopic, Record, delete_topics, produce
from tests.support.producing import find_ends
from tests.support.spark import wait_until
from tests.support.spark_sink import OpenSpark, SparkSink
from tests.support.topic_shop import StandbyCommands, TopicShop

KILLED = -signal.SIGKILL
RECORDS = 40

# Joining two empty lanes makes two publications without rows, which have no attempt.
KILLS = (
    (Failpoint.ATTEMPT_REGISTERED, 1),
    (Failpoint.ATTEMPT_WRITTEN, 3),
    (Failpoint.ATTEMPT_DURABLE, 3),
    (Failpoint.STAGE_COMMITTED, 1),
    (Failpoint.STAGED_BEFORE_SEAL, 3),
    (Failpoint.SEAL_COMMITTED, 3),
    (Failpoint.STEP_BEFORE, 1),
    (Failpoint.STEP_AFTER, 1),
    (Failpoint.VERIFIED_BEFORE_FINISH, 3),
    (Failpoint.FINISH_COMMITTED, 3),
)
ALWAYS = {Failpoint.ATTEMPT_WRITTEN, Failpoint.STEP_BEFORE}
PAUSES = ((Failpoint.ATTEMPT_WRITTEN, 3), (Failpoint.SEAL_COMMITTED, 3), (Failpoint.STEP_AFTER, 1))
BY_SPARK = {
    "defaults": {"converters": [{"where": "true"}]},
    "lease": {"ttl_s": 3, "wait_s": 60},
    "sink": {"lanes": 2, "every_s": 0.5, "roll": {"age_s": 0}},
}


@pytest.fixture
def sink(
    spark: SparkSession,
    connect: ConnectServer,
    kafka_broker: KafkaBroker,
    topic: MakeTopic,
    database_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[SparkSink]:
    """A sink over a topic whose every tenth record is broken."""
    monkeypatch.setenv("GOBBLIN_KAFKA_SHOP_BOOTSTRAP_SERVERS", kafka_broker.bootstrap)
    name = topic("killed", partitions=2)
    values = [b"{" if n % 10 == 0 else json.dumps({"n": n}).encode() for n in range(RECORDS)]
    produce(kafka_broker.bootstrap, name, [Record(each, partition=n % 2) for n, each in enumerate(values)])
    dataset = {
        "topic": name,
        "kafka": {"value": {"format": "json", "schema": "n bigint"}, "keep": ["partition", "offset"]},
        "converters": [{"sql": {"twice": "n * 2"}}],
        "quality": {"dead_letter_fraction_max": 1},
    }
    ends = find_ends(kafka_broker.bootstrap, name)
    opened = SparkSink(database_url, str(tmp_path / "lake"), [dataset], OpenSpark(spark, connect.url), lambda: ends)
    yield opened
    opened.close()


def program_of(sink: SparkSink, failpoint: str) -> str:
    """The program of a process that is another worker of the sink, with a session on the Connect server."""
    settings = {"database_url": sink.database_url, "root": sink.root, "datasets": sink.datasets}
    arguments = (f"{sink.root}-child", sink.spark.remote, failpoint, settings, sink.ends())
    return f"from tests.support.spark_sink import work_on_connect; work_on_connect(*{arguments!r})"


def check_exactly_once(sink: SparkSink) -> None:
    urn = sink.datasets[0]["topic"]
    assert sink.rows(urn, "kafka_partition", "kafka_offset", "n", "twice") == Counter(
        (n % 2, n // 2, n, 2 * n) for n in range(RECORDS) if n % 10
    )
    assert sink.rows(urn, "dead_letter_offset", role=Role.DEAD_LETTER) == Counter([(0,), (5,), (10,), (15,)])
    assert sink.count("state NOT IN ('DONE', 'ABORTED')") == 0
    published = {*sink.files(urn), *sink.files(urn, Role.DEAD_LETTER)}
    paths = Path(sink.root).rglob("*.parquet")
    assert {str(path) for path in paths if not any(part.startswith(".") for part in path.parts)} == published


@pytest.mark.parametrize(
    ("point", "count"),
    [pytest.param(*each, marks=() if each[0] in ALWAYS else pytest.mark.thorough) for each in KILLS],
    ids=str,
)
def test_a_worker_killed_after_spark_wrote_is_gone_on_with_by_another(
    sink: SparkSink, commands: Commands, point: Failpoint, count: int
) -> None:
    killed = commands.run_code(program_of(sink, f"{point}=kill@{count}"), environment=os.environ)
    assert killed.returncode == KILLED, killed.stdout + killed.stderr
    sink.expire()

    sink.work()

    check_exactly_once(sink)


@pytest.mark.thorough
@pytest.mark.parametrize(("point", "count"), PAUSES, ids=str)
def test_a_worker_that_slept_publishes_nothing_of_what_spark_wrote_for_it(
    sink: SparkSink, point: Failpoint, count: int
) -> None:
    program = program_of(sink, f"{point}=stop@{count}")
    with subprocess.Popen([sys.executable, "-c", program]) as zombie:
        wait_until(lambda: is_stopped(zombie.pid), "the worker is at its failpoint")
        sink.expire()
        sink.work()
        check_exactly_once(sink)

        zombie.send_signal(signal.SIGCONT)

        assert zombie.wait(60) == 0
    check_exactly_once(sink)


def is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] == "T"


@pytest.fixture
def shop(tmp_path: Path, kafka_broker: KafkaBroker, engine: Engine, database_url: str) -> Iterator[TopicShop]:
    standby = StandbyCommands(tmp_path)
    variables = {"GOBBLIN_HOME": str(tmp_path / "home"), "GOBBLIN_DATABASE_URL": database_url}
    made = TopicShop(tmp_path, kafka_broker, engine, standby, variables, BY_SPARK)
    yield made
    standby.stop()
    delete_topics(kafka_broker.bootstrap, *made.topics)


@pytest.mark.thorough
def test_two_commands_share_lanes_and_publish_each_record_once_while_one_is_killed(
    shop: TopicShop, connect: ConnectServer
) -> None:
    on_server = ["--remote", connect.url]
    with shop.producing:
        first, second = (shop.begin("sink", "run", options=on_server) for _worker in range(2))
        shop.await_publications(first, 12)
        assert second.end(signal.SIGKILL) == KILLED
        shop.await_publications(first, 6)
    shop.await_all()

    assert first.end(signal.SIGTERM) == 0, first.said
    shop.check_end()
    for topic in shop.topics:
        assert f"{topic}: rows by Spark, since it has converters" in first.said
    assert "WARN" not in first.said


@pytest.mark.thorough
def test_a_worker_whose_spark_died_ends_and_the_next_one_goes_on(shop: TopicShop, connect: ConnectServer) -> None:
    with shop.producing:
        worker = shop.begin("sink", "run", options=["--master", "local[1]"])
        shop.await_publications(worker, 6)
        children = Path(f"/proc/{worker.process.pid}/task/{worker.process.pid}/children").read_text(encoding="utf-8")
        for pid in map(int, children.split()):
            os.kill(pid, signal.SIGKILL)

        assert worker.end() == EXIT_FAILED, worker.said

        assert "Spark failed" in worker.said
        following = shop.begin("sink", "run", options=["--remote", connect.url])
        shop.await_publications(following, 6)
    shop.await_all()
    assert following.end(signal.SIGTERM) == 0, following.said
    shop.check_end()
