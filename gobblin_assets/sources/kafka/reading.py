"""The options of one read by Spark's batch Kafka source: exactly these offsets of these partitions, or a failure.

A transaction's markers and compacted records leave gaps between offsets; a gap is no loss. A record that was deleted
between planning and reading is a loss: Spark then fails the read, and never returns less.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Final

from gobblin_assets.errors import CorruptionError
from gobblin_assets.kafka.connection import KafkaConnection
from gobblin_assets.model.work_unit import WorkUnit
from gobblin_assets.sources.kafka.cluster import TopicPartition
from gobblin_assets.sources.kafka.keys import parse_key

RECORDS_PER_SPARK_TASK: Final = 1_000_000
"""Several Spark tasks read a larger range of one partition."""

POLL_TIMEOUT_MS: Final = 60_000
"""How long a task waits for records that the broker should have: longer than a restart of a broker takes.

The connection's option ``default.api.timeout.ms``, which bounds all other calls of the reader, bounds this one too.
"""

FETCH_WAIT_MS: Final = 20
"""How long a broker may hold a request for records behind the end of its log.

Spark's reader asks ahead, and then for the ends of the log by the same connection, on which a broker answers in turn: a
range up to the end of a partition would wait for Kafka's 500 ms. A range's records are in the log already.
"""

Ranges = Mapping[TopicPartition, tuple[int, int]]


def join_ranges(units: Iterable[WorkUnit]) -> dict[TopicPartition, tuple[int, int]]:
    """The offsets of WorkUnits by partition. Those of one partition follow each other, because they are packed so."""
    ranges: dict[TopicPartition, tuple[int, int]] = {}
    for unit in sorted(units, key=lambda unit: (unit.key, unit.number)):
        key = parse_key(unit.key)
        if key is None or unit.interval is None or unit.interval.low is None:
            raise CorruptionError(f"{unit.key!r} with {unit.interval} is no range of offsets")
        low, high = unit.interval.low.value, unit.interval.high.value
        if not isinstance(low, int) or not isinstance(high, int):
            raise CorruptionError(f"{unit.interval} is no range of offsets")
        before = ranges.get(key.partition)
        if before is not None and before[1] != low:
            raise CorruptionError(f"the WorkUnits of {key} in one task have a hole between {before[1]} and {low}")
        ranges[key.partition] = (low if before is None else before[0], high)
    return ranges


def plan_options(
    connection: KafkaConnection, ranges: Ranges, *, isolation: str, group_id_prefix: str, with_headers: bool
) -> dict[str, str]:
    """Spark's options. Values of the connection may be secrets: they go to the reader and nowhere else."""
    assigned: dict[str, list[int]] = {}
    starts: dict[str, dict[str, int]] = {}
    ends: dict[str, dict[str, int]] = {}
    for name, (low, high) in sorted(ranges.items(), key=lambda item: (item[0].topic, item[0].partition)):
        assigned.setdefault(name.topic, []).append(name.partition)
        starts.setdefault(name.topic, {})[str(name.partition)] = low
        ends.setdefault(name.topic, {})[str(name.partition)] = high
    records = sum(high - low for low, high in ranges.values())
    return {
        "kafka.fetch.max.wait.ms": str(FETCH_WAIT_MS),
        **connection.spark_options(),
        "assign": json.dumps(assigned),
        "startingOffsets": json.dumps(starts),
        "endingOffsets": json.dumps(ends),
        "failOnDataLoss": "true",
        "includeHeaders": "true" if with_headers else "false",
        "kafka.isolation.level": isolation,
        "kafkaConsumer.pollTimeoutMs": connection.options.get("default.api.timeout.ms", str(POLL_TIMEOUT_MS)),
        "groupIdPrefix": group_id_prefix,
        "minPartitions": str(max(1, len(ranges), -(-records // RECORDS_PER_SPARK_TASK))),
    }
