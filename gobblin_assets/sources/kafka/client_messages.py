"""Messages of librdkafka's consumers: how a consumer is opened, and its messages as columns of Arrow.

Messages become columns column by column: a record costs no Python code of its own.
"""

import uuid
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Final, cast

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
)

from gobblin_assets.kafka.client_reports import client_failure, judge_client
from gobblin_assets.kafka.connection import KafkaConnection
from gobblin_assets.sources.kafka.cluster import TopicPartition

ClientMessage = Message
"""A record as the client gives it, for modules that only pass it on."""

TIME_MS_MAX: Final = (2**63 - 1) // 1000
"""The last millisecond that fits into 64 bits as microseconds, which Spark and Parquet count."""

TIME_MS_MIN: Final = -TIME_MS_MAX
"""The first one."""

END: Final = "_PARTITION_EOF"
"""The error by which a consumer reports the end of a partition."""

_CONSUMER: Final = {
    "log_level": 0,
    "log.connection.close": False,
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",
    "enable.partition.eof": True,
    # How long the client treats a topic that it can't find as one that was just made.
    "topic.metadata.propagation.max.ms": 3_000,
}
_NO_PARTITION: Final = -1
_NO_TIME_MS: Final = -1
# Spark's numbers for kinds of times; Spark gives -1 for a record without a time.
_TIMESTAMP_TYPES: Final = {TIMESTAMP_CREATE_TIME: 0, TIMESTAMP_LOG_APPEND_TIME: 1}
_WITHOUT_TIME: Final = -1
_TIME: Final = pa.timestamp("us", "UTC")
_HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

RECORD_SCHEMA: Final = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", _TIME),
        ("timestampType", pa.int32()),
        ("headers", _HEADERS),
    ]
)
"""The schema of Spark's source, with ``headers``."""


def open_consumer(
    connection: KafkaConnection,
    settings: Mapping[str, object],
    see: Callable[[KafkaError], None],
    *,
    action: str,
) -> Consumer:
    """A consumer for ``assign``. ``see`` gets what its connections report; ``action`` completes "can't …" in errors."""
    try:
        return Consumer({
            **_CONSUMER,
            **settings,
            **connection.admin_settings(),
            # The client requires a group, but no broker hears of it: nothing is subscribed to or committed.
            "group.id": f"gobblin-{uuid.uuid4().hex}",
            "error_cb": see,
        })  # fmt: skip
    except KafkaException as error:
        raise judge_client(client_failure(error.args[0]), connection, action=action) from None


def partition_of_message(topic: str | None, number: int | None) -> TopicPartition:
    """The partition of a message, as its client names it: an error may have none."""
    return TopicPartition(topic or "", _NO_PARTITION if number is None else number)


def build_records(
    messages: Sequence[Message],
    *,
    with_headers: bool,
    with_times: bool = True,
    partition: TopicPartition | None = None,
) -> pa.RecordBatch:
    """The records in ``RECORD_SCHEMA``, in their order; at most 2 GiB of keys, and of values.

    A record without a time, or with one that is not from ``TIME_MS_MIN`` to ``TIME_MS_MAX``, has NULL for it. Without
    ``with_headers`` all headers are NULL, and without ``with_times`` all times and their kinds. ``partition``: the one
    that all records are of, if they are of one.
    """
    count = len(messages)
    if partition is None:
        topics = pa.array(list(map(Message.topic, messages)), type=pa.string())
        numbers = pa.array(list(map(Message.partition, messages)), type=pa.int32())
    else:
        topics = pa.repeat(pa.scalar(partition.topic, pa.string()), count)
        numbers = pa.repeat(pa.scalar(partition.partition, pa.int32()), count)
    times, kinds = (
        _times_and_kinds_of(messages) if with_times else (pa.nulls(count, _TIME), pa.nulls(count, pa.int32()))
    )
    columns = [
        pa.array(list(map(Message.key, messages)), type=pa.binary()),
        pa.array(list(map(Message.value, messages)), type=pa.binary()),
        topics,
        numbers,
        pa.array(list(map(Message.offset, messages)), type=pa.int64()),
        times,
        kinds,
        _as_headers(messages) if with_headers else pa.nulls(count, _HEADERS),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA)


def offset_of_message(message: Message) -> int:
    # Only an event without a record has no offset.
    return message.offset() or 0


def time_ms_of(message: Message) -> int:
    """Milliseconds since 1970; below 0: the record has no time."""
    return message.timestamp()[1]


def headers_of(message: Message) -> list[tuple[str, bytes | None]] | None:
    """The library's annotation is too narrow: it gives pairs of a name and bytes."""
    return cast("list[tuple[str, bytes | None]] | None", message.headers())


def _times_and_kinds_of(messages: Sequence[Message]) -> tuple[pa.Array, pa.Array]:
    # Flat: pairs that are kept by the thousand would cost more in garbage collection.
    flat: list[int] = list(chain.from_iterable(map(Message.timestamp, messages)))
    return _as_times(flat[1::2]), _as_kinds(flat[::2])


def _as_times(times_ms: list[int]) -> pa.Array:
    found = pa.array(times_ms, type=pa.int64())
    bounds = pc.min_max(found).as_py()
    # Times before 1970 are rare, and the one that means none is among them.
    if times_ms and (bounds["min"] < 0 or bounds["max"] > TIME_MS_MAX):
        fits = pc.and_(pc.greater_equal(found, TIME_MS_MIN), pc.less_equal(found, TIME_MS_MAX))
        is_time = pc.and_(pc.not_equal(found, _NO_TIME_MS), fits)
        found = pc.if_else(is_time, found, pa.scalar(None, pa.int64()))
    return found.cast(pa.timestamp("ms", "UTC")).cast(_TIME)


def _as_kinds(kinds: list[int]) -> pa.Array:
    different = set(kinds)
    if len(different) == 1:
        kind = _TIMESTAMP_TYPES.get(different.pop(), _WITHOUT_TIME)
        return pa.repeat(pa.scalar(kind, pa.int32()), len(kinds))
    return pa.array([_TIMESTAMP_TYPES.get(kind, _WITHOUT_TIME) for kind in kinds], type=pa.int32())


def _as_headers(messages: Sequence[Message]) -> pa.Array:
    found = [headers_of(message) for message in messages]
    return pa.array(
        [None if each is None else [{"key": name, "value": content} for name, content in each] for each in found],
        type=_HEADERS,
    )
