"""JSON records as rows of exactly the values sent, or dead letters; checked by a parser that keeps numbers as text."""

import datetime as dt

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import types as t

from gobblin_assets.errors import RejectedError
from gobblin_assets.sources.kafka.decoding import decode
from tests.support.json_documents import documents
from tests.support.json_oracle import DEAD, WORDS, expect, same
from tests.support.kafka_records import kafka_frame, planned

pytestmark = pytest.mark.turns(of=8)

REASON = "gobblin_dead_letter"
ROUNDED = "value: a number or a time of it is not exact in its column, or beyond it"
DOUBLED = "value: it has a key twice, or one that differs from a column by case alone"
HALF = "value: it has half of a pair of surrogates"
MISFIT = "value: it is not one JSON value whose fields fit the schema"

SCHEMAS = (
    "i bigint, b boolean, s string, f double",
    "s string, e decimal(38,18), n struct<s: string, e: decimal(6,2)>",
    "i bigint, l array<string>, m map<string,string>, f double",
    "e decimal(9,3), l array<decimal(5,1)>, m map<string,decimal(4,2)>, n struct<i: bigint, m: map<string,bigint>>",
    "l array<struct<i: bigint, s: string>>, m map<string,struct<s: string, f: double>>, `b.c` string",
    "f double, l array<double>, m map<string,array<double>>",
    "e decimal(9,3), i decimal(5,1), f decimal(4,2), `b.c` decimal(6,0), s decimal(3,3)",
)
EDGES = {
    "i bigint, s string": [
        "{}", " {} ", "{\n}\t", "{ } x", "{}}", "{},{}", '{"i":1} \r\n', '{"i":1}}', '{"i":1} }', '{"i":1}{"i":2}',
        '{"i":1},{"i":2}', '{"i":1} {}', '[{"i":1}]', '[{"i":1}', '{"i":1', '{"i":1,}', '{,"i":1}', 'null {"i":1}',
        '1 {"i":1}', '"" {"i":1}', "}", "", " ", "null", '{"s":"}', '{"s":"a\\}', '{"s":"a}"}', '{"x":{"i":2}',
        '{"x":[1}', '{"x":{"i":1}}', '{"i":1,"x":{"i":2,"i":3}}', '\ufeff{"i":1}',
        '{"i":1,"i":2}', '{"i":1,"i" :2}', '{"i":1,"i"\t:2}', '{"i":1,"i"\r:2}', '{"i":1,"i"\n:2}',
        '{"s":null,"i":1,"i":null}', '{"i":null,"i":1}', '{"s":"a:b","i":1,"i":2}', '{"s":"a:b","i":1}',
        '{"s":"\\":","i":1,"i":2}', '{"s":" :","i":1}', '{"s":" :","i":1,"i":2}', '{"s":"::","i":1,"I":2}',
        '{"x":1,"i":1}', '{"x":1,"x":2,"i":1}', '{"x":1,"i":1,"i":2}', '{"x":1,"I":1}', '{"x":1,"i":1,"\\u0069":2}',
        '{"x":1,"\\u0069":2}', '{"\u017f":1}', '{"\u0130":1}', '{"\u0131":1}', '{"i\u0307":1}', '{"ss":1,"\\n":2}',
        '{"is":1,"i\\ni":2,"\\ns\\n":3,"i":4}', '{"":1,"":2,"i":3}',
        '{"s":"1.50"}', '{"s":1.50}', '{"s":-1}', '{"s":"-1"}', '{"s":-0}', '{"s":1e400}', '{"s":"\\"Infinity\\""}',
        '{"s":[1.0]}', '{"s":{"a":1e3}}', '{"s":" {"}', '{"s":"","i":1}', '{"s":true}', '{"s":"true"}',
    ],
    "e decimal(4,2)": [
        f'{{"e":{number}}}'
        for number in [
            "1.99", "1.990", "1.999", "1.000", '"1.99"', '"1.990"', '"1.999"', "1.5e0", "1.5e1", "15e-2", "15e-3",
            "1e2", "1E1", '"1e1"', "-0", "-0.00", "-0.001", '"+1.5"', '"1.5 "', '"1,5"', '"1."', '"1.5,"', '".5"',
            '"1.5,\\"', "null", '""', "99.99", "99.995", "100", "1.99 ", " \n1.999", "[1.99]", "true",
        ]
    ]
    + [
        "{}", '{"e" : 1.999}', '{"e":1.99\n}', '{"e"\t:\r1.99 ,"x":1}', '{"\\u0065":1.999}', '{"\\u0065":1.99}',
        '{"x":{"e":1.999},"e":1.99}', '{"x":{"e":1.99},"e":1.999}', '{"x":"\\"e\\":1.999","e":1.99}', '{"f":1.999}',
        '{"e":1.99,"f":1.999}',
    ],
    "m map<string,string>, l array<map<string,string>>": [
        '{"m":{"a":1.50,"a":2}}', '{"m":{"a":1.50,"A":2}}', '{"l":[{"a":1.50},{"a":1.0,"a":1.50}]}', '{"l":[{"a":-0}]}',
    ],
    "l array<struct<s: string, f: double>>": [
        '{"l":[{"s":"1.5","f":1.50},{"s":1.50}]}', '{"l":[{"s":"a","f":1.50}]}', '{"l":[{"s":{"a":1.50}}]}',
        '{"l":[{"f":-0,"s" :-0}]}', '{"l":[{"f":0.5,"s":[1.0]}]}', '{"l":[{"f":0.5,"\\u0073":1.0}]}',
        '{"l":[{"f":0.5,"s":"\\"s\\":1.50"}]}', '{"l":[{"f":0.5,"s":1e2 }]}', '{"l":[{"f":1e2,"s":-7},null]}',
        '{"l":[{"f":0.5,"s":1,"S":2}]}', '{"l":[{"f":0.5,"s":1,"s":2.50}]}', '{"l":[{"f":0.5,"s":true}]}',
    ],
    "f double, s string, l array<double>, m map<string,double>": [
        *(f'{{"f":{word},"s":"a"}}' for word in [*WORDS, "INF", "nan", "inf"]),
        *(f'{{"f":"{word}","s":1.50}}' for word in [*WORDS, "INF", "nan", " NaN", "NaN ", "\\u004eaN", "\\u0001NaN"]),
        '{"f":1e400}', '{"f":-1e400,"s":"Infinity"}', '{"f":"1e400"}', '{"f":"Infinity","f":1}', '{"f":null,"s":"NaN"}',
        '{"s":NaN}', '{"x":NaN,"f":1.5}', '{"x":-Infinity}', '{"x":"NaN, \\"Infinity","f":"NaN"}', '{"s":"\\"NaN"}',
        '{"l":["NaN",1.5,null,"-Infinity"]}', '{"l":[NaN]}', '{"l":["NaN",1e400]}', '{"m":{"a":"Infinity","b":-0.0}}',
        '{"m":{"NaN":1e999}}', '{"m":{"NaN":"NaN"}}', '{"s":{"a":"NaN"},"f":"NaN"}', '{"s":[Infinity]}', '{"f":-0.0}',
    ],
    "`a/b` decimal(4,2)": ['{"a\\/b":1.999}', '{"a/b":1.999}', '{"a\\/b":1.99}', '{"a/b":1.99}'],
}  # fmt: skip


@pytest.mark.turns("what readers of topics meet", of=8)
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_a_row_holds_exactly_what_was_sent_or_the_record_is_a_dead_letter(
    spark: SparkSession, data: st.DataObject
) -> None:
    schemas = [(ddl, t.StructType.fromDDL(ddl)) for ddl in SCHEMAS]
    _compare(spark, *data.draw(documents(schemas)))


@pytest.mark.rotating(of=3)
@pytest.mark.parametrize("ddl", EDGES)
def test_a_record_at_the_edge_of_what_a_look_at_it_shows_is_exact_or_a_dead_letter(
    spark: SparkSession, ddl: str
) -> None:
    _compare(spark, ddl, EDGES[ddl])


def _compare(spark: SparkSession, ddl: str, texts: list[str]) -> None:
    schema = t.StructType.fromDDL(ddl)
    assert isinstance(schema, t.StructType)
    plan = planned(spark, {"value": {"format": "json", "schema": ddl}})
    rows = decode(kafka_frame(spark, [text.encode() for text in texts]), plan).collect()
    for text, row in zip(texts, rows, strict=True):
        expected = expect(text, schema)
        actual = tuple(row[name] for name in schema.names)
        if expected is DEAD:
            assert row[REASON] is not None, (text, actual)
        else:
            assert row[REASON] is None, (text, row[REASON])
            assert all(map(same, actual, expected)), (text, actual, expected)  # type: ignore[call-overload]  # a tuple


@pytest.mark.rotating(of=3)
@pytest.mark.parametrize(
    ("ddl", "dead", "good"),
    [
        (
            "t timestamp, d date, n timestamp_ntz",
            [
                '{"t":9223372036855}', '{"t":-9223372036855}', '{"t":9223372036854775807}', '{"t":"10:30"}',
                '{"t":"2020-01-01T00:00:00.1234567Z"}', '{"t":"2020"}', '{"t":"12345"}', '{"t":"GMT2020-01-01"}',
                '{"d":"2020-01-01T05:00:00"}', '{"d":"12345"}', '{"n":"2020-01-01T00:00:00.1234567"}',
                '{"\\u0074":"10:30"}', '{"t" :"10:30"}', '{"t":"2020-01-01T00:00:00.1234567Z" }',
                '{"t":"2020-01-01T10"}', '{"t":"300000-01-01T00:00:00Z"}', '{"d":"2020-01"}',
            ],
            {
                '{"t":1.5}': MISFIT,
                '{"n":"2020-01-01T00:00:00Z"}': MISFIT,
                '{"t":-1, "d":"0001-01-01", "n":"2020-01-01 01:02:03.5"}': None,
                '{"t":"2020-01-01T01:00:00.1234560+01:00", "d":"12345-01-01"}': None,
                '{"t":"2020-01-01"}': None,
                '{"t":"2020-01-01T00:00:00.123456Z", "x":{"t":"10:30"}}': None,
                '{"t":99999999999, "n":null}': None,
                '{"t":999999999999}': None,
            },
        ),
        ("f float", ['{"f":1e39}', '{"f":-3.5e38}'], {'{"f":0.1}': None, '{"f":3.4e38}': None}),
        ("a array<timestamp>", ['{"a":[1, 9223372036855]}', '{"a":["10:30"]}'], {'{"a":[1,"2020-01-01",null]}': None}),
        (
            "e decimal(4,2)",
            ['{"e":"1,5"}', '{"e":"\uff11.\uff15\uff10\uff15"}', '{"e":"1.00\uff15"}', '{"e":"1.0\\u00305"}'],
            {},
        ),
        (
            "b tinyint, n struct<b: tinyint>, a array<tinyint>, m map<string,tinyint>",
            ['{"b":128}', '{"b":255}', '{"b":-129}', '{"n":{"b":200}}', '{"a":[1,200]}', '{"m":{"a":1,"b":200}}'],
            {'{"b":127,"n":{"b":-128},"a":[null,127],"m":{"a":-128}}': None, '{"b":null}': None, "{}": None},
        ),
        ("array<tinyint>", ["[1,200]"], {"[127,null]": None}),
    ],
)  # fmt: skip
def test_numbers_and_times_that_a_column_would_change_are_dead_letters(
    spark: SparkSession, ddl: str, dead: list[str], good: dict[str, str | None]
) -> None:
    plan = planned(spark, {"value": {"format": "json", "schema": ddl}})
    texts = [*dead, *good]
    rows = decode(kafka_frame(spark, [text.encode() for text in texts]), plan).select(REASON).collect()
    found = {text: row[0] for text, row in zip(texts, rows, strict=True)}
    assert {text: found[text] for text in good} == good
    assert {text: found[text] for text in dead if found[text] not in {ROUNDED, MISFIT}} == {}


def test_the_reason_says_what_a_record_would_have_lost(spark: SparkSession) -> None:
    plan = planned(spark, {"value": {"format": "json", "schema": "a bigint, s string, e decimal(4,2), t timestamp"}})
    reasons = {
        '{"a":1,"A":2}': DOUBLED,
        '{"A":2}': DOUBLED,
        '{"\u017f":"x"}': DOUBLED,
        '{"a":1,"\\u0061":2}': DOUBLED,
        '{"a":1,"a" :2}': DOUBLED,
        '{"s":"\\ud800"}': HALF,
        '{"e":1.005}': ROUNDED,
        '{"t":"10:30"}': ROUNDED,
        '{"a":1}],"x":[2': MISFIT,
        '{"a":1,"x":{"A":1,"A":2}}': None,
    }
    rows = decode(kafka_frame(spark, [text.encode() for text in reasons]), plan).select(REASON).collect()
    assert dict(zip(reasons, (row[0] for row in rows), strict=True)) == reasons


def test_times_are_what_was_sent(spark: SparkSession) -> None:
    plan = planned(spark, {"value": {"format": "json", "schema": "t timestamp, d date, n timestamp_ntz"}})
    text = b'{"t":"2020-01-01T01:00:00.1234560+01:00", "d":"0001-02-03", "n":"2020-01-01 01:02:03.5"}'
    (row,) = decode(kafka_frame(spark, [text]), plan).selectExpr("unix_micros(t)", "d", "n").collect()
    moment = dt.datetime(2020, 1, 1, microsecond=123456, tzinfo=dt.UTC)
    local = dt.datetime(2020, 1, 1, 1, 2, 3, 500_000, tzinfo=dt.UTC).replace(tzinfo=None)
    assert tuple(row) == (int(moment.timestamp()) * 10**6 + 123456, dt.date(1, 2, 3), local)


@pytest.mark.parametrize("ddl", ["a int, A int", "n struct<a: int, A: int>", "l array<struct<x: int, X: int>>"])
def test_a_schema_with_names_that_spark_can_not_tell_apart_is_refused(spark: SparkSession, ddl: str) -> None:
    with pytest.raises(RejectedError, match="two columns would be called") as refused:
        planned(spark, {"value": {"format": "json", "schema": ddl}})
    assert refused.value.field == "kafka.value.schema"


def test_a_key_of_json_is_exact_as_well(spark: SparkSession) -> None:
    spec: dict[str, object] = {"key": {"format": "json", "schema": "array<string>"}, "keep": ["key"]}
    plan = planned(spark, spec)
    keys: list[bytes | None] = [b'[1.10, "a", {"x": 1e3}]', b'["\\ud800"]', b"[1] [2]"]
    rows = decode(kafka_frame(spark, [b"v"] * 3, keys), plan).collect()
    assert rows[0].kafka_key == ["1.10", "a", '{"x":1e3}']
    assert [row[REASON] is None for row in rows] == [True, False, False]
