"""Kafka's records decoded by Arrow, without Spark: where each record ends, and what its row holds."""

import json
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from pyarrow import json as pyarrow_json
from pyspark.sql import types as t

from gobblin_assets.errors import RejectedError
from gobblin_assets.rows.arrow_types import arrow_schema, schema_to_json
from gobblin_assets.rows.schema_merge import parse_schema
from gobblin_assets.sources.kafka.arrow_decoding import ArrowDecoder, read_ddl
from gobblin_assets.sources.kafka.arrow_json import ArrowJson
from gobblin_assets.sources.kafka.json_values import JsonValues
from gobblin_assets.sources.kafka.kafka_kind import KafkaReadSpec
from tests.support.json_documents import documents
from tests.support.json_oracle import DEAD, expect, same
from tests.support.kafka_batches import arrow_decoder, decode_texts, record_batch
from tests.support.kafka_records import TOPIC

MISFIT = "value: it is not one JSON value whose fields fit the schema"
ROUNDED = "value: a number or a time of it is not exact in its column, or beyond it"
DOUBLED = "value: it has a key twice, or one that differs from a column by case alone"
HALF = "value: it has half of a pair of surrogates"
NO_UTF8 = "value: it is not UTF-8"

DECIMALS = (("e", t.DecimalType(9, 3)), ("i", t.DecimalType(5, 1)), ("b.c", t.DecimalType(38, 18)))
SCHEMAS: tuple[tuple[str, t.StructType], ...] = (
    (
        "i bigint, b boolean, s string, f double",
        t.StructType(
            [
                t.StructField("i", t.LongType()),
                t.StructField("b", t.BooleanType()),
                t.StructField("s", t.StringType()),
                t.StructField("f", t.DoubleType()),
            ]
        ),
    ),
    (
        "e decimal(9,3), i decimal(5,1), `b.c` decimal(38,18)",
        t.StructType([t.StructField(name, kind) for name, kind in DECIMALS]),
    ),
    (
        "i bigint, l array<array<string>>, f array<decimal(5,1)>, n array<bigint>",
        t.StructType(
            [
                t.StructField("i", t.LongType()),
                t.StructField("l", t.ArrayType(t.ArrayType(t.StringType()))),
                t.StructField("f", t.ArrayType(t.DecimalType(5, 1))),
                t.StructField("n", t.ArrayType(t.LongType())),
            ]
        ),
    ),
)


def _json(ddl: str) -> dict[str, object]:
    return {"value": {"format": "json", "schema": ddl}}


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(documents(SCHEMAS))
# A number of 31 digits, which 18 digits more make longer than 128 bits.
@example((SCHEMAS[1][0], ['{"b.c":1}', '{"b.c":7959839966378268994572258057220}', '{"b.c":-2}']))
def test_a_row_holds_exactly_what_was_sent_or_the_record_is_a_dead_letter(drawn: tuple[str, list[str]]) -> None:
    ddl, texts = drawn
    schema = dict(SCHEMAS)[ddl]
    for text, (values, reason) in zip(texts, decode_texts(ddl, texts), strict=True):
        expected = expect(text, schema)
        if expected is DEAD:
            assert reason is not None, (text, values)
            assert values == (None,) * len(values)
        else:
            assert reason is None, (text, reason)
            assert isinstance(expected, tuple)
            assert all(map(same, values, expected)), (text, values, expected)


ODD_NUMBERS = (
    *("381888324271978979972", "-623234677734612947711217495", "795983996637826899457225805722", "9" * 38, "9" * 39),
    *("61730326038041e9", "740507024048228444353085924348e6", "1e19", "1e20", "9e19", "7e30", "1e29"),
    *("0e-29", "0e-30", "0e-130", "0e-0000031", "-0e-400", "0E+99999", "1e-31", "1e-400"),
    *(
        f"0.{'0' * 37}",
        f"0.{'0' * 39}",
        f"-0.{'0' * 90}",
        f"0.{'0' * 90}1",
        f"5.{'0' * 80}",
        f"1{'0' * 19}.5{'0' * 60}",
    ),
)


@pytest.mark.parametrize("scale", [0, 1, 18, 30, 38])
def test_a_decimal_is_the_number_that_was_sent_or_the_record_is_a_dead_letter(scale: int) -> None:
    kind = t.DecimalType(38, scale)
    schema = t.StructType([t.StructField("d", kind), t.StructField("l", t.ArrayType(kind))])
    numbers = [*ODD_NUMBERS, *(f'"{number}"' for number in ODD_NUMBERS)]
    texts = [text for number in numbers for text in (f'{{"d":{number}}}', f'{{"l":[1e-1,{number}]}}', '{"d":0.5}')]
    found = decode_texts(f"d {kind.simpleString()}, l array<{kind.simpleString()}>", texts)
    for text, (values, reason) in zip(texts, found, strict=True):
        expected = expect(text, schema)
        assert (reason is None) is (expected is not DEAD), (text, values, reason)
        if isinstance(expected, tuple):
            assert all(map(same, values, expected)), (text, values, expected)


def test_numbers_beyond_arrows_table_of_powers_are_not_given_to_arrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its reader ends the process at some of them."""
    given: list[bytes] = []
    read_json = pyarrow_json.read_json

    def read(source: pa.BufferReader, **options: Any) -> pa.Table:
        given.append(source.read())
        source.seek(0)
        return read_json(source, **options)

    monkeypatch.setattr(pyarrow_json, "read_json", read)
    far = ["0e-2147483647", "0E-000100", "1e-30", "5e+30", f"0.{'0' * 39}"]
    near = '{"d":[1e-18],"f":1e29}'
    found = decode_texts("d array<decimal(38,18)>, f double", [near, *(f'{{"d":[{each}]}}' for each in far)])
    assert given == [near.encode()]
    assert [reason for _values, reason in found] == [None, ROUNDED, None, ROUNDED, MISFIT, None]


CLEAN: tuple[tuple[str, Sequence[str], tuple[Any, ...]], ...] = (
    ("i bigint, s string, b boolean", ['{"i":1,"s":"\\u00e9","b":true}'] * 3, (1, "é", True)),
    ("i bigint", ['{"I2":[{"i":2}],"i":1}', ' {"x":null}\n', '{"i":\n1}'], (1,)),
    ("e decimal(9,2)", ['{"e":1.50}', '{"e":-0.1}', '{"e":7}'], (Decimal("1.50"),)),
    ("e decimal(9,2)", ['{"e":"1.50"}', '{"e":null}', '{"e":"-7"}'], (Decimal("1.50"),)),
    ("l array<decimal(3,1)>", ['{"l":["1.5",null]}', '{"l":[]}'], ([Decimal("1.5"), None],)),
    ("f double, l array<float>", ['{"f":1,"l":[0.5]}', '{"f":-0.5}'], (1.0, [0.5])),
)


@pytest.mark.parametrize(("ddl", "texts", "first"), CLEAN)
def test_records_of_the_usual_form_are_left_to_arrow(
    monkeypatch: pytest.MonkeyPatch, ddl: str, texts: Sequence[str], first: tuple[Any, ...]
) -> None:
    monkeypatch.delattr(JsonValues, "read")
    found = decode_texts(ddl, texts)
    assert [reason for _values, reason in found] == [None] * len(texts)
    assert found[0][0] == first


@pytest.mark.parametrize(
    "times", [["2024-02-29T01:02:03.5Z", "1999-12-31T23:59:59+01:30", "2024-01-31 00:00:00"], [5, -1]]
)
def test_usual_times_are_left_to_arrow(monkeypatch: pytest.MonkeyPatch, times: list[object]) -> None:
    monkeypatch.delattr(JsonValues, "read")
    decoder = arrow_decoder(_json("t timestamp"))
    texts = [json.dumps({"t": each}).encode() for each in times]
    rows = decoder.decode(record_batch(texts)).rows
    micros = rows["t"].cast(pa.int64()).to_pylist()
    of_texts = [1_709_168_523_500_000, 946_679_399_000_000, 1_706_659_200_000_000]
    assert micros == (of_texts if len(times) == 3 else [5_000_000, -1_000_000])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"v":1}{"v":2}', MISFIT),
        ('{"v":1} null {"v":2}', MISFIT),
        ("{} null {}", MISFIT),
        ("null", MISFIT),
        ("", MISFIT),
        ('{"v":"}', MISFIT),
        ('{"v":1.0}', MISFIT),
        ('{"x":NaN}', MISFIT),
        ('{"v":9223372036854775808}', MISFIT),
        ('{"e":100}', MISFIT),
        ('{"e":1.999}', ROUNDED),
        ('{"f":1e400}', ROUNDED),
        ('{"v":1,"v":2}', DOUBLED),
        ('{"V":1}', DOUBLED),
        ('{"\\u0056":1}', DOUBLED),
        ('{"\u017f":1}', DOUBLED),
        ('{"x":"\\ud800"}', HALF),
        ('{"x":' + "[" * 1_000 + "]" * 1_000 + "}", MISFIT),
        (b'{"v":"\xff"}', NO_UTF8),
    ],
)
def test_one_bad_record_is_a_dead_letter_among_good_ones(text: str | bytes, reason: str) -> None:
    ddl = "v bigint, e decimal(4,2), f double, s string"
    good = ['{"v":1}', '{"v":2,"s":"}"}', '{","v":1}', '{"x":1,"v":3}'] * 20
    good.remove('{","v":1}')
    found = decode_texts(ddl, [*good, text, *good])
    assert found[len(good)] == ((None,) * 4, reason)
    for texts, part in ((good, found[: len(good)]), (good, found[len(good) + 1 :])):
        assert [values[0] for values, why in part if why is None] == [
            json.loads(each)["v"] for each in texts if each != '{","v":1}'
        ]


def test_two_records_that_would_be_one_together_stay_two() -> None:
    assert [reason for _values, reason in decode_texts("v string", ['{"v":"}', '{","x":1}', '{"v":"a"}'])] == [
        MISFIT,
        MISFIT,
        None,
    ]


def test_most_records_can_be_bad() -> None:
    texts = ['{"v":"x"}', '{"v":1.5}', '{"v":7}'] * 1_000
    decoder = arrow_decoder(_json("v int"))
    for _batch in range(3):
        decoded = decoder.decode(record_batch([text.encode() for text in texts]))
        assert decoded.rows["v"].to_pylist() == [7] * 1_000
        assert decoded.dead_letters.num_rows == 2_000


def test_both_ways_to_read_json_agree_on_order_and_reasons() -> None:
    texts = [b'{"v":1}', b"x", b'{"v":1.5}', b' {"v":2}', b"{}", b'{"V":1}', b"\xff"] * 30
    contents = pa.array(texts, pa.binary())
    fast = ArrowJson(["v"], [pa.int64()]).read(contents)
    slow = JsonValues(["v"], [pa.int64()]).read_all(contents)
    assert fast.columns == slow.columns
    assert fast.reasons is not None
    assert fast.reasons == slow.reasons


def test_a_letter_has_the_record_and_what_is_kept_but_nothing_decoded() -> None:
    keep = ["headers", "key", "topic", "partition", "offset", "timestamp", "timestamp_type"]
    spec = {**_json("v bigint"), "key": {"format": "string"}, "keep": keep, "on_tombstone": "drop"}
    batch = record_batch([b'{"v":1}', b"{}x", None, b'{"v":2}'], [b"a", b"b", b"c", b"\xff"])
    decoded = arrow_decoder(spec).decode(batch)
    assert (decoded.left_out, decoded.rows.num_rows, decoded.dead_letters.num_rows) == (1, 1, 2)
    assert decoded.rows.to_pylist()[0] == {
        "v": 1,
        "kafka_key": "a",
        "kafka_topic": TOPIC,
        "kafka_partition": 3,
        "kafka_offset": 100,
        "kafka_timestamp": batch["timestamp"][0].as_py(),
        "kafka_timestamp_type": "create_time",
        "kafka_headers": [{"key": "trace", "value": b"\xff"}],
    }
    first, second = decoded.dead_letters.to_pylist()
    assert (first["v"], first["kafka_key"], first["kafka_offset"]) == (None, None, 101)
    assert (first["dead_letter_reason"], first["dead_letter_offset"]) == (MISFIT, 101)
    assert (first["dead_letter_key"], first["dead_letter_value"]) == (b"b", b"{}x")
    assert first["dead_letter_headers"] == [{"key": "trace", "value": b"\xff"}]
    assert (second["v"], second["kafka_key"]) == (None, None)
    assert (second["dead_letter_reason"], second["dead_letter_value"]) == ("key: it is not UTF-8", b'{"v":2}')


def test_tombstones_are_rows_of_nulls_where_they_are_kept() -> None:
    decoded = arrow_decoder({**_json("v bigint"), "keep": ["offset"]}).decode(
        record_batch([None, b'{"v":1}', b"x", None])
    )
    assert [tuple(row.values()) for row in decoded.rows.to_pylist()] == [(None, 100), (1, 101), (None, 103)]
    assert (decoded.dead_letters.num_rows, decoded.left_out) == (1, 0)


def test_bytes_have_no_dead_letters_and_a_record_without_a_time_has_none() -> None:
    decoder = arrow_decoder({"keep": ["key", "timestamp", "timestamp_type"]})
    batch = record_batch([b"\xff", None], [b"\xfe", None])
    times = pa.array([-1_000, 0], pa.timestamp("us", "UTC"))
    batch = batch.set_column(5, "timestamp", times).set_column(6, "timestampType", pa.array([-1, 0], pa.int32()))
    decoded = decoder.decode(batch)
    assert not decoder.can_have_dead_letters
    assert [tuple(row.values())[:2] for row in decoded.rows.to_pylist()] == [(b"\xff", b"\xfe"), (None, None)]
    assert decoded.rows["kafka_timestamp"].cast(pa.int64()).to_pylist() == [None, 0]
    assert decoded.rows["kafka_timestamp_type"].to_pylist() == [None, "create_time"]


def test_no_record_gives_no_row() -> None:
    for spec in ({}, {"value": {"format": "string"}}, _json("a int, b array<string>"), _json("array<int>")):
        decoder = arrow_decoder({**spec, "keep": ["headers", "key"]})
        decoded = decoder.decode(record_batch([]))
        assert (decoded.rows.schema, decoded.rows.num_rows) == (decoder.schema, 0)
        assert (decoded.dead_letters.schema, decoded.dead_letters.num_rows) == (decoder.dead_letter_schema, 0)


@pytest.mark.parametrize(
    ("dataset", "need"),
    [
        ({}, None),
        ({"kafka": {"value": {"format": "string"}, "key": {"format": "avro"}}}, None),
        ({"kafka": _json("a int, `b c` array<decimal(3,1)>")}, None),
        ({"kafka": {"key": {"format": "json", "schema": "array<int>"}, "keep": ["key"]}}, None),
        ({"kafka": {"value": {"format": "avro"}}}, "kafka.value.format"),
        ({"kafka": {"value": {"format": "protobuf"}}}, "kafka.value.format"),
        ({"kafka": {"value": {"format": "json"}}}, "kafka.value.schema"),
        ({"kafka": {"key": {"format": "avro"}, "keep": ["key"]}}, "kafka.key.format"),
        ({"kafka": {"key": {"format": "json", "schema": "a int"}, "keep": ["key"]}}, "kafka.key.schema"),
        *[
            ({"kafka": _json(ddl)}, "kafka.value.schema")
            for ddl in (
                *("a struct<b: int>", "a map<string,int>", "a binary", "a variant", "a int not null"),
                *(
                    "a int comment 'x'",
                    "a int, A int",
                    "a",
                    "",
                    "a decimal(39,0)",
                    "a decimal(2,3)",
                    "a array<int",
                    "int",
                ),
                *("a: int", "array<int>, b int", "a int,", "1a int", "é int", "a nothing"),
            )
        ],
    ],
)
def test_what_needs_spark_is_named(dataset: dict[str, object], need: str | None) -> None:
    read = KafkaReadSpec.model_validate(dataset.get("kafka", {}))
    if need is None:
        assert ArrowDecoder(read, TOPIC).columns
        return
    with pytest.raises(RejectedError, match="only Spark decodes this") as refused:
        ArrowDecoder(read, TOPIC)
    assert refused.value.field == need


def test_a_field_with_the_name_of_a_kept_column_is_refused() -> None:
    with pytest.raises(RejectedError, match="'KAFKA_offset' and the kept column 'kafka_offset'") as refused:
        arrow_decoder({**_json("KAFKA_offset int"), "keep": ["offset"]})
    assert refused.value.field == "kafka.keep"


def test_a_ddl_gives_the_names_of_sparks_types() -> None:
    found = read_ddl(" `a``b` LONG,c dec ( 5 , 2 ) , d array < array<timestamp_ltz> >,e numeric")
    assert found is not None
    assert found.columns == (
        ("a`b", "bigint"),
        ("c", "decimal(5,2)"),
        ("d", "array<array<timestamp>>"),
        ("e", "decimal(10,0)"),
    )


def test_files_can_be_made_of_all_columns_that_records_give() -> None:
    read = KafkaReadSpec.model_validate(
        {
            "value": {"format": "json", "schema": "a int, b array<decimal(3,1)>"},
            "keep": ["topic", "key", "headers", "partition", "offset", "timestamp", "timestamp_type"],
        }
    )
    decoder = ArrowDecoder(read, TOPIC)

    for columns, schema in (
        (decoder.columns, decoder.schema),
        (decoder.dead_letter_columns, decoder.dead_letter_schema),
    ):
        assert arrow_schema(columns) == schema
        named = ",".join(f"{name}:{kind}" for name, kind in columns)
        assert parse_schema(schema_to_json(columns)).simpleString() == f"struct<{named}>"


@pytest.mark.parametrize(
    ("spec", "needs"),
    [
        ({"value": {"format": "bytes"}, "keep": ["key", "topic", "partition", "offset", "headers"]}, False),
        ({"value": {"format": "bytes"}, "keep": ["timestamp"]}, True),
        ({"value": {"format": "bytes"}, "keep": ["timestamp_type"]}, True),
        # A dead letter has them.
        ({"value": {"format": "string"}}, True),
    ],
)
def test_times_that_nothing_needs_need_not_be_read(spec: dict[str, object], needs: bool) -> None:
    decoder, records = arrow_decoder(spec), record_batch([b"a", b"\xff"])
    blank = {"timestamp": pa.nulls(2, pa.timestamp("us", "UTC")), "timestampType": pa.nulls(2, pa.int32())}
    without = pa.RecordBatch.from_pydict({name: blank.get(name, records[name]) for name in records.schema.names})
    whole, blanked = decoder.decode(records), decoder.decode(without)
    assert decoder.needs_times is needs
    assert (whole.rows.equals(blanked.rows) and whole.dead_letters.equals(blanked.dead_letters)) is not needs


class FailsAt:
    """A part of the decoder at which a library fails, whatever the other records of the batch are."""

    def __init__(self, part: Any, content: bytes) -> None:
        self._part = part
        self._content = content
        self.columns = part.columns
        self.can_fail = part.can_fail

    def decode(self, values: pa.Array) -> Any:
        if self._content in values.to_pylist():
            raise OverflowError("date value out of range")
        return self._part.decode(values)


@pytest.mark.parametrize("place", [0, 4, 8])
def test_a_record_at_which_a_library_fails_is_a_dead_letter_and_the_others_are_rows(place: int) -> None:
    decoder = arrow_decoder({**_json("i bigint"), "keep": ["offset", "timestamp", "headers"], "on_tombstone": "drop"})
    decoder._value = FailsAt(decoder._value, b"boom")
    contents: list[bytes | None] = [b'{"i": %d}' % number for number in range(9)]
    contents[place] = b"boom"
    contents.insert(3, None)
    offset = 100 + contents.index(b"boom")

    decoded = decoder.decode(record_batch(contents))

    assert decoded.rows["i"].to_pylist() == [number for number in range(9) if number != place]
    (letter,) = decoded.dead_letters.to_pylist()
    assert letter["dead_letter_reason"] == "unexpected OverflowError: date value out of range"
    assert (letter["i"], letter["kafka_offset"], letter["dead_letter_offset"]) == (None, offset, offset)
    assert letter["dead_letter_value"] == b"boom"
    assert decoded.left_out == 1
    assert decoded.rows.schema == decoder.schema


def test_a_failure_that_is_of_no_record_is_no_dead_letter() -> None:
    decoder = arrow_decoder(_json("i bigint"))

    class Away:
        columns, can_fail = decoder._value.columns, True

        def decode(self, values: pa.Array) -> Any:
            raise ConnectionError(f"no registry for {len(values)} values")

    decoder._value = Away()
    with pytest.raises(ConnectionError):
        decoder.decode(record_batch([b'{"i": 1}']))
