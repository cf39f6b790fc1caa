"""Sends orders at a steady pace, and notes the place and the time of each in the log."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, Message, Producer

from benchmarks.kafka_world import make_order, to_json

_TICK_S = 0.02
_DELIVERY_S_MAX = 60.0


@dataclass(frozen=True, slots=True)
class SentRecord:
    """``vnode``: as the product names partitions. ``at_s``: the record's own time, seconds since the epoch."""

    vnode: str
    offset: int
    at_s: float


class PacedProducer:
    """Numbers its records on, over all its calls. ``encode`` makes the values."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, encode: Callable[[dict[str, Any]], bytes]) -> None:
        self._topic, self._partitions, self._encode = topic, partitions, encode
        self._producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0, "linger.ms": 5})
        self._number = 0
        self._sent: list[SentRecord] = []

    def send(self, records_per_s: float, seconds: float) -> list[SentRecord]:
        """Send at this pace for so long; returns when all are acknowledged. RuntimeError if one was not."""
        self._sent = []
        begun = time.monotonic()
        count, total = 0, round(records_per_s * seconds)
        while count < total:
            due = min(total, int((time.monotonic() - begun) * records_per_s))
            for _record in range(due - count):
                value = self._encode(make_order(self._number))
                self._producer.produce(
                    self._topic, value, partition=self._number % self._partitions, on_delivery=self._note
                )
                self._number += 1
            count = due
            self._producer.poll(0)
            time.sleep(_TICK_S)
        if self._producer.flush(_DELIVERY_S_MAX) or len(self._sent) < total:
            raise RuntimeError(f"only {len(self._sent):,} of {total:,} records of {self._topic} were delivered")
        return self._sent

    def _note(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            _kind, at_ms = message.timestamp()
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            assert offset is not None
            self._sent.append(SentRecord(f"{self._topic}:{partition}", offset, at_ms / 1_000))


@contextmanager
def records_meanwhile(bootstrap: str, topic: str, partitions: int, records_per_s: float) -> Iterator[None]:
    """Records come to each partition of the topic during the block."""
    producer, stopping = PacedProducer(bootstrap, topic, partitions, to_json), threading.Event()

    def produce() -> None:
        while not stopping.is_set():
            producer.send(records_per_s, 1.0)

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()
