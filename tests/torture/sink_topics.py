"""The topics of the tortured sink: written plainly and in transactions, of which some are aborted, all the time."""

import json
import random
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from confluent_kafka import KafkaException, Producer

from tests.support.kafka import make_topic
from tests.support.producing import Facts, sent_facts
from tests.torture.feeder import Feeder
from tests.torture.sink_runner import PARTITIONS
from tests.torture.tally import Tally

_FIRST_RECORDS: Final = 60
_LAST_RECORDS: Final = 5
_FEED_EVERY_S: Final = 0.2
_COUNTS: Final = (1, 3, 12, 12, 40)
_BROKEN_EVERY: Final = 11
_ABORTED_FRACTION: Final = 0.3
_ANSWER_S: Final = 10.0
# The broker's own start may take two minutes.
_END_S_MAX: Final = 180.0


class SinkTopics(Feeder):
    """Records with numbers, some of them broken, in any partition. What a consumer finds committed is the truth."""

    def __init__(self, bootstrap: str, topics: Sequence[str], seed: str, tally: Tally) -> None:
        super().__init__(_FEED_EVERY_S)
        self.bootstrap = bootstrap
        self._topics = topics
        self._tally = tally
        self._dice = random.Random(f"{seed}/topics")
        self._next = 0
        self._has_stopped = False
        self._sending = threading.Lock()
        self._plain = self._open_plain()
        self._transactional: Producer | None = None
        for topic in topics:
            make_topic(bootstrap, topic, PARTITIONS)
            self._send(self._plain, topic, _FIRST_RECORDS)
        self._plain.flush(_END_S_MAX)

    def facts(self, topic: str) -> Facts:
        return sent_facts(self.bootstrap, topic)

    def add_some(self) -> None:
        with self._sending:
            self._add_some()

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Nothing is sent meanwhile, and no transaction is open. KafkaException if the broker does not answer.

        Behind it, other producers go on: the log that they wrote to may be another one then.
        """
        with self._sending:
            if self._plain.flush(_ANSWER_S):
                raise KafkaException("the broker does not take the records that were sent")
            self._transactional = self._open_transactional()
            self._transactional = None
            try:
                yield
            finally:
                self._plain = self._open_plain()

    def send_to(self, topic: str, partition: int, count: int) -> None:
        """Records, all of which are at the broker when it returns. Within ``quiet``."""
        producer = self._open_plain()
        self._send(producer, topic, count, partition)
        if producer.flush(_END_S_MAX):
            self._tally.violate("the broker did not take records")

    def send_everywhere(self) -> None:
        """Some records into each partition of each topic, so that each is looked at once more."""
        with self._sending:
            for topic in self._topics:
                for partition in range(PARTITIONS):
                    self._send(self._plain, topic, _LAST_RECORDS, partition)

    def _add_some(self) -> None:
        topic, count = self._dice.choice(self._topics), self._dice.choice(_COUNTS)
        if self._dice.random() < 0.5:
            self._send(self._plain, topic, count)
            self._plain.poll(0)
            return
        is_aborted = self._dice.random() < _ABORTED_FRACTION
        try:
            producer = self._transactional = self._transactional or self._open_transactional()
            producer.begin_transaction()
            self._send(producer, topic, count)
            if is_aborted:
                producer.flush(_ANSWER_S)
                producer.abort_transaction(_ANSWER_S)
                self._tally.add("transactions aborted")
            else:
                producer.commit_transaction(_ANSWER_S)
                self._tally.add("transactions committed")
        except KafkaException:
            # The broker is away, or slow. The next producer with the same id ends the transaction.
            self._transactional = None

    def stop(self) -> None:
        """When it returns, no record comes any more, and no transaction is open, once the broker answers."""
        if self._has_stopped:
            return
        self._has_stopped = True
        super().stop()
        if self._plain.flush(_END_S_MAX):
            self._tally.violate("the broker did not take the last records")
        until = time.monotonic() + _END_S_MAX
        while time.monotonic() < until:
            try:
                self._transactional = self._open_transactional()
            except KafkaException:
                continue
            return
        self._tally.violate("the last transaction could not be ended")

    def _send(self, producer: Producer, topic: str, count: int, partition: int | None = None) -> None:
        """``partition`` None: any."""
        for _record in range(count):
            self._next += 1
            value = json.dumps({"number": self._next})
            is_broken = self._next % _BROKEN_EVERY == 0
            number = self._dice.randrange(PARTITIONS) if partition is None else partition
            producer.produce(topic, value[is_broken:].encode(), partition=number)
        self._tally.add("records produced", count)

    def _open_plain(self) -> Producer:
        """It gives up no record."""
        return self._open({"enable.idempotence": True, "acks": "all", "message.timeout.ms": 0})

    def _open_transactional(self) -> Producer:
        producer = self._open({"transactional.id": "torture", "transaction.timeout.ms": 60_000})
        producer.init_transactions(_ANSWER_S)
        return producer

    def _open(self, settings: dict[str, str | int | float | bool]) -> Producer:
        return Producer({"bootstrap.servers": self.bootstrap, "log_level": 0, "linger.ms": 5, **settings})
