"""Records to rows on a real Spark, against a registry over real HTTP. The same on Connect at the end."""

import datetime as dt
import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from pyspark.sql import DataFrame, SparkSession

from demo.kafka.registry_server import RegistryServer, serve_registry
from gobblin_assets.errors import RejectedError
from gobblin_assets.model.urn import Role
from gobblin_assets.rows.row_quality import split_rows
from gobblin_assets.sources.kafka.decoding import decode, decoded_columns
from gobblin_assets.sources.kafka.part_decoders import find_missing_schema
from gobblin_assets.spark.connect_server import ConnectServer
from tests.support.kafka_records import (
    AT,
    TOPIC,
    avro_bytes,
    client_of,
    framed,
    kafka_frame,
    planned,
    utc,
    view_descriptors,
)
from tests.support.spark import in_child, open_remote

pytestmark = pytest.mark.turns(of=8)

REASON = "gobblin_dead_letter"
VIEW = {
    "type": "record",
    "name": "View",
    "namespace": "shop",
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


def test_bytes_pass_and_everything_of_a_record_can_be_kept(spark: SparkSession) -> None:
    keep = ["headers", "key", "topic", "partition", "offset", "timestamp", "timestamp_type"]
    plan = planned(spark, {"keep": keep, "key": {"format": "string"}})
    frame = decode(kafka_frame(spark, [b"\xff", None], [b"k", None]), plan)
    (first, second) = frame.collect()
    assert first.value == bytearray(b"\xff")
    assert (first.kafka_key, first.kafka_topic, first.kafka_partition, first.kafka_offset) == ("k", TOPIC, 3, 100)
    assert (first.kafka_timestamp, first.kafka_timestamp_type) == (AT, "create_time")
    assert [tuple(each) for each in first.kafka_headers] == [("trace", bytearray(b"\xff"))]
    assert (second.value, second.kafka_key, second.kafka_timestamp_type) == (None, None, "log_append_time")
    assert _reasons(frame) == [None, None]
    assert dict(decoded_columns(lambda: spark, plan)) == {
        "value": "binary",
        "kafka_key": "string",
        "kafka_topic": "string",
        "kafka_partition": "int",
        "kafka_offset": "bigint",
        "kafka_timestamp": "timestamp",
        "kafka_timestamp_type": "string",
        "kafka_headers": "array<struct<key:string,value:binary>>",
    }


@pytest.mark.core
def test_a_dead_letter_keeps_where_it_stood_and_every_byte(spark: SparkSession) -> None:
    plan = planned(spark, {"value": {"format": "string"}, "key": {"format": "string"}, "keep": ["key"]})
    values, keys = [b"ok", b"\xff\xfe", b"ok", None], [b"\x00k", b"a", b"\xff", b"b"]
    frame = decode(kafka_frame(spark, values, keys), plan)
    split = split_rows(frame, [], dataset=TOPIC)
    assert _reasons(frame) == [None, "value: it is not UTF-8", "key: it is not UTF-8", None]
    rows = frame.collect()
    assert [(row.value, row.kafka_key) for row in rows] == [("ok", "\x00k"), (None, None), (None, None), (None, "b")]
    assert rows[0].gobblin_dead_letter_topic is None
    assert rows[0].gobblin_dead_letter_value is None
    bad = rows[1].asDict()
    assert [bad[f"{REASON}_{part}"] for part in ("topic", "partition", "offset", "timestamp", "timestamp_type")] == [
        TOPIC,
        3,
        101,
        AT,
        "log_append_time",
    ]
    assert (bad[f"{REASON}_key"], bad[f"{REASON}_value"]) == (bytearray(b"a"), bytearray(b"\xff\xfe"))
    assert tuple(bad[f"{REASON}_headers"][0]) == ("trace", bytearray(b"\xff"))
    assert split.schemas[Role.DATA].names == ["value", "kafka_key"]
    assert "dead_letter_value" in split.schemas[Role.DEAD_LETTER].names
    # Where headers are not read, there is no column for them.
    without = decode(kafka_frame(spark, values, keys).drop("headers"), plan)
    assert set(frame.columns) - set(without.columns) == {f"{REASON}_headers"}


def test_an_undecodable_key_matters_only_where_it_is_kept(spark: SparkSession) -> None:
    frame = kafka_frame(spark, [b"v"], [b"\xff"])
    spec: dict[str, object] = {"key": {"format": "string"}}
    assert _reasons(decode(frame, planned(spark, {**spec, "keep": ["key"]}))) == ["key: it is not UTF-8"]
    assert _reasons(decode(frame, planned(spark, {**spec, "value": {"format": "string"}}))) == [None]


def test_bytes_have_no_dead_letters_and_need_no_columns_for_them(spark: SparkSession) -> None:
    plan = planned(spark, {"keep": ["key", "offset", "headers"], "on_tombstone": "drop"})
    frame = decode(kafka_frame(spark, [b"\xff", None], [b"\xfe", b"k"]), plan)
    assert frame.columns == ["value", "kafka_key", "kafka_offset", "kafka_headers"]
    assert frame.columns == list(decoded_columns(lambda: spark, plan))
    assert [tuple(row)[:3] for row in frame.collect()] == [(bytearray(b"\xff"), bytearray(b"\xfe"), 100)]


def test_tombstones_are_rows_of_nulls_or_left_out(spark: SparkSession) -> None:
    frame = kafka_frame(spark, [b'{"a":1}', None], [b"1", b"2"])
    spec = {"value": {"format": "json", "schema": "a int"}, "key": {"format": "string"}, "keep": ["key"]}
    assert _rows(decode(frame, planned(spark, spec)), "a", "kafka_key", REASON) == [(1, "1", None), (None, "2", None)]
    dropping = planned(spark, {**spec, "on_tombstone": "drop"})
    assert _rows(decode(frame, dropping), "a", "kafka_key") == [(1, "1")]


JSON_DDL = (
    "a bigint, b string, d decimal(4,2), n struct<x:int,e:decimal(3,1)>, l array<decimal(2,0)>, m map<string,int>"
)


NOT_FITTING = (
    "",
    " ",
    "null",
    "1",
    '"x"',
    "[]",
    '[{"a":1}]',
    '{"a":1} x',
    '{"a":1}{"a":2}',
    '{"a":1},{"a":2}',
    '{"a":1',
    "{'a':1}",
    '{"a":"x"}',
    '{"a":1.5}',
    '{"a":9223372036854775808}',
    '{"n":{"x":"q"}}',
    '{"n":5}',
    '{"m":{"k":"x"}}',
    '{"d":1.005}',
    '{"d":99.999}',
    '{"d":100}',
    '{"n":{"e":0.01}}',
    '{"l":[1,1.5]}',
    '{"d":NaN}',
    '\ufeff{"a":1}',
)


@pytest.mark.core
def test_what_is_not_exactly_one_fitting_json_object_is_a_dead_letter(spark: SparkSession) -> None:
    plan = planned(spark, {"value": {"format": "json", "schema": JSON_DDL}})
    rows = decode(kafka_frame(spark, [text.encode() for text in NOT_FITTING]), plan).collect()
    reasons = {
        "value: it is not one JSON value whose fields fit the schema",
        "value: a number or a time of it is not exact in its column, or beyond it",
    }
    assert [text for text, row in zip(NOT_FITTING, rows, strict=True) if row[REASON] not in reasons] == []
    assert [row[name] for row in rows for name in ("a", "b", "d", "n", "l", "m") if row[name] is not None] == []


@pytest.mark.core
def test_json_that_fits_is_exact_and_what_the_schema_lacks_is_ignored(spark: SparkSession) -> None:
    plan = planned(spark, {"value": {"format": "json", "schema": JSON_DDL}})
    values = [
        b"{}",
        b' {"a": -9223372036854775808, "b": "\xc3\xa9", "d": 12.340, "more": [1]} \n',
        b'{"a": 2, "n": {"x": 1, "e": 1.5}, "l": [1, null], "m": {"k": 3}, "d": null, "more": 1, "more": 2}',
        b'{"b": 12345678901234567890}',
    ]
    frame = decode(kafka_frame(spark, values), plan)
    assert _reasons(frame) == [None] * 4
    rows = frame.collect()
    assert (rows[1].a, rows[1].b, rows[1].d) == (-(2**63), "é", Decimal("12.34"))
    assert (rows[2].a, tuple(rows[2].n), rows[2].l, rows[2].m) == (
        2,
        (1, Decimal("1.5")),
        [Decimal(1), None],
        {"k": 3},
    )
    assert rows[3].b == "12345678901234567890"


def test_bytes_that_are_no_text_are_no_json(spark: SparkSession) -> None:
    plan = planned(spark, {"value": {"format": "json", "schema": "b string"}})
    assert _reasons(decode(kafka_frame(spark, [b'{"b":"\xff"}']), plan)) == ["value: it is not UTF-8"]


def test_a_json_value_that_is_no_record_is_one_column(spark: SparkSession) -> None:
    plan = planned(spark, {"value": {"format": "json", "schema": "array<int>"}})
    frame = decode(kafka_frame(spark, [b"[1,2]", b"null", b'"x"', b"[] []"]), plan)
    assert [(row.value, row[REASON] is None) for row in frame.collect()] == [
        ([1, 2], True),
        (None, True),
        (None, False),
        (None, False),
    ]


def test_a_json_schema_is_inferred_once_and_then_kept(spark: SparkSession) -> None:
    values = [b'{"a": 1, "kafka_offset": 5}', b"oops", None, b'{"b c": [{"x": 1.5}, {"y": "z"}]}']
    spec: dict[str, object] = {"value": {"format": "json"}, "keep": ["offset"]}
    sample = kafka_frame(spark, values)
    first = planned(spark, spec, sample=sample)
    known = dict(decoded_columns(lambda: spark, first))
    assert known == {"a": "bigint", "b c": "array<struct<x:double,y:string>>", "kafka_offset": "bigint"}
    later = planned(spark, spec, known=known)
    assert dict(decoded_columns(lambda: spark, later)) == known
    assert _rows(decode(sample, later), "a", "kafka_offset")[0] == (1, 100)


def test_a_sample_without_json_or_a_schema_that_is_none_is_refused(spark: SparkSession) -> None:
    with pytest.raises(RejectedError, match="no value among the first") as refused:
        planned(spark, {"value": {"format": "json"}}, sample=kafka_frame(spark, [b"x", None]))
    assert refused.value.field == "kafka.value.schema"
    with pytest.raises(RejectedError, match="expected a Spark DDL, found 'a nothing'") as refused:
        planned(spark, {"value": {"format": "json", "schema": "a nothing"}})
    assert refused.value.field == "kafka.value.schema"


def test_a_decoded_field_and_a_kept_column_of_one_name_are_refused(spark: SparkSession) -> None:
    spec: dict[str, object] = {"value": {"format": "json", "schema": "KAFKA_offset int"}, "keep": ["offset"]}
    with pytest.raises(RejectedError, match="'KAFKA_offset' and the kept column 'kafka_offset'") as refused:
        decode(kafka_frame(spark, []), planned(spark, spec))
    assert refused.value.field == "kafka.keep"
    with pytest.raises(RejectedError, match="'KAFKA_offset' and the kept column 'kafka_offset'"):
        decoded_columns(lambda: spark, planned(spark, spec))


@pytest.fixture
def descriptor_file(tmp_path: Path) -> Path:
    path = tmp_path / "view.desc"
    path.write_bytes(view_descriptors())
    return path


@pytest.mark.parametrize(
    "part",
    [
        {"format": "bytes"},
        {"format": "string"},
        {"format": "json", "schema": "array<map<string, int>>"},
        {"format": "json", "schema": "id decimal(9,2), tags array<struct<x: string, `y z`: date>>, at timestamp"},
        {"format": "avro", "framing": "none", "schema": '"long"'},
        {"format": "avro", "framing": "none", "schema": json.dumps(VIEW)},
        {"format": "protobuf", "framing": "none", "message": "shop.View"},
    ],
)
def test_columns_are_planned_as_they_come_out(
    spark: SparkSession, descriptor_file: Path, part: dict[str, object]
) -> None:
    if part["format"] == "protobuf":
        part = {**part, "descriptor_file": str(descriptor_file)}
    plan = planned(spark, {"value": part, "key": part, "keep": ["key", "headers", "timestamp", "timestamp_type"]})
    shown = [field for field in decode(kafka_frame(spark, []), plan).schema.fields if REASON not in field.name]
    assert dict(decoded_columns(lambda: spark, plan)) == {field.name: field.dataType.simpleString() for field in shown}


def _view(**fields: object) -> bytes:
    pool = descriptor_pool.DescriptorPool()
    files = list(descriptor_pb2.FileDescriptorSet.FromString(view_descriptors()).file)
    for file in reversed(files):
        pool.AddSerializedFile(file.SerializeToString())
    content: bytes = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.View"))(
        **fields
    ).SerializeToString()
    return content


def test_protobuf_by_descriptor_framed_and_bare(spark: SparkSession, descriptor_file: Path) -> None:
    whole = _view(
        id=-1,
        big=2**64 - 1,
        name="é",
        raw=b"\xff",
        colour=1,
        items=[{"price": 0.5}],
        counts={"a": 2},
        at=dt.datetime(2013, 1, 31, tzinfo=dt.UTC),
        note={"value": ""},
    )
    spec = {"format": "protobuf", "descriptor_file": str(descriptor_file), "message": "shop.View"}
    bare = planned(spark, {"value": {**spec, "framing": "none"}})
    assert decoded_columns(lambda: spark, bare)["items"] == "array<struct<price:double>>"
    frame = decode(kafka_frame(spark, [whole, b"", b"\x08", b"\x0a\x01x", None]), bare)
    rows = frame.collect()
    assert tuple(rows[0])[:4] == (-1, Decimal(2**64 - 1), "é", bytearray(b"\xff"))
    assert (rows[0].colour, [tuple(each) for each in rows[0]["items"]], rows[0].counts, rows[0].at, rows[0].note) == (
        "RED",
        [(0.5,)],
        {"a": 2},
        utc(2013, 1, 31),
        "",
    )
    assert (rows[1].id, rows[1].name, rows[1].colour, rows[1]["items"], rows[1].at, rows[1].note) == (
        0,
        "",
        "NONE",
        [],
        None,
        None,
    )
    broken = "value: it is no message of shop.View"
    assert [row[REASON] for row in rows] == [None, None, broken, broken, None]
    values = [framed(9, b"\x02\x02" + whole), framed(9, b"\0" + whole), whole, framed(9, b"\x02\x02\x08")]
    reasons = _reasons(decode(kafka_frame(spark, values), planned(spark, {"value": spec})))
    assert reasons == [
        None,
        "value: its message indexes are not those of shop.View in the descriptor",
        "value: it does not begin with a zero and a schema's id",
        broken,
    ]


@pytest.mark.parametrize(
    ("given", "field", "said"),
    [
        ({"message": None}, "message", "Protobuf needs"),
        ({"descriptor_file": "/nowhere/x.desc"}, "descriptor_file", "No such file"),
        ({"message": "shop.Views"}, "message", "Did you mean 'shop.View'?"),
        ({"descriptor_file": "poor"}, "descriptor_file", "lacks google/protobuf/timestamp.proto"),
        ({"descriptor_file": "junk"}, "descriptor_file", "expected a descriptor set"),
    ],
)
def test_a_descriptor_that_can_not_serve_is_refused(
    spark: SparkSession, descriptor_file: Path, tmp_path: Path, given: dict[str, str | None], field: str, said: str
) -> None:
    (tmp_path / "poor").write_bytes(view_descriptors(with_imports=False))
    (tmp_path / "junk").write_bytes(b"syntax = proto3")
    spec = {"format": "protobuf", "descriptor_file": str(descriptor_file), "message": "shop.View", **given}
    if spec["descriptor_file"] in {"poor", "junk"}:
        spec["descriptor_file"] = str(tmp_path / str(spec["descriptor_file"]))
    with pytest.raises(RejectedError) as refused:
        planned(spark, {"value": spec})
    assert refused.value.field == f"kafka.value.{field}"
    assert said in str(refused.value)


def _decode_on_connect(server: ConnectServer, url: str, descriptor_file: str, view: bytes) -> dict[str, object]:
    spark = open_remote(server)
    try:
        avro = planned(spark, {"value": {"format": "avro"}}, registry=client_of(url))
        proto = {"format": "protobuf", "descriptor_file": descriptor_file, "message": "shop.View", "framing": "none"}
        protobuf = planned(spark, {"value": proto})
        values = kafka_frame(spark, [b'{"d": 1.5}', b'{"d": 1.55}'])
        json = planned(spark, {"value": {"format": "json", "schema": "d decimal(2,1)"}, "keep": ["headers"]})
        unknown: int | None = None
        try:
            decode(kafka_frame(spark, [framed(77, b"")]), avro).collect()
        except Exception as error:  # noqa: BLE001  whatever it is, it must be explained
            unknown = find_missing_schema(error)
        return {
            "columns": dict(decoded_columns(lambda: spark, avro)),
            "avro": _rows(
                decode(kafka_frame(spark, [avro_bytes(VIEW, {"id": 1, "page": "/", "country": "it"}, 1), b"x"]), avro),
                "id",
                "country",
                REASON,
            ),
            "json": _rows(decode(values, json), "d", REASON),
            "inferred": dict(
                decoded_columns(lambda: spark, planned(spark, {"value": {"format": "json"}}, sample=values))
            ),
            "protobuf": _rows(decode(kafka_frame(spark, [view, b"\x08"]), protobuf), "id", "name", REASON),
            "unknown": unknown,
        }
    finally:
        spark.stop()


def test_decoding_means_the_same_on_connect(
    connect: ConnectServer, registry: RegistryServer, descriptor_file: Path
) -> None:
    assert registry.register(f"{TOPIC}-value", VIEW) == 1
    found = in_child(_decode_on_connect, connect, registry.url, str(descriptor_file), _view(id=5, name="é"))
    rounded = "a number or a time of it is not exact in its column, or beyond it"
    assert found == {
        "columns": {"id": "double", "page": "string", "country": "string"},
        "avro": [(1.0, "it", None), (None, None, "value: it does not begin with a zero and a schema's id")],
        "json": [(Decimal("1.5"), None), (None, f"value: {rounded}")],
        "inferred": {"d": "double"},
        "protobuf": [(5, "é", None), (None, None, "value: it is no message of shop.View")],
        "unknown": 77,
    }
