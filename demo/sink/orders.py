"""The shop's tills: they write orders to the topic all the time, each from a thread of its own.

The web shop writes in transactions, and aborts some of them after their records are in the log. The branches write
plainly. Both go on by themselves when the broker was away.
"""

import json
import random
import threading
from collections.abc import Callable, Sequence
from typing import Final, Self

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from demo.sink.places import TOPIC

PARTITIONS: Final = 12
ABORT_EVERY: Final = 6
ROUND_S: Final = 0.2
ANSWER_S_MAX: Final = 60.0

_SEED: Final = 20250602
_CUSTOMERS: Final = 2_000
_PRODUCTS: Final = tuple(f"product-{number}" for number in range(1, 201))


_OnDelivery = Callable[[KafkaError | None, Message], None]


class OrderWriters:
    """Orders are written during the block ``with``. ``written`` and ``aborted`` count acknowledged records."""

    def __init__(self, bootstrap: str, orders_per_s: int) -> None:
        self.written = 0
        self.aborted = 0
        self._bootstrap = bootstrap
        self._batch = max(PARTITIONS, int(orders_per_s * ROUND_S / 2))
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=run) for run in (self._write_plainly, self._write_in_transactions)]
        _make_topic(bootstrap)

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    def stop(self) -> None:
        """When this returns, no order comes any more, and no transaction is open. The broker must be up."""
        self._stopping.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()

    def _write_plainly(self) -> None:
        producer = self._open({"enable.idempotence": True})
        round_number = 0
        while not self._stopping.wait(ROUND_S):
            self._send(producer, self._make_orders("branch", round_number), self._count)
            producer.flush(ANSWER_S_MAX)
            round_number += 1
        producer.flush(ANSWER_S_MAX)

    def _write_in_transactions(self) -> None:
        producer: Producer | None = None
        round_number = 0
        while not self._stopping.wait(ROUND_S):
            try:
                producer = producer or self._open_transactional()
                producer.begin_transaction()
                self._send(producer, self._make_orders("web", round_number))
                producer.flush(ANSWER_S_MAX)
                if round_number % ABORT_EVERY == ABORT_EVERY - 1:
                    producer.abort_transaction(ANSWER_S_MAX)
                    self.aborted += self._batch
                else:
                    _commit(producer)
                    self.written += self._batch
            except KafkaException:
                # Another producer with its id ends its transaction.
                producer = None
            round_number += 1
        # A producer that asks for the same id waits until the last transaction's end is in the log.
        self._open_transactional()

    def _make_orders(self, where: str, round_number: int) -> list[bytes]:
        draw = random.Random(f"{_SEED}/{where}/{round_number}")  # noqa: S311  made-up data, not a secret
        first = round_number * self._batch * 2 + (where == "web") * self._batch
        return [
            json.dumps({
                "order_id": first + number,
                "customer": f"customer-{int(draw.random() ** 2 * _CUSTOMERS)}",
                "product": draw.choice(_PRODUCTS),
                "quantity": draw.randint(1, 5),
                "price": f"{draw.randrange(99, 100_000) / 100:.2f}",
            }).encode()
            for number in range(self._batch)
        ]  # fmt: skip

    def _count(self, error: KafkaError | None, _message: Message) -> None:
        self.written += error is None

    def _send(self, producer: Producer, orders: Sequence[bytes], on_delivery: _OnDelivery | None = None) -> None:
        for number, order in enumerate(orders):
            producer.produce(TOPIC, order, partition=number % PARTITIONS, on_delivery=on_delivery)

    def _open_transactional(self) -> Producer:
        producer = self._open({"transactional.id": "web-shop"})
        producer.init_transactions(ANSWER_S_MAX)
        return producer

    def _open(self, settings: dict[str, str | int | float | bool]) -> Producer:
        return Producer({"bootstrap.servers": self._bootstrap, "log_level": 0, "linger.ms": 5, **settings})


def _commit(producer: Producer) -> None:
    """Ask again while the broker is away: nobody else can say whether the transaction is committed."""
    while True:
        try:
            return producer.commit_transaction(ANSWER_S_MAX)
        except KafkaException as error:
            if not error.args[0].retriable():
                raise


def _make_topic(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    topic = NewTopic(TOPIC, num_partitions=PARTITIONS, replication_factor=1)
    for made in admin.create_topics([topic], operation_timeout=ANSWER_S_MAX).values():
        made.result(ANSWER_S_MAX)
