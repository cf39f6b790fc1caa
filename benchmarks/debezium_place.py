"""Debezium between a Postgres and topics of a broker, and what has come to these."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # the vendor does not mark what it exports
    AdminClient,
    OffsetSpec,
)

from benchmarks.cdc_world import LogSource
from benchmarks.connect_worker import ConnectWorker, describe_debezium, describe_file_sink, name_topics
from benchmarks.kafka_world import TIMEOUT_S, make_topics
from benchmarks.process_times import tree_s
from benchmarks.sink_world import postgres_s
from demo.kafka.broker import KafkaBroker

_END: Final = "_PARTITION_EOF"
_LATEST: Final[OffsetSpec] = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # the vendor left it untyped
_BATCH: Final = 10_000


@dataclass(frozen=True, slots=True)
class DebeziumPlace:
    source: LogSource
    broker: KafkaBroker
    connect: ConnectWorker

    @property
    def folder(self) -> Path:
        return self.source.world.home

    def broker_s(self) -> float:
        assert self.broker.pid is not None
        return tree_s(self.broker.pid)

    def find_ends(self, topics: list[str]) -> int:
        """The sum of the offsets up to which transactions are committed."""
        wanted = {TopicPartition(topic, 0): _LATEST for topic in topics}
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap, "log_level": 0})
        found = admin.list_offsets(wanted, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=TIMEOUT_S)
        return sum(int(each.result(TIMEOUT_S).offset) for each in found.values())

    def count_records(self, topics: list[str]) -> int:
        """Those of committed transactions."""
        consumer = open_consumer(self.broker.bootstrap, topics)
        count, open_topics = 0, len(topics)
        try:
            while open_topics:
                for message in consumer.consume(_BATCH, 1.0):
                    error = message.error()
                    if error is None:
                        count += 1
                    elif error.name() == _END:
                        open_topics -= 1
                    else:
                        raise KafkaException(error)
        finally:
            consumer.close()
        return count


def make_slot(source: LogSource, name: str) -> str:
    source.ask("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')::text", name)
    return name


@contextmanager
def follow_changes(place: DebeziumPlace, slot: str, file: Path | None) -> Iterator[list[str]]:
    """Debezium from a slot into topics, and from there into the file; gives the topics."""
    topics = name_topics(slot)
    make_topics(place.broker.bootstrap, topics, 1)
    if file is not None:
        place.connect.begin(f"{slot}-file", describe_file_sink(topics, file))
    place.connect.begin(slot, describe_debezium(place.source, slot))
    try:
        yield topics
    finally:
        place.connect.end(slot)
        if file is not None:
            place.connect.end(f"{slot}-file")
            file.unlink(missing_ok=True)
        admin = AdminClient({"bootstrap.servers": place.broker.bootstrap, "log_level": 0})
        for each in admin.delete_topics(topics, operation_timeout=TIMEOUT_S).values():
            each.result(TIMEOUT_S)


def open_consumer(bootstrap: str, topics: list[str]) -> Consumer:
    """From the beginning, of what is committed."""
    consumer = Consumer({
        "bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False, "log_level": 0,
        "isolation.level": "read_committed", "enable.partition.eof": True,
    })  # fmt: skip
    consumer.assign([TopicPartition(topic, 0, 0) for topic in topics])
    return consumer


def read_clocks(place: DebeziumPlace) -> tuple[float, float, float]:
    """Processor seconds of Connect, of the broker, and of the Postgres that is read."""
    return place.connect.cpu_s(), place.broker_s(), postgres_s(place.source.server)
