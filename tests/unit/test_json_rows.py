"""Rows as values and keys of records."""

import datetime as dt
import json
from decimal import Decimal

import pyarrow as pa
import pytest

from gobblin_assets.destinations.kafka.json_rows import require_columns, write_keys, write_objects
from gobblin_assets.destinations.row_forms import write_json
from gobblin_assets.errors import RejectedError

AT = dt.datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=dt.UTC)
TEXTS = ['plain "quoted" \\ \n\r\t', "\x00\x1f\u2028é😀", ""]
COLUMNS = {
    "i": pa.array([1, -(2**63), None], pa.int64()),
    "f": pa.array([1.5, float("nan"), float("-inf")]),
    "text": pa.array(TEXTS),
    "large": pa.array(["a", None, '"'], pa.large_string()),
    "d": pa.array([Decimal("1.50"), None, Decimal("-0.01")], pa.decimal128(9, 2)),
    "at": pa.array([AT, AT.replace(microsecond=0), None], pa.timestamp("us", "UTC")),
    "local": pa.array([AT.replace(tzinfo=None), None, dt.datetime(1, 1, 1)], pa.timestamp("us")),  # noqa: DTZ001  no zone
    "day": pa.array([AT.date(), None, dt.date(1, 1, 1)]),
    "b": pa.array([b"\x00\xff", None, b""]),
    "yes": pa.array([True, False, None]),
    "list": pa.array([[1, None], [], None], pa.list_(pa.int32())),
    "struct": pa.array([{"d": Decimal("1.1"), "b": b"x"}, None, {"d": None, "b": None}]),
}
ROWS = pa.record_batch(COLUMNS)


@pytest.mark.parametrize("rows", [ROWS, ROWS.slice(1), ROWS.slice(1, 1)])
def test_columns_are_written_as_single_values_are(rows: pa.RecordBatch) -> None:
    expected = [
        {name: json.loads(write_json(rows.schema.field(name).type, value)) for name, value in row.items()}
        for row in rows.to_pylist()
    ]

    assert [json.loads(each) for each in write_objects(rows)] == expected


def test_no_rows_make_no_records() -> None:
    assert write_objects(ROWS.slice(0, 0)) == []


def test_a_name_is_escaped() -> None:
    assert write_objects(pa.record_batch([pa.array([1])], names=['a"é'])) == ['{"a\\"é":1}'.encode()]


def test_a_key_of_one_column_is_its_value_without_quotes() -> None:
    assert write_keys(ROWS, ["text"]) == [each.encode() for each in TEXTS]
    assert write_keys(ROWS, ["i"]) == [b"1", b"-9223372036854775808", None]
    assert write_keys(ROWS, ["d"]) == [b"1.50", None, b"-0.01"]
    assert write_keys(ROWS, ["at"])[0] == b"2026-01-02T03:04:05.000006+00:00"


def test_a_key_of_several_columns_is_a_list() -> None:
    found = write_keys(ROWS, ["i", "text", "d"])

    assert [json.loads(each or b"") for each in found] == [
        [1, TEXTS[0], "1.50"],
        [-(2**63), TEXTS[1], None],
        [None, TEXTS[2], "-0.01"],
    ]


@pytest.mark.parametrize(
    ("columns", "key", "field"),
    [
        (ROWS.schema, ("i", "none"), r"into\.key"),
        (pa.schema([("t", pa.duration("us"))]), (), r"into"),
    ],
)
def test_what_can_t_be_a_record_is_refused(columns: pa.Schema, key: tuple[str, ...], field: str) -> None:
    with pytest.raises(RejectedError, match=f"^{field}: ") as raised:
        require_columns(columns, key)
    assert raised.value.hint
