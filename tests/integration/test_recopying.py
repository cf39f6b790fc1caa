"""What stopped tables say, how ``sink recopy`` mends them, and what ``sink status`` says of both."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from tests.support.changed_tables import ChangedTables, set_log_variables
from tests.support.command_lake import invoke
from tests.support.postgres import Database
from tests.support.spark import wait_until

pytestmark = pytest.mark.turns(of=8)


@pytest.fixture
def tables(
    tmp_path: Path, source_database: Database, engine: Engine, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> ChangedTables:
    monkeypatch.setenv("GOBBLIN_DATABASE_URL", database_url)
    monkeypatch.setenv("GOBBLIN_HOME", str(tmp_path / "home"))
    made = ChangedTables(tmp_path, source_database, engine, ["orders", "notes"])
    made.do(
        "CREATE TABLE orders (id int PRIMARY KEY, total int)",
        "CREATE TABLE notes (id int PRIMARY KEY, body text)",
        "CREATE PUBLICATION lake FOR TABLE orders, notes",
        "INSERT INTO orders SELECT n, n FROM generate_series(1, 30) n",
        "INSERT INTO notes VALUES (1, 'one')",
    )
    set_log_variables(made, monkeypatch)
    return made


def recopy(tables: ChangedTables, *arguments: str) -> str:
    found = invoke("sink", "recopy", tables.write_job(), *arguments)
    assert found.exit_code == 0, found.output
    return found.output


def refused(*arguments: str) -> str:
    found = invoke("sink", *arguments)
    assert found.exit_code != 0, found.output
    return f"{found.output}{found.exception}"


def ops_of(tables: ChangedTables, table: str) -> "Counter[tuple[int, str]]":
    rows = tables.log_of(table)
    return Counter(zip(rows["_copy"].to_pylist(), rows["_op"].to_pylist(), strict=True))


def drop_slot(tables: ChangedTables) -> None:
    tables.ask("SELECT pg_drop_replication_slot('gobblin_shop')::text")


@pytest.mark.turns("a new copy")
def test_tables_go_on_from_a_new_copy_once_the_slot_was_dropped(tables: ChangedTables) -> None:
    with tables.working():
        tables.await_published()
        tables.do("DELETE FROM orders WHERE id = 1")
        tables.await_published("orders")
    drop_slot(tables)
    tables.do("UPDATE orders SET total = 0 WHERE id < 10", "DELETE FROM notes")
    with tables.working():
        tables.await_said("the replication slot gobblin_shop is gone")
        why = await_back_offs(tables)["public.orders"]
        assert "the replication slot gobblin_shop is gone" in why
        assert await_back_offs(tables) == {"public.orders": why, "public.notes": why}
        shown = invoke("sink", "status", tables.write_job()).output
        assert shown.count("sink recopy JOB --all") == 1, "what hits both is said once"
    assert len([line for line in tables.said if "is gone" in line]) == 1, "what hits both is said once"
    assert status_of(tables)["rests"] == [], "nobody leaves them alone: there is no worker"
    assert "a new copy begins" in recopy(tables, "--dataset", "public.orders", "--dataset", "public.notes")
    assert "was begun before" in recopy(tables, "--all")
    # Nothing of the new copy is published yet, and nothing of the earlier one is gone.
    assert ops_of(tables, "orders") == {(1, "r"): 30, (1, "d"): 1}
    with tables.working():
        tables.await_copied("orders")
        tables.await_copied("notes")
        tables.require_same("notes", "id")
        tables.do("INSERT INTO notes VALUES (1, 'more')", "DELETE FROM orders WHERE id = 30")
        tables.await_published("orders", "notes")
    assert ops_of(tables, "orders") == {(1, "r"): 30, (1, "d"): 1, (2, "t"): 1, (2, "r"): 29, (2, "d"): 1}
    tables.require_same("orders", "id")
    tables.require_same("notes", "id")


@pytest.mark.core
def test_a_table_that_is_not_copied_again_stays_stopped(tables: ChangedTables) -> None:
    """A worker that runs takes the copy up, and the slot is made anew for it alone."""
    with tables.working():
        tables.await_published()
    drop_slot(tables)
    with tables.working():
        tables.await_said("the replication slot gobblin_shop is gone")
        recopy(tables, "--dataset", "public.orders")
        tables.await_copied("orders")
        tables.do("INSERT INTO orders VALUES (100, 1)", "INSERT INTO notes VALUES (2, 'unseen')")
        tables.await_published("orders")
        tables.await_said("it was made anew")
    tables.require_same("orders", "id")
    assert ops_of(tables, "notes") == {(1, "r"): 1}
    recopy(tables, "--dataset", "public.notes")
    with tables.working():
        tables.await_copied("notes")
    tables.require_same("notes", "id")


@pytest.mark.turns("a new copy")
def test_a_new_copy_mends_what_a_stranger_has_read_and_another_key(tables: ChangedTables) -> None:
    with tables.working():
        tables.await_published()
    tables.do("INSERT INTO notes VALUES (77, 'lost')", "ALTER TABLE orders DROP CONSTRAINT orders_pkey")
    tables.do("ALTER TABLE orders ADD PRIMARY KEY (total)", "UPDATE orders SET id = 5")
    with tables.database.connect() as stranger:
        stranger.execute(
            "SELECT count(*) FROM pg_logical_slot_get_binary_changes('gobblin_shop', NULL, NULL,"
            " 'proto_version', '1', 'publication_names', 'lake')"
        )
    recopy(tables, "--all")
    with tables.working():
        tables.await_copied("orders")
        tables.await_copied("notes")
        tables.do("UPDATE orders SET id = 6 WHERE total = 3", "DELETE FROM notes WHERE id = 1")
        tables.await_published()
    tables.require_same("orders", "total")
    tables.require_same("notes", "id")


def test_refusals_name_the_fix(tables: ChangedTables, tmp_path: Path) -> None:
    job = tables.write_job()
    assert "write --all" in refused("recopy", job)
    assert "write --all" in refused("recopy", job, "--all", "--dataset", "public.orders")
    assert "has no dataset 'public.none'" in refused("recopy", job, "--dataset", "public.none")
    with tables.working():
        tables.await_published()
        found = refused("recopy", job, "--all")
        assert "sink drain" in found
        assert "is being worked on by" in found
    topics = tmp_path / "topics.yaml"
    topics.write_text(
        "job: topics\nsource: {type: kafka, connection: k}\ndestination: /tmp/x\nsink: {}\ndatasets: [{urn: t}]\n"
    )
    assert "only the change logs of databases begin with a copy" in refused("recopy", str(topics), "--all")


def status_of(tables: ChangedTables) -> Any:
    found = invoke("sink", "status", tables.write_job(), "--json")
    assert found.exit_code == 0, found.output
    return json.loads(found.stdout)


def await_back_offs(tables: ChangedTables) -> dict[str, str]:
    """Why datasets rest, as another process sees it."""
    found: dict[str, str] = {}

    def look() -> bool:
        found.update({each["dataset"]: each["error"] for each in status_of(tables)["rests"] if each["lane"] is None})
        return bool(found)

    wait_until(look, f"status says why they rest; {tables.said}")
    return found


def test_status_says_why_a_table_rests_beside_those_that_go_on(tables: ChangedTables) -> None:
    tables.do("ALTER PUBLICATION lake DROP TABLE notes")
    with tables.working():
        tables.await_copied("orders")
        assert "ALTER PUBLICATION lake ADD TABLE public.notes" in await_back_offs(tables)["public.notes"]
        shown = invoke("sink", "status", tables.write_job())
        assert "backing off after a failure" in shown.output
        assert "public.notes" in shown.output
        tables.do("ALTER PUBLICATION lake ADD TABLE notes")
        tables.await_copied("notes")
        wait_until(lambda: status_of(tables)["rests"] == [], "it backs off no more")


def test_status_says_how_far_tables_are_and_what_the_server_keeps(tables: ChangedTables) -> None:
    with tables.working():
        tables.await_published()
        status = status_of(tables)
        assert (status["stream"]["name"], status["stream"]["status"]) == ("gobblin_shop", "reserved")
        assert status["stream"]["is_read"]
    position = tables.ask(f"SELECT '0/0'::pg_lsn + {tables.published_to('orders')}")
    tables.do("INSERT INTO orders SELECT n, n FROM generate_series(1000, 9000) n")
    written = tables.ask(f"SELECT pg_current_wal_insert_lsn() - '{position}'::pg_lsn")

    status = status_of(tables)
    orders = status["datasets"]["public.orders"]
    assert (orders["copy"], orders["position"]) == (1, position)
    vnodes = {each["dataset"]: each["vnodes"] for each in status["lanes"]}
    assert list(vnodes) == ["public.notes", "public.orders"]
    assert vnodes["public.orders"] == {"public.orders:1": position}
    assert orders["lag_bytes"] >= written > 100_000
    assert 0 < orders["lag_s"] < 60
    assert status["lags"]["public.orders"] == orders["lag_bytes"]
    assert not status["stream"]["is_read"]
    assert status["stream"]["retained_bytes"] >= written
    shown = invoke("sink", "status", tables.write_job()).output
    assert f"public.orders:1 up to {position}" in shown
    assert "bytes behind" in shown

    drop_slot(tables)
    recopy(tables, "--dataset", "public.orders")
    status = status_of(tables)
    assert status["stream"]["status"] is None
    assert status["datasets"]["public.orders"] == {
        "copy": 2,
        "key": [],
        "position": None,
        "lag_bytes": None,
        "lag_s": None,
        "progress": None,
    }
    assert status["datasets"]["public.notes"]["copy"] == 1
    assert "to be copied" in invoke("sink", "status", tables.write_job()).output


def test_a_slot_is_not_spread_over_lanes(tables: ChangedTables) -> None:
    assert "a table has one lane" in refused("scale", tables.write_job(), "4")
