"""JSON records, whole or with a fault, drawn for a schema."""

import json
from collections.abc import Sequence

from hypothesis import strategies as st
from pyspark.sql import types as t

from tests.support.json_oracle import WORDS

LEFT_OUT = [
    '"x":1', '"x":null', '"y:1.5":"a:b"', '"x":{"e":1.5555,"i":1,"I":2}', '"x" :[":"]', '"x":" :1"', '"is":{}',
    '"\\n":"\\n:"', '"i":null', '"\u017f":2', '"\\u0131":3',
]  # fmt: skip
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
_times = st.one_of(
    st.datetimes().map(lambda moment: f'"{moment.isoformat()}"'),
    st.datetimes().map(lambda moment: f'"{moment.isoformat(sep=" ", timespec="seconds")}+01:30"'),
    st.dates().map(lambda day: f'"{day.isoformat()}"'),
    st.integers(-(10**14), 10**14).map(str),
    st.from_regex(
        r'"[+-]?[0-9]{3,7}-[0-9]{1,2}-[0-9]{1,2}([T ][0-9]{1,2}:[0-9]{1,2}(:[0-9]{1,2}([.][0-9]{0,8})?'
        r'(Z| ?[+-][0-9]{1,2}(:?[0-9]{1,2})?| ?(UTC|GMT[+-]1|PST|Asia/Tokyo|x))?)?)?"',
        fullmatch=True,
    ),
)
_escapes = st.sampled_from([
    "\\u0001", "\\u0001\\u0001", "\\\\", '\\"', '\\\\\\"', "\\ud83d\\ude00", "\\ud800", "\\uDE00", "\\\\ud800",
    "\\/", "é", "😀", "\\n", '{\\"x\\":\\"\\\\u00011.5\\"}', ":1.50", ",-0", "{", "[", "1.50", "-0", "1,5", "\\u0031",
    "\\\\u0001", "Infinity", "NaN", '\\":',
])  # fmt: skip
_strings = st.one_of(
    st.lists(_escapes, max_size=4).map(lambda parts: '"' + "".join(parts) + '"'),
    st.text(max_size=5).map(json.dumps),
    _numbers.map(lambda number: f'"{number}"'),
)
_words = st.sampled_from([*(f'"{word}"' for word in WORDS), *WORDS, '"\\u004eaN"', '"inf"', '"nan"', '"INF"'])
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


def fitting(data_type: t.DataType) -> st.SearchStrategy[str]:
    """Values of which many fit the type."""
    match data_type:
        case t.StructType():
            fields = [
                st.tuples(st.just(json.dumps(each.name)), fitting(each.dataType)).map(":".join)
                for each in data_type.fields
            ]
            known = st.lists(st.one_of(fields), max_size=len(fields), unique_by=lambda member: member.split(":")[0])
            others: st.SearchStrategy[list[str]] = st.just([]) | st.lists(st.sampled_from(LEFT_OUT), max_size=2)
            members = st.tuples(known, others).map(lambda both: both[0] + both[1]).flatmap(st.permutations)
            return members.map(lambda chosen: "{" + ",".join(chosen) + "}")
        case t.ArrayType():
            return _array(fitting(data_type.elementType))
        case t.MapType():
            return _object(fitting(data_type.valueType))
        case t.StringType():
            return _values
        case t.BooleanType():
            return st.sampled_from(["true", "false", "null"])
        case t.LongType():
            return _whole.map(str)
        case t.DateType() | t.TimestampType() | t.TimestampNTZType():
            return _times
        case t.FloatType() | t.DoubleType():
            return _numbers | _strings | _words
        case _:
            return _numbers | _strings


@st.composite
def documents(draw: st.DrawFn, schemas: Sequence[tuple[str, t.StructType]]) -> tuple[str, list[str]]:
    """The DDL of a schema, and many records for it; most of them have at most one fault."""
    ddl, schema = draw(st.sampled_from(schemas))
    after = st.sampled_from([" ", "\n", "}", "{}", '],"x":[1', ']},"x":{"y":[2', ",1", " null {}"])
    followed = st.tuples(fitting(schema), after).map("".join)
    record = st.one_of(fitting(schema), fitting(schema), fitting(schema), _object(_values), followed)
    return ddl, draw(st.lists(record, min_size=40, max_size=60))
