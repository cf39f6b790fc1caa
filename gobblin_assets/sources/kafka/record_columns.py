"""Messages of librdkafka as columns of Arrow, column by column: a record costs no Python code of its own."""

from collections.abc import Iterable, Sequence
from typing import Final, cast

import pyarrow as pa
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, Message

from gobblin_assets.sources.kafka.cluster import TopicPartition

TIME_MS_MAX: Final = (2**63 - 1) // 1000
"""The last millisecond that fits into 64 bits as microseconds, which Spark and Parquet count."""

_NO_TIME_MS: Final = -1
# Spark's numbers for kinds of times; Spark gives -1 for a record without a time.
_TIMESTAMP_TYPES: Final = {TIMESTAMP_CREATE_TIME: 0, TIMESTAMP_LOG_APPEND_TIME: 1}
_WITHOUT_TIME: Final = -1
_HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

RECORD_SCHEMA: Final = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestampType", pa.int32()),
        ("headers", _HEADERS),
    ]
)
"""The schema of Spark's source, with ``headers``."""


def build_records(
    messages: Sequence[Message], *, with_headers: bool, partition: TopicPartition | None = None
) -> pa.RecordBatch:
    """The records in ``RECORD_SCHEMA``, in their order; at most 2 GiB of keys, and of values.

    A record without a time, or with one beyond ``TIME_MS_MAX``, has NULL for it. Without ``with_headers`` all headers
    are NULL. ``partition``: the one that all records are of, if they are of one.
    """
    count = len(messages)
    kinds, times = zip(*map(Message.timestamp, messages), strict=True) if messages else ((), ())
    if partition is None:
        topics = pa.array(map(Message.topic, messages), type=pa.string(), size=count)
        numbers = pa.array(map(Message.partition, messages), type=pa.int32(), size=count)
    else:
        topics = pa.repeat(pa.scalar(partition.topic, pa.string()), count)
        numbers = pa.repeat(pa.scalar(partition.partition, pa.int32()), count)
    columns = [
        pa.array(map(Message.key, messages), type=pa.binary(), size=count),
        pa.array(map(Message.value, messages), type=pa.binary(), size=count),
        topics,
        numbers,
        pa.array(map(Message.offset, messages), type=pa.int64(), size=count),
        _as_times(times),
        _as_types(kinds),
        _as_headers(messages) if with_headers else pa.nulls(count, _HEADERS),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA)


def headers_of(message: Message) -> list[tuple[str, bytes | None]] | None:
    """The library's annotation is too narrow: it gives pairs of a name and bytes."""
    return cast("list[tuple[str, bytes | None]] | None", message.headers())


def _as_times(times_ms: Sequence[int]) -> pa.Array:
    is_plain = not times_ms or (min(times_ms) != _NO_TIME_MS and max(times_ms) <= TIME_MS_MAX)
    known: Iterable[int | None] = (
        times_ms if is_plain else (None if ms == _NO_TIME_MS or ms > TIME_MS_MAX else ms for ms in times_ms)
    )
    return pa.array(known, type=pa.timestamp("ms", "UTC"), size=len(times_ms)).cast(pa.timestamp("us", "UTC"))


def _as_types(kinds: Sequence[int]) -> pa.Array:
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
