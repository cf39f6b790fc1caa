"""Producers that write all the time, and the two accounts that are compared: the broker's and the lake's.

A record counts as written if a consumer finds it: a producer that lost a broker may not know.
"""

import json
import threading
from collections import Counter
from pathlib import Path
from typing import Any, Self

import pyarrow.parquet as pq
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]  # the vendor does not mark what it exports

from gobblin_assets.model.urn import DatasetUrn, JobName, Role
from gobblin_assets.run.stores import Stores
from tests.support.kafka import Record, Transaction, make_topic, open_admin, produce, read_all

PARTITIONS = 2
BATCH = 12
BROKEN_EVERY = 5
ABORT_EVERY = 3
PAUSE_S = 0.2

Facts = Counter[tuple[object, ...]]
"""(partition, offset, number) of a row; (partition, offset, bytes) of a dead letter."""


def dataset_of(topic: str) -> dict[str, Any]:
    """A job's options for such a topic."""
    return {
        "topic": topic,
        "kafka": {"value": {"format": "json", "schema": "number bigint"}, "keep": ["partition", "offset"]},
        "quality": {"dead_letter_fraction_max": 1},
        "split": {"max_multi_work_units": 1},
    }


class Producing:
    """In the block ``with``, sends numbers, some of them broken, into two new topics, from a thread for each.

    One topic is written plainly, the other in transactions, of which some are aborted.
    """

    def __init__(self, bootstrap: str, suffix: str) -> None:
        self.plain, self.in_transactions = f"plain-{suffix}", f"transactions-{suffix}"
        self.topics = (self.plain, self.in_transactions)
        self.aborted = 0
        self._bootstrap = bootstrap
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=run) for run in (self._write_plainly, self._write_in_transactions)]
        self._numbers = dict.fromkeys(self.topics, 0)
        for topic in self.topics:
            make_topic(bootstrap, topic, PARTITIONS)

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    def stop(self) -> None:
        """When this returns, no more records come and no transaction is open. The brokers must be up."""
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def _write_plainly(self) -> None:
        while not self._stopping.wait(PAUSE_S):
            try:
                produce(self._bootstrap, self.plain, self._make_batch(self.plain))
            except KafkaException:
                continue

    def _write_in_transactions(self) -> None:
        transaction = self._open_transaction()
        transactions = 0
        while not self._stopping.wait(PAUSE_S):
            transactions += 1
            try:
                transaction.begin()
                transaction.produce(self.in_transactions, self._make_batch(self.in_transactions))
                if transactions % ABORT_EVERY == 0:
                    transaction.abort()
                    self.aborted += 1
                else:
                    transaction.commit()
            except KafkaException:
                # Another producer with its id ends its transaction.
                transaction = self._open_transaction()

    def _open_transaction(self) -> Transaction:
        return Transaction(self._bootstrap, self.in_transactions)

    def _make_batch(self, topic: str) -> list[Record]:
        first = self._numbers[topic]
        self._numbers[topic] += BATCH
        return [
            Record(
                b"{broken %d" % number if number % BROKEN_EVERY == 0 else json.dumps({"number": number}).encode(),
                partition=number % PARTITIONS,
            )
            for number in range(first, first + BATCH)
        ]


def sent_facts(bootstrap: str, topic: str) -> Facts:
    """The records that a consumer of committed records finds."""
    return Counter((each.partition, each.offset, _content(each.value or b"")) for each in read_all(bootstrap, topic))


def _content(value: bytes) -> object:
    try:
        return json.loads(value)["number"]
    except ValueError:
        return value


def find_ends(bootstrap: str, topic: str, partitions: int = PARTITIONS) -> dict[str, int]:
    """The end of each partition's log, by its watermark key."""
    admin = open_admin(bootstrap)
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # the vendor left it untyped
    asked = {TopicPartition(topic, number): latest for number in range(partitions)}
    return {f"{topic}:{each.partition}": found.result().offset for each, found in admin.list_offsets(asked).items()}


def published_facts(stores: Stores, job: str, topic: str) -> Facts:
    """The content of the ledger's files, read without Spark."""
    facts: Facts = Counter()
    for role, columns in {
        Role.DATA: ["kafka_partition", "kafka_offset", "number"],
        Role.DEAD_LETTER: ["dead_letter_partition", "dead_letter_offset", "dead_letter_value"],
    }.items():
        found = stores.published.find(JobName(job), DatasetUrn(topic), role=role)
        for segment in found.segments if found else ():
            for file in segment.files():
                table = pq.ParquetFile(Path(file.path)).read(columns)
                facts.update(zip(*(table[name].to_pylist() for name in columns), strict=True))
    return facts


def watermarks_of(stores: Stores, job: str, topic: str) -> dict[str, int]:
    """By key; empty if nothing is known of the topic yet."""
    urn = DatasetUrn(topic)
    state = stores.datasets.load(JobName(job), [urn]).get(urn)
    keys = {} if state is None else state.keys
    return {name: int(str(key.watermark)) for (name, _partition), key in keys.items() if key.watermark is not None}
