"""Columns that come with a DEFAULT to tables of a real Postgres: earlier rows have it, and no change says so."""

from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from sqlalchemy import Engine

from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.rows.current_reader import read_current
from gobblin_assets.spec.job_spec import DatasetSpec
from tests.support.changed_tables import JOB, ChangedTables, set_log_variables
from tests.support.command_lake import invoke
from tests.support.postgres import Database
from tests.support.shares import OFTEN_SHARES
from tests.support.written_logs import write_bases

pytestmark = pytest.mark.turns(of=4)

DEFAULTS = {
    "t": "text DEFAULT 'it''s {a}, \"b\"'",
    "n": "bigint DEFAULT 9000000000",
    "d": "numeric(12, 3) DEFAULT 1.500",
    "f": "double precision DEFAULT 1e-9",
    "b": "boolean NOT NULL DEFAULT true",
    "day": "date DEFAULT '2026-02-03'",
    "at": "timestamptz DEFAULT '2026-02-03 04:05:06.789+02'",
    "local": "timestamp DEFAULT '2026-02-03 04:05:06'",
}
WRITTEN = {
    "at": "(extract(epoch FROM at) * 1000000)::bigint",
    "f": "CASE f WHEN 1e-9 THEN '1.0E-9' ELSE f::text END",
}
"""As Spark writes them."""


@pytest.fixture
def tables(
    tmp_path: Path, source_database: Database, engine: Engine, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> ChangedTables:
    monkeypatch.setenv("GOBBLIN_DATABASE_URL", database_url)
    monkeypatch.setenv("GOBBLIN_HOME", str(tmp_path / "home"))
    made = ChangedTables(tmp_path, source_database, engine, ["keyed", "plain"])
    made.do(
        "CREATE TABLE keyed (id int PRIMARY KEY, v text)",
        "CREATE TABLE plain (id int, v text)",
        "ALTER TABLE plain REPLICA IDENTITY FULL",
        "CREATE PUBLICATION lake FOR TABLE keyed, plain",
        "INSERT INTO keyed SELECT n, 'v' || n FROM generate_series(1, 9) n",
        "INSERT INTO plain SELECT n % 3, 'v' FROM generate_series(1, 9) n",
    )
    set_log_variables(made, monkeypatch)
    return made


def require_current(spark: SparkSession, tables: ChangedTables) -> None:
    for table in tables.tables:
        current = read_current(spark, f"public.{table}", job=JOB, database=tables.engine)
        shown = ("unix_micros(at)" if name == "at" else f"CAST({name} AS string)" for name in current.columns)
        found = Counter(tuple(row) for row in current.selectExpr(*shown).collect())
        asked = ", ".join(WRITTEN.get(name, f"{name}::text") for name in current.columns)
        with tables.database.connect() as connection:
            assert found == Counter(connection.execute(f"SELECT {asked} FROM {table}".encode()).fetchall()), table


def test_rows_of_before_have_the_default(spark: SparkSession, tables: ChangedTables) -> None:
    """Also by a base, under a worker that starts anew, and where a later change says NULL."""

    def write_bases_of_all() -> None:
        specs = {DatasetUrn(f"public.{table}"): DatasetSpec() for table in tables.tables}
        done, failures = write_bases(spark, tables.engine, tables.described, specs, tables.said.append)
        assert (len(done), failures) == (len(specs), {})

    with tables.working():
        tables.await_published()
        tables.do("UPDATE keyed SET v = 'before' WHERE id = 1")
        tables.await_published("keyed")
        write_bases_of_all()
        for table in tables.tables:
            tables.do(
                f"INSERT INTO {table} VALUES (10, 'in the transaction, before')",
                *(f"ALTER TABLE {table} ADD COLUMN {name} {kind}" for name, kind in DEFAULTS.items()),
                f"INSERT INTO {table} VALUES (11, 'in the transaction, behind')",
                f"UPDATE {table} SET t = NULL, at = NULL WHERE id = 2",
            )
        tables.await_published()
        require_current(spark, tables)
    with tables.working():
        tables.do("UPDATE keyed SET n = NULL WHERE id = 3", "DELETE FROM keyed WHERE id = 4")
        tables.do("DELETE FROM plain WHERE id = 1")
        # Nobody wrote the table anew: its rows have no value of a default that came later.
        tables.do("ALTER TABLE keyed ADD COLUMN late int", "ALTER TABLE keyed ALTER COLUMN late SET DEFAULT 7")
        tables.do("INSERT INTO keyed (id) VALUES (12)")
        tables.await_published("keyed", "plain")
    require_current(spark, tables)
    write_bases_of_all()
    require_current(spark, tables)


DEFAULTED = "has a new column 'n', and its default may have given older rows values"
RENAMED = "has a column 'n' that had another name before"


@pytest.mark.parametrize(
    ("act", "why"),
    [
        ("ADD COLUMN n float DEFAULT random()", DEFAULTED),
        ("ADD COLUMN n int GENERATED ALWAYS AS IDENTITY", DEFAULTED),
        ("ADD COLUMN n bigserial", DEFAULTED),
        ("ADD COLUMN n drawn", DEFAULTED),
        ("RENAME COLUMN v TO n", RENAMED),
    ],
    ids=["computed", "identity", "serial", "domain", "renamed"],
)
@pytest.mark.rotating(of=OFTEN_SHARES)
def test_a_column_whose_older_values_no_change_has_stops_the_table_and_a_copy_mends_it(
    tables: ChangedTables, act: str, why: str
) -> None:
    tables.do("CREATE DOMAIN drawn AS float DEFAULT random()")
    with tables.working():
        tables.await_published()
        tables.do(f"ALTER TABLE keyed {act}", "INSERT INTO keyed (id) VALUES (10)")
        tables.do("INSERT INTO plain VALUES (10, 'v')")
        tables.await_said(f"public.keyed {why}")
        tables.await_published("plain")
    found = invoke("sink", "recopy", tables.write_job(), "--dataset", "public.keyed")
    assert found.exit_code == 0, found.output
    with tables.working():
        tables.await_copied("keyed")
        tables.do("INSERT INTO keyed (id) VALUES (11)")
        tables.await_published("keyed")
    names = ["id", "n"]
    copied = [row for row in tables.log_of("keyed").to_pylist() if row["_copy"] == 2 and row["_op"] in "rc"]
    assert Counter(tuple(row[name] for name in names) for row in copied) == tables.rows_of("keyed", names)
