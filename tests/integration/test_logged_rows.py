"""Changes that a real Postgres sends, as rows: what was done, and the same values that table sources read."""

from typing import Any

import pyarrow as pa
import pytest

from gobblin_assets.errors import RejectedError
from gobblin_assets.sources.postgres_log.logged_table import CHANGE_COLUMNS, parse_table
from gobblin_assets.sources.postgres_log.table_decoder import TableDecoder
from tests.support.every_type import CASTS, COLUMNS, TYPES
from tests.support.logged_changes import Log, execute, read_table
from tests.support.postgres import Database
from tests.support.row_messages import copied


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
