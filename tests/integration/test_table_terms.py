"""Tables of a real Postgres that become others, or are published otherwise: each stops alone, and a new copy mends it."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from gobblin_assets.jobs.sink import sink_starts
from tests.support.changed_tables import ChangedTables, log_variables
from tests.support.command_lake import invoke
from tests.support.postgres import Database
from tests.support.spark import wait_until

PLAIN = "(id int PRIMARY KEY, v text)"


@pytest.fixture
def tables(
    tmp_path: Path, source_database: Database, engine: Engine, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ChangedTables]:
    monkeypatch.setenv("GOBBLIN_DATABASE_URL", database_url)
    monkeypatch.setenv("GOBBLIN_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(sink_starts, "DISCOVER_EVERY_S", 0.3)
    made = ChangedTables(tmp_path, source_database, engine, ["quiet"])
    with log_variables(made, monkeypatch):
        yield made


def make_plain(tables: ChangedTables, *names: str) -> None:
    tables.tables = names
    for name in names:
        tables.do(f"CREATE TABLE {name} {PLAIN}", f"INSERT INTO {name} SELECT n, 'v' FROM generate_series(1, 6) n")


def await_stopped(tables: ChangedTables, table: str, why: str) -> None:
    """For good, with the command that mends it."""
    wait_until(
        lambda: any(f"public.{table}: rests" in line and why in line for line in tables.said)
        or any(f"public.{table} (lane" in line and why in line for line in tables.said),
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
        "CREATE TABLE labelled (id int PRIMARY KEY, moods mood[])",
        "INSERT INTO labelled VALUES (1, '{glad}')",
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
