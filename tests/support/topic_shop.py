"""A job on two topics of a broker, run by commands in processes of their own, and its accounts."""

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from sqlalchemy import Engine, text

from demo.kafka.broker import KafkaBroker
from gobblin_assets.run.postgres import open_stores
from gobblin_assets.run.stores import Stores
from tests.support.producing import (
    Facts,
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
END_S_MAX = 120.0

# It has imported everything before it gets its arguments.
WAITING = """
import json, os, sys
from gobblin_assets.cli import main
arguments, variables = json.loads(sys.stdin.readline())
os.environ.update(variables)
main(arguments, prog_name="gobblin-assets")
"""


class StartedCommand:
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


class StandbyCommands:
    """Always has one command ready, so that no test waits for its imports."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._commands = [self._start()]

    def get(self) -> StartedCommand:
        self._commands.append(self._start())
        return self._commands[-2]

    def stop(self) -> None:
        for command in self._commands:
            command.process.kill()
            command.process.communicate()

    def _start(self) -> StartedCommand:
        return StartedCommand(self._logs / f"{uuid.uuid4().hex}.log")


class TopicShop:
    """Two topics of a broker, the job that reads them, and its published rows."""

    def __init__(
        self,
        folder: Path,
        broker: KafkaBroker,
        engine: Engine,
        standby: StandbyCommands,
        variables: Mapping[str, str],
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.broker = broker
        self.producing = Producing(broker.bootstrap, uuid.uuid4().hex[:6])
        self.topics = self.producing.topics
        self.engine = engine
        self.stores: Stores = open_stores(engine)
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
            **(options or {}),
        }
        self._job_file.write_text(yaml.safe_dump(job), encoding="utf-8")

    def begin(self, *action: str, options: Sequence[str] = ()) -> StartedCommand:
        command = self._standby.get()
        command.begin([*action, str(self._job_file), *options], self._variables)
        return command

    def count(self, condition: str = "s.state = 'DONE'") -> int:
        """Count sequences with rows; by default the published ones."""
        query = f"SELECT count(*) FROM gobblin.commit_sequence s WHERE {condition}"
        with self.engine.connect() as connection:
            return int(connection.execute(text(query)).scalar_one())

    def await_publications(self, command: StartedCommand, more: int) -> None:
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
        return {topic: watermarks_of(self.stores, JOB, topic) for topic in self.topics}

    def published_facts(self, topic: str) -> Facts:
        return published_facts(self.stores, JOB, topic)

    def check(self) -> None:
        """Check that exactly the records below the watermarks are published, and that nothing is left open."""
        assert self.count("s.state NOT IN ('DONE', 'ABORTED')") == 0
        for topic, marks in self.watermarks().items():
            sent = sent_facts(self.broker.bootstrap, topic)
            below = {fact: n for fact, n in sent.items() if fact[1] < marks.get(f"{topic}:{fact[0]}", 0)}  # type: ignore[operator]  # an offset, which is a number
            assert dict(self.published_facts(topic)) == below, topic

    def check_end(self) -> None:
        """Check that all records ever sent are published; some were broken, and some were aborted before."""
        self.check()
        assert self.watermarks() == {topic: find_ends(self.broker.bootstrap, topic) for topic in self.topics}
        assert self.producing.aborted > 0
        for topic in self.topics:
            facts = self.published_facts(topic)
            assert {type(content) for _partition, _offset, content in facts} == {int, bytes}
