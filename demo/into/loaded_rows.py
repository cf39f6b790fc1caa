"""Reads back what was loaded, as a user would: a topic by a consumer of committed records, Iceberg by pyiceberg."""

import datetime as dt
import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from gobblin_assets.destinations.iceberg.catalog_address import read_catalog_address
from gobblin_assets.destinations.iceberg.iceberg_tables import IcebergTables

Rows = Counter[tuple[Any, ...]]


def read_topic(bootstrap: str, topic: str, columns: Sequence[str]) -> Rows:
    """All committed records; their value is JSON."""
    consumer = Consumer({
        "bootstrap.servers": bootstrap, "group.id": "proof", "isolation.level": "read_committed",
        "enable.auto.commit": False, "enable.partition.eof": True,
    })  # fmt: skip
    try:
        partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        rows: Rows = Counter()
        left = len(partitions)
        while left:
            for message in consumer.consume(10_000, timeout=30):
                if message.error() is not None:
                    left -= 1
                    continue
                value = json.loads(message.value())
                rows[tuple(_read(name, value[name]) for name in columns)] += 1
        return rows
    finally:
        consumer.close()


def read_iceberg(connection: str, namespace: str, table: str, columns: Sequence[str]) -> Rows:
    tables = IcebergTables(read_catalog_address(connection))
    try:
        found = tables._open().load_table((namespace, table)).scan().to_arrow()  # noqa: SLF001  as the catalog has it
        return Counter(zip(*(found[name].to_pylist() for name in columns), strict=True))
    finally:
        tables.close()


def _read(name: str, value: Any) -> Any:
    return dt.datetime.fromisoformat(value) if name == "time_hour" else value
