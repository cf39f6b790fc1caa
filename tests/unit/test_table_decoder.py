"""Changes and copied rows of a table as rows of its change log."""

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from gobblin_assets.errors import CorruptionError, RejectedError
from gobblin_assets.rows.arrow_types import arrow_schema
from gobblin_assets.sources.postgres_log.logged_table import CHANGE_COLUMNS, LoggedTable
from gobblin_assets.sources.postgres_log.table_decoder import TableDecoder
from tests.support.row_messages import (
    AT,
    changes,
    columns_of,
    copied,
    deleted,
    inserted,
    numeric,
    table_of,
    truncated,
    type_named,
    updated,
)

TABLE = table_of(("id", type_named("int4")), ("note", type_named("text")))
FULL = table_of(("id", type_named("int4")), ("note", type_named("text")), identity="f")
OWN = list(CHANGE_COLUMNS.items())
FACTS = {"_lsn": 1_000, "_xid": 77, "_commit_at": AT, "_copy": 1}


def decoder(known: dict[str, str] | None = None, casts: dict[str, str] | None = None) -> TableDecoder:
    return TableDecoder("shop", casts or {}, known)


def rows_of(made: TableDecoder, records: pa.RecordBatch) -> list[dict[str, Any]]:
    decoded = made.decode(records)
    assert decoded.rows.schema == arrow_schema(made.columns)
    assert (decoded.dead_letters.num_rows, decoded.left_out) == (0, 0)
    decoded.rows.validate(full=True)
    return decoded.rows.to_pylist()


def row(op: str, seq: int, id_: int | None, note: str | None, unchanged: list[str] | None = None) -> dict[str, Any]:
    return {"id": id_, "note": note, "_op": op, "_seq": seq, "_unchanged": unchanged, **FACTS}


class TestChanges:
    def test_each_kind_becomes_its_rows(self) -> None:
        messages = [
            inserted(b"1", b"a"),
            updated(b"1", ...),
            updated(b"2", b"b", old=(b"1", None)),
            deleted(b"2", None),
            truncated(TABLE.oid),
        ]
        assert rows_of(decoder(), changes(TABLE, messages, seqs=[1, 2, 5, 9, 10])) == [
            row("c", 1, 1, "a"),
            row("u", 2, 1, None, ["note"]),
            row("b", 5, 1, None),
            row("u", 6, 2, "b"),
            row("d", 9, 2, None),
            row("t", 10, None, None),
        ]

    def test_whole_old_rows_fill_what_was_not_sent(self) -> None:
        messages = [
            updated(b"1", ..., old=(b"1", b"long"), kind=b"O"),
            deleted(b"1", b"long", kind=b"O"),
        ]
        assert rows_of(decoder(), changes(FULL, messages, seqs=[1, 3])) == [
            row("b", 1, 1, "long"),
            row("u", 2, 1, "long"),
            row("d", 3, 1, "long"),
        ]

    def test_a_key_fills_itself_and_nothing_else(self) -> None:
        messages = [updated(..., ..., old=(b"1", None))]
        assert rows_of(decoder(), changes(TABLE, messages)) == [
            row("b", 1, 1, None),
            row("u", 2, 1, None, ["note"]),
        ]

    def test_no_change_is_no_row(self) -> None:
        assert rows_of(decoder(), changes(TABLE, [])) == []

    def test_damage_is_not_decoded(self) -> None:
        good = changes(TABLE, [inserted(b"1", b"a")])
        metadata = dict(good.schema.metadata)
        lacking = [{**metadata, b"copy": b"0"}, {b"table": metadata[b"table"]}, {b"copy": b"1"}]
        others = [
            good.drop_columns(["xid"]),
            good.set_column(1, "lsn", pa.array([None], pa.int64())),
            *(good.replace_schema_metadata(each) for each in lacking),
        ]
        for records in others:
            with pytest.raises(CorruptionError):
                decoder().decode(records)


class TestCopiedRows:
    def test_they_are_rows_of_the_change_log(self) -> None:
        rows = pa.record_batch({"id": pa.array([1, None], pa.int32()), "note": pa.array(["a", None])})
        own = {"_op": "r", "_lsn": 5, "_seq": 0, "_xid": None, "_commit_at": AT, "_unchanged": None, "_copy": 3}
        assert rows_of(decoder(), copied(TABLE, rows, lsn=5, copy=3)) == [
            {"id": 1, "note": "a", **own},
            {"id": None, "note": None, **own},
        ]

    def test_other_columns_than_the_table_has_are_damage(self) -> None:
        for rows in (
            pa.record_batch({"id": pa.array([1], pa.int64()), "note": pa.array(["a"])}),
            pa.record_batch({"note": pa.array(["a"]), "id": pa.array([1], pa.int32())}),
        ):
            with pytest.raises(CorruptionError, match="copied rows"):
                decoder().decode(copied(TABLE, rows, lsn=5))

    def test_rows_that_do_not_say_where_they_were_read_are_damage(self) -> None:
        rows = copied(TABLE, pa.record_batch({"id": pa.array([1], pa.int32()), "note": pa.array(["a"])}), lsn=5)
        for text in (b"", b"{}", b'{"lsn": 1, "at": null}'):
            with pytest.raises(CorruptionError):
                decoder().decode(rows.replace_schema_metadata({**dict(rows.schema.metadata), b"copied": text}))


class TestColumns:
    def test_there_are_none_before_a_table_is_known(self) -> None:
        made = decoder()
        assert list(made.columns) == []
        rows_of(made, changes(TABLE, []))
        assert list(made.columns) == [("id", "int"), ("note", "string"), *OWN]

    def test_those_of_the_newest_table_come_first(self) -> None:
        made = decoder({"gone": "date", "id": "int", **CHANGE_COLUMNS})
        assert list(made.columns) == [("gone", "date"), ("id", "int"), *OWN]
        assert rows_of(made, changes(TABLE, [inserted(b"1", b"a")]))[0]["gone"] is None
        assert list(made.columns) == [("id", "int"), ("note", "string"), ("gone", "date"), *OWN]

    def test_columns_come_and_go_in_a_stream(self) -> None:
        made = decoder()
        rows_of(made, changes(TABLE, [inserted(b"1", b"a")]))
        later = table_of(("id", type_named("int4")), ("size", type_named("float8")))
        assert rows_of(made, changes(later, [inserted(b"2", b"0.5")]))[0] == {**row("c", 1, 2, None), "size": 0.5}
        assert [name for name, _kind in made.columns][:3] == ["id", "size", "note"]
        # Rows of the earlier table, read again.
        assert rows_of(made, changes(TABLE, [inserted(b"1", b"a")]))[0] == {**row("c", 1, 1, "a"), "size": None}

    @pytest.mark.parametrize(
        ("before", "now", "text", "joined", "value"),
        [
            ("int", type_named("int8"), b"5", "bigint", 5),
            ("bigint", type_named("int2"), b"5", "bigint", 5),
            ("int", type_named("float4"), b"0.5", "double", 0.5),
            ("bigint", numeric(10, 2), b"5.25", "decimal(21,2)", Decimal("5.25")),
            ("decimal(12,4)", type_named("int4"), b"5", "decimal(14,4)", Decimal("5.0000")),
            ("decimal(12,4)", numeric(14, 2), b"5.25", "decimal(16,4)", Decimal("5.2500")),
            ("date", type_named("timestamp"), b"2026-01-01 10:00:00", "timestamp_ntz", dt.datetime(2026, 1, 1, 10)),  # noqa: DTZ001  a wall clock's
            ("timestamp_ntz", type_named("date"), b"2026-01-01", "timestamp_ntz", dt.datetime(2026, 1, 1)),  # noqa: DTZ001  a wall clock's
            ("array<int>", type_named("int8[]"), b"{1,NULL}", "array<bigint>", [1, None]),
            ("array<bigint>", type_named("int4[]"), b"{1,NULL}", "array<bigint>", [1, None]),
        ],
    )  # fmt: skip
    def test_a_type_that_changed_holds_both(self, before: str, now: Any, text: bytes, joined: str, value: Any) -> None:
        made = decoder({"id": before, **CHANGE_COLUMNS})
        table = table_of(("id", now))
        assert rows_of(made, changes(table, [inserted(text), inserted(None)]))[0]["id"] == value
        assert made.columns[0] == ("id", joined)

    @pytest.mark.parametrize(("before", "now"), [("int", "text"), ("string", "int4"), ("timestamp", "timestamp")])
    def test_one_that_can_not_is_refused(self, before: str, now: str) -> None:
        with pytest.raises(RejectedError, match=r"public\.t: 'id' is \w+ now, its published files hold \w+") as refused:
            decoder({"id": before}).decode(changes(table_of(("id", type_named(now))), []))
        assert refused.value.field == "datasets[shop].casts"

    def test_copied_rows_take_the_joined_types_too(self) -> None:
        made = decoder({"id": "bigint", "old": "string"})
        rows = pa.record_batch({"id": pa.array([1], pa.int32()), "note": pa.array(["a"])})
        assert rows_of(made, copied(TABLE, rows, lsn=5))[0]["old"] is None
        assert made.columns[0] == ("id", "bigint")

    def test_casts_are_those_of_the_dataset(self) -> None:
        table: LoggedTable = table_of(("id", type_named("int4")), ("cost", type_named("money")))
        casts = {"cost": "cost::text"}
        made = decoder(casts=casts)
        assert rows_of(made, changes(table, [inserted(b"1", b"$5.00")]))[0]["cost"] == "$5.00"
        assert list(made.columns) == [*columns_of(table, casts), *OWN]
        with pytest.raises(RejectedError, match=r"datasets\[shop\]\.casts"):
            decoder().decode(changes(table, []))
