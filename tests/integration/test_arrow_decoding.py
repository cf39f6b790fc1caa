"""The decoding by Arrow gives what Spark's decoding gives, for odd records too: rows, dead letters and reasons.

One batch of records for each schema goes through both.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyarrow import compute as pc
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t

from gobblin_assets.model.urn import Role
from gobblin_assets.rows.columns import named
from gobblin_assets.rows.hidden_columns import ROLE_COLUMN
from gobblin_assets.rows.row_quality import split_rows
from gobblin_assets.sources.kafka.decoding import decode, decoded_columns
from tests.integration.test_kafka_decoding import NOT_FITTING
from tests.integration.test_kafka_json_exactness import EDGES
from tests.support.json_documents import documents
from tests.support.kafka_batches import arrow_decoder, record_batch
from tests.support.kafka_records import TOPIC, kafka_frame, planned

pytestmark = pytest.mark.turns(of=8)

MOMENTS = (
    "2020-01-01T10:30Z", "2020-01-01T10:30", "2020-01-01T10:30+01:00", "2020-01-01 10:30:00 Europe/Paris",
    "2020-01-01T10:30:00+1", "2020-01-01T10:30:00+1:0", "2020-01-01T10:30:00+01", "2020-01-01T10:30:00+0100",
    "2020-01-01T10:30:00+19:00", "2020-01-01T10:30:00PST", "2020-01-01T10:30:00UTC+1", "2020-01-01T10:30:00z",
    "2020-01-01T10:30:00.Z", "2020-01-01T10:30:00.", "2020-02-30", "2019-02-29", "2000-02-29", "0000-01-01",
    "-0001-01-01", "+2020-01-01", "2020-1-1", "2020-01-01T1:2:3", "2020-01-01T24:00:00", "2020-01-01T10:60:00",
    "2020-01-01T10:30:60", "1000000-01-01", "294247-01-10T04:00:54.775807Z", "294247-01-10T04:00:54.775808Z",
    "2020-01-01\\n", "2020-01-01 ", "10:30", "T10:30", "2020", "2020-01", "2020-01-01T", "2020-01-01Tabc",
    "2020-03-29T02:30:00 Europe/Paris", "2020-10-25T02:30:00 Europe/Paris", "2020-01-01T10:30:00.1234567",
    "2020-01-01T10:30:00.1234560", "2020-01-01T10:30:00 +01:00", "2020-01-01T10:30:00-18:00",
    "2020-01-01T10:30:00+01:00:00", "2020-01-01T10:30:00EST", "2020-01-01T10:30:00Etc/GMT+5",
    "2020-01-01T10:30:00GMT0", "2020-01-01T10:30:00UT", "", " ", "x", "12345-06-07T01:02:03Z",
    "12345-07-01T10:30:00 Europe/Paris", "0001-01-01T00:00:00Z", "0001-07-01T00:00:00America/New_York", "2020-00-01",
    "2020-01-00", "2020-01-01T10:30:00-1:5", "2020-01-01T10:30:00.5 UTC", "2020-01-01T10:30:00+", "2020-01-01T10",
    "2020-01-01T10:30:00.123456Z", "1969-12-31T23:59:59.999999-00:30", "2020-01-01 junk",
    "2020-01-01T10:30:00posix/UTC",
    "\\u0032020-01-01", "2020-04-31", "2020-12-31T23:59:59+17:59", "1900-02-29", "2024-02-29T00:00:00Z",
    "5881580-07-11", "5881580-07-12", "-5877641-06-23", "-5877641-06-22",
)  # fmt: skip
NUMBERS = (
    "1", "-0", "0", "-0.0", "1.0", "1e0", "1.5", "01", "+1", ".5", "1.", "1e", "NaN", "Infinity", "-Infinity", "true",
    "-INF", '"Infinity"', '"-Infinity"', '"+Infinity"', '"+INF"', '"-INF"', '"INF"', '"inf"', '"nan"', '"\\u004eaN"',
    "[]", "{}", "null", '"1"', '"NaN"', '""', '"1,5"', '" 1"', '"\u0661"', '"1e5"', '"0e-400"', '"."', '"1.50"',
    "1e400", "-1e400", "1e-400", "0e400", "1e1000000000", "99.994", "99.995", "99.99", "100", "1.999", "1.990", "15e-2",
    "15e-3", "127", "128", "255", "-128", "-129", "-32768", "32768", "2147483647", "2147483648",
    "9223372036854775807", "9223372036854775808",
    "-9223372036854775808", "-9223372036854775809", "16777217", "9007199254740993", "1.00000005960464477540",
    "3.4028235e38", "3.4028236e38", "1e-50", "0.1", "9223372036854", "9223372036855", "-9223372036855", "99999999999",
    "12345678901234567890123456789012345678", "123456789012345678901234567890123456789", "0.00000000000000000001",
    "1" * 1_000, "1" * 1_001, "0." + "1" * 999, "1." + "0" * 999, "1." + "0" * 1_000,
)  # fmt: skip
NAMES = (
    '{"v":1,"v":2}', '{"v":null,"v":1}', '{"v":1,"V":2}', '{"V":1}', '{"\\u0056":1}', '{"\\u0076":1}', '{"x":1,"v":2}',
    '{"x":{"V":1},"v":2}', '{"x":1,"x":2}', '{"v":"a\\"V\\":","x":1}', '{"x":NaN}', '{"x":"NaN","v":1}', '{"x":"Inf"}',
    '{"x":"\\ud800"}', '{"x":"\\ude00\\ud800"}', '{"x":"\\ud83d\\ude00","v":1}', '{"v":"\\ud800"}', '{"v":"\\u0000"}',
    '{"v":"\\u00e9\\/\\u001f"}', '{"v":{"a":"\\u0001\\u001f\\b\\/ \\u007f","b":[1.50,-0,1E5]}}', '{"v":{"a":1,"a":2}}',
    "{} null {}", '{"v":1} null', "null", "null {}", "", " ", "}", "{", "{}{}", '{"v":1}{"v":2}', '{"v":"}',
    '{","v":1}', '{"v":{"v":1}', ',"v":1}', '{"v":1}\n', '\t{"v":1} \r\n', '{\n"v"\n:\n1}', '{"v":"a\nb"}',
    '{"v":"a\tb"}', '{"v":1,}', "{'v':1}", '{"v":1}/**/', '\ufeff{"v":1}', '{"v":tru}', '{"v":"\\x"}', "[]", "1",
    '{"v":"\\u12g4"}', '{"":1}', '{"\u017f":1,"\u212a":2,"v":1}', '{"x":"}x","v":3}', '{"x":"} null","v":3}',
    '{"v":"\x7f\x85\u2028"}', '{"v":["\\ud83d\\ude00 \U0001f600",{"\U0001f600":1}]}',
    *(f'{{"x":{"[" * depth}1{"]" * depth}}}' for depth in (999, 1_000)), f'{{"v":{"[" * 990}1{"]" * 990}}}',
    *(f'{{"{"k" * length}":1}}' for length in (50_000, 50_001)), f'{{"{"[" * 2_000}":1,"v":2}}',
)  # fmt: skip
NOT_UTF8 = (b'{"v":"\xff"}', b'{"v":"\xed\xa0\x80"}', b'{"v":"\xc0\x80"}', b'\xff{"v":1}', b"\xff", b'{"x":"\xf5"}')
FUZZED = (
    "i bigint, b boolean, s string, f double",
    "i int, l array<string>, f float, s smallint",
    "e decimal(9,3), i decimal(38,18), f decimal(4,2), `b.c` decimal(6,0), l array<decimal(5,1)>",
    "s timestamp, e date, i timestamp_ntz, l array<timestamp>, m array<date>",
)
EDGES_OF_RECORDS = ("i bigint, s string", "e decimal(4,2)", "`a/b` decimal(4,2)")


def _from_spark(
    spark: SparkSession, spec: dict[str, object], values: Sequence[bytes | None], keys: Sequence[bytes | None] = ()
) -> tuple[pa.Table, pa.Table]:
    """Rows and dead letters as ``split_rows`` publishes them."""
    plan = planned(spark, spec)
    frame = kafka_frame(spark, values, keys)
    if "headers" not in plan.keep:
        frame = frame.drop("headers")
    split = split_rows(decode(frame, plan), [], dataset=TOPIC)
    if ROLE_COLUMN not in split.frame.columns:
        return split.frame.toArrow(), pa.table({})
    is_letter = named(ROLE_COLUMN) == f.lit(Role.DEAD_LETTER.value)
    found = split.frame.withColumn("is_letter", is_letter).toArrow()
    of_letters = found["is_letter"]
    parts = (found.filter(pc.invert(of_letters)), found.filter(of_letters))
    roles = (Role.DATA, Role.DEAD_LETTER)
    rows, letters = (part.select(split.schemas[role].names) for part, role in zip(parts, roles, strict=True))
    return rows, letters


def _require_equal(
    spark: SparkSession, spec: dict[str, object], values: Sequence[bytes | None], keys: Sequence[bytes | None] = ()
) -> Counter[str]:
    """How many records each outcome had: a reason, or ``row``."""
    decoder = arrow_decoder(spec)
    decoded = decoder.decode(record_batch(values, keys))
    rows, letters = _from_spark(spark, spec, values, keys)
    assert decoded.rows.schema.names == rows.column_names
    assert _counted(decoded.rows) == _counted(rows)
    if decoder.can_have_dead_letters:
        assert decoded.dead_letters.schema.names == letters.column_names
    assert _counted(decoded.dead_letters) == _counted(letters)
    outcomes = Counter(decoded.dead_letters["dead_letter_reason"].to_pylist())
    return outcomes + Counter({"row": decoded.rows.num_rows})


def _counted(found: pa.Table | pa.RecordBatch) -> Counter[str]:
    """Rows as a multiset. Times as numbers, since some are beyond those of Python."""
    names = found.schema.names
    columns = [_plain(found[name]) for name in names]
    return Counter(repr(row) for row in zip(*columns, strict=True))


def _plain(column: Any) -> list[Any]:
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return [_plain_cell(cell) for cell in array]


def _plain_cell(cell: pa.Scalar) -> Any:
    if not cell.is_valid:
        return None
    if isinstance(cell, pa.ListScalar):
        return [_plain_cell(each) for each in cell.values]
    if isinstance(cell, pa.TimestampScalar | pa.Date32Scalar):
        return cell.value
    return cell.as_py()


def _documents(name: str, numbers: Sequence[str]) -> list[bytes]:
    return [f'{{"{name}":{number}}}'.encode() for number in numbers]


@pytest.mark.rotating(of=3)
@pytest.mark.parametrize("with_others", [False, True])
def test_each_type_takes_the_same_values(spark: SparkSession, with_others: bool) -> None:
    kinds = [
        *("boolean", "tinyint", "smallint", "int", "bigint", "float", "double"),
        *("string", "date", "timestamp", "timestamp_ntz"),
        *(
            "decimal(4,2)",
            "decimal(38,0)",
            "decimal(38,38)",
            "array<tinyint>",
            "array<double>",
            "array<decimal(4,2)>",
            "array<timestamp>",
        ),
    ]
    ddl = ", ".join(f"c{number} {kind}" for number, kind in enumerate(kinds))
    texts = [*NUMBERS, *(f'"{moment}"' for moment in MOMENTS)]
    values: list[bytes | None] = []
    for number, kind in enumerate(kinds):
        of_column = [f"[{text},null]" for text in texts] if kind.startswith("array") else texts
        values += _documents(f"c{number}", of_column)
    if with_others:
        # With a field that is not in the schema, the reader has another rule for names.
        values.insert(0, b'{"x":1}')
    outcomes = _require_equal(spark, {"value": {"format": "json", "schema": ddl}}, values)
    assert len(outcomes) == 3
    assert outcomes["row"] > len(kinds) * 10


@pytest.mark.rotating(of=3)
@pytest.mark.parametrize("ddl", ["v string", "v bigint", "v double", "v string, k int, s int"])
def test_odd_records_have_the_same_end(spark: SparkSession, ddl: str) -> None:
    values = [*(text.encode() for text in NAMES), *NOT_UTF8, None]
    outcomes = _require_equal(spark, {"value": {"format": "json", "schema": ddl}}, values)
    assert len(outcomes) == 5 if "v string" in ddl else 4


@pytest.mark.rotating(of=3)
@pytest.mark.parametrize("ddl", EDGES_OF_RECORDS)
def test_the_edges_of_exactness_are_the_same(spark: SparkSession, ddl: str) -> None:
    _require_equal(spark, {"value": {"format": "json", "schema": ddl}}, [text.encode() for text in EDGES[ddl]])


def test_what_does_not_fit_is_the_same_letter_with_all_that_is_kept(spark: SparkSession) -> None:
    keep = ["headers", "key", "topic", "partition", "offset", "timestamp", "timestamp_type"]
    ddl = "a bigint, b string, d decimal(4,2), l array<decimal(2,0)>"
    values = [*(text.encode() for text in NOT_FITTING), None, b'{"a":1}', b'{"a":2}', None, b'{"a":"x"}']
    keys = [*[b"k"] * len(NOT_FITTING), b"k", b"\xff", None, b"\xfe", b"\xff"]
    for on_tombstone in ("keep", "drop"):
        spec = {"value": {"format": "json", "schema": ddl}, "key": {"format": "string"}, "keep": keep}
        _require_equal(spark, {**spec, "on_tombstone": on_tombstone}, values, keys)


@pytest.mark.rotating(of=3)
@pytest.mark.parametrize(
    "spec",
    [
        {"keep": ["key", "headers", "timestamp"]},
        {"value": {"format": "string"}, "key": {"format": "string"}, "keep": ["key"]},
        {"key": {"format": "string"}, "keep": ["key", "timestamp_type"], "on_tombstone": "drop"},
        {"value": {"format": "json", "schema": "array<string>"}, "key": {"format": "json", "schema": "array<bigint>"}},
        {"value": {"format": "string"}, "key": {"format": "json", "schema": "array<decimal(2,1)>"}, "keep": ["key"]},
    ],
)
def test_formats_are_decoded_alike(spark: SparkSession, spec: dict[str, object]) -> None:
    contents = [
        *(b"", b"x", b"\xff", None, b"[1,2]", b"[1.5]", b"[1.55]", b'["a",{"b":1.50}]', b"null", b"[] []", b"[1],[2]"),
        *(b"\x00", "é".encode(), b"\xed\xa0\x80", b' ["\\ud800"] ', b"[]", b"[1]],[2"),
    ]
    _require_equal(spark, spec, contents, list(reversed(contents)))


@pytest.mark.turns("what readers of topics meet", of=8)
@settings(max_examples=6, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(st.data())
def test_records_that_are_drawn_have_the_same_end(spark: SparkSession, data: st.DataObject) -> None:
    schemas = [(ddl, t.StructType.fromDDL(ddl)) for ddl in FUZZED]
    ddl, texts = data.draw(documents(schemas))
    _require_equal(spark, {"value": {"format": "json", "schema": ddl}}, [text.encode() for text in texts])


@pytest.mark.rotating(of=3)
@pytest.mark.parametrize(
    "ddl",
    [
        (
            "a boolean, b short, c INT, d LONG, e real, f double, g STRING, h date, i timestamp_ltz, j timestamp_ntz, "
            "k dec, `l``m n` numeric(5), o decimal(5,2), p array<array<decimal(3,1)>>, _q2 smallint, r byte, s tinyint"
        ),
        "a array< string >, `b` array <int>",
    ],
)
def test_columns_are_planned_as_spark_plans_them(spark: SparkSession, ddl: str) -> None:
    keep = ["key", "topic", "partition", "offset", "timestamp", "timestamp_type", "headers"]
    spec: dict[str, object] = {
        "value": {"format": "json", "schema": ddl},
        "key": {"format": "json", "schema": "array<int>"},
        "keep": keep,
    }
    assert dict(arrow_decoder(spec).columns) == dict(decoded_columns(lambda: spark, planned(spark, spec)))
