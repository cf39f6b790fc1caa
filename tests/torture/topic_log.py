"""The tortured topics, written to all the time, and the records that a consumer finds in them."""

import json
import random
from collections import Counter
from collections.abc import Sequence
from typing import Final

from confluent_kafka import Message, Producer

from tests.support.kafka import make_topic, read_all
from tests.torture.feeder import Feeder
from tests.torture.row_watch import Rows
from tests.torture.tally import Tally

_FIRST_ROWS: Final = 60
_FEED_EVERY_S: Final = 0.3
# Waiting records are acknowledged soon after the broker is back; the broker's own start may take two minutes.
_DELIVERY_S_MAX: Final = 150.0


class TopicLog(Feeder):
    """The topics: records numbered from 0 in one partition each, so that a record's offset is its number.

    The producer is idempotent and never gives up a record: its records are at the broker, in order and once.
    """

    def __init__(self, bootstrap: str, urns: Sequence[str], seed: str, tally: Tally) -> None:
        super().__init__(_FEED_EVERY_S)
        self._bootstrap = bootstrap
        self._tally = tally
        self._dice = random.Random(f"{seed}/log")
        self._urns = urns
        self._next = dict.fromkeys(urns, 0)
        self._producer = Producer({
            "bootstrap.servers": bootstrap,
            "log_level": 0,
            "enable.idempotence": True,
            "acks": "all",
            "message.timeout.ms": 0,
            "linger.ms": 5,
        })  # fmt: skip
        for urn in urns:
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
        self._add(self._dice.choice(self._urns), self._dice.choice((1, 2, 3, 25)))
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
