"""Records whose own time does not fit Spark's timestamp: rows without a time, never a failed topic."""

import json
from collections import Counter
from pathlib import Path

import pytest
from google.protobuf import timestamp_pb2
from pyspark.sql import SparkSession

from demo.kafka.broker import KafkaBroker
from gobblin_assets.errors import RejectedError
from gobblin_assets.model.urn import Role
from gobblin_assets.sources.kafka import topic_reader
from gobblin_assets.sources.kafka.decoding import decode
from gobblin_assets.sources.kafka.epoch_markers import EPOCH_HEADER
from gobblin_assets.sources.kafka.protobuf_messages import decoder_of, parse_message_type
from tests.support.kafka import MakeTopic, Record, produce
from tests.support.kafka_records import avro_bytes, kafka_frame, planned, view_descriptors
from tests.support.spark_sink import OpenSpark, SparkSink
from tests.support.topics import Open

pytestmark = pytest.mark.turns(of=8)

ANY_TIME = {"message.timestamp.after.max.ms": str(2**63 - 1), "message.timestamp.before.max.ms": str(2**63 - 1)}
LAST_MS = (2**63 - 1) // 1000
FAR_MS = 253_402_300_800_000  # the year 10000
TIMES_MS = [1_000, LAST_MS + 1, 2_000, FAR_MS, 2**63 - 1, LAST_MS, LAST_MS + 1, 3_000, 1]
SHOWN = [None if each > LAST_MS else each * 1000 for each in TIMES_MS]
TIME = "unix_micros(kafka_timestamp)"


def _records(partitions: int = 1) -> list[Record]:
    return [Record(b'{"id": %d}' % n, partition=n % partitions, timestamp_ms=each) for n, each in enumerate(TIMES_MS)]


@pytest.mark.parametrize(
    "value",
    [{"format": "json", "schema": "id bigint"}, pytest.param({"format": "json"}, marks=pytest.mark.thorough)],
)
def test_a_record_whose_time_is_beyond_microseconds_is_a_row_without_time(
    ingest: Open, kafka_broker: KafkaBroker, topic: MakeTopic, value: dict[str, str]
) -> None:
    name = topic("times", partitions=2, settings=ANY_TIME)
    produce(kafka_broker.bootstrap, name, _records(partitions=2))
    ingestion = ingest({"topic": name, "kafka": {"value": value, "keep": ["timestamp", "timestamp_type", "headers"]}})

    report = ingestion.run()

    assert not report.failed, report.failed
    found = ingestion.read(name).selectExpr("id", TIME, "kafka_timestamp_type").collect()
    assert Counter(map(tuple, found)) == Counter((n, each, "create_time") for n, each in enumerate(SHOWN))
    assert ingestion.watermarks(name) == {f"{name}:0": "5", f"{name}:1": "4"}


@pytest.mark.core
def test_topics_that_are_read_together_have_rows_without_time_as_well(
    ingest: Open, kafka_broker: KafkaBroker, topic: MakeTopic
) -> None:
    names = [topic("times", settings=ANY_TIME) for _ in range(2)]
    for name in names:
        produce(kafka_broker.bootstrap, name, _records())
    kafka = {"value": {"format": "string"}, "keep": ["timestamp", "offset"]}
    ingestion = ingest(*({"topic": name, "kafka": kafka} for name in names))

    report = ingestion.run()

    assert not report.failed, report.failed
    for name in names:
        found = ingestion.read(name).selectExpr("kafka_offset", TIME).collect()
        assert Counter(map(tuple, found)) == Counter(enumerate(SHOWN))


def test_an_event_time_from_such_a_record_goes_by_the_rule_for_missing_ones(
    ingest: Open, kafka_broker: KafkaBroker, topic: MakeTopic
) -> None:
    name = topic("times", settings=ANY_TIME)
    produce(kafka_broker.bootstrap, name, _records())
    event_time = {"column": "kafka_timestamp", "on_missing": "dead_letter", "on_future": "directory"}
    ingestion = ingest({
        "topic": name,
        "kafka": {"value": {"format": "json", "schema": "id bigint"}, "keep": ["timestamp", "offset"]},
        "writer": {"event_time": event_time},
        "quality": {"dead_letter_fraction_max": 1},
    })  # fmt: skip

    report = ingestion.run()

    assert not report.failed, report.failed
    directories = Counter(row[0] for row in ingestion.read(name).select("event_time").collect())
    assert directories == Counter({"1970-01-01": 4, "future": 2})
    letters = ingestion.read(name, role=Role.DEAD_LETTER).collect()
    assert {(row.id, row.kafka_offset, row.kafka_timestamp) for row in letters} == {(n, n, None) for n in (1, 4, 6)}


@pytest.mark.thorough
def test_more_such_records_than_fit_this_process_are_refused_with_the_way_out(
    ingest: Open, kafka_broker: KafkaBroker, topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_reader, "BYTES_MAX", 20)
    name = topic("times", settings=ANY_TIME)
    produce(kafka_broker.bootstrap, name, _records())
    dataset = {"topic": name, "kafka": {"value": {"format": "string"}, "keep": ["offset"]}}

    (failed,) = ingest(dataset).run().failed

    assert failed.error_family == RejectedError.__name__
    assert "records_per_partition_max" in str(failed.error)
    kafka = {**dataset["kafka"], "records_per_partition_max": 1}  # type: ignore[dict-item]  # it is a mapping
    ingestion = ingest({**dataset, "kafka": kafka})
    for _ in TIMES_MS:
        assert not ingestion.run().failed
    assert Counter(ingestion.read(name).select("kafka_offset").collect()) == Counter((n,) for n in range(len(TIMES_MS)))


@pytest.mark.parametrize(("unit", "last"), [("timestamp-millis", LAST_MS), ("timestamp-micros", 2**63 - 1)])
def test_a_time_of_avro_beyond_microseconds_is_a_dead_letter(spark: SparkSession, unit: str, last: int) -> None:
    at = {"type": "long", "logicalType": unit}
    schema = {"type": "record", "name": "At", "fields": [{"name": "at", "type": at}]}
    plain = {"type": "record", "name": "At", "fields": [{"name": "at", "type": "long"}]}
    moments = [0, -1, last, -last, *([last + 1, 2**63 - 1, -(2**63)] if last < 2**63 - 1 else [])]
    plan = planned(spark, {"value": {"format": "avro", "framing": "none", "schema": json.dumps(schema)}})
    values = [avro_bytes(plain, {"at": each}) for each in moments]

    rows = decode(kafka_frame(spark, values), plan).selectExpr("unix_micros(at)", "gobblin_dead_letter").collect()

    factor = 1000 if unit == "timestamp-millis" else 1
    assert [row[0] for row in rows] == [each * factor if abs(each) <= last else None for each in moments]
    assert [row[1] is None for row in rows] == [abs(each) <= last for each in moments]


def test_a_time_of_protobuf_beyond_the_year_9999_is_a_dead_letter(spark: SparkSession) -> None:
    seconds = [0, 253_402_300_799, 253_402_300_800, 2**63 - 1, -(2**63)]
    values = [timestamp_pb2.Timestamp(seconds=each).SerializeToString() for each in seconds]
    type_of = parse_message_type(view_descriptors(), "shop.View", field="value")
    at = type_of.type.names.index("at")
    number = at + 1
    decode_one = decoder_of(type_of)
    wrapped = [bytes([number << 3 | 2, len(each)]) + each for each in values]
    assert [found is not None and found[1] for found in map(decode_one, wrapped)] == [True, True, False, False, False]


EARLY_MS = [1_000, -(2**62), -5_000, -(2**63), -LAST_MS - 1, 2_000]
EARLY_SHOWN = [None if each < -LAST_MS else each * 1000 for each in EARLY_MS]


def test_a_time_before_all_microseconds_is_none_in_a_run(
    ingest: Open, kafka_broker: KafkaBroker, topic: MakeTopic
) -> None:
    name = topic("early", settings=ANY_TIME)
    produce(kafka_broker.bootstrap, name, [Record(b"%d" % n, timestamp_ms=each) for n, each in enumerate(EARLY_MS)])
    ingestion = ingest({"topic": name, "kafka": {"value": {"format": "string"}, "keep": ["timestamp", "offset"]}})

    report = ingestion.run()

    assert not report.failed, report.failed
    found = ingestion.read(name).selectExpr("kafka_offset", TIME).collect()
    assert Counter(map(tuple, found)) == Counter(enumerate(EARLY_SHOWN))


@pytest.mark.parametrize("by_spark", [False, True])
def test_records_with_odd_headers_keys_and_times_never_end_a_worker(
    spark: SparkSession,
    kafka_broker: KafkaBroker,
    topic: MakeTopic,
    database_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    by_spark: bool,
) -> None:
    """Each record is a row, or a dead letter with its bytes."""
    monkeypatch.setenv("GOBBLIN_KAFKA_SHOP_BOOTSTRAP_SERVERS", kafka_broker.bootstrap)
    name = topic("odd", settings=ANY_TIME)
    records = [
        *(Record(b'{"id": %d}' % n, timestamp_ms=each) for n, each in enumerate([*EARLY_MS, *TIMES_MS])),
        Record(b'{"id": 100}', key=b"\xff\xfe\x00"),
        Record(b'{"id": 101}', key=b""),
        Record(b'{"id": 102}', headers=[("", b""), ("gobblin", b"\xff\x00"), ("none", None)]),
        Record(b'{"id": 103}', headers=[(EPOCH_HEADER, b"\xff" * 40)]),
        Record(b"\x00\xff\xff\xff\xff{}"),
        Record(b""),
        Record(None),
    ]
    produce(kafka_broker.bootstrap, name, records)
    kafka = {
        "key": {"format": "string"},
        "value": {"format": "json", "schema": "id bigint"},
        "keep": ["key", "headers", "timestamp", "timestamp_type", "offset"],
    }
    dataset = {
        "topic": name,
        "kafka": kafka,
        "writer": {"event_time": {"column": "kafka_timestamp", "on_missing": "directory", "on_future": "directory"}},
        "quality": {"dead_letter_fraction_max": 1},
    }
    ends = {f"{name}:0": len(records)}
    sink = SparkSink(database_url, str(tmp_path / "lake"), [dataset], OpenSpark(spark), lambda: ends, by_spark=by_spark)

    sink.work()

    ids = sink.rows(name, "id")
    letters = sink.rows(name, "dead_letter_offset", role=Role.DEAD_LETTER)
    assert sum(ids.values()) + sum(letters.values()) == len(records)
    assert {number for (number,) in letters} == {len(EARLY_MS) + len(TIMES_MS) + each for each in (0, 4, 5)}
    assert not [line for line in sink.lines if "backs off" in line]
    sink.close()
