"""What is wrong with one table of a slot stops that table, and no other one; it is said, and goes on once it is right."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from sqlalchemy import Engine

from gobblin_assets.jobs.sink import lane_holding
from tests.support.changed_tables import ChangedTables, log_variables
from tests.support.command_lake import invoke
from tests.support.postgres import Database

_END_S_MAX: Final = 15.0
"""Of a worker that is asked to end: a barrier, and what it has just begun."""

_REST_S: Final = 0.5


@pytest.fixture
def tables(
    tmp_path: Path, source_database: Database, engine: Engine, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ChangedTables]:
    """Two tables that are followed. What fails is tried again soon."""
    monkeypatch.setattr(lane_holding, "_REST_S", _REST_S)
    monkeypatch.setenv("GOBBLIN_DATABASE_URL", database_url)
    monkeypatch.setenv("GOBBLIN_HOME", str(tmp_path / "home"))
    made = ChangedTables(tmp_path, source_database, engine, ["orders", "notes"])
    made.do(
        "CREATE TABLE orders (id bigint PRIMARY KEY, customer text)",
        "CREATE TABLE notes (id int PRIMARY KEY, body text)",
        "CREATE PUBLICATION lake FOR TABLE orders, notes",
        "INSERT INTO orders SELECT n, 'c' || n FROM generate_series(1, 50) n",
        "INSERT INTO notes VALUES (1, 'first')",
    )
    with log_variables(made, monkeypatch):
        with made.working():
            made.await_published()
        yield made


def add_table(tables: ChangedTables, name: str, columns: str, *statements: str) -> None:
    tables.do(f"CREATE TABLE {name} (id int PRIMARY KEY, {columns})", *statements)
    tables.do(f"ALTER PUBLICATION lake ADD TABLE {name}")
    tables.tables = [*tables.tables, name]


def require_followed(tables: ChangedTables, number: int) -> None:
    """The tables that were followed before still are."""
    tables.do(f"INSERT INTO orders VALUES ({number}, 'meanwhile')", f"INSERT INTO notes VALUES ({number}, 'meanwhile')")
    tables.await_published("orders", "notes")


def require_same(tables: ChangedTables) -> None:
    for table in tables.tables:
        tables.require_same(table, "id")


def test_a_value_that_can_t_be_held_stops_the_table_that_joins_with_it(tables: ChangedTables) -> None:
    add_table(tables, "late", "day date", "INSERT INTO late VALUES (1, 'infinity')")

    with tables.working():
        tables.await_said("public.late: rests")
        assert any("late.day (date) holds infinity" in line for line in tables.said), tables.said
        require_followed(tables, 1000)
        tables.do("UPDATE late SET day = '2026-03-01'")
        tables.await_copied("late")
        require_followed(tables, 1001)
    require_same(tables)


def test_a_table_that_is_locked_keeps_nobody_waiting(tables: ChangedTables) -> None:
    add_table(tables, "late", "body text", "INSERT INTO late VALUES (1, 'x')")

    with tables.database.connect(autocommit=False) as lock:
        lock.execute("LOCK TABLE late IN ACCESS EXCLUSIVE MODE")
        with tables.working():
            tables.await_said("another session keeps the table locked")
            require_followed(tables, 1000)
            asked_s = time.monotonic()
        assert time.monotonic() - asked_s < _END_S_MAX
    with tables.working():
        tables.await_copied("late")
    require_same(tables)


def test_a_copy_that_waits_for_a_long_transaction_keeps_nobody_waiting(tables: ChangedTables) -> None:
    add_table(tables, "late", "body text", "INSERT INTO late VALUES (1, 'x')")

    with tables.database.connect(autocommit=False) as long:
        long.execute("INSERT INTO late VALUES (2, 'not yet')")
        with tables.working():
            tables.await_said("late: the copy waits for transactions that were running")
            require_followed(tables, 1000)
            require_followed(tables, 1001)
            assert tables.published_to("late") == 0
            long.commit()
            tables.await_copied("late")
            require_followed(tables, 1002)
    require_same(tables)


def test_a_column_that_may_not_be_read_is_named(tables: ChangedTables, monkeypatch: pytest.MonkeyPatch) -> None:
    add_table(tables, "late", "body text, secret date", "INSERT INTO late VALUES (1, 'x', '2026-03-01')")
    monkeypatch.setenv("GOBBLIN_POSTGRES_LOG_SHOP_USER", "reader_of_some")
    monkeypatch.setenv("GOBBLIN_POSTGRES_LOG_SHOP_PASSWORD", "some")
    tables.do(
        "CREATE ROLE reader_of_some LOGIN REPLICATION PASSWORD 'some'",
        "GRANT pg_monitor TO reader_of_some",
        "GRANT SELECT ON orders, notes TO reader_of_some",
        "GRANT SELECT (id, body) ON late TO reader_of_some",
    )
    try:
        with tables.working():
            tables.await_said("public.late: rests")
            assert any("the user may not read secret of public.late" in line for line in tables.said), tables.said
            require_followed(tables, 1000)
            tables.do("GRANT SELECT ON late TO reader_of_some")
            tables.await_copied("late")
        require_same(tables)
    finally:
        tables.do("DROP OWNED BY reader_of_some", "DROP ROLE reader_of_some")


@pytest.mark.parametrize(
    "making",
    ["CREATE TYPE mood AS ENUM ('glad', 'sad')", "CREATE DOMAIN mood AS text CHECK (value <> '')"],
    ids=["enum", "domain"],
)
def test_a_type_that_was_dropped_before_its_last_rows_were_read_stops_its_table(
    tables: ChangedTables, making: str
) -> None:
    tables.do(making, "ALTER TABLE notes ADD COLUMN mood mood", "INSERT INTO notes VALUES (2, 'second', 'glad')")
    tables.do("ALTER TABLE notes DROP COLUMN mood", "DROP TYPE mood" if "ENUM" in making else "DROP DOMAIN mood")

    with tables.working():
        tables.await_said("public.notes: rests")
        assert any("from before the type of mood was dropped" in line for line in tables.said), tables.said
        tables.do("INSERT INTO orders VALUES (1000, 'meanwhile')")
        tables.await_published("orders")
        assert invoke("sink", "recopy", tables.write_job(), "--dataset", "public.notes").exit_code == 0
        tables.await_copied("notes")
        require_followed(tables, 1001)
    require_same(tables)
