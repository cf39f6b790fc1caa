"""A copy written by hand: a process with confluent-kafka's consumer and pyarrow's Parquet writer.

``python -m benchmarks.kafka_consumer BOOTSTRAP TOPIC DIRECTORY`` copies what the topic has now, and prints the
records and the seconds that it took, imports left out.
"""

import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka import Consumer, TopicPartition

BATCH_RECORDS = 100_000
ANSWER_S_MAX = 60.0

_SCHEMA = pa.schema([("value", pa.binary()), ("kafka_partition", pa.int32()), ("kafka_offset", pa.int64())])


def copy(bootstrap: str, topic: str, directory: Path) -> int:
    """Returns the number of records. RuntimeError if none come for a minute."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "copy", "enable.auto.commit": False})
    found = consumer.list_topics(topic, timeout=ANSWER_S_MAX).topics[topic].partitions
    partitions = [TopicPartition(topic, number, 0) for number in found]
    records = sum(consumer.get_watermark_offsets(each, timeout=ANSWER_S_MAX)[1] for each in partitions)
    consumer.assign(partitions)
    directory.mkdir(parents=True)
    left = records
    with pq.ParquetWriter(directory / "part-0.parquet", _SCHEMA, compression="zstd") as writer:
        while left:
            messages = consumer.consume(min(BATCH_RECORDS, left), timeout=ANSWER_S_MAX)
            if not messages:
                raise RuntimeError(f"{left:,} records of {topic} did not come")
            columns = [
                pa.array([message.value() for message in messages], pa.binary()),
                pa.array([message.partition() for message in messages], pa.int32()),
                pa.array([message.offset() for message in messages], pa.int64()),
            ]
            writer.write_batch(pa.record_batch(columns, schema=_SCHEMA))
            left -= len(messages)
    consumer.close()
    return records


if __name__ == "__main__":
    begun = time.monotonic()
    copied = copy(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
    print(copied, time.monotonic() - begun)
