"""Texts of Postgres as values: each type, casts, and what is refused."""

import datetime as dt
import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobblin_assets.errors import CorruptionError, RejectedError
from gobblin_assets.rows.arrow_types import arrow_type
from gobblin_assets.sources.jdbc.postgres_tables import PgType
from gobblin_assets.sources.postgres_log.logged_table import list_readings
from gobblin_assets.sources.postgres_log.typed_texts import TextPlace, parse_texts
from tests.support.row_messages import numeric, table_of, type_named

UTC = dt.UTC
URN = "shop"


def parse(kind: PgType, texts: Sequence[bytes | None], cast: str | None = None, *, in_key: bool = False) -> pa.Array:
    table = table_of(("v", kind)) if in_key else table_of(("id", type_named("int4")), ("v", kind))
    *_others, reading = list_readings(table, {} if cast is None else {"v": cast}, urn=URN)
    values = parse_texts(pa.array(texts, pa.binary()), TextPlace(URN, "public.t", reading))
    assert values.type == arrow_type(reading.spark_type)
    assert len(values) == len(texts)
    values.validate(full=True)
    return values


VALUES: list[tuple[PgType, list[bytes], list[Any]]] = [
    (type_named("bool"), [b"t", b"f"], [True, False]),
    (type_named("int2"), [b"-32768", b"32767"], [-32_768, 32_767]),
    (type_named("int4"), [b"-2147483648", b"0"], [-(2**31), 0]),
    (type_named("int8"), [b"-9223372036854775808", b"9223372036854775807"], [-(2**63), 2**63 - 1]),
    (type_named("float4"), [b"0.1", b"-Infinity"], [0.10000000149011612, -math.inf]),
    (type_named("float8"), [b"5e-324", b"1.7976931348623157e+308", b"Infinity"],
     [5e-324, 1.7976931348623157e308, math.inf]),
    (numeric(12, 2), [b"-9999999999.99", b"0.00", b"7.10"],
     [Decimal("-9999999999.99"), Decimal("0.00"), Decimal("7.10")]),
    (numeric(38, 0), [b"9" * 38], [Decimal("9" * 38)]),
    (type_named("text"), ["größe".encode(), b"", b"\\N"], ["größe", "", "\\N"]),
    (type_named("bpchar", 9), [b"ab   "], ["ab   "]),
    (type_named("bytea"), [b"\\x", b"\\x00fF5c"], [b"", b"\x00\xff\x5c"]),
    (type_named("date"), [b"0001-01-01", b"1582-10-04", b"1582-10-15", b"9999-12-31"],
     [dt.date(1, 1, 1), dt.date(1582, 10, 4), dt.date(1582, 10, 15), dt.date(9999, 12, 31)]),
    (type_named("timestamp"), [b"2026-01-01 10:00:00", b"0001-01-01 00:00:00.000001"],
     [dt.datetime(2026, 1, 1, 10), dt.datetime(1, 1, 1, 0, 0, 0, 1)]),  # noqa: DTZ001  a wall clock's
    (type_named("timestamptz"), [b"2026-01-01 10:00:00.123+00", b"1582-10-04 23:59:59.999999+00"],
     [dt.datetime(2026, 1, 1, 10, 0, 0, 123_000, UTC), dt.datetime(1582, 10, 4, 23, 59, 59, 999_999, UTC)]),
    (type_named("uuid"), [b"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"], ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"]),
    (type_named("inet"), [b"10.0.0.1", b"10.0.0.0/8", b"::1"], ["10.0.0.1/32", "10.0.0.0/8", "::1/128"]),
    (PgType("public.mood", "e", "mood", -1), [b"happy"], ["happy"]),
    (type_named("int4[]"), [b"{}", b"{1,NULL,-3}", b"[0:1]={5,6}"], [[], [1, None, -3], [5, 6]]),
    (type_named("text[]"), [rb'{a,"b,c","NULL",NULL,"q\"\\{}",""}'], [["a", "b,c", "NULL", None, 'q"\\{}', ""]]),
    (type_named("bytea[]"), [rb'{"\\x00ff",NULL,"\\x"}'], [[b"\x00\xff", None, b""]]),
    (type_named("bool[]"), [b"{t,f,NULL}"], [[True, False, None]]),
    (type_named("inet[]"), [b"{10.0.0.1,NULL}"], [["10.0.0.1/32", None]]),
    (type_named("timestamptz[]"), [b'{"2026-01-01 10:00:00+00"}'], [[dt.datetime(2026, 1, 1, 10, tzinfo=UTC)]]),
    (numeric(5, 2, "[]"), [b"{1.50,NULL}"], [[Decimal("1.50"), None]]),
]  # fmt: skip


class TestValues:
    @pytest.mark.parametrize(("kind", "texts", "values"), VALUES, ids=lambda each: getattr(each, "text", ""))
    def test_they_are_read_as_they_were(self, kind: PgType, texts: list[bytes], values: list[Any]) -> None:
        assert parse(kind, [None, *texts, None]).to_pylist() == [None, *values, None]

    @pytest.mark.parametrize("kind", [kind for kind, _texts, _values in VALUES], ids=lambda kind: kind.text)
    def test_a_column_may_hold_nothing(self, kind: PgType) -> None:
        assert parse(kind, [None, None]).to_pylist() == [None, None]
        assert parse(kind, []).to_pylist() == []

    def test_a_nan_of_a_float_stays(self) -> None:
        assert all(math.isnan(parse(type_named(name), [b"NaN"])[0].as_py()) for name in ("float4", "float8"))

    @given(st.lists(st.none() | st.lists(st.none() | st.text(st.characters(codec="utf-8", exclude_characters="\0")))))
    def test_any_texts_in_an_array_come_back(self, rows: list[list[str | None] | None]) -> None:
        assert parse(type_named("text[]"), [_write_array(row) for row in rows]).to_pylist() == rows

    @given(st.lists(st.none() | st.binary(max_size=20)))
    def test_any_bytes_come_back(self, rows: list[bytes | None]) -> None:
        texts = [None if row is None else b"\\x" + row.hex().encode() for row in rows]
        assert parse(type_named("bytea"), texts).to_pylist() == rows


class TestCasts:
    @pytest.mark.parametrize(
        ("kind", "cast", "text", "value"),
        [
            (type_named("numeric"), "v::numeric(6,2)", b"1.005", Decimal("1.01")),
            (type_named("numeric"), "v::numeric(6,2)", b"-1.005", Decimal("-1.01")),
            (type_named("numeric"), "v::numeric(6,2)", b"7", Decimal("7.00")),
            (type_named("numeric"), "v::numeric(38,10)", b"0." + b"3" * 60, Decimal("0.3333333333")),
            (type_named("int8"), '"v" :: DECIMAL (20)', b"-5", Decimal(-5)),
            (type_named("numeric"), "v::numeric(38,18)", b"-9" + b"0" * 19, Decimal("-9" + "0" * 19)),
            (type_named("numeric"), "v::numeric(9,3)", b"-0." + b"0" * 99 + b"1", Decimal("0.000")),
            (type_named("numeric"), "v::numeric(4,4)", b"0.50", Decimal("0.5000")),
            (type_named("numeric[]"), "v::numeric(38, 10)[]", b"{1.5,NULL}", [Decimal("1.5000000000"), None]),
            (type_named("numeric"), "v::text", b"NaN", "NaN"),
            (type_named("bool"), "v::text", b"t", "true"),
            (type_named("bool"), "v::text", b"f", "false"),
            (type_named("bool[]"), "v::text", b"{t,f}", "{t,f}"),
            (type_named("bool[]"), "v::text[]", b"{t,NULL}", ["true", None]),
            (type_named("bpchar", 9), "v::text", b"ab \t  ", "ab \t"),
            (type_named("bytea"), "v::text", b"\\x00", "\\x00"),
            (type_named("timestamptz"), "v::text", b"infinity", "infinity"),
            (type_named("int4[]"), "v::text", b"{{1},{2}}", "{{1},{2}}"),
            (type_named("inet[]"), "v::text[]", b"{::1}", ["::1/128"]),
            (type_named("money"), "v::text", b"$1.00", "$1.00"),
        ],
    )
    def test_they_give_what_postgres_would(self, kind: PgType, cast: str, text: bytes, value: object) -> None:
        assert parse(kind, [text, None], cast).to_pylist() == [value, None]


class TestRefusals:
    @pytest.mark.parametrize(
        ("kind", "good", "bad"),
        [
            (type_named("date"), b"2026-01-01", b"infinity"),
            (type_named("date"), b"2026-01-01", b"0044-03-15 BC"),
            (type_named("date"), b"2026-01-01", b"10000-01-01"),
            (type_named("date"), b"2026-01-01", b"1582-10-05"),
            (type_named("date"), b"1500-01-01", b"1582-10-14"),
            (type_named("timestamp"), b"2026-01-01 10:00:00", b"-infinity"),
            (type_named("timestamp"), b"2026-01-01 10:00:00", b"1582-10-05 00:00:00"),
            (type_named("timestamp"), b"2026-01-01 10:00:00", b"0044-03-15 00:00:00 BC"),
            (type_named("timestamptz"), b"2026-01-01 10:00:00+00", b"1582-10-14 23:59:59.999999+00"),
            (type_named("timestamptz"), b"2026-01-01 10:00:00+00", b"0001-12-31 00:00:00+00 BC"),
            (type_named("timestamptz"), b"2026-01-01 10:00:00+00", b"294276-12-31 00:00:00+00"),
            (numeric(5, 2), b"1.00", b"NaN"),
            (numeric(5, 2), b"1.00", b"1000.00"),
            (numeric(5, 2), b"1.00", b"1.001"),
            (numeric(5, 2, "[]"), b"{1.00}", b"NaN"),
            (type_named("date[]"), b"{2026-01-01}", b"-infinity"),
        ],
        ids=lambda each: getattr(each, "text", None),
    )
    def test_values_that_spark_can_not_hold(self, kind: PgType, good: bytes, bad: bytes) -> None:
        sent = b"{" + bad + b"}" if kind.element else bad
        with pytest.raises(RejectedError) as refused:
            parse(kind, [good, None, sent])
        assert refused.value.field == "datasets[shop].casts"
        assert f"public.t.v ({kind.text}) holds {bad.decode()}, which Spark" in refused.value.message
        assert "Write casts: {'v': '\"v\"::text'}" in refused.value.hint
        assert "sink recopy" in refused.value.hint

    @pytest.mark.parametrize("text", [b"{{1,2},{3,4}}", b"[1:1][-2:-1]={{3,4}}"])
    def test_arrays_of_arrays(self, text: bytes) -> None:
        with pytest.raises(RejectedError, match=r"public\.t\.v \(int4\[\]\) holds"):
            parse(type_named("int4[]"), [b"{1}", text])

    @pytest.mark.parametrize(
        ("kind", "text", "cast"),
        [
            (type_named("numeric"), b"1000", "v::numeric(5,2)"),
            # With the digits that the scale adds, a whole number of 128 bits would be another number that fits.
            (type_named("numeric"), b"623234677734612947711217495", "v::numeric(38,18)"),
            (type_named("numeric[]"), b"{40012416823463262284}", "v::numeric(38,38)[]"),
            (type_named("int8"), b"61730326038041", "v::numeric(38,30)"),
            (type_named("numeric"), b"1", "v::numeric(4,4)"),
        ],
    )
    def test_a_cast_that_overflows(self, kind: PgType, text: bytes, cast: str) -> None:
        with pytest.raises(RejectedError, match=rf"holds {text.strip(b'{}').decode()}, which"):
            parse(kind, [b"{0}" if kind.element else b"0", None, text], cast)

    @pytest.mark.parametrize(
        ("kind", "text", "cast"),
        [
            (type_named("numeric"), b"0.00000000001", "v::numeric(38, 10)"),
            (type_named("numeric"), b"1.00001", "v::numeric(38, 4)"),
            (type_named("int4[]"), b"[0:1]={1,2}", None),
            (type_named("numeric[]"), b"{0.00001}", "v::numeric(9, 2)[]"),
            (type_named("text[]"), b"[2:2]={a}", "v::text[]"),
        ],
    )
    def test_a_value_of_a_key_that_others_may_become(self, kind: PgType, text: bytes, cast: str | None) -> None:
        with pytest.raises(RejectedError, match="which Spark can't hold unchanged") as refused:
            parse(kind, [text], cast, in_key=True)
        assert "'\"v\"::text'" in refused.value.hint
        assert parse(kind, [text], "v::text", in_key=True).to_pylist() == [text.decode()]

    def test_a_key_that_its_cast_holds_is_taken(self) -> None:
        assert parse(type_named("numeric"), [b"1.5", b"2.50000"], "v::numeric(9, 2)", in_key=True).to_pylist() == [
            Decimal("1.50"),
            Decimal("2.50"),
        ]

    def test_a_long_value_is_shortened(self) -> None:
        with pytest.raises(RejectedError) as refused:
            parse(type_named("int4[]"), [b"{{" + b"1," * 500 + b"1}}"])
        assert len(refused.value.message) < 250

    def test_a_text_that_is_no_utf_8(self) -> None:
        with pytest.raises(RejectedError, match="no UTF-8"):
            parse(type_named("text"), [b"ok", b"\xff"])


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (type_named("bool"), b"true"),
        (type_named("int4"), b"2147483648"),
        (type_named("int8"), b""),
        (type_named("float8"), b"one"),
        (type_named("date"), b"2026-02-30"),
        (type_named("timestamptz"), b"2026-01-01 10:00:00"),
        (type_named("bytea"), b"\\x0"),
        (type_named("bytea"), b"\\x0g"),
        (type_named("bytea"), b"abcd"),
        (type_named("bytea"), b""),
        (type_named("int4[]"), b"1,2"),
        (type_named("int4[]"), b"{1 2"),
        (type_named("text[]"), b'{"a}'),
        (type_named("text[]"), b"{a,,b}"),
    ],
    ids=lambda each: getattr(each, "text", None),
)
def test_texts_that_postgres_never_sends_are_damage(kind: PgType, text: bytes) -> None:
    with pytest.raises(CorruptionError, match=r"public\.t\.v \(.*\) has a text that is none"):
        parse(kind, [None, text])


def _write_array(row: Sequence[str | None] | None) -> bytes | None:
    if row is None:
        return None
    quoted = ["NULL" if item is None else '"' + item.replace("\\", "\\\\").replace('"', '\\"') + '"' for item in row]
    return ("{" + ",".join(quoted) + "}").encode()
