"""What tells the rows of a table apart is one rule for copies, changes and the table as of now."""

from pathlib import Path

import pytest
from sqlalchemy import Engine

from tests.support.changed_tables import ChangedTables, set_log_variables
from tests.support.postgres import Database

pytestmark = pytest.mark.turns(of=8)


@pytest.fixture
def tables(tmp_path: Path, source_database: Database, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> ChangedTables:
    made = ChangedTables(tmp_path, source_database, engine, ["named by each test"])
    set_log_variables(made, monkeypatch)
    return made


def make(tables: ChangedTables, publish: str = "insert, update, delete, truncate", **definitions: str) -> None:
    """Tables with three rows, by what follows ``id int, v int, note text``, and their publication."""
    tables.tables = list(definitions)
    for name, (columns, _, then) in ((name, each.partition(";")) for name, each in definitions.items()):
        tables.do(f"CREATE TABLE {name} (id int NOT NULL, v int, note text{columns and f', {columns}'})")
        tables.do(*filter(None, [then]), f"INSERT INTO {name} SELECT n, n, 'copied' FROM generate_series(1, 3) n")
    tables.do(f"CREATE PUBLICATION lake FOR TABLE {', '.join(definitions)} WITH (publish = '{publish}')")


def key_of(tables: ChangedTables, table: str) -> object:
    fact = tables.facts_of(table)["postgres_log"]
    assert isinstance(fact, dict)
    return fact["key"]


def test_columns_that_an_index_only_includes_are_none_of_the_key(tables: ChangedTables) -> None:
    make(
        tables,
        included="PRIMARY KEY (id) INCLUDE (v, note)",
        indexed="CONSTRAINT i UNIQUE (id) INCLUDE (v);ALTER TABLE indexed REPLICA IDENTITY USING INDEX i",
        whole="PRIMARY KEY (id) INCLUDE (v);ALTER TABLE whole REPLICA IDENTITY FULL",
        keyless=";ALTER TABLE keyless REPLICA IDENTITY FULL",
    )
    with tables.working():
        for table in tables.tables:
            tables.await_copied(table)
        for table in tables.tables:
            tables.do(
                f"UPDATE {table} SET v = v + 10",
                f"UPDATE {table} SET id = 7 WHERE id = 2",
                f"DELETE FROM {table} WHERE id = 1",
                f"INSERT INTO {table} VALUES (9, 9, 'new')",
            )
        tables.await_published()
    keys = {table: key_of(tables, table) for table in tables.tables}
    assert keys == {"included": ["id"], "indexed": ["id"], "whole": ["id"], "keyless": None}
    for table, key in keys.items():
        tables.require_same(table, None if key is None else "id")


def test_a_table_without_identity_has_its_insertions(tables: ChangedTables) -> None:
    make(
        tables,
        "insert, truncate",
        keyed="PRIMARY KEY (id);ALTER TABLE keyed REPLICA IDENTITY NOTHING",
        plain=";ALTER TABLE plain REPLICA IDENTITY NOTHING",
    )
    with tables.working():
        for table in tables.tables:
            tables.await_copied(table)
            tables.do(f"INSERT INTO {table} VALUES (9, 9, 'new')", f"INSERT INTO {table} VALUES (10, NULL, NULL)")
        tables.await_published()
    for table in tables.tables:
        assert key_of(tables, table) is None
        tables.require_same(table, None)


def test_no_identity_is_refused_where_updates_are_published(tables: ChangedTables) -> None:
    make(tables, keyed="PRIMARY KEY (id);ALTER TABLE keyed REPLICA IDENTITY NOTHING")
    with tables.working():
        tables.await_said("keyed has no replica identity")
    assert any("REPLICA IDENTITY DEFAULT" in line for line in tables.said)


@pytest.mark.core
def test_whole_rows_without_the_key_that_they_were_copied_by_stop_the_table(tables: ChangedTables) -> None:
    make(tables, whole="PRIMARY KEY (id);ALTER TABLE whole REPLICA IDENTITY FULL")
    with tables.working():
        tables.await_copied("whole")
        tables.do("ALTER TABLE whole DROP CONSTRAINT whole_pkey", "INSERT INTO whole VALUES (1, 5, 'a second one')")
        tables.await_said("were told apart by id, and are by all of their columns now")


def test_whole_rows_that_get_a_key_go_on(tables: ChangedTables) -> None:
    make(tables, whole=";ALTER TABLE whole REPLICA IDENTITY FULL")
    with tables.working():
        tables.await_copied("whole")
        tables.do("ALTER TABLE whole ADD PRIMARY KEY (id)", "UPDATE whole SET v = 0 WHERE id = 2")
        tables.await_published()
    tables.require_same("whole", None)


SMALL = ("0.00000000001", "0.00000000002")


def cast_key(tables: ChangedTables, cast: str) -> None:
    tables.do("CREATE TABLE t (id numeric PRIMARY KEY, v int)", "CREATE PUBLICATION lake FOR TABLE t")
    tables.options = {"datasets": [{"urn": "public.t", "casts": {"id": cast}}]}
    tables.tables = ["t"]


REFUSED = f"public.t.id (numeric(38,10)) holds {SMALL[0]}, which Spark can't hold unchanged"


def test_a_cast_of_a_key_makes_no_two_rows_of_a_copy_one(tables: ChangedTables) -> None:
    cast_key(tables, "id::numeric(38, 10)")
    tables.do(*(f"INSERT INTO t VALUES ({each}, 1)" for each in SMALL))
    with tables.working():
        tables.await_said(REFUSED)
    assert tables.log_of("t").num_rows == 0


def test_a_cast_of_a_key_makes_no_two_rows_of_a_log_one(tables: ChangedTables) -> None:
    cast_key(tables, "id::numeric(38, 10)")
    with tables.working():
        tables.await_copied("t")
        tables.do("INSERT INTO t VALUES (1.5, 1)")
        tables.await_published("t")
        tables.do(*(f"INSERT INTO t VALUES ({each}, 1)" for each in SMALL))
        tables.await_said(REFUSED)
    assert [str(row["id"]) for row in tables.log_of("t").to_pylist()] == ["1.5000000000"]


@pytest.mark.core
def test_the_text_of_a_key_tells_apart_what_the_key_does(tables: ChangedTables) -> None:
    cast_key(tables, '"id"::text')
    tables.do(*(f"INSERT INTO t VALUES ({each}, 1)" for each in SMALL))
    with tables.working():
        tables.await_copied("t")
        tables.do("UPDATE t SET v = 2")
        tables.await_published("t")
    assert set(tables.rebuild("t", "id")) == {(each, 2) for each in SMALL}
