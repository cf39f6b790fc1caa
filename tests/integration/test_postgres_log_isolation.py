"""What is wrong with one table of a slot stops that table, and no other one; it goes on once that is right."""

import threading
import time
from pathlib import Path
from typing import Final

import pytest
from sqlalchemy import Engine

from gobblin_assets.errors import RejectedError
from gobblin_assets.jobs.sink import lane_holding
from gobblin_assets.jobs.sink.catching_up import plan_catching_up
from gobblin_assets.jobs.sink.running import open_log_connection, open_worker, read_sink_datasets
from gobblin_assets.model.clock import SystemClock
from gobblin_assets.run.postgres import open_stores
from gobblin_assets.sources.postgres_log.server_state import find_publication
from tests.support.changed_tables import ChangedTables, NoSpark, set_log_variables
from tests.support.command_lake import invoke
from tests.support.postgres import Database

pytestmark = pytest.mark.turns(of=8)

_END_S_MAX: Final = 60.0
"""Of a worker that is asked to end: a barrier, and what it has just begun."""

_BACK_OFF_S: Final = 0.5

PUBLICATIONS: Final = (
    "CREATE TABLE plain (id int PRIMARY KEY, a text, double_id int GENERATED ALWAYS AS (id * 2) STORED, gone int)",
    "ALTER TABLE plain DROP COLUMN gone",
    "CREATE TABLE keyless (a int, b text)",
    "CREATE TABLE parent (id int, day date, PRIMARY KEY (id, day)) PARTITION BY RANGE (day)",
    "CREATE TABLE child PARTITION OF parent FOR VALUES FROM ('2026-01-01') TO ('2027-01-01') PARTITION BY LIST (id)",
    "CREATE TABLE leaf PARTITION OF child FOR VALUES IN (1)",
    "CREATE TABLE heir (more int) INHERITS (keyless)",
    "CREATE UNLOGGED TABLE quick (id int PRIMARY KEY)",
    "CREATE SCHEMA other",
    "CREATE TABLE other.things (id int PRIMARY KEY)",
    "CREATE PUBLICATION several FOR TABLE plain, keyless",
    "CREATE PUBLICATION one_alone FOR TABLE ONLY keyless, plain",
    "CREATE PUBLICATION by_columns FOR TABLE plain (id, a), parent (day, id) WITH (publish_via_partition_root)",
    "CREATE PUBLICATION filtered FOR TABLE keyless WHERE (a > 1), plain",
    "CREATE PUBLICATION leaves FOR TABLE parent, plain",
    "CREATE PUBLICATION roots FOR TABLE parent, leaf, plain WITH (publish_via_partition_root)",
    "CREATE PUBLICATION of_schema FOR TABLES IN SCHEMA other, public",
    "CREATE PUBLICATION everything FOR ALL TABLES",
    "CREATE PUBLICATION by_roots FOR ALL TABLES WITH (publish_via_partition_root)",
    "CREATE PUBLICATION generated FOR TABLE plain WITH (publish_generated_columns = stored)",
)


@pytest.fixture
def tables(
    tmp_path: Path, source_database: Database, engine: Engine, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> ChangedTables:
    """Two tables that are followed. What fails is tried again soon."""
    monkeypatch.setattr(lane_holding, "_BACK_OFF_S", _BACK_OFF_S)
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
    set_log_variables(made, monkeypatch)
    with made.working():
        made.await_published()
    return made


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
        tables.await_said("public.late: backs off")
        assert any("late.day (date) holds infinity" in line for line in tables.said), tables.said
        require_followed(tables, 1000)
        tables.await_said("public.late: backs off, and the server keeps")
        status = " ".join(invoke("sink", "status", tables.write_job()).output.split())
        assert (
            "of its log for the slot gobblin_shop, without a bound (max_slot_wal_keep_size): for public.late" in status
        )
        tables.do("UPDATE late SET day = '2026-03-01'")
        tables.await_copied("late")
        require_followed(tables, 1001)
    require_same(tables)


@pytest.mark.core
def test_a_run_publishes_what_can_be_published_and_says_what_can_t(tables: ChangedTables) -> None:
    add_table(tables, "late", "day date", "INSERT INTO late VALUES (1, 'infinity')")
    tables.do("INSERT INTO orders VALUES (1000, 'before the run')")
    job, stores = tables.job, open_stores(tables.engine)
    specs, clock = read_sink_datasets(job), SystemClock()
    catching = plan_catching_up(job, specs, open_log_connection(job), stores, clock, threading.Event().wait)

    with open_worker(job, specs, stores, catching.wait, tables.said.append, NoSpark()) as worker:
        catching.sinks = list(worker.sinks.values())
        worker.run()

    with pytest.raises(RejectedError, match=r"late\.day \(date\) holds infinity"):
        catching.require_published()
    assert min(tables.published_to("orders"), tables.published_to("notes")) >= catching.end
    tables.require_same("orders", "id")


def test_a_table_that_is_locked_keeps_nobody_waiting(tables: ChangedTables) -> None:
    add_table(tables, "late", "body text", "INSERT INTO late VALUES (1, 'x')")

    with tables.database.connect(autocommit=False) as lock:
        lock.execute("LOCK TABLE late IN ACCESS EXCLUSIVE MODE")
        with tables.working():
            # Of whoever has the lock.
            tables.await_said("late: the copy waits for transactions that were running")
            require_followed(tables, 1000)
            asked_s = time.monotonic()
        assert time.monotonic() - asked_s < _END_S_MAX
    with tables.working():
        tables.await_copied("late")
    require_same(tables)


def test_a_locked_table_hides_nothing_of_a_publication(fresh_database: Database) -> None:
    """What the catalogues say is what the server's own view says, which locks each table."""
    with fresh_database.connect() as session:
        for statement in PUBLICATIONS:
            session.execute(statement.encode())
        names = [str(name) for (name,) in session.execute("SELECT pubname FROM pg_publication").fetchall()]
        expected = {name: find_publication(session, name) for name in names}
        with fresh_database.connect(autocommit=False) as lock:
            lock.execute("LOCK TABLE plain IN ACCESS EXCLUSIVE MODE")
            session.execute("SET lock_timeout = '50ms'")
            assert {name: find_publication(session, name) for name in names} == expected
    assert all(found is not None and found.tables for found in expected.values())


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
            tables.await_said("public.late: backs off")
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
        tables.await_said("public.notes: backs off")
        assert any("from before the type of mood was dropped" in line for line in tables.said), tables.said
        tables.do("INSERT INTO orders VALUES (1000, 'meanwhile')")
        tables.await_published("orders")
        assert invoke("sink", "recopy", tables.write_job(), "--dataset", "public.notes").exit_code == 0
        tables.await_copied("notes")
        require_followed(tables, 1001)
    require_same(tables)
