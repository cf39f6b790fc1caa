"""Hand-made batches of Kafka's records for the decoding by Arrow: the records of ``kafka_records.kafka_frame``."""

import datetime as dt
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from gobblin_assets.sources.kafka.arrow_decoding import ArrowDecoder
from gobblin_assets.sources.kafka.kafka_kind import KafkaReadSpec
from tests.support.kafka_records import AT, TOPIC

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def record_batch(values: Sequence[bytes | None], keys: Sequence[bytes | None] = ()) -> pa.RecordBatch:
    """Offsets count from 100; without ``keys`` the keys are NULL; every record has one header."""
    count = len(values)
    moment = AT.replace(tzinfo=dt.UTC)
    columns = {
        "key": pa.array(keys or [None] * count, pa.binary()),
        "value": pa.array(values, pa.binary()),
        "topic": pa.array([TOPIC] * count, pa.string()),
        "partition": pa.array([3] * count, pa.int32()),
        "offset": pa.array(range(100, 100 + count), pa.int64()),
        "timestamp": pa.array([moment] * count, pa.timestamp("us", "UTC")),
        "timestampType": pa.array([number % 2 for number in range(count)], pa.int32()),
        "headers": pa.array([[("trace", b"\xff")]] * count, HEADERS),
    }
    return pa.RecordBatch.from_pydict(columns)


def arrow_decoder(spec: dict[str, object]) -> ArrowDecoder:
    return ArrowDecoder(KafkaReadSpec.model_validate(spec), TOPIC)


def decode_texts(ddl: str, texts: Sequence[str | bytes]) -> list[tuple[tuple[Any, ...], str | None]]:
    """The columns and the reason of each JSON record, in the order of ``texts``; decoded in one batch."""
    decoder = arrow_decoder({"value": {"format": "json", "schema": ddl}, "keep": ["offset"]})
    names = decoder.schema.names[:-1]
    contents = [text if isinstance(text, bytes) else text.encode() for text in texts]
    decoded = decoder.decode(record_batch(contents))
    found = [
        (row["kafka_offset"], tuple(row[name] for name in names), row.get("dead_letter_reason"))
        for part in (decoded.rows, decoded.dead_letters)
        for row in part.to_pylist()
    ]
    return [(values, reason) for _offset, values, reason in sorted(found, key=lambda each: each[0])]
