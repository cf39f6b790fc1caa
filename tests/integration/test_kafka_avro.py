"""Avro in Confluent's wire format to rows, on a real Spark against a registry over real HTTP."""

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from demo.kafka.registry_server import RegistryServer, serve_registry
from gobblin_assets.errors import RejectedError
from gobblin_assets.sources.kafka.decoding import decode, decoded_columns
from gobblin_assets.sources.kafka.decoding_plan import learn_schemas
from gobblin_assets.sources.kafka.part_decoders import find_missing_schema
from tests.support.kafka_records import TOPIC, avro_bytes, client_of, framed, kafka_frame, planned, utc

pytestmark = pytest.mark.turns(of=8)

REASON = "gobblin_dead_letter"
VIEW_1 = {
    "type": "record",
    "name": "View",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "gone", "type": "string"},
        {"name": "page", "type": ["null", "string"], "default": None},
    ],
}
VIEW_2 = {
    **VIEW_1,
    "fields": [
        {"name": "id", "type": "double"},
        {"name": "page", "type": ["null", "string"], "default": None},
        {"name": "country", "type": "string", "default": "??"},
    ],
}


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    with serve_registry() as server:
        yield server


def _rows(frame: DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in frame.select(*columns).collect()]


def _reasons(frame: DataFrame) -> list[str | None]:
    return [row[0] for row in frame.select(REASON).collect()]


@pytest.mark.core
def test_avro_is_read_by_each_writers_schema_and_resolved_to_the_newest(
    spark: SparkSession, registry: RegistryServer
) -> None:
    subject = f"{TOPIC}-value"
    first, second = registry.register(subject, VIEW_1), registry.register(subject, VIEW_2)
    values = [
        avro_bytes(VIEW_1, {"id": 7, "gone": "x", "page": None}, first),
        avro_bytes(VIEW_2, {"id": 0.5, "page": "/", "country": "fr"}, second),
        None,
        framed(second, b"\x01"),
        avro_bytes(VIEW_2, {"id": 0.5, "page": "/", "country": "fr"}, second) + b"\0",
        b"\0\0\0",
        b'{"id":1}',
        b"",
    ]
    plan = planned(spark, {"value": {"format": "avro"}}, registry=client_of(registry.url))
    frame = decode(kafka_frame(spark, values), plan)
    assert dict(decoded_columns(lambda: spark, plan)) == {"id": "double", "page": "string", "country": "string"}
    assert _rows(frame, "id", "page", "country")[:4] == [
        (7.0, None, "??"),
        (0.5, "/", "fr"),
        (None, None, None),
        (None, None, None),
    ]
    broken = (
        f"value: it names Avro schema {second}, and is not exactly one record of it, or does not resolve to the "
        f"reader's schema of {subject}"
    )
    unframed = "value: it does not begin with a zero and a schema's id"
    assert _reasons(frame) == [None, None, None, broken, broken, unframed, unframed, unframed]
    assert len(registry.requests) == 3


def test_an_all_null_record_is_told_from_one_that_failed(spark: SparkSession, registry: RegistryServer) -> None:
    schema = {"type": "record", "name": "N", "fields": [{"name": "a", "type": ["null", "long"]}]}
    schema_id = registry.register(f"{TOPIC}-value", schema)
    plan = planned(spark, {"value": {"format": "avro"}}, registry=client_of(registry.url))
    frame = decode(kafka_frame(spark, [avro_bytes(schema, {"a": None}, schema_id), framed(schema_id, b"\x02")]), plan)
    assert [(row.a, row[REASON] is None) for row in frame.collect()] == [(None, True), (None, False)]


def test_a_record_is_decoded_once_whatever_looks_at_its_columns(
    spark: SparkSession, registry: RegistryServer, capsys: pytest.CaptureFixture[str]
) -> None:
    registry.register(f"{TOPIC}-value", VIEW_2)
    plan = planned(spark, {"value": {"format": "avro"}}, registry=client_of(registry.url))
    decode(kafka_frame(spark, [b"x"]), plan).where(f"{REASON} IS NOT NULL OR id > 0 AND country <> 'it'").explain()
    assert capsys.readouterr().out.count("from_avro") == 1


def test_a_schema_of_another_subject_is_learned_and_an_absent_one_makes_dead_letters(
    spark: SparkSession, registry: RegistryServer
) -> None:
    known = registry.register(f"{TOPIC}-value", VIEW_2)
    other = registry.register("elsewhere", VIEW_1)
    values = [
        avro_bytes(VIEW_2, {"id": 1.0, "page": None, "country": "it"}, known),
        avro_bytes(VIEW_1, {"id": 2, "gone": "", "page": None}, other),
        framed(4_000_000_000, b"\x02"),
    ]
    client = client_of(registry.url)
    plan = planned(spark, {"value": {"format": "avro"}}, registry=client)
    raw = kafka_frame(spark, values)
    with pytest.raises(Exception, match="gobblin:kafka_schema_id") as failed:
        decode(raw, plan).collect()
    assert find_missing_schema(failed.value) in {other, 4_000_000_000}
    learned = decode(raw, learn_schemas(plan, raw, client))
    assert _rows(learned, "id", "country", REASON) == [
        (1.0, "it", None),
        (2.0, "??", None),
        (None, None, "value: the registry has no schema 4000000000"),
    ]


def test_avro_types_references_and_unions_become_columns(spark: SparkSession, registry: RegistryServer) -> None:
    money = {"type": "record", "name": "Money", "namespace": "a.b", "fields": [
        {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 3}},
        {"name": "currency", "type": {"type": "enum", "name": "Currency", "symbols": ["EUR", "USD"]}},
    ]}  # fmt: skip
    registry.register("money", money)
    order = {"type": "record", "name": "Order", "namespace": "shop", "fields": [
        {"name": "price", "type": "a.b.Money"},
        {"name": "rebate", "type": ["null", "a.b.Money"]},
        {"name": "in", "type": "a.b.Currency"},
        {"name": "ms", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "us", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "uuid", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "tags", "type": {"type": "map", "values": {"type": "array", "items": "int"}}},
        {"name": "either", "type": ["string", "long"]},
    ]}  # fmt: skip
    schema_id = registry.register(f"{TOPIC}-value", order, references=[("a.b.Money", "money", 1)])
    plan = planned(spark, {"value": {"format": "avro"}}, registry=client_of(registry.url))
    assert decoded_columns(lambda: spark, plan)["price"] == "struct<amount:decimal(20,3),currency:string>"
    assert decoded_columns(lambda: spark, plan)["either"] == "struct<member_string:string,member_long:bigint>"
    whole = {**order, "fields": [{"name": "price", "type": money}, *order["fields"][1:]]}  # type: ignore[index,misc]  # JSON
    old = dt.date(1066, 10, 14)
    value = {
        "price": {"amount": Decimal("12345678901234567.891"), "currency": "EUR"},
        "rebate": None,
        "in": "USD",
        "ms": dt.datetime(2013, 1, 31, 0, 0, 0, 5000, dt.UTC),
        "us": dt.datetime(2013, 1, 31, 0, 0, 0, 7, dt.UTC),
        "local": utc(2013, 1, 31, 1),
        "day": old,
        "uuid": "6b2b5a4e-95a4-4d4f-9a54-7a2f5c1f0f11",
        "tags": {"x": [1, 2]},
        "either": 5,
    }
    frame = decode(kafka_frame(spark, [avro_bytes(whole, value, schema_id)]), plan)
    (row,) = frame.collect()
    assert row[REASON] is None
    assert tuple(row.price) == (Decimal("12345678901234567.891"), "EUR")
    assert (row.rebate, row["in"], row.ms, row.us) == (
        None,
        "USD",
        utc(2013, 1, 31, microsecond=5000),
        utc(2013, 1, 31, microsecond=7),
    )
    assert (row.local, row.day, row.tags, tuple(row.either)) == (
        utc(2013, 1, 31, 1),
        old,
        {"x": [1, 2]},
        (None, 5),
    )


def test_avro_without_framing_with_a_readers_schema_and_values_that_are_no_records(
    spark: SparkSession, registry: RegistryServer
) -> None:
    bare = planned(spark, {"value": {"format": "avro", "framing": "none", "schema": '"long"'}})
    frame = decode(kafka_frame(spark, [avro_bytes("long", 5), b"\x80", avro_bytes("long", 5) + b"x"]), bare)
    broken = "value: it is not exactly one record of the Avro schema"
    assert _rows(frame, "value", REASON) == [(5, None), (None, broken), (None, broken)]
    schema_id = registry.register("views", VIEW_1)
    narrow = '{"type":"record","name":"View","namespace":"shop","fields":[{"name":"id","type":"long"}]}'
    spec: dict[str, object] = {"value": {"format": "avro", "subject": "views", "schema": narrow}}
    chosen = planned(spark, spec, registry=client_of(registry.url))
    frame = decode(kafka_frame(spark, [avro_bytes(VIEW_1, {"id": 3, "gone": "", "page": None}, schema_id)]), chosen)
    assert _rows(frame, "id", REASON) == [(3, None)]
    assert list(decoded_columns(lambda: spark, chosen)) == ["id"]


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("{", "version 1 of subject 'page views-value' is broken: it is not JSON"),
        ({"type": "record", "name": "R"}, "the record 'R' has no list of fields"),
        ({"type": "record", "name": "R", "fields": [{"name": "a", "type": "x.Y"}]}, "'x.Y' is defined nowhere"),
        ({"type": "record", "name": "R", "fields": [{"name": "a b", "type": "int"}]}, "in: a b"),
        ({"type": "record", "name": "R", "fields": [{"name": "a", "type": ["null", "R"]}]}, "'R' holds itself"),
    ],
)  # fmt: skip
def test_a_broken_avro_schema_is_refused_when_it_is_planned(
    spark: SparkSession, registry: RegistryServer, schema: object, said: str
) -> None:
    registry.register(f"{TOPIC}-value", schema)
    with pytest.raises(RejectedError) as refused:
        planned(spark, {"value": {"format": "avro"}}, registry=client_of(registry.url))
    assert said in refused.value.message
    assert refused.value.field.startswith("kafka.value.")


def test_a_subject_that_is_unknown_or_of_another_format_is_refused(
    spark: SparkSession, registry: RegistryServer
) -> None:
    client = client_of(registry.url)
    with pytest.raises(RejectedError, match="has no subject 'page views-value'") as refused:
        planned(spark, {"value": {"format": "avro"}}, registry=client)
    assert refused.value.field == "kafka.value.subject"
    registry.register("other", 'syntax = "proto3";', type_="PROTOBUF")
    with pytest.raises(RejectedError, match="version 1 of subject 'other' is a PROTOBUF schema"):
        planned(spark, {"value": {"format": "avro", "subject": "other"}}, registry=client)
    with pytest.raises(RejectedError, match="needs a schema registry"):
        planned(spark, {"value": {"format": "avro"}})
