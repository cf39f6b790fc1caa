"""From the shell, as a person or a cron job works: `dagster` over the shipped code location, Postgres and Spark."""

import json
import os
import signal
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import dagster as dg
import pyarrow.parquet as pq
import pytest

from gobblin_assets.commit.published.postgres import PostgresPublishedFiles
from gobblin_assets.db.engine import open_external
from gobblin_assets.model.urn import DatasetUrn, JobName, Role
from tests.support.postgres import Database

KEY = "shop/public.orders"
JANUARY, FEBRUARY, MARCH = "2024-01-01", "2024-02-01", "2024-03-01"
# No log, table or metadata may show this; its URL-encoded form differs.
PASSWORD = "s3cret/of the source"

JOB = """
job: shop
source: {{connection: shop}}
destination: {destination}
backfill: single_run
datasets:
  - table: public.orders
    extract: append_only
    watermark: {{column: at, commit_lag_s: 0}}
    partitions: {{kind: monthly, start: 2024-01-01}}
  - table: public.customers
"""


class Shell:
    """A clone's folder with one job file, and a Dagster instance on its default storage."""

    def __init__(self, folder: Path, shop: Database, database_url: str, user: str) -> None:
        self.folder = folder
        self.lake = folder / "lake"
        self.home = folder / "dagster"
        self.home.mkdir()
        (folder / "shop.yaml").write_text(JOB.format(destination=self.lake), encoding="utf-8")
        self._environment = {
            **os.environ,
            "PYTHONPATH": str(Path(__file__).parents[2]),
            "DAGSTER_HOME": str(self.home),
            "GOBBLIN_HOME": str(folder / "home"),
            "GOBBLIN_DATABASE_URL": database_url,
            "GOBBLIN_JOBS": "shop.yaml",
            "GOBBLIN_JDBC_SHOP_URL": shop.jdbc_url,
            "GOBBLIN_JDBC_SHOP_USER": user,
            "GOBBLIN_JDBC_SHOP_PASSWORD": PASSWORD,
            "GOBBLIN_SPARK_MASTER": "local[2]",
        }

    def dagster(self, *arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "dagster", *arguments, "-m", "gobblin_assets.definitions"],
            cwd=self.folder,
            env={**self._environment, **environment},
            capture_output=True,
            text=True,
            timeout=240,
        )

    def materialize(self, key: str, *arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
        return self.dagster("asset", "materialize", "--select", f'key:"{key}"', *arguments, **environment)

    def published(self) -> Counter[int]:
        """The ids in every visible file."""
        return self._read(p for p in self.lake.rglob("*.parquet") if ".staging" not in p.parts)

    def in_the_ledger(self) -> Counter[int]:
        """The ids in the files that the ledger lists: one generation of each partition."""
        engine = open_external(self._environment["GOBBLIN_DATABASE_URL"])
        found = PostgresPublishedFiles(engine).find(JobName("shop"), DatasetUrn("public.orders"), role=Role.DATA)
        engine.dispose()
        assert found is not None
        return self._read(Path(file.path) for segment in found.segments for file in segment.files())

    def _read(self, files: Iterable[Path]) -> Counter[int]:
        return Counter(number for path in files for number in pq.ParquetFile(path).read()["id"].to_pylist())

    def partitions(self) -> set[str | None]:
        with dg.DagsterInstance.from_config(str(self.home)) as instance:
            return set(instance.get_materialized_partitions(dg.AssetKey(KEY.split("/"))))


@pytest.fixture
def shell(fresh_database: Database, database_url: str, tmp_path: Path) -> Iterator[Shell]:
    # Roles belong to the server, which other tests use as well.
    user = f"reader_{uuid.uuid4().hex}"
    with fresh_database.connect() as connection:
        connection.execute("CREATE TABLE orders (id bigint, at timestamptz)")
        connection.execute("""
            INSERT INTO orders
            SELECT n, timestamptz '2024-01-01 00:00Z' + n * interval '1 day' FROM generate_series(0, 70) n
        """)
        connection.execute("CREATE TABLE customers (id int)")
        connection.execute("INSERT INTO customers VALUES (1000)")
        connection.execute(f"CREATE ROLE {user} LOGIN PASSWORD '{PASSWORD}'")
        connection.execute(f"GRANT SELECT ON orders, customers TO {user}")
    try:
        yield Shell(tmp_path, fresh_database, database_url, user)
    finally:
        with fresh_database.connect() as connection:
            connection.execute(f"DROP OWNED BY {user}")
            connection.execute(f"DROP ROLE {user}")


def ids_of(shop: Database, *partitions: str) -> Counter[int]:
    query = "SELECT id FROM orders WHERE to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-01') = ANY (%s)"
    with shop.connect() as connection:
        return Counter(int(str(row[0])) for row in connection.execute(query, [list(partitions)]).fetchall())


@pytest.mark.thorough
def test_runs_killed_at_three_places_are_finished_by_the_next_commands(shell: Shell, fresh_database: Database) -> None:
    killed = shell.materialize(KEY, "--partition", JANUARY, GOBBLIN_FAILPOINT="step_after=kill")
    assert killed.returncode == -signal.SIGKILL, killed.stdout + killed.stderr
    assert shell.published() == ids_of(fresh_database, JANUARY), "the kill came before a file was visible"
    assert shell.partitions() == set()

    # The dead run's lease lasts a minute; a run that was started by hand waits only half of that.
    expire_leases(shell)
    done = shell.dagster("job", "execute", "-j", "shop_recovery")
    assert done.returncode == 0, done.stderr
    assert shell.partitions() == {JANUARY}

    sealed = shell.materialize(KEY, "--partition", FEBRUARY, GOBBLIN_FAILPOINT="seal_committed=kill")
    assert sealed.returncode == -signal.SIGKILL, sealed.stdout + sealed.stderr
    expire_leases(shell)
    # The first pass is the recovery of February; it is reported before March is read.
    moved = shell.materialize(KEY, "--partition", MARCH, GOBBLIN_FAILPOINT="verified_before_finish=kill@2")
    assert moved.returncode == -signal.SIGKILL, moved.stdout + moved.stderr
    assert shell.partitions() == {JANUARY, FEBRUARY}
    assert shell.published() == ids_of(fresh_database, JANUARY, FEBRUARY, MARCH)
    expire_leases(shell)

    ranged = shell.materialize(KEY, "--partition-range", f"{FEBRUARY}...{MARCH}")
    assert ranged.returncode == 0, ranged.stderr
    assert shell.partitions() == {JANUARY, FEBRUARY, MARCH}
    assert shell.in_the_ledger() == ids_of(fresh_database, JANUARY, FEBRUARY, MARCH)

    output = "".join(run.stdout + run.stderr for run in (killed, done, sealed, moved, ranged))
    assert_no_secret(shell, output)
    assert output.count("WARN ") == 0, "Spark's noise got into the run's log"


@pytest.mark.turns("refusals of commands in Dagster")
def test_a_password_that_is_wrong_is_said_without_showing_it(shell: Shell) -> None:
    wrong = "another-s3cret"
    refused = shell.materialize("shop/public.customers", GOBBLIN_JDBC_SHOP_PASSWORD=wrong)
    assert refused.returncode != 0
    output = refused.stdout + refused.stderr
    assert "public.customers" in output or "connections[shop]" in output
    assert wrong not in output
    assert not list(shell.lake.rglob("*.parquet"))


@pytest.mark.turns("refusals of commands in Dagster")
def test_a_partition_that_is_none_of_the_dataset_s_is_refused(shell: Shell) -> None:
    refused = shell.materialize("shop/public.customers", "--partition", JANUARY)
    assert refused.returncode != 0
    assert not shell.lake.exists()


def expire_leases(shell: Shell) -> None:
    code = (
        "from sqlalchemy import text; from gobblin_assets.db.engine import connect; "
        "from gobblin_assets.settings import read_settings; "
        "engine = connect(read_settings(), print); connection = engine.connect(); "
        "connection.execute(text('UPDATE gobblin.lease SET expires_at = clock_timestamp()')); connection.commit()"
    )
    subprocess.run([sys.executable, "-c", code], env=shell._environment, check=True, timeout=60)


def assert_no_secret(shell: Shell, output: str) -> None:
    """No secret, plain or as JSON, in the output or in anything that Dagster and we stored."""
    spellings = {PASSWORD, json.dumps(PASSWORD)[1:-1], "s3cret"}
    assert not [spelling for spelling in spellings if spelling in output]
    for path in shell.folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            data = path.read_bytes()
            assert not [spelling for spelling in spellings if spelling.encode() in data], path
