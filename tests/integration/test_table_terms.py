"""Tables of a real Postgres that become others, or are published otherwise: each stops alone; a new copy mends it."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from gobblin_assets.jobs.sink import lane_holding, sink_log
from tests.support.changed_tables import ChangedTables, set_log_variables
from tests.support.command_lake import invoke
from tests.support.postgres import Database
from tests.support.spark import wait_until

pytestmark = pytest.mark.turns(of=8)

PLAIN = "(id int PRIMARY KEY, v text)"


@pytest.fixture
def tables(
    tmp_path: Path, source_database: Database, engine: Engine, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> ChangedTables:
    """Tables that a worker looks at often. What fails is tried again soon."""
    monkeypatch.setattr(lane_holding, "_BACK_OFF_S", 0.5)
    monkeypatch.setenv("GOBBLIN_DATABASE_URL", database_url)
    monkeypatch.setenv("GOBBLIN_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(sink_log, "DISCOVER_EVERY_S", 0.3)
    made = ChangedTables(tmp_path, source_database, engine, ["quiet"])
    set_log_variables(made, monkeypatch)
    return made


def make_plain(tables: ChangedTables, *names: str) -> None:
    tables.tables = names
    for name in names:
        tables.do(f"CREATE TABLE {name} {PLAIN}", f"INSERT INTO {name} SELECT n, 'v' FROM generate_series(1, 6) n")


def await_stopped(tables: ChangedTables, table: str, why: str) -> None:
    """For good, with the command that mends it."""
    wait_until(
        lambda: (
            any(f"public.{table}: backs off" in line and why in line for line in tables.said)
            or any(f"public.{table} (lane" in line and why in line for line in tables.said)
        ),
        f"{table} stops because it {why}; {tables.said}",
    )


def require_mended(tables: ChangedTables, stopped: Sequence[str]) -> None:
    """By a new copy of each; of the others, nothing is copied again."""
    arguments = [argument for table in stopped for argument in ("--dataset", f"public.{table}")]
    found = invoke("sink", "recopy", tables.write_job(), *arguments)
    assert found.exit_code == 0, found.output
    with tables.working():
        for table in stopped:
            tables.await_copied(table)
        for table in tables.tables:
            tables.do(f"INSERT INTO {table} (id) VALUES (9)")
        tables.await_published()
    for table in tables.tables:
        tables.require_same(table, "id")
        copies = set(tables.log_of(table)["_copy"].to_pylist())
        assert copies == ({1, 2} if table in stopped else {1}), table


BECOME_OTHERS = (
    "CREATE TABLE swapped_new (LIKE swapped INCLUDING ALL)",
    "INSERT INTO swapped_new VALUES (7, 'new')",
    "ALTER TABLE swapped RENAME TO swapped_old",
    "ALTER TABLE swapped_new RENAME TO swapped",
    "ALTER PUBLICATION lake ADD TABLE swapped",
    "DROP TABLE made_anew",
    f"CREATE TABLE made_anew {PLAIN}",
    "INSERT INTO made_anew VALUES (7, 'new')",
    "ALTER PUBLICATION lake ADD TABLE made_anew",
    "ALTER PUBLICATION lake DROP TABLE left_for_a_while",
    "INSERT INTO left_for_a_while VALUES (7, 'unseen')",
    "DELETE FROM left_for_a_while WHERE id = 1",
    "ALTER PUBLICATION lake ADD TABLE left_for_a_while",
    "ALTER PUBLICATION lake DROP TABLE narrowed",
    "ALTER PUBLICATION lake ADD TABLE narrowed WHERE (id > 0)",
    "ALTER TABLE whole DETACH PARTITION part",
    "INSERT INTO part VALUES (7, 'unseen')",
    "ALTER TABLE whole ATTACH PARTITION part FOR VALUES FROM (0) TO (100)",
    "ALTER TYPE mood RENAME VALUE 'glad' TO 'happy'",
    # Whoever is found again as what it was has lost nothing.
    "ALTER TABLE moved RENAME TO moved_away",
    "CREATE SCHEMA elsewhere",
    "ALTER TABLE moved_away SET SCHEMA elsewhere",
    "INSERT INTO elsewhere.moved_away VALUES (7, 'seen')",
    "ALTER TABLE elsewhere.moved_away SET SCHEMA public",
    "ALTER TABLE moved_away RENAME TO moved",
)
STOPS = {
    "swapped": "is another table than the one that was copied",
    "made_anew": "is another table than the one that was copied",
    "left_for_a_while": "has left the publication since",
    "narrowed": "has left the publication since",
    "part": "has left the publication since",
    "labelled": "value 'glad' was renamed to 'happy'",
}


@pytest.mark.rotating(of=3)
@pytest.mark.core
@pytest.mark.parametrize("is_at_work", [False, True], ids=["while no worker lives", "under a worker"])
def test_a_table_that_is_another_one_or_was_published_otherwise_stops_alone(
    tables: ChangedTables, is_at_work: bool
) -> None:
    make_plain(tables, "quiet", "moved", "swapped", "made_anew", "left_for_a_while", "narrowed")
    tables.do(
        f"CREATE TABLE whole {PLAIN} PARTITION BY RANGE (id)",
        "CREATE TABLE part PARTITION OF whole FOR VALUES FROM (0) TO (100)",
        "INSERT INTO whole VALUES (1, 'v')",
        "CREATE TYPE mood AS ENUM ('glad', 'sad')",
        "CREATE DOMAIN moods AS mood[]",
        "CREATE TABLE labelled (id int PRIMARY KEY, feelings moods)",
        "INSERT INTO labelled VALUES (1, NULL)",
        f"CREATE PUBLICATION lake FOR TABLE {', '.join(tables.tables)}, whole, labelled",
    )
    tables.tables = [*tables.tables, "part", "labelled"]
    with tables.working():
        tables.await_published()
        if is_at_work:
            tables.do(*BECOME_OTHERS)
            for table, why in STOPS.items():
                await_stopped(tables, table, why)
    if not is_at_work:
        for each in BECOME_OTHERS:
            tables.do(each)
        with tables.working():
            for table, why in STOPS.items():
                await_stopped(tables, table, why)
            tables.do("INSERT INTO quiet VALUES (8, 'v')", "INSERT INTO moved VALUES (8, 'v')")
            tables.await_published("quiet", "moved")
    assert sum("gobblin-assets sink recopy" in line for line in tables.said) >= len(STOPS)
    require_mended(tables, list(STOPS))


@pytest.mark.rotating(of=3)
@pytest.mark.parametrize(
    ("away", "back"),
    [
        ("ALTER PUBLICATION lake SET (publish = 'insert')", "ALTER PUBLICATION lake SET (publish = 'insert, delete')"),
        ("DROP PUBLICATION lake", "CREATE PUBLICATION lake FOR ALL TABLES"),
    ],
    ids=["altered", "made anew"],
)
def test_a_publication_that_was_another_one_for_a_moment_stops_all_of_its_tables(
    tables: ChangedTables, away: str, back: str
) -> None:
    make_plain(tables, "quiet", "orders")
    tables.do("CREATE PUBLICATION lake FOR ALL TABLES")
    with tables.working():
        tables.await_published()
    tables.do(away)
    tables.do("DELETE FROM orders WHERE id < 4")
    tables.do(back)
    with tables.working():
        tables.await_said("public.quiet, public.orders: back off for")
        tables.await_said("the publication lake is another one, or its options were altered")
        tables.await_said("gobblin-assets sink recopy JOB --all")
    require_mended(tables, ["quiet", "orders"])


def test_a_table_that_left_a_published_schema_and_came_back_stops(tables: ChangedTables) -> None:
    make_plain(tables, "quiet", "orders")
    tables.do("CREATE PUBLICATION lake FOR TABLES IN SCHEMA public", "CREATE SCHEMA elsewhere")
    with tables.working():
        tables.await_published()
        tables.do("ALTER TABLE orders SET SCHEMA elsewhere")
        await_stopped(tables, "orders", "has no table public.orders any more")
        tables.await_said("and then copy it again: gobblin-assets sink recopy JOB --dataset public.orders")
        tables.do("INSERT INTO elsewhere.orders VALUES (7, 'unseen')")
        tables.do("ALTER TABLE elsewhere.orders SET SCHEMA public")
        await_stopped(tables, "orders", "has left the publication since")
    require_mended(tables, ["orders"])


def test_changes_of_another_table_by_the_name_stop_the_table_before_the_worker_looks_again(
    tables: ChangedTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink_log, "DISCOVER_EVERY_S", 3600.0)
    make_plain(tables, "quiet", "orders")
    tables.do("CREATE PUBLICATION lake FOR ALL TABLES")
    with tables.working():
        tables.await_published()
        tables.do("ALTER TABLE orders RENAME TO orders_old", "INSERT INTO orders_old VALUES (7, 'still of it')")
        tables.await_published("orders")
        tables.do(f"CREATE TABLE orders {PLAIN}", "INSERT INTO orders VALUES (1, 'of another')")
        await_stopped(tables, "orders", "is another table than the one that was copied")
        assert [row["v"] for row in tables.log_of("orders").to_pylist()] == [*"vvvvvv", "still of it"]
    require_mended(tables, ["orders"])


def test_what_the_log_tells_of_the_table_again_is_looked_at_at_once(
    tables: ChangedTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink_log, "DISCOVER_EVERY_S", 3600.0)
    make_plain(tables, "quiet", "orders")
    tables.do("CREATE PUBLICATION lake FOR TABLE quiet, orders")
    with tables.working():
        tables.await_published()
        tables.do("ALTER PUBLICATION lake DROP TABLE orders", "ALTER PUBLICATION lake ADD TABLE orders")
        tables.do("INSERT INTO orders VALUES (7, 'v')", "INSERT INTO quiet VALUES (7, 'v')")
        await_stopped(tables, "orders", "has left the publication since")
        tables.await_published("quiet")
    require_mended(tables, ["orders"])


def test_a_table_that_is_published_by_its_root_stops_once_a_partition_changes_rows_alone(tables: ChangedTables) -> None:
    tables.tables = ["quiet", "emptied", "taken", "given"]
    for name in tables.tables:
        tables.do(
            f"CREATE TABLE {name} {PLAIN} PARTITION BY RANGE (id)",
            f"CREATE TABLE {name}_0 PARTITION OF {name} FOR VALUES FROM (0) TO (5)",
            f"CREATE TABLE {name}_5 PARTITION OF {name} FOR VALUES FROM (5) TO (10)",
            f"INSERT INTO {name} VALUES (1, 'v'), (6, 'v')",
        )
    tables.do(f"CREATE PUBLICATION lake FOR TABLE {', '.join(tables.tables)} WITH (publish_via_partition_root)")
    with tables.working():
        tables.await_published()
        tables.do(
            # A partition that begins without rows has lost none.
            "CREATE TABLE quiet_10 PARTITION OF quiet FOR VALUES FROM (10) TO (20)",
            "INSERT INTO quiet VALUES (10, 'v')",
            "TRUNCATE emptied_0",
            "ALTER TABLE taken DETACH PARTITION taken_0",
            f"CREATE TABLE given_10 {PLAIN}",
            "INSERT INTO given_10 VALUES (10, 'unseen')",
            "ALTER TABLE given ATTACH PARTITION given_10 FOR VALUES FROM (10) TO (20)",
        )
        await_stopped(tables, "emptied", "has lost a partition, or one was truncated")
        await_stopped(tables, "taken", "has lost a partition, or one was truncated")
        await_stopped(tables, "given", "has got a partition that may have had rows")
        tables.await_published("quiet")
    tables.do("CREATE TABLE taken_rest PARTITION OF taken DEFAULT")
    require_mended(tables, ["emptied", "taken", "given"])


def test_a_log_that_is_older_than_its_terms_takes_them_over_and_says_so_once(tables: ChangedTables) -> None:
    make_plain(tables, "orders")
    tables.do("CREATE PUBLICATION lake FOR TABLE orders")
    with tables.working():
        tables.await_published()
    with tables.engine.begin() as connection:
        forget = "UPDATE gobblin.dataset SET source_facts = source_facts - 'table_terms' RETURNING source_facts"
        assert "postgres_log" in connection.execute(text(forget)).scalar_one()
    for _worker in range(2):
        with tables.working():
            tables.do("UPDATE orders SET v = 'w'")
            tables.await_published()
    assert sum("is kept from now on" in line for line in tables.said) == 1
    tables.do("ALTER TABLE orders RENAME TO orders_old", f"CREATE TABLE orders {PLAIN}")
    tables.do("ALTER PUBLICATION lake ADD TABLE orders")
    with tables.working():
        await_stopped(tables, "orders", "is another table than the one that was copied")


def test_a_parent_is_copied_without_the_rows_of_its_children(tables: ChangedTables) -> None:
    tables.tables = ["parent"]
    tables.do(
        f"CREATE TABLE parent {PLAIN}",
        "CREATE TABLE child () INHERITS (parent)",
        "INSERT INTO parent SELECT n, 'own' FROM generate_series(1, 30) n",
        "INSERT INTO child SELECT n, 'of the child' FROM generate_series(31, 60) n",
        "ANALYZE parent",
        "CREATE PUBLICATION lake FOR TABLE ONLY parent",
    )
    tables.source = {"copy_rows": 10}
    with tables.working():
        tables.await_copied("parent")
        tables.do("UPDATE parent SET v = 'changed' WHERE id IN (1, 31)")
        tables.await_published()
    rows = tables.rebuild("parent", "id")
    assert (len(rows), rows[1, "changed"]) == (30, 1)


def test_rows_that_a_policy_hides_are_not_left_out_of_a_copy(
    tables: ChangedTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_plain(tables, "quiet", "hidden")
    tables.do(
        "CREATE PUBLICATION lake FOR TABLE quiet, hidden",
        "ALTER TABLE hidden ENABLE ROW LEVEL SECURITY",
    )
    name = f"reader_{tables.ask('SELECT pg_backend_pid()')}"
    tables.do(f"CREATE ROLE {name} LOGIN REPLICATION PASSWORD 'secret-enough'")
    try:
        tables.do(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {name}")
        monkeypatch.setenv("GOBBLIN_POSTGRES_LOG_SHOP_USER", name)
        monkeypatch.setenv("GOBBLIN_POSTGRES_LOG_SHOP_PASSWORD", "secret-enough")
        with tables.working():
            tables.await_copied("quiet")
            await_stopped(tables, "hidden", "row level security hides rows of public.hidden")
            tables.await_said("ALTER ROLE … BYPASSRLS")
            tables.do(f"ALTER ROLE {name} BYPASSRLS")
            tables.await_copied("hidden")
        tables.require_same("hidden", "id")
    finally:
        tables.do(f"DROP OWNED BY {name}", f"DROP ROLE {name}")
