"""``gobblin-assets stream`` as a shell sees it: a real broker, real Spark, producers that write all the time."""

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import yaml
from sqlalchemy import Engine, text

from demo.kafka.broker import KafkaBroker, start_broker
from gobblin_assets.run.postgres import open_stores
from gobblin_assets.run.stores import Stores
from gobblin_assets.spark.connect_server import ConnectServer
from tests.support.kafka import delete_topics
from tests.support.producing import (
    Producing,
    dataset_of,
    find_ends,
    published_facts,
    sent_facts,
    watermarks_of,
)
from tests.support.spark import wait_until

ROOT = Path(__file__).parents[2]
JOB = "events"
KILLS = 3
END_S_MAX = 120.0

# It has imported everything before it gets its arguments.
WAITING = """
import json, os, sys
from gobblin_assets.cli import main
arguments, variables = json.loads(sys.stdin.readline())
os.environ.update(variables)
main(arguments, prog_name="gobblin-assets")
"""


class Command:
    """A process of the command line, started in advance: ``begin`` gives it its arguments."""

    def __init__(self, log: Path) -> None:
        self.log = log
        with log.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-c", WAITING],
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=subprocess.STDOUT,
                text=True,
            )

    def begin(self, arguments: list[str], variables: Mapping[str, str]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{json.dumps([arguments, dict(variables)])}\n")
        self.process.stdin.close()

    def end(self, number: signal.Signals | None = None) -> int:
        """Send the signal, and return the exit code."""
        if number is not None:
            self.process.send_signal(number)
        return self.process.wait(END_S_MAX)

    @property
    def said(self) -> str:
        return self.log.read_text(encoding="utf-8")


class Standby:
    """Always has one command ready, so that no test waits for its imports."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._commands = [self._start()]

    def get(self) -> Command:
        self._commands.append(self._start())
        return self._commands[-2]

    def stop(self) -> None:
        for command in self._commands:
            command.process.kill()
            command.process.communicate()

    def _start(self) -> Command:
        return Command(self._logs / f"{uuid.uuid4().hex}.log")


@pytest.fixture(scope="module")
def standby(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standby]:
    made = Standby(tmp_path_factory.mktemp("commands"))
    yield made
    made.stop()


class Shop:
    """Two topics of a broker, the job that reads them, and its published rows."""

    def __init__(
        self, folder: Path, broker: KafkaBroker, engine: Engine, standby: Standby, variables: Mapping[str, str]
    ) -> None:
        self.broker = broker
        self.producing = Producing(broker.bootstrap, uuid.uuid4().hex[:6])
        self.topics = self.producing.topics
        self._engine = engine
        self._stores: Stores = open_stores(engine)
        self._standby = standby
        self._variables = {**variables, "GOBBLIN_KAFKA_SHOP_BOOTSTRAP_SERVERS": broker.bootstrap}
        self._job_file = folder / "events.yaml"
        job = {
            "job": JOB,
            "source": {"type": "kafka", "connection": "shop"},
            "destination": str(folder / "lake"),
            "datasets": [dataset_of(topic) for topic in self.topics],
            "lease": {"ttl_s": 2, "wait_s": 60},
            "retry": {"back_off_s": 0.2, "back_off_max_s": 1},
            "stream": {"publish_every_s": 0.3},
            "retire_grace_s": 0,
        }
        self._job_file.write_text(yaml.safe_dump(job), encoding="utf-8")

    def begin(self, action: str) -> Command:
        command = self._standby.get()
        command.begin([action, str(self._job_file)], self._variables)
        return command

    def count(self, condition: str = "s.state = 'DONE'") -> int:
        """Count sequences with rows; by default the published ones."""
        query = f"SELECT count(*) FROM gobblin.commit_sequence s WHERE {condition}"
        with self._engine.connect() as connection:
            return int(connection.execute(text(query)).scalar_one())

    def await_publications(self, command: Command, more: int) -> None:
        """Wait until so many more are published than now."""
        goal = self.count() + more

        def are_done() -> bool:
            assert command.process.poll() is None, command.said
            return self.count() >= goal

        wait_until(are_done, f"{more} more publications; the stream said: {command.said}")

    def await_all(self) -> None:
        """Wait until the watermarks are at the ends of the logs. Nothing is written any more."""
        ends = {topic: find_ends(self.broker.bootstrap, topic) for topic in self.topics}
        wait_until(lambda: self.watermarks() == ends, f"watermarks at {ends}")

    def watermarks(self) -> dict[str, dict[str, int]]:
        return {topic: watermarks_of(self._stores, JOB, topic) for topic in self.topics}

    def check(self) -> None:
        """Check that exactly the records below the watermarks are published, and that nothing is left open."""
        assert self.count("s.state NOT IN ('DONE', 'ABORTED')") == 0
        for topic, marks in self.watermarks().items():
            sent = sent_facts(self.broker.bootstrap, topic)
            below = {fact: n for fact, n in sent.items() if fact[1] < marks.get(f"{topic}:{fact[0]}", 0)}  # type: ignore[operator]  # an offset, which is a number
            assert dict(published_facts(self._stores, JOB, topic)) == below, topic

    def check_end(self) -> None:
        """Check that all records ever sent are published; some were broken, and some were aborted before."""
        self.check()
        assert self.watermarks() == {topic: find_ends(self.broker.bootstrap, topic) for topic in self.topics}
        assert self.producing.aborted > 0
        for topic in self.topics:
            facts = published_facts(self._stores, JOB, topic)
            assert {type(content) for _partition, _offset, content in facts} == {int, bytes}


@pytest.fixture
def variables(database_url: str, connect: ConnectServer, tmp_path: Path) -> dict[str, str]:
    return {
        "GOBBLIN_HOME": str(tmp_path / "home"),
        "GOBBLIN_DATABASE_URL": database_url,
        "GOBBLIN_SPARK_REMOTE": connect.url,
    }


@pytest.fixture
def shop(
    tmp_path: Path, kafka_broker: KafkaBroker, engine: Engine, standby: Standby, variables: dict[str, str]
) -> Iterator[Shop]:
    made = Shop(tmp_path, kafka_broker, engine, standby, variables)
    yield made
    delete_topics(kafka_broker.bootstrap, *made.topics)


def test_sigterm_ends_a_stream_at_a_published_boundary_and_a_run_has_the_rest(shop: Shop) -> None:
    with shop.producing:
        stream = shop.begin("stream")
        shop.await_publications(stream, 3)
        code = stream.end(signal.SIGTERM)
        shop.check()
        assert code == 0, stream.said
        assert "SIGTERM: stopping after the publication under way" in stream.said
        assert "stopped at a published boundary" in stream.said

    run = shop.begin("run")

    assert run.end() == 0, run.said
    shop.check_end()


@pytest.mark.thorough
def test_streams_that_are_killed_one_after_the_other_are_gone_on_with_by_the_next(shop: Shop) -> None:
    with shop.producing:
        for killed in range(KILLS):
            stream = shop.begin("stream")
            shop.await_publications(stream, 1 + killed)
            assert stream.end(signal.SIGKILL) == -signal.SIGKILL
    last = shop.begin("stream")
    shop.await_all()

    assert last.end(signal.SIGTERM) == 0, last.said
    shop.check_end()


@pytest.mark.thorough
def test_a_stream_goes_on_by_itself_when_a_broker_that_was_killed_is_back(
    tmp_path: Path, engine: Engine, standby: Standby, variables: dict[str, str]
) -> None:
    with start_broker(tmp_path / "broker") as broker:
        shop = Shop(tmp_path, broker, engine, standby, variables)
        with shop.producing:
            stream = shop.begin("stream")
            shop.await_publications(stream, 3)
            broker.kill()
            broker.restart()
            shop.await_publications(stream, 3)
        shop.await_all()

        assert stream.end(signal.SIGTERM) == 0, stream.said
        shop.check_end()
