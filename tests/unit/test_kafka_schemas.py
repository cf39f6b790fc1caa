"""The pure parts of decoding: Avro schemas completed, JSON schemas inferred, Protobuf messages by descriptor."""

import io
import json
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobblin_assets.errors import RejectedError
from gobblin_assets.sources.kafka.avro_schemas import END, find_recursive, is_record, make_whole, wrap
from gobblin_assets.sources.kafka.json_inference import infer_json_ddl
from gobblin_assets.sources.kafka.protobuf_messages import decoder_of, parse_message_type
from tests.support.kafka_records import avro_bytes, view_descriptors

MONEY = {
    "type": "record",
    "name": "Money",
    "namespace": "a.b",
    "fields": [{"name": "currency", "type": {"type": "enum", "name": "Currency", "symbols": ["EUR"]}}],
}


def _whole(schema: object, references: dict[str, object] | None = None) -> Any:
    texts = {name: json.dumps(each) for name, each in (references or {}).items()}
    return make_whole(json.dumps(schema), texts, label="it", field="f")


def test_a_reference_is_put_in_where_it_is_first_named_and_only_there() -> None:
    order = {"type": "record", "name": "shop.Order", "fields": [
        {"name": "in", "type": "a.b.Currency"},
        {"name": "price", "type": "a.b.Money"},
        {"name": "rebate", "type": ["null", {"type": "array", "items": "a.b.Money"}]},
    ]}  # fmt: skip
    whole = _whole(order, {"a.b.Money": MONEY})
    names = [(field["name"], field["type"]) for field in whole["fields"]]
    assert names[0][1]["name"] == "a.b.Currency"
    assert names[1][1]["fields"][0]["type"] == "a.b.Currency"
    assert names[2][1] == ["null", {"type": "array", "items": "a.b.Money"}]
    value = {"in": "EUR", "price": {"currency": "EUR"}, "rebate": [{"currency": "EUR"}]}
    encoded = avro_bytes(whole, value)
    assert fastavro.schemaless_reader(io.BytesIO(encoded), fastavro.parse_schema(whole), None) == value


def test_names_are_looked_up_in_the_namespace_that_they_stand_in() -> None:
    inner = {"type": "fixed", "name": "Hash", "size": 2}
    schema = {"type": "record", "name": "R", "namespace": "x.y", "fields": [
        {"name": "a", "type": inner},
        {"name": "b", "type": "Hash"},
        {"name": "c", "type": {"type": "record", "name": "Plain", "namespace": "", "fields": []}},
    ]}  # fmt: skip
    whole = _whole(schema)
    assert [whole["fields"][0]["type"]["name"], whole["fields"][1]["type"]] == ["x.y.Hash", "x.y.Hash"]
    assert whole["fields"][2]["type"]["namespace"] == ""
    fastavro.parse_schema(whole)


def test_the_envelope_adds_no_bytes_but_the_mark() -> None:
    content = avro_bytes(MONEY, {"currency": "EUR"})
    envelope = fastavro.parse_schema(json.loads(wrap(_whole(MONEY))))
    found = fastavro.schemaless_reader(io.BytesIO(content + END), envelope, None)
    assert found == {"gobblin_value": {"currency": "EUR"}, "gobblin_end": END}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not JSON"),
        ("7", "7 is no type"),
        ('"what"', "'what' is defined nowhere"),
        ('{"type": "array"}', "an array without items"),
        ('{"type": "map"}', "a map without values"),
        ('{"type": "record", "fields": []}', "a record without a name"),
        ('{"type": "record", "name": "R"}', "no list of fields"),
        ('{"type": "record", "name": "R", "fields": [{"name": "x"}]}', "a field of 'R'"),
        ("[" * 300 + "]" * 300, "deep"),
    ],
)
def test_a_schema_that_is_none_is_refused_with_what_is_wrong(text: str, said: str) -> None:
    with pytest.raises(RejectedError, match="subject 's' is broken") as refused:
        make_whole(text, {}, label="subject 's'", field="value.subject")
    assert said in refused.value.message
    assert refused.value.field == "value.subject"


def test_records_are_told_from_other_values_and_from_those_that_hold_themselves() -> None:
    assert make_whole("string", {}, label="it", field="f") == "string"
    assert is_record(MONEY)
    assert is_record(["null", MONEY])
    assert not is_record([MONEY, "string"])
    assert not is_record({"type": "map", "values": MONEY})
    node = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}
    assert find_recursive(_whole({"type": "array", "items": node})) == "Node"
    assert find_recursive(_whole({"type": "record", "name": "T", "fields": [{"name": "a", "type": MONEY}]})) is None


@pytest.mark.parametrize(
    ("documents", "ddl"),
    [
        ([{"a": 1}, {"b": True, "a": -(2**63)}], "`a` bigint, `b` boolean"),
        ([{"a": 2**63}], "`a` decimal(38,0)"),
        ([{"a": 10**38}], "`a` string"),
        ([{"a": 1}, {"a": 1.5}], "`a` double"),
        ([{"a": 2**53 + 1}, {"a": 1.5}], "`a` string"),
        ([{"a": None}], "`a` string"),
        ([{"a": 1}, {"a": "x"}], "`a` string"),
        ([{"a": {"x": 1}}, {"a": {"y": [1, 2.5]}}], "`a` struct<`x`: bigint, `y`: array<double>>"),
        ([{"a": {}}], "`a` string"),
        ([{"a": []}], "`a` array<string>"),
        ([{"a": [1]}, {"a": {"x": 1}}], "`a` string"),
        ([{"A": 1, "a": "x", "": 0, "b`c": 1}], "`A` bigint, `b``c` bigint"),
        ([[1], 5, "x", None], None),
    ],
)
def test_a_json_schema_holds_every_value_of_the_sample(documents: list[object], ddl: str | None) -> None:
    assert infer_json_ddl(json.dumps(each).encode() for each in documents) == ddl


@pytest.mark.parametrize(
    ("numbers", "data_type"),
    [
        (["0.1", "19.90", "1e3", "-0.0", "5"], "double"),
        (["1e400"], "string"),
        (["1e-400"], "string"),
        (["0.12345678901234567890"], "string"),
        (["12345678901234567890123456789.5"], "string"),
        (["1.5", "9007199254740993"], "string"),
        (["-0", "1"], "bigint"),
    ],
)
def test_a_double_is_inferred_only_for_numbers_that_it_tells_back(numbers: list[str], data_type: str) -> None:
    assert infer_json_ddl(b'{"a":%b}' % each.encode() for each in numbers) == f"`a` {data_type}"


def test_what_no_decoder_takes_is_left_out_of_a_sample() -> None:
    texts = [
        b'{"n":NaN}',
        b'{"n":Infinity}',
        b'{"n":1,"n":2}',
        b'{"n":1e9999999999999999999}',
        b'{"n":%b}' % (b"9" * 5_000),
    ]
    assert infer_json_ddl(texts) is None


def test_a_sample_may_hold_what_is_no_json_and_names_to_leave_out() -> None:
    assert infer_json_ddl([b"\xff", b"{", b"[" * 100_000, b'{"a":1,"Kept":2}'], leave_out={"kept"}) == "`a` bigint"


@given(
    st.lists(
        st.dictionaries(
            st.sampled_from("abc"),
            st.recursive(
                st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3),
                lambda inner: st.lists(inner, max_size=3),
                max_leaves=6,
            ),
        ),
        max_size=6,
    )
)
def test_the_order_of_a_sample_changes_no_type(documents: list[dict[str, object]]) -> None:
    texts = [json.dumps(each).encode() for each in documents]
    there, back = infer_json_ddl(texts), infer_json_ddl(texts[::-1])
    assert sorted((there or "").split(", ")) == sorted((back or "").split(", "))


def test_a_message_is_found_by_its_full_name_with_its_place_in_the_file() -> None:
    view = parse_message_type(view_descriptors(), "shop.View", field="value")
    item = parse_message_type(view_descriptors(), "shop.View.Item", field="value")
    other = parse_message_type(view_descriptors(), "shop.Other", field="value")
    assert [each.indexes for each in (other, view, item)] == [(0,), (1,), (1, 0)]
    assert other.framings() == (b"\x02\x00", b"\x00")
    assert (view.framings(), item.framings()) == ((b"\x02\x02",), (b"\x04\x02\x00",))
    assert view.type["at"].dataType.simpleString() == "timestamp"
    assert view.type["note"].dataType.simpleString() == "string"
    assert view.type["counts"].dataType.simpleString() == "map<string,int>"


def test_protobuf_of_another_type_in_a_known_field_is_no_message() -> None:
    decode = decoder_of(parse_message_type(view_descriptors(), "shop.Other", field="value"))
    assert decode(None) is None
    assert decode(b"\x0a\x01x") == (("x",), True)
    assert decode(b"\x08\x01") == (None, False)
    assert decode(b"\x0a\x01\xff") == (None, False)
    assert decode(b"\x10\x01") == (("",), True)
