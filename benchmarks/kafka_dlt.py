"""A dlt pipeline from a topic to Parquet files: runs in a virtual environment of its own, not in the product's.

``python kafka_dlt.py BOOTSTRAP TOPIC DIRECTORY dicts|arrow`` prints the records and the seconds that the pipeline
took, imports left out. dlt's own Kafka source is a template that its command line fetches from a repository. This
pipeline has the few lines that it needs: a consumer whose messages become rows, given to dlt in batches.
"""

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dlt
import pyarrow as pa
from confluent_kafka import Consumer, Message, TopicPartition

BATCH_RECORDS = {"dicts": 3_000, "arrow": 100_000}
"""Rows: the size of dlt's template. Tables: the size of the copy that is written by hand."""

ANSWER_S_MAX = 60.0


def read(bootstrap: str, topic: str, batch_records: int) -> Iterator[list[Message]]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "dlt", "enable.auto.commit": False})
    found = consumer.list_topics(topic, timeout=ANSWER_S_MAX).topics[topic].partitions
    partitions = [TopicPartition(topic, number, 0) for number in found]
    left = sum(consumer.get_watermark_offsets(each, timeout=ANSWER_S_MAX)[1] for each in partitions)
    consumer.assign(partitions)
    while left:
        messages = consumer.consume(min(batch_records, left), timeout=ANSWER_S_MAX)
        if not messages:
            raise RuntimeError(f"{left:,} records of {topic} did not come")
        yield messages
        left -= len(messages)
    consumer.close()


def as_rows(messages: list[Message]) -> list[dict[str, Any]]:
    return [
        {"value": (each.value() or b"").decode(), "kafka_partition": each.partition(), "kafka_offset": each.offset()}
        for each in messages
    ]


def as_table(messages: list[Message]) -> pa.Table:
    return pa.table({
        "value": pa.array([each.value() for each in messages], pa.binary()),
        "kafka_partition": pa.array([each.partition() for each in messages], pa.int32()),
        "kafka_offset": pa.array([each.offset() for each in messages], pa.int64()),
    })  # fmt: skip


def copy(bootstrap: str, topic: str, directory: Path, way: str) -> int:
    turn = as_table if way == "arrow" else as_rows
    records = 0

    @dlt.resource(name="orders", write_disposition="append")
    def orders() -> Iterator[Any]:
        nonlocal records
        for messages in read(bootstrap, topic, BATCH_RECORDS[way]):
            records += len(messages)
            yield turn(messages)

    pipeline = dlt.pipeline(
        pipeline_name="orders",
        pipelines_dir=str(directory / "pipelines"),
        destination=dlt.destinations.filesystem(bucket_url=(directory / "lake").as_uri()),
        dataset_name="orders",
    )
    pipeline.run(orders(), loader_file_format="parquet").raise_on_failed_jobs()
    return records


if __name__ == "__main__":
    begun = time.monotonic()
    copied = copy(sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4])
    print(copied, time.monotonic() - begun)
