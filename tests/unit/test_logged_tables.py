"""Tables of a change log: as JSON, their columns, and the casts that can be carried out on changes."""

import pytest

from gobblin_assets.errors import CorruptionError, RejectedError
from gobblin_assets.sources.jdbc.postgres_tables import PgType, suggest_cast
from gobblin_assets.sources.postgres_log.logged_table import (
    LoggedColumn,
    LoggedTable,
    parse_table,
    table_to_json,
)
from tests.support.row_messages import columns_of, numeric, table_of, type_named

TABLE = LoggedTable(
    4_000_000_000,
    "Sales",
    'Größe "x"',
    "i",
    (
        LoggedColumn("id", type_named("int8"), True),
        LoggedColumn("tags", type_named("text[]"), False),
        LoggedColumn("mood", PgType("public.mood", "e", "mood", -1), False),
    ),
)


class TestJson:
    def test_a_table_reads_back(self) -> None:
        assert parse_table(table_to_json(TABLE)) == TABLE
        assert parse_table(table_to_json(TABLE).encode()) == TABLE

    @pytest.mark.parametrize(
        "text", ["", "[]", "{}", '{"oid": 1}', table_to_json(TABLE).replace("kind", "sort"), b"\xff"]
    )
    def test_anything_else_is_damage(self, text: str | bytes) -> None:
        with pytest.raises(CorruptionError):
            parse_table(text)


class TestColumns:
    def test_they_have_the_types_of_table_sources(self) -> None:
        table = table_of(
            ("id", type_named("int8")),
            ("price", numeric(12, 2)),
            ("at", type_named("timestamptz")),
            ("days", type_named("date[]")),
            ("raw", type_named("bytea")),
            ("key", type_named("uuid")),
        )
        assert columns_of(table, {}) == [
            ("id", "bigint"),
            ("price", "decimal(12,2)"),
            ("at", "timestamp"),
            ("days", "array<date>"),
            ("raw", "binary"),
            ("key", "string"),
        ]

    @pytest.mark.parametrize(
        ("kind", "cast", "spark_type"),
        [
            (type_named("money"), "v::text", "string"),
            (type_named("money"), ' "v" :: TEXT ', "string"),
            (type_named("money"), "V::Text", "string"),
            (type_named("interval[]"), "v::text[]", "array<string>"),
            (type_named("interval[]"), "v::text", "string"),
            (type_named("numeric"), "v::numeric(38, 10)", "decimal(38,10)"),
            (type_named("numeric"), "v::numeric(9)", "decimal(9,0)"),
            (type_named("int4"), "v::decimal(12,2)", "decimal(12,2)"),
            (type_named("numeric[]"), "v::numeric(38,10) [ ]", "array<decimal(38,10)>"),
        ],
    )
    def test_casts_give_theirs(self, kind: PgType, cast: str, spark_type: str) -> None:
        assert columns_of(table_of(("v", kind)), {"v": cast, "not there": "x::text"}) == [("v", spark_type)]

    @pytest.mark.parametrize("kind", [type_named("numeric"), type_named("money"), type_named("interval[]")])
    def test_what_is_suggested_is_taken(self, kind: PgType) -> None:
        name = 'a "b"'
        cast = suggest_cast(kind, '"a ""b"""')
        assert columns_of(table_of((name, kind)), {name: cast})[0][0] == name


class TestRefusals:
    @pytest.mark.parametrize(
        "cast",
        [
            "upper(v)",
            "v::int8",
            "v::numeric",
            "v::varchar(5)",
            "w::text",
            "v::text || 'x'",
            "v::text::text",
            "v::text[]",
            "v::numeric(4,2)",
            "(v)::text",
            "",
        ],
    )
    def test_casts_that_only_a_query_can_carry_out(self, cast: str) -> None:
        with pytest.raises(RejectedError) as refused:
            columns_of(table_of(("v", type_named("money"))), {"v": cast}, urn="shop")
        assert refused.value.field == "datasets[shop].casts.v"
        assert '"v"::text' in refused.value.hint

    @pytest.mark.parametrize(
        ("kind", "cast"),
        [
            (type_named("text"), "v::numeric(4,2)"),
            (type_named("float8"), "v::numeric(4,2)"),
            (type_named("numeric[]"), "v::numeric(4,2)"),
            (type_named("numeric"), "v::numeric(4,2)[]"),
        ],
    )
    def test_casts_to_numeric_of_what_is_not_exactly_one(self, kind: PgType, cast: str) -> None:
        with pytest.raises(RejectedError):
            columns_of(table_of(("v", kind)), {"v": cast})

    @pytest.mark.parametrize(
        ("kind", "hint"),
        [
            (type_named("money"), "{'v': '\"v\"::text'}"),
            (type_named("numeric"), "{'v': '\"v\"::numeric(38, 10)'}"),
            (type_named("interval[]"), "{'v': '\"v\"::text[]'}"),
            (numeric(40, 2), "{'v': '\"v\"::numeric(38, 10)'}"),
        ],
    )
    def test_types_that_spark_can_not_hold(self, kind: PgType, hint: str) -> None:
        with pytest.raises(RejectedError) as refused:
            columns_of(table_of(("id", type_named("int4")), ("v", kind)), {})
        assert refused.value.field == "datasets[public.t].casts"
        assert f"public.t.v is {kind.text}: " in refused.value.message
        assert f"Write casts: {hint}" in refused.value.hint

    @pytest.mark.parametrize("kind", [type_named("numeric"), type_named("numeric[]"), type_named("interval[]")])
    def test_of_a_key_the_text_as_a_whole_is_suggested(self, kind: PgType) -> None:
        with pytest.raises(RejectedError) as refused:
            columns_of(table_of(("v", kind)), {})
        assert "Write casts: {'v': '\"v\"::text'}," in refused.value.hint
        assert columns_of(table_of(("v", kind)), {"v": '"v"::text'}) == [("v", "string")]

    def test_a_cast_to_more_digits_than_spark_has(self) -> None:
        with pytest.raises(RejectedError, match="39 digits"):
            columns_of(table_of(("v", type_named("numeric"))), {"v": "v::numeric(39,2)"})

    @pytest.mark.parametrize("name", ["_op", "_LSN", "_copy"])
    def test_names_of_our_own_columns(self, name: str) -> None:
        with pytest.raises(RejectedError, match="own columns"):
            columns_of(table_of(("id", type_named("int4")), (name, type_named("int4"))), {})

    def test_names_that_spark_takes_for_one(self) -> None:
        with pytest.raises(RejectedError, match="can't tell apart"):
            columns_of(table_of(("Id", type_named("int4")), ("id", type_named("int4"))), {})
