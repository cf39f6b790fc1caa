"""Where topic runners are tortured: a Kafka broker, a Postgres for the log, a Spark Connect server, one destination."""

import json
import random
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from confluent_kafka import Message, Producer

from demo.kafka.broker import start_broker
from tests.support.kafka import make_topic, read_all
from tests.torture.disturber import Strike
from tests.torture.feeder import Feeder
from tests.torture.observer import Rows
from tests.torture.runner_process import Process
from tests.torture.schedule import Injection, RunnerPlan
from tests.torture.spark_arena import SparkArena
from tests.torture.tally import Tally
from tests.torture.topic_runner import Topics, start_topic_runner

_URNS: Final = ("orders", "clicks", "page.views", "Odd_Name-1")
_FIRST_ROWS: Final = 60
_FEED_EVERY_S: Final = 0.3
# All that waits is acknowledged soon after the broker is back; its own start may take two minutes.
_DELIVERY_S_MAX: Final = 150.0


class TopicArena(SparkArena):
    """Made with the first records in the topics, Spark warm, nothing published, nobody running."""

    kind = "topic"
    at_work_max = 3
    disturbed_every_s = 20.0

    def __init__(self, home: Path, seed: str, tally: Tally) -> None:
        self._broker = start_broker(home / "kafka")
        super().__init__(home, seed, tally, _URNS)

    def open_source(self, seed: str) -> "_Log":
        return _Log(self._broker.bootstrap, seed, self.tally)

    def site(self) -> Topics:
        return Topics(
            home=str(self.home), database_url=self.victim.url, urns=self.urns, bootstrap=self._broker.bootstrap
        )

    def start(self, plan: RunnerPlan) -> Process:
        return start_topic_runner(plan, self.site(), self.runners.logs)

    def strikes(self) -> Mapping[Injection, Strike]:
        return {
            **super().strikes(),
            Injection.BROKER_KILLED: self._kill_broker,
            Injection.BROKER_PAUSED: self._pause_broker,
        }

    def close(self, *, keep: bool) -> None:
        super().close(keep=keep)
        self._broker.kill()

    def _kill_broker(self, lasts_s: float) -> bool:
        self._broker.kill()
        time.sleep(lasts_s)
        self._broker.restart()
        return True

    def _pause_broker(self, lasts_s: float) -> bool:
        self._broker.pause()
        time.sleep(lasts_s)
        self._broker.resume()
        return True


class _Log(Feeder):
    """The topics: records numbered from 0 in one partition each, so that a record's offset is its number.

    The producer is idempotent and never gives a record up: what it says is what the broker holds, in order and once.
    """

    def __init__(self, bootstrap: str, seed: str, tally: Tally) -> None:
        super().__init__(_FEED_EVERY_S)
        self._bootstrap = bootstrap
        self._tally = tally
        self._dice = random.Random(f"{seed}/log")
        self._next = dict.fromkeys(_URNS, 0)
        self._producer = Producer({
            "bootstrap.servers": bootstrap,
            "log_level": 0,
            "enable.idempotence": True,
            "acks": "all",
            "message.timeout.ms": 0,
            "linger.ms": 5,
        })  # fmt: skip
        for urn in _URNS:
            make_topic(bootstrap, urn)
            self._add(urn, _FIRST_ROWS)
        self._deliver()

    def stop(self) -> None:
        super().stop()
        self._deliver()

    def rows(self, urn: str) -> Rows:
        found = (json.loads(record.value or b"") for record in read_all(self._bootstrap, urn))
        return Counter((value["number"], value["value"]) for value in found)

    def add_some(self) -> None:
        self._add(self._dice.choice(_URNS), self._dice.choice((1, 2, 3, 25)))
        self._producer.poll(0)

    def _add(self, urn: str, count: int) -> None:
        first = self._next[urn]
        self._next[urn] += count
        for number in range(first, first + count):
            value = json.dumps({"number": number, "value": f"{urn}-{number}"}).encode()
            self._producer.produce(urn, value, partition=0, on_delivery=self._check)

    def _check(self, error: object, message: Message) -> None:
        number = json.loads(message.value() or b"")["number"]
        if error is not None or message.offset() != number:
            self._tally.violate(f"the producer, not what is tortured: {number} came to {message.offset()}: {error}")
        self._tally.add("records produced")

    def _deliver(self) -> None:
        left = self._producer.flush(_DELIVERY_S_MAX)
        if left:
            self._tally.violate(f"{left} records were not taken by the broker in {_DELIVERY_S_MAX:.0f} s")
