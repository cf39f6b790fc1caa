"""JSON records as rows of exactly the values sent, or dead letters; checked by a parser that keeps numbers as text."""

import datetime as dt
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import types as t

from gobblin_assets.errors import RejectedError
from gobblin_assets.sources.kafka.decoding import decode
from tests.support.json_oracle import DEAD, expect, same
from tests.support.kafka_records import kafka_frame, planned

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
LEFT_OUT = [
    '"x":1', '"x":null', '"y:1.5":"a:b"', '"x":{"e":1.5555,"i":1,"I":2}', '"x" :[":"]', '"x":" :1"', '"is":{}',
    '"\\n":"\\n:"', '"i":null', '"\u017f":2', '"\\u0131":3',
]  # fmt: skip
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
    "`a/b` decimal(4,2)": ['{"a\\/b":1.999}', '{"a/b":1.999}', '{"a\\/b":1.99}', '{"a/b":1.99}'],
}  # fmt: skip
NAMES = ["i", "b", "s", "f", "e", "n", "l", "m", "b.c"]

_whole = st.integers() | st.integers(-100, 100) | st.integers(10**15, 10**40)
_numbers = st.one_of(
    _whole.map(str),
    st.decimals(-999, 999, places=2).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.from_regex(r"-?(0|[1-9][0-9]{0,3})(\.[0-9]{1,4}0{0,2})?([eE][+-]?[0-9]{1,3})?", fullmatch=True),
    st.from_regex(r"-?(0|[1-9][0-9]{0,30})\.[0-9]{10,45}", fullmatch=True),
    st.sampled_from(["-0", "-0.0", "0.0", "0e5", "1e3", "1e400", "-1e400", "1e-400", "1E+2", "5.0", "100e-2"]),
)
_escapes = st.sampled_from([
    "\\u0001", "\\u0001\\u0001", "\\\\", '\\"', '\\\\\\"', "\\ud83d\\ude00", "\\ud800", "\\uDE00", "\\\\ud800",
    "\\/", "é", "😀", "\\n", '{\\"x\\":\\"\\\\u00011.5\\"}', ":1.50", ",-0", "{", "[", "1.50", "-0", "1,5", "\\u0031",
    "\\\\u0001", "Infinity", '\\":',
])  # fmt: skip
_strings = st.one_of(
    st.lists(_escapes, max_size=4).map(lambda parts: '"' + "".join(parts) + '"'),
    st.text(max_size=5).map(json.dumps),
    _numbers.map(lambda number: f'"{number}"'),
)
_spaces = st.sampled_from(["", "", "", "", " ", "\n"])
_names = st.sampled_from([*NAMES, *NAMES, "x", "I", "S", "y:1.5", "\u017f", "\u0130"])
_keys = st.one_of(
    _names.map(json.dumps), _names.map(json.dumps), _names.map(lambda name: f'"\\u{ord(name[0]):04x}{name[1:]}"')
)


def _object(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    member = st.tuples(_keys, _spaces, _spaces, values).map(lambda it: f"{it[0]}{it[1]}:{it[2]}{it[3]}")
    return st.lists(member, max_size=3).map(lambda members: "{" + ",".join(members) + "}")


def _array(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.tuples(st.lists(values, max_size=3), _spaces).map(lambda it: "[" + f",{it[1]}".join(it[0]) + "]")


_scalars = st.one_of(_numbers, _numbers, _strings, st.sampled_from(["null", "true", "false"]))
_values = st.recursive(_scalars, lambda inner: _object(inner) | _array(inner), max_leaves=4)


def _fitting(data_type: t.DataType) -> st.SearchStrategy[str]:
    """Values of which many fit the type."""
    match data_type:
        case t.StructType():
            fields = [
                st.tuples(st.just(json.dumps(each.name)), _fitting(each.dataType)).map(":".join)
                for each in data_type.fields
            ]
            known = st.lists(st.one_of(fields), max_size=len(fields), unique_by=lambda member: member.split(":")[0])
            others: st.SearchStrategy[list[str]] = st.just([]) | st.lists(st.sampled_from(LEFT_OUT), max_size=2)
            members = st.tuples(known, others).map(lambda both: both[0] + both[1]).flatmap(st.permutations)
            return members.map(lambda chosen: "{" + ",".join(chosen) + "}")
        case t.ArrayType():
            return _array(_fitting(data_type.elementType))
        case t.MapType():
            return _object(_fitting(data_type.valueType))
        case t.StringType():
            return _values
        case t.BooleanType():
            return st.sampled_from(["true", "false", "null"])
        case t.LongType():
            return _whole.map(str)
        case _:
            return _numbers | _strings


@st.composite
def _documents(draw: st.DrawFn) -> tuple[str, list[str]]:
    """A schema, and many records for it; most of them have at most one fault."""
    ddl = draw(st.sampled_from(SCHEMAS))
    schema = t.StructType.fromDDL(ddl)
    after = st.sampled_from([" ", "\n", "}", "{}", '],"x":[1', ']},"x":{"y":[2', ",1"])
    followed = st.tuples(_fitting(schema), after).map("".join)
    record = st.one_of(_fitting(schema), _fitting(schema), _fitting(schema), _object(_values), followed)
    return ddl, draw(st.lists(record, min_size=40, max_size=60))


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(_documents())
def test_a_row_holds_exactly_what_was_sent_or_the_record_is_a_dead_letter(
    spark: SparkSession, documents: tuple[str, list[str]]
) -> None:
    _compare(spark, *documents)


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
