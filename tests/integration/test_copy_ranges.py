"""Big tables are copied in ranges of their key, each of a snapshot of its own, while they are written to."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from gobblin_assets.failpoints import Failpoint, install
from gobblin_assets.sources.postgres_log import slot_reader
from gobblin_assets.sources.postgres_log.log_starts import LOG_FACT
from tests.support.changed_tables import ChangedTables, ShopWriting, set_log_variables
from tests.support.command_lake import invoke
from tests.support.postgres import Database
from tests.support.shares import OFTEN_SHARES

pytestmark = pytest.mark.turns(of=8)


@pytest.fixture
def tables(
    tmp_path: Path, source_database: Database, engine: Engine, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> ChangedTables:
    monkeypatch.setenv("GOBBLIN_DATABASE_URL", database_url)
    monkeypatch.setenv("GOBBLIN_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(slot_reader, "CONFIRM_EVERY_S", 0.3)
    made = ChangedTables(tmp_path, source_database, engine, ["orders", "notes"], source={"copy_rows": 250})
    made.do(
        "CREATE TABLE orders (id bigint PRIMARY KEY, customer text, amount numeric(12, 2), at timestamptz)",
        "CREATE TABLE notes (id int PRIMARY KEY, body text, n int)",
        "ALTER TABLE notes ALTER COLUMN body SET STORAGE EXTERNAL",
        "CREATE PUBLICATION lake FOR TABLE orders, notes",
        "INSERT INTO orders SELECT n, 'c' || n, n / 7.0, now() FROM generate_series(1, 1000) n",
        "INSERT INTO notes SELECT n, repeat('x', 3000), n FROM generate_series(1, 20) n",
    )
    made.do("ANALYZE orders", "ANALYZE notes")
    set_log_variables(made, monkeypatch)
    return made


@contextmanager
def between_ranges(*acts: Callable[[], None]) -> Iterator[list[int]]:
    """Before the publication of the first range comes the first act, and so on. How many ranges were read."""
    reached, left = [0], list(acts)

    def reach(point: Failpoint) -> None:
        if point is Failpoint.COPY_READ:
            reached[0] += 1
            if left:
                left.pop(0)()

    with install(reach):
        yield reached


def fact_of(tables: ChangedTables, table: str) -> Any:
    return tables.facts_of(table)[LOG_FACT]


def ops_of(tables: ChangedTables, table: str) -> "Counter[str]":
    return Counter(tables.log_of(table)["_op"].to_pylist())


def run(tables: ChangedTables, *acts: Callable[[], None]) -> list[int]:
    with between_ranges(*acts) as reached, tables.working():
        tables.await_copied("orders")
        tables.await_published("orders")
    return reached


def doing(tables: ChangedTables, *statements: str) -> Callable[[], None]:
    return lambda: tables.do(*statements)


@pytest.mark.core
def test_each_range_is_published_by_itself_and_changes_meanwhile_are_told_once(tables: ChangedTables) -> None:
    """Before range 1 of 4 is published, its snapshot is over: what comes then is seen by the later ones alone."""
    reached = run(
        tables,
        doing(
            tables,
            "UPDATE orders SET customer = 'first' WHERE id = 1",
            "UPDATE orders SET customer = 'last' WHERE id = 999",
            "UPDATE orders SET id = 5001 WHERE id = 2",
            "DELETE FROM orders WHERE id IN (3, 998)",
            "INSERT INTO orders VALUES (0, 'new', 1, NULL), (2000, 'new', 1, NULL)",
        ),
        doing(tables, "UPDATE orders SET id = -7 WHERE id = 900", "UPDATE orders SET amount = amount + 1"),
        doing(tables, "UPDATE orders SET id = id + 10000 WHERE id % 100 = 0"),
    )
    assert reached == [5]
    found = fact_of(tables, "orders")["ranges"]
    assert (found["column"], len(found["bounds"]), len(found["seen"])) == ("id", 3, 4)
    assert "copying" not in fact_of(tables, "orders")
    tables.require_same("orders", "id")
    tables.require_same("notes", "id")
    log = tables.log_of("orders").to_pylist()
    moved = Counter((row["_op"], row["id"]) for row in log if row["id"] in (1, 2, 900, -7, 5001, 999))
    # Where the row came from, the copy has it; where it went, too: what is left is that it is gone from there.
    assert moved["d", 2] == 1
    assert moved["c", -7] == 1
    assert moved["r", 900] == 0
    assert moved["u", 999] == 0
    assert moved["r", 5001] == 1


@pytest.mark.parametrize(
    "statements",
    [
        ["TRUNCATE orders", "INSERT INTO orders SELECT n, 'again', n, NULL FROM generate_series(1, 1000) n"],
        ["ALTER TABLE orders ADD COLUMN more int DEFAULT 7"],
        [
            "ALTER PUBLICATION lake DROP TABLE orders",
            "UPDATE orders SET customer = 'unseen' WHERE id < 9",
            "ALTER PUBLICATION lake ADD TABLE orders",
        ],
        [
            "CREATE TABLE orders_new (LIKE orders INCLUDING ALL)",
            "INSERT INTO orders_new SELECT n, 'of another', n, NULL FROM generate_series(1, 1000) n",
            "ALTER TABLE orders RENAME TO orders_old",
            "ALTER TABLE orders_new RENAME TO orders",
            "ALTER PUBLICATION lake ADD TABLE orders",
        ],
    ],
    ids=["emptied", "widened", "left", "replaced"],
)
@pytest.mark.rotating(of=OFTEN_SHARES)
def test_a_table_that_changes_as_a_whole_is_copied_anew(tables: ChangedTables, statements: Sequence[str]) -> None:
    reached = run(tables, lambda: None, doing(tables, *statements, "DELETE FROM orders WHERE id > 900"))
    assert any("begins anew" in line for line in tables.said)
    assert reached[0] > 5
    assert ops_of(tables, "orders")["t"] == 1
    tables.require_same("orders", "id")


@pytest.mark.turns("a copy in ranges that ends early")
def test_values_that_nobody_has_stop_the_table_until_it_is_copied_again(tables: ChangedTables) -> None:
    """A row comes into a range that was copied, from one that is copied without it, and its text is not sent."""
    tables.tables = ["notes"]
    tables.source = {"copy_rows": 5}
    with between_ranges(doing(tables, "UPDATE notes SET id = 0 WHERE id = 20")), tables.working():
        tables.await_said("without its large values")
    assert any("sink recopy" in line for line in tables.said)
    assert invoke("sink", "recopy", tables.write_job(), "--all").exit_code == 0
    with tables.working():
        tables.await_copied("notes")
        tables.await_published("notes")
    tables.require_same("notes", "id")


def test_whole_rows_fill_in_what_is_not_sent_again(tables: ChangedTables) -> None:
    tables.tables = ["notes"]
    tables.source = {"copy_rows": 5}
    tables.do("ALTER TABLE notes REPLICA IDENTITY FULL")
    with between_ranges(doing(tables, "UPDATE notes SET id = 0 WHERE id = 20")), tables.working():
        tables.await_copied("notes")
        tables.await_published("notes")
    tables.require_same("notes", "id")
    assert ops_of(tables, "notes") == {"r": 19, "c": 1}


@pytest.mark.turns("a copy in ranges that ends early")
def test_a_worker_goes_on_at_the_next_range_and_files_of_the_others_stay(tables: ChangedTables) -> None:
    class Killed(BaseException):
        """The process is gone."""

    def end() -> None:
        raise Killed

    acts = (lambda: None, doing(tables, "DELETE FROM orders WHERE id < 10"), end)
    with pytest.raises(Killed), between_ranges(*acts), tables.working():
        tables.await_said("the worker has failed")
    kept = set(tables.paths_of("orders"))
    assert tables.published_to("orders") == 2
    assert len(kept) == 2
    status = json.loads(invoke("sink", "status", tables.write_job(), "--json").output)
    assert status["datasets"]["public.orders"]["progress"] == "range 2 of 4"
    with tables.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE gobblin.lease SET expires_at = clock_timestamp() - interval '1 second'")
    assert run(tables)[0] == 3
    assert any("goes on behind range 2 of 4" in line for line in tables.said)
    assert kept < set(tables.paths_of("orders"))
    tables.require_same("orders", "id")


@pytest.mark.turns("a copy in ranges that ends early")
def test_a_table_is_copied_in_ranges_again_and_stays_what_it_was_meanwhile(tables: ChangedTables) -> None:
    run(tables)
    before = fact_of(tables, "orders")
    assert invoke("sink", "recopy", tables.write_job(), "--dataset", "public.orders").exit_code == 0
    seen = []

    def look() -> None:
        seen.append(fact_of(tables, "orders"))
        tables.do("DELETE FROM orders WHERE id % 50 = 3")

    run(tables, look, look)
    # ``read_current`` gives the whole copy, by its own key.
    assert seen[0] == before
    assert {**seen[1], "copying": None} == {**before, "copying": None}
    assert (seen[1]["copying"]["whole"], seen[1]["copying"]["copy"]) == (1, 2)
    tables.require_same("orders", "id")
    assert ops_of(tables, "orders")["t"] == 1


@pytest.mark.core
def test_a_busy_table_is_exact(tables: ChangedTables) -> None:
    tables.source = {"copy_rows": 40}
    with ShopWriting(tables.database, seed=7, writers=1), tables.working():
        tables.await_copied("orders")
    with tables.working():
        tables.await_published("orders", "notes")
    assert len(fact_of(tables, "orders")["ranges"]["seen"]) > 4
    tables.require_same("orders", "id")
    tables.require_same("notes", "id")
