"""What `gobblin-assets run` announces and reports, and its exit codes, over Spark and a real Postgres."""

import json
import os
import subprocess
import uuid
from collections.abc import Callable
from pathlib import Path

import dagster as dg
import pytest

from gobblin_assets.db.engine import open_external
from gobblin_assets.model.state import RunId
from gobblin_assets.model.urn import DatasetUrn, JobName
from gobblin_assets.run.postgres import open_stores
from gobblin_assets.spark.connect_server import ConnectServer
from gobblin_assets.state.leases import Holder
from tests.support.forked_commands import Commands
from tests.support.postgres import Database

ORDERS = DatasetUrn("public.orders")
JOB = """
job: shop
source: {connection: shop}
destination: ./lake
lease: {wait_s: 0}
datasets:
  - urn: public.orders
    extract: append_only
    watermark: {column: at, commit_lag_s: 0}
    partitions: {kind: monthly, start: 2024-01-01}
    quality: {rows: [{name: early, check: n < 6, on_failure: err_file}]}
  - urn: public.customers
"""


@pytest.fixture
def folder(
    tmp_path: Path,
    fresh_database: Database,
    database_url: str,
    connect: ConnectServer,
    monkeypatch: pytest.MonkeyPatch,
) -> Path:
    with fresh_database.connect() as connection:
        connection.execute("CREATE TABLE orders (n int PRIMARY KEY, at timestamptz NOT NULL)")
        connection.execute(
            "INSERT INTO orders"
            " SELECT n, timestamptz '2024-01-10Z' + n * interval '10 days' FROM generate_series(0, 6) n"
        )
    (tmp_path / "shop.yaml").write_text(JOB, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    for name, value in {
        "GOBBLIN_HOME": str(tmp_path / "home"),
        "GOBBLIN_DATABASE_URL": database_url,
        "GOBBLIN_SPARK_REMOTE": connect.url,
        "GOBBLIN_JDBC_SHOP_URL": fresh_database.jdbc_url,
        "GOBBLIN_JDBC_SHOP_USER": fresh_database.user,
        "GOBBLIN_JDBC_SHOP_PASSWORD": fresh_database.password,
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    return tmp_path


Result = subprocess.CompletedProcess[str]
Run = Callable[..., Result]


@pytest.fixture
def ask(commands: Commands, folder: Path) -> Run:
    """Run a command in a process of its own, since this one may have a classic session."""

    def ask(*arguments: str, **variables: str) -> Result:
        return commands.run(*arguments, environment={**os.environ, **variables}, folder=folder)

    return ask


@pytest.fixture
def run(ask: Run) -> Run:
    return lambda *arguments, **variables: ask("run", "shop.yaml", "--no-dagster", *arguments, **variables)


def find_rows(result: Result) -> dict[str, list[str]]:
    """Mode, outcome and rows of each partition in the table."""
    table, _, _ = result.stdout.partition("rows that failed a policy")
    lines = (line.split() for line in table.splitlines())
    return {words[1]: words[2:5] for words in lines if words[:1] == [ORDERS]}


def test_a_run_says_what_it_will_do_and_did(folder: Path, ask: Run, run: Run) -> None:
    first = run("--partition-range", "2024-01-01...2024-02-01")
    (folder / "dagster").mkdir()
    quarter = ("run", "shop.yaml", "--partition-range", "2024-01-01...2024-03-01", "--missing-only")
    missing, nothing = (ask(*quarter, "--dagster=wait", DAGSTER_HOME=str(folder / "dagster")) for _ in range(2))
    again = run("--partition", "2024-01-01")
    refused = run("--partition", "2199-01-01")
    ahead = run("--partition", "2199-01-01", "--future")
    history, status = ask("history", "--json"), ask("status", "--json")

    assert [each.returncode for each in (first, missing, nothing, again, ahead)] == [0] * 5, missing.stderr
    assert find_rows(first) == {
        "2024-01-01": ["append", "COMMITTED", "3"],
        "2024-02-01": ["append", "COMMITTED", "3"],
    }
    assert "not asked for: public.customers, which have no partitions; run without --partition" in first.stderr
    assert "read again" not in first.stderr
    assert find_rows(missing) == {"2024-03-01": ["append", "COMMITTED", "0"]}
    assert "1 rows are quarantine" in missing.stdout
    assert "early: at: ••• (timestamp), n: ••• (int)" in missing.stdout
    assert "--missing-only: 2 of 3 partitions are published" in missing.stderr
    assert find_rows(nothing) == {}
    with dg.DagsterInstance.from_config(str(folder / "dagster")) as instance:
        (told,) = instance.get_runs()
    assert told.tags["dagster/partition"] == "2024-03-01", "it names partitions that were left out"
    assert find_rows(again) == {"2024-01-01": ["refresh", "COMMITTED", "3"]}
    assert "public.orders [2024-01-01]: was published before, and is read again as a whole" in again.stderr
    assert refused.returncode == 2
    assert "2199-01-01 00:00Z, in the future. Correct it, or ask for the future (--future)" in refused.stderr
    assert find_rows(ahead)["2199-01-01"][1] == "COMMITTED"
    # Only data rows are counted: the newest run comes first, then what is published now.
    assert [run["figures"]["rows"] for run in json.loads(history.stdout)] == [0, 3, 0, 0, 6]
    assert {line["urn"]: line["rows"] for line in json.loads(status.stdout)} == {ORDERS: 6}


def test_a_dataset_that_somebody_else_holds_has_an_returncode_of_its_own(database_url: str, run: Run) -> None:
    engine = open_external(database_url)
    stores = open_stores(engine)
    ids = stores.datasets.register(JobName("shop"), [ORDERS])
    stores.leases.take(list(ids.values()), Holder("elsewhere:1", RunId(uuid.uuid4())), ttl_s=600)

    result = run("--partition", "2024-01-01")

    engine.dispose()
    assert result.returncode == 3, result.stderr
    assert "is being worked on by elsewhere:1" in result.stderr


def test_an_interrupted_run_says_how_far_it_came(run: Run) -> None:
    result = run("--partition-range", "2024-01-01...2024-02-01", GOBBLIN_FAILPOINT="events_before_cleanup=interrupt")

    assert result.returncode == 130, result.stderr
    assert "interrupted: 2 of 2 published; run it again to go on" in result.stderr
    assert "Traceback" not in result.stderr
