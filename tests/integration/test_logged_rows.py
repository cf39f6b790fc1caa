"""Changes that a real Postgres sends, as rows: what was done, and the same values that table sources read."""

from typing import Any

import pyarrow as pa
import pytest

from gobblin_assets.errors import RejectedError
from gobblin_assets.sources.postgres_log.logged_table import CHANGE_COLUMNS, parse_table
from gobblin_assets.sources.postgres_log.table_decoder import TableDecoder
from tests.support.logged_changes import Log, execute, read_table
from tests.support.postgres import Database
from tests.support.row_messages import copied

TYPES = """
    CREATE TYPE mood AS ENUM ('sad', 'a "happy" one');
    CREATE DOMAIN price AS numeric(12, 2);
    CREATE DOMAIN prices AS price[];
    CREATE DOMAIN short AS varchar(7)"""

# Each type with the values that are hardest to keep, and the casts that table sources need for it too.
COLUMNS: dict[str, tuple[str, list[str]]] = {
    "bool": ("bool", ["true", "false"]),
    "int2": ("int2", ["-32768", "32767"]),
    "int4": ("int4", ["-2147483648", "2147483647"]),
    "float4": ("float4", ["0.1", "'NaN'", "'-Infinity'", "1.1754944e-38"]),
    "float8": ("float8", ["0.1", "'NaN'", "'Infinity'", "5e-324", "-0.0", "1.7976931348623157e308"]),
    "num": ("numeric(12,2)", ["-9999999999.99", "0", "1.005"]),
    "wide": ("numeric(38,10)", ["9999999999999999999999999999.9999999999"]),
    "price": ("price", ["1.5"]),
    "text": ("text", ["''", "'größe ''x'' \"y\" \\N'", "E'a\\tb\\nc'"]),
    "short": ("short", ["'abc'"]),
    "padded": ("char(9)", ["'ab'", "''"]),
    "bytes": ("bytea", [r"'\x'", r"'\x00ff0a5c27'"]),
    "day": ("date", ["'0001-01-01'", "'1582-10-04'", "'1582-10-15'", "'9999-12-31'"]),
    "wall": ("timestamp", ["'0001-01-01 00:00:00.000001'", "'2026-01-01 10:00:00.12'"]),
    "at": ("timestamptz", ["'9999-12-31 23:59:59.999999+00'", "'2026-07-01 12:00:00+05:30'", "'1883-11-18 12:00+00'"]),
    "uuid": ("uuid", ["'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'"]),
    "json": ("json", ["'{\"a\" :  1}'"]),
    "jsonb": ("jsonb", ["'{\"b\": 1e3, \"a\": \"\\u00e4\"}'"]),
    "inet": ("inet", ["'10.0.0.1'", "'10.0.0.1/8'", "'::1'", "'fe80::1/64'"]),
    "cidr": ("cidr", ["'10.0.0.0/8'", "'10.0.0.1'"]),
    "mac": ("macaddr", ["'08:00:2b:01:02:03'"]),
    "name": ("name", ["'n'"]),
    "char": ('"char"', ["'x'", "''"]),
    "mood": ("mood", ["'sad'", "'a \"happy\" one'"]),
    "ints": ("int4[]", ["'{}'", "'{1,NULL,-3}'", "'[0:1]={5,6}'"]),
    "texts": ("text[]", ["ARRAY['a', 'b,c', 'NULL', NULL, 'q\"\\{}', '', ' x ']"]),
    "bools": ("bool[]", ["'{t,f,NULL}'"]),
    "floats": ("float8[]", ["'{0.1,-Infinity}'"]),
    "nums": ("numeric(5,2)[]", ["'{1.5,NULL,-999.99}'"]),
    "prices": ("prices", ["'{1.5}'"]),
    "blobs": ("bytea[]", ["ARRAY['\\x00ff'::bytea, NULL, '']"]),
    "days": ("date[]", ["'{2026-01-01,NULL}'"]),
    "moments": ("timestamptz[]", ["ARRAY['2026-01-01 10:00:00.5+00'::timestamptz]"]),
    "inets": ("inet[]", ["'{10.0.0.1,::1/64}'"]),
    "moods": ("mood[]", ["ARRAY['a \"happy\" one']::mood[]"]),
    "pads": ("char(5)[]", ["'{ab,NULL}'"]),
    "cash": ("money", ["5.25"]),
    "span": ("interval", ["'1 year 2 mons -3 days 04:05:06.7'"]),
    "spans": ("interval[]", ["ARRAY['1 day'::interval, NULL]"]),
    "free": ("numeric", ["1.00005", "-2.5", "7"]),
    "frees": ("numeric[]", ["'{1.00005,NULL}'"]),
    "flag": ("bool", ["true", "false"]),
    "flags": ("bool[]", ["'{t,NULL}'"]),
    "flagged": ("bool[]", ["'{t,NULL}'"]),
    "trimmed": ("char(9)", ["'ab  '"]),
    "trims": ("char(5)[]", ["'{ab}'"]),
    "small": ("int2", ["-7"]),
    "ever": ("timestamptz", ["'infinity'", "'0044-03-15 BC'"]),
    "bits": ("bit(4)", ["'1010'"]),
    "range": ("tstzrange", ["'[2026-01-01 00:00:00+00,)'"]),
    "point": ("point", ["'(1,2.5)'"]),
    "nested": ("int4[]", ["'{{1,2},{3,4}}'"]),
    "oid": ("oid", ["4294967295"]),
}  # fmt: skip
CASTS = {
    "cash": "cash::text",
    "span": "span::text",
    "spans": "spans::text[]",
    "free": "free::numeric(12, 4)",
    "frees": "frees::numeric(12, 4)[]",
    "flag": "flag::text",
    "flags": "flags::text[]",
    "flagged": "flagged::text",
    "trimmed": "trimmed::text",
    "trims": "trims::text[]",
    "small": "small::numeric(6,2)",
    "ever": "ever::text",
    "bits": "bits::text",
    "range": '"range"::text',
    "point": "point::text",
    "nested": "nested::text",
    "oid": '"oid"::text',
}


def rows_of(decoder: TableDecoder, batches: list[pa.RecordBatch]) -> list[dict[str, Any]]:
    return [row for batch in batches for row in decoder.decode(batch).rows.to_pylist()]


def short(rows: list[dict[str, Any]], *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in ("_op", "_seq", *names)) for row in rows]


@pytest.fixture
def log(source_database: Database) -> Log:
    with source_database.connect() as sql:
        sql.execute("CREATE TABLE t (id int PRIMARY KEY, note text, big text)")
        sql.execute("ALTER TABLE t ALTER big SET STORAGE EXTERNAL")
    return Log(source_database)


class TestValues:
    def test_each_type_is_as_a_table_source_reads_it(self, source_database: Database) -> None:
        with source_database.connect() as sql:
            execute(sql, TYPES.split(";"))
            columns = ", ".join(f'"{name}" {kind}' for name, (kind, _values) in COLUMNS.items())
            execute(sql, [f"CREATE TABLE every (id serial PRIMARY KEY, {columns})"])
            log = Log(source_database)
            for name, (_kind, values) in COLUMNS.items():
                execute(sql, [f'INSERT INTO every ("{name}") VALUES ({value})' for value in values])
            execute(sql, ["INSERT INTO every DEFAULT VALUES"])
        decoder = TableDecoder("every", CASTS, None)
        batches = log.read("every")
        decoded = [decoder.decode(batch).rows for batch in batches]
        table = read_table(source_database, "public.every", casts=CASTS).sort_by("id")

        own = list(CHANGE_COLUMNS)
        changed = pa.Table.from_batches(decoded).drop_columns(own)
        assert changed.schema == table.schema
        # By their texts: a NaN equals itself there.
        for name in table.column_names:
            assert repr(changed[name].to_pylist()) == repr(table[name].to_pylist()), name
        assert changed.num_rows == sum(len(values) for _kind, values in COLUMNS.values()) + 1

        # What a copy reads becomes the same values.
        logged = parse_table((batches[0].schema.metadata or {})[b"table"])
        (rows,) = table.combine_chunks().to_batches()
        again = decoder.decode(copied(logged, rows, lsn=1)).rows
        assert repr(again.drop_columns(own).to_pylist()) == repr(rows.to_pylist())

    @pytest.mark.parametrize(
        ("kind", "value", "shown"),
        [
            ("date", "'infinity'", "infinity"),
            ("timestamptz", "'0044-03-15 00:00+00 BC'", "0044-03-15 00:00:00+00 BC"),
            ("timestamp", "'1582-10-10'", "1582-10-10 00:00:00"),
            ("numeric(5,2)", "'NaN'", "NaN"),
            ("date[]", "'{infinity}'", "infinity"),
            ("int4[]", "'{{1},{2}}'", "{{1},{2}}"),
        ],
    )
    def test_what_a_table_source_refuses_is_refused(
        self, source_database: Database, log: Log, kind: str, value: str, shown: str
    ) -> None:
        with source_database.connect() as sql:
            execute(sql, [f"ALTER TABLE t ADD v {kind}", f"INSERT INTO t (id, v) VALUES (1, {value})"])
        with pytest.raises(RejectedError, match="Spark can't hold unchanged") as refused:
            rows_of(TableDecoder("t", {}, None), log.read("t"))
        assert refused.value.fields["value"] == shown
        with pytest.raises(Exception, match="gobblin_value"):
            read_table(source_database, "public.t")


class TestChanges:
    def test_a_key_identifies_rows_and_long_values_that_stay_are_named(
        self, source_database: Database, log: Log
    ) -> None:
        with source_database.connect(autocommit=False) as sql:
            sql.execute(
                "INSERT INTO t VALUES (1, 'a', (SELECT string_agg(md5(n::text), '') FROM generate_series(1, 900) n))"
            )
            sql.execute("UPDATE t SET note = 'b'")
            sql.execute("SAVEPOINT s")
            sql.execute("INSERT INTO t VALUES (8, 'gone', NULL)")
            sql.execute("ROLLBACK TO s")
            sql.execute("UPDATE t SET id = 2")
            sql.execute("UPDATE t SET big = 'now short'")
            sql.execute("DELETE FROM t")
        with source_database.connect() as sql:
            sql.execute("TRUNCATE t")
            sql.execute("INSERT INTO t VALUES (3, NULL, NULL)")
        rows = rows_of(TableDecoder("t", {}, None), log.read("t"))
        assert short(rows, "id", "note", "_unchanged") == [
            ("c", 1, 1, "a", None),
            ("u", 2, 1, "b", ["big"]),
            ("b", 3, 1, None, None),
            ("u", 4, 2, "b", ["big"]),
            ("u", 5, 2, "b", None),
            ("d", 6, 2, None, None),
            ("t", 1, None, None, None),
            ("c", 1, 3, None, None),
        ]
        assert [len(row["big"] or "") for row in rows] == [28_800, 0, 0, 0, len("now short"), 0, 0, 0]
        first, *_others, last = rows
        assert first["_lsn"] < last["_lsn"]
        assert len({(row["_lsn"], row["_xid"], row["_commit_at"]) for row in rows}) == 3

    def test_whole_rows_identify_themselves(self, source_database: Database, log: Log) -> None:
        with source_database.connect() as sql:
            sql.execute("ALTER TABLE t REPLICA IDENTITY FULL")
            sql.execute(
                "INSERT INTO t VALUES (1, NULL, (SELECT string_agg(md5(n::text), '') FROM generate_series(1, 900) n))"
            )
            sql.execute("UPDATE t SET note = 'b'")
            sql.execute("DELETE FROM t")
        rows = rows_of(TableDecoder("t", {}, None), log.read("t"))
        assert short(rows, "id", "note", "_unchanged") == [
            ("c", 1, 1, None, None),
            ("b", 1, 1, None, None),
            ("u", 2, 1, "b", None),
            ("d", 1, 1, "b", None),
        ]
        assert [len(row["big"]) for row in rows] == [28_800] * 4

    def test_a_truncation_of_many_tables_is_a_row_of_each(self, source_database: Database, log: Log) -> None:
        with source_database.connect() as sql:
            sql.execute("CREATE TABLE child (id int REFERENCES t)")
            sql.execute("TRUNCATE t CASCADE")
        assert short(rows_of(TableDecoder("t", {}, None), log.read("t")), "id") == [("t", 1, None)]

    def test_a_table_changes_while_its_rows_go_on(self, source_database: Database, log: Log) -> None:
        decoder = TableDecoder("t", {}, None)
        with source_database.connect() as sql:
            sql.execute("INSERT INTO t VALUES (1, 'a', 'x')")
            sql.execute("ALTER TABLE t ADD at timestamptz NOT NULL DEFAULT '2026-01-01 10:00:00+00'")
            sql.execute("ALTER TABLE t DROP big")
            sql.execute("ALTER TABLE t ALTER id TYPE bigint")
            sql.execute("INSERT INTO t VALUES (5000000000, 'b', DEFAULT)")
        first, last = (decoder.decode(batch).rows for batch in log.read("t"))
        assert first.schema.names[:3] == ["id", "note", "big"]
        assert [(name, kind) for name, kind in decoder.columns if name not in CHANGE_COLUMNS] == [
            ("id", "bigint"),
            ("note", "string"),
            ("at", "timestamp"),
            ("big", "string"),
        ]
        (row,) = last.to_pylist()
        assert (row["id"], row["note"], row["big"], row["at"].year) == (5_000_000_000, "b", None, 2026)

    def test_a_column_that_turns_into_another_kind_is_refused(self, source_database: Database, log: Log) -> None:
        with source_database.connect() as sql:
            sql.execute("INSERT INTO t VALUES (1, 'a', NULL)")
            sql.execute("ALTER TABLE t ALTER note TYPE int USING 1")
            sql.execute("INSERT INTO t VALUES (2, 5, NULL)")
        with pytest.raises(RejectedError, match="'note' is int now, its published files hold string"):
            rows_of(TableDecoder("t", {}, None), log.read("t"))
