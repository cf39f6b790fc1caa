"""A real Kafka broker for tests, one for each xdist worker, with topics, producers, retention and compaction.

All clients of tests go through ``bootstrap`` addresses, so that each helper serves any broker or cluster.
"""

import itertools
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # the vendor does not mark what it exports
    AdminClient,
    OffsetSpec,
)
from confluent_kafka.cimpl import NewPartitions, NewTopic

from demo.kafka.broker import KafkaBroker, start_broker
from tests.support.spark import wait_until

ANSWER_S_MAX = 30.0
DELIVERY_S_MAX = 60.0

COMPACTED = {"cleanup.policy": "compact", "segment.ms": "50", "min.cleanable.dirty.ratio": "0.01"}
"""Settings of a topic for ``compact``."""

LOG_FILES = ("*.log", "*.index", "*.timeindex", "*.snapshot", "leader-epoch-checkpoint")
"""What a partition's directory has of its records."""

MakeTopic = Callable[..., str]
"""``topic(name, partitions=1, settings=None)`` makes a topic, and returns its full name."""

_FILLER = b"filler"
_topic_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Record:
    """``value`` None is a tombstone; ``timestamp_ms`` 0 means now, as in the client."""

    value: bytes | None
    key: bytes | None = None
    partition: int = 0
    timestamp_ms: int = 0
    headers: Sequence[tuple[str, bytes | None]] = ()


@dataclass(frozen=True, slots=True)
class Found:
    """A record as a consumer sees it."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


@pytest.fixture(scope="session")
def kafka_broker() -> Iterator[KafkaBroker]:
    """The broker of the worker's tests. A test that stops, kills or pauses a broker starts its own."""
    yield from _run_broker()


@pytest.fixture(scope="module")
def office_broker() -> Iterator[KafkaBroker]:
    """A second cluster, for records that go on from the first one."""
    yield from _run_broker()


def _run_broker() -> Iterator[KafkaBroker]:
    folder = Path(tempfile.mkdtemp(prefix="gobblin-kafka-"))
    with start_broker(folder) as broker:
        yield broker
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def topic(kafka_broker: KafkaBroker) -> Iterator[MakeTopic]:
    """``topic(name, partitions=1, **settings)`` makes one on the shared broker; it is deleted after the test."""
    with making_topics(kafka_broker) as make:
        yield make


@pytest.fixture(scope="module")
def module_topic(kafka_broker: KafkaBroker) -> Iterator[MakeTopic]:
    """The same for tests of a module that only read, or read partitions of their own; it is deleted after them."""
    with making_topics(kafka_broker) as make:
        yield make


@contextmanager
def making_topics(kafka_broker: KafkaBroker) -> Iterator[MakeTopic]:
    made: list[str] = []

    def make(name: str = "topic", partitions: int = 1, settings: Mapping[str, str] | None = None) -> str:
        # Names end differently in each process: several workers' lakes may lie side by side.
        made.append(f"{name}-{next(_topic_numbers)}-{uuid.uuid4().hex[:6]}")
        return make_topic(kafka_broker.bootstrap, made[-1], partitions, settings)

    yield make
    delete_topics(kafka_broker.bootstrap, *made)


def open_admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


def make_topic(
    bootstrap: str,
    name: str,
    partitions: int = 1,
    settings: Mapping[str, str] | None = None,
    *,
    replicas: Sequence[Sequence[int]] | None = None,
) -> str:
    """Returns when the brokers know it and each partition has a leader. ``replicas``: broker ids by partition."""
    placed = {"replica_assignment": [list(ids) for ids in replicas]} if replicas else {"replication_factor": 1}
    count = len(replicas) if replicas else partitions
    admin = open_admin(bootstrap)
    admin.create_topics([NewTopic(name, num_partitions=count, config=dict(settings or {}), **placed)])[name].result()
    _await_partitions(admin, name, count)
    return name


def add_partitions(bootstrap: str, topic: str, total: int) -> None:
    admin = open_admin(bootstrap)
    admin.create_partitions([NewPartitions(topic, total)])[topic].result()
    _await_partitions(admin, topic, total)


def delete_topics(bootstrap: str, *names: str) -> None:
    """Delete those that exist; the broker has forgotten them when this returns."""
    admin = open_admin(bootstrap)
    there = [name for name in names if name in admin.list_topics(timeout=ANSWER_S_MAX).topics]
    if there:
        for deleted in admin.delete_topics(there).values():
            deleted.result()
    wait_until(
        lambda: not set(there) & set(admin.list_topics(timeout=ANSWER_S_MAX).topics), f"{there} gone from the broker"
    )


def produce(bootstrap: str, topic: str, records: Sequence[Record | bytes]) -> None:
    """Send plain records, in order; all are acknowledged when this returns."""
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0, "linger.ms": 5})
    _send(producer, topic, records)


@contextmanager
def open_transaction(bootstrap: str, transactional_id: str | None = None) -> Iterator["Transaction"]:
    """A producer in a transaction. A transaction that the block does not end stays open at the broker."""
    transaction = Transaction(bootstrap, transactional_id or uuid.uuid4().hex)
    transaction.begin()
    yield transaction


class Transaction:
    """``begin`` starts the next transaction under the same id."""

    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        self._bootstrap = bootstrap
        self._id = transactional_id
        self._producer = self._open_producer()

    def produce(self, topic: str, records: Sequence[Record | bytes]) -> None:
        """When this returns, the records are in the log, where read_uncommitted sees them."""
        _send(self._producer, topic, records)

    def begin(self) -> None:
        self._producer.begin_transaction()

    def commit(self) -> None:
        self._producer.commit_transaction(DELIVERY_S_MAX)
        self._producer = self._open_producer()

    def abort(self) -> None:
        self._producer.abort_transaction(DELIVERY_S_MAX)
        self._producer = self._open_producer()

    def _open_producer(self) -> Producer:
        """The brokers write a transaction's markers after they acknowledge its end; another producer waits for them."""
        producer = Producer({
            "bootstrap.servers": self._bootstrap,
            "log_level": 0,
            "transactional.id": self._id,
            "transaction.timeout.ms": 600_000,
        })  # fmt: skip
        producer.init_transactions(DELIVERY_S_MAX)
        return producer


def produce_committed(bootstrap: str, topic: str, records: Sequence[Record | bytes]) -> None:
    with open_transaction(bootstrap) as transaction:
        transaction.produce(topic, records)
        transaction.commit()


def produce_aborted(bootstrap: str, topic: str, records: Sequence[Record | bytes]) -> None:
    with open_transaction(bootstrap) as transaction:
        transaction.produce(topic, records)
        transaction.abort()


def delete_records(bootstrap: str, topic: str, before: Mapping[int, int]) -> None:
    """Like retention: remove all records before these offsets, by partition."""
    admin = open_admin(bootstrap)  # its answers come only while it is referenced
    answers = admin.delete_records([TopicPartition(topic, partition, offset) for partition, offset in before.items()])
    for answer in answers.values():
        answer.result()


def lose_logs(broker: KafkaBroker, *partitions: str, files: Sequence[str] = LOG_FILES) -> None:
    """Restart the broker without the records of these partitions, such as ``orders-0``."""
    broker.stop()
    for name in partitions:
        (directory,) = broker.folder.rglob(name)
        for pattern in files:
            for path in directory.glob(pattern):
                path.unlink()
    broker.restart()


def compact(bootstrap: str, topic: str, partition: int = 0) -> list[Found]:
    """Let the broker compact a topic of ``COMPACTED`` settings; returns the records left, without fillers.

    Only closed segments are compacted, and a segment closes when a record comes after its time: fillers do that.
    """
    left: list[Found] = []

    def is_compacted() -> bool:
        nonlocal left
        produce(bootstrap, topic, [Record(b"", key=_FILLER, partition=partition)])
        left = [
            found
            for found in read_all(bootstrap, topic)
            if found.partition == partition and found.key != _FILLER
        ]  # fmt: skip
        return len({found.key for found in left}) == len(left)

    wait_until(is_compacted, f"{topic}:{partition} compacted")
    return left


def read_all(bootstrap: str, topic: str, *, isolation: str = "read_committed") -> list[Found]:
    """Every record from the beginning to the end that this isolation shows, sorted by partition and offset."""
    consumer = Consumer({
        "bootstrap.servers": bootstrap,
        "log_level": 0,
        "group.id": uuid.uuid4().hex,
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": isolation,
    })  # fmt: skip
    found: list[Found] = []
    try:
        partitions = consumer.list_topics(topic, timeout=ANSWER_S_MAX).topics[topic].partitions
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
        open_partitions = set(partitions)
        while open_partitions:
            message = consumer.poll(ANSWER_S_MAX)
            assert message is not None, f"{topic}: nothing came in {ANSWER_S_MAX:.0f} s"
            error = message.error()
            if error is None:
                found.append(_as_found(message))
            else:
                assert error.name() == "_PARTITION_EOF", error
                open_partitions.discard(message.partition())
    finally:
        consumer.close()
    return sorted(found, key=lambda each: (each.partition, each.offset))


def _as_found(message: Message) -> Found:
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    return Found(partition, offset, message.key(), message.value())


def _send(producer: Producer, topic: str, records: Sequence[Record | bytes]) -> None:
    failures: list[object] = []

    def take(error: object, _message: object) -> None:
        if error is not None:
            failures.append(error)

    for each in records:
        record = each if isinstance(each, Record) else Record(each)
        while True:
            try:
                producer.produce(
                    topic,
                    record.value,
                    record.key,
                    record.partition,
                    on_delivery=take,
                    timestamp=record.timestamp_ms,
                    headers=list(record.headers),
                )
                break
            except BufferError:
                producer.poll(0.1)
    left = producer.flush(DELIVERY_S_MAX)
    if left or failures:
        raise KafkaException(f"{left} records were not delivered; failures: {failures[:3]}")


def _await_partitions(admin: AdminClient, topic: str, count: int) -> None:
    """A broker names a partition's leader some time before that leader itself knows it."""

    def is_known() -> bool:
        known = admin.list_topics(topic, timeout=ANSWER_S_MAX).topics[topic]
        return known.error is None and len(known.partitions) == count

    def is_led() -> bool:
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # the vendor left it untyped
        asked = {TopicPartition(topic, number): latest for number in range(count)}
        return all(answer.exception() is None for answer in admin.list_offsets(asked).values())

    wait_until(is_known, f"{topic} with {count} partitions")
    wait_until(is_led, f"leaders of all partitions of {topic}")
