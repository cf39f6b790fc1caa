"""Tables of a real Postgres by their change logs, from the job file to the published rows."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from tests.support.changed_tables import ChangedTables, log_variables
from tests.support.postgres import Database


@pytest.fixture
def tables(
    tmp_path: Path, source_database: Database, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ChangedTables]:
    made = ChangedTables(tmp_path, source_database, engine, ["orders", "notes"])
    made.do(
        "CREATE TABLE orders (id bigint PRIMARY KEY, customer text, amount numeric(12, 2), at timestamptz)",
        "CREATE TABLE notes (id int PRIMARY KEY, body text, n int)",
        "ALTER TABLE notes ALTER COLUMN body SET STORAGE EXTERNAL",
        "CREATE PUBLICATION lake FOR TABLE orders, notes",
        "INSERT INTO orders SELECT n, 'c' || n, n / 7.0, now() FROM generate_series(1, 1000) n",
        "INSERT INTO notes SELECT n, repeat('x', 5000), n FROM generate_series(1, 20) n",
    )
    with log_variables(made, monkeypatch):
        yield made


def ops_of(tables: ChangedTables, table: str) -> "Counter[str]":
    return Counter(tables.log_of(table)["_op"].to_pylist())


def test_a_copy_and_the_changes_behind_it_rebuild_the_tables(tables: ChangedTables) -> None:
    with tables.working():
        tables.await_published()
        assert ops_of(tables, "orders") == {"r": 1000}
        tables.do(
            "UPDATE orders SET amount = amount + 1 WHERE id <= 10",
            "DELETE FROM orders WHERE id > 990",
            "INSERT INTO orders VALUES (5000, NULL, NULL, NULL)",
            "UPDATE notes SET n = n + 1",
        )
        tables.do("UPDATE orders SET id = 6000 WHERE id = 1", "UPDATE notes SET id = 100 WHERE id = 1")
        tables.await_published()
    assert ops_of(tables, "orders") == {"r": 1000, "u": 11, "d": 10, "c": 1, "b": 1}
    tables.require_same("orders", "id")
    tables.require_same("notes", "id")
