"""The command line as a shell sees it: exit codes, one line for an error, data on stdout, and the files left behind."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from gobblin_assets import __version__
from gobblin_assets.cli import main
from gobblin_assets.db import embedded
from gobblin_assets.jobs.ingest.spark_work import find_warm
from gobblin_assets.spark.connect_server import ConnectServer
from tests.support import postgres
from tests.support.forked_commands import Commands
from tests.support.lake import JOB as LAKE_JOB
from tests.support.lake import Lake, World, start_worker
from tests.support.postgres import Database
from tests.support.spark import find_servers, in_child
from tests.support.surroundings import HOSTILE

pytestmark = pytest.mark.turns(of=8)

JANUARY, FEBRUARY, MARCH = "2024-01-01", "2024-02-01", "2024-03-01"

JOB = """
job: shop
source: {connection: shop}
destination: ./lake
lease: {ttl_s: 2, wait_s: 60}
datasets:
  - table: public.orders
    extract: append_only
    watermark: {column: at, commit_lag_s: 0}
    partitions: {kind: monthly, start: 2024-01-01}
  - table: public.customers
"""


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


def ask(*arguments: str) -> Any:
    result = invoke(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


class TestLooking:
    """Commands over a log that a killed run left, in this process."""

    @pytest.fixture
    def lake(self, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
        monkeypatch.setenv("GOBBLIN_DATABASE_URL", database_url)
        monkeypatch.setenv("GOBBLIN_HOME", str(tmp_path / "home"))
        for name in ("GOBBLIN_SPARK_MASTER", "GOBBLIN_SPARK_REMOTE"):
            monkeypatch.delenv(name, raising=False)
        made = Lake(database_url, str(tmp_path))
        Path(made.root).mkdir()
        for urn in made.urns:
            made.add_rows(urn, 13)
        return made

    @pytest.fixture
    def world(self, lake: Lake) -> Iterator[World]:
        opened = World(lake)
        yield opened
        opened.close()

    @pytest.mark.core
    def test_an_open_sequence_is_listed_and_recovered_and_its_files_counted(self, lake: Lake, world: World) -> None:
        assert start_worker(lake, failpoint="step_after=kill").wait() == -signal.SIGKILL
        (line,) = [each for each in ask("commit", "list") if each["state"] == "PREPARED"]
        shown = ask("commit", "show", line["sequence_id"])
        before = {each["urn"]: each for each in ask("status")}
        world.expire_leases()

        recovered = ask("commit", "recover", "--job", LAKE_JOB)

        assert shown["state"] == "PREPARED"
        assert before[line["urn"]]["open_state"] == "PREPARED"
        assert before[line["urn"]]["files"] == 0
        assert [each["sequence_id"] for each in recovered["published"]] == [line["sequence_id"]]
        after = {each["urn"]: each for each in ask("status", "--job", LAKE_JOB)}
        assert (after[line["urn"]]["rows"], after[line["urn"]]["open_state"]) == (13, None)
        recovery = self._last_run()
        assert (recovery["run"]["state"], recovery["run"]["figures"]["kind"]) == ("COMMITTED", "recovery")
        assert [(each["sequence_id"], each["outcome"]) for each in recovery["datasets"]] == [
            (line["sequence_id"], "COMMITTED")
        ]

    @pytest.mark.core
    def test_a_blocked_sequence_stays_until_a_person_has_mended_it_and_resumes_it(
        self, lake: Lake, world: World
    ) -> None:
        start_worker(lake, failpoint="seal_committed=kill").wait()
        (line,) = [each for each in ask("commit", "list") if each["state"] == "PREPARED"]
        staging = Path(ask("commit", "show", line["sequence_id"])["attempts"][0]["staging"])
        hidden = staging.rename(Path(lake.directory, "hidden"))
        world.expire_leases()
        world.run()

        too_soon = invoke("commit", "resume", line["sequence_id"])
        failed = self._last_run()
        world.run()
        assert [each["state"] for each in ask("commit", "list")] == ["BLOCKED"]
        hidden.rename(staging)
        resumed = invoke("commit", "resume", line["sequence_id"])

        assert too_soon.exit_code == 1, too_soon.output
        assert too_soon.stderr.startswith("error: ")
        assert (failed["run"]["state"], failed["datasets"][0]["outcome"]) == ("FAILED", "FAILED")
        assert resumed.exit_code == 0, resumed.output
        assert line["sequence_id"] in resumed.stdout
        assert self._last_run()["run"]["figures"] == {"kind": "resume", "rows": 13, "files": ask("status")[0]["files"]}
        world.run()
        world.check_exactly_once()

    @staticmethod
    def _last_run() -> Any:
        return ask("history", ask("history", "--limit", "1")[0]["run_id"])

    def test_an_abandoned_sequence_publishes_nothing_and_is_read_again(self, lake: Lake, world: World) -> None:
        start_worker(lake, failpoint="step_after=kill").wait()
        (line,) = [each for each in ask("commit", "list") if each["state"] == "PREPARED"]
        world.expire_leases()

        result = invoke("commit", "abandon", line["sequence_id"], "--reason", "a test")

        assert result.exit_code == 0, result.output
        assert "ABORTED" in result.stderr
        assert self._last_run()["datasets"][0]["error"] == "given up: a test"
        assert ask("ledger")["intervals"] == []
        world.run()
        world.check_exactly_once()

    def test_the_ledger_the_watermarks_and_the_history_agree_with_what_was_published(
        self, lake: Lake, world: World
    ) -> None:
        report = world.run()

        ledger = ask("ledger", "--files")
        marks = ask("watermark", "show")
        run = ask("history", str(report.run_id))

        assert sorted(each["path"] for each in ledger["files"]) == sorted(
            path for urn in lake.urns for path in world.published_paths(urn)
        )
        assert ledger["gaps"] == []
        assert {each["urn"]: each["watermark"]["value"] for each in marks} == dict.fromkeys(lake.urns, 13)
        assert {each["outcome"] for each in run["datasets"]} == {"COMMITTED"}
        assert {each["state"] for each in run["tasks"]} == {"STAGED"}
        assert [each["run_id"] for each in ask("history")] == [str(report.run_id)]

    @pytest.mark.parametrize("command", ["status", "ledger", "history", "watermark show", "commit list --all"])
    def test_tables_name_every_dataset_or_run(self, lake: Lake, world: World, command: str) -> None:
        report = world.run()

        result = invoke(*command.split())

        assert result.exit_code == 0, result.output
        assert all(name in result.stdout for name in ([str(report.run_id)] if command == "history" else lake.urns))

    def test_what_the_log_does_not_know_is_one_line_and_exit_code_2(self, lake: Lake) -> None:
        for arguments in (("history", str(uuid.uuid4())), ("commit", "show", str(uuid.uuid4())), ("db", "stop")):
            result = invoke(*arguments)

            assert result.exit_code == 2
            assert result.stderr.startswith("error: ")
            assert result.stderr.count("\n") == 1

    def test_the_schema_is_checked(self, lake: Lake) -> None:
        assert ask("db", "check")["differences"] == []


class TestRefusals:
    """Nothing connects: the job's file and the options alone make the command refuse."""

    @pytest.fixture(autouse=True)
    def job_file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
        monkeypatch.delenv("GOBBLIN_JDBC_SHOP_URL", raising=False)
        monkeypatch.setenv("GOBBLIN_HOME", str(tmp_path / "home"))
        (tmp_path / "shop.yaml").write_text(JOB, encoding="utf-8")
        return str(tmp_path / "shop.yaml")

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (["--dataset", "public.nothing"], "public.orders"),
            (["--dataset", "public.orders"], "partition"),
            (["--dataset", "public.customers", "--partition", JANUARY], "public.customers"),
            (["--partition", "2024-01-15"], "2024-02-01"),
            (["--partition", "2023-12-01"], "before the first"),
            (["--partition-range", f"{MARCH}...{JANUARY}"], "no range"),
            (["--partition-range", JANUARY], "FIRST...LAST"),
            (["--mode", "sideways"], "sideways"),
            (["--partition", JANUARY], "GOBBLIN_JDBC_SHOP_URL"),
        ],
    )
    def test_an_option_that_does_not_fit_is_named(
        self, job_file: str, tmp_path: Path, arguments: list[str], said: str
    ) -> None:
        result = invoke("run", job_file, *arguments)

        assert result.exit_code == 2
        assert said in result.stderr
        assert "Traceback" not in result.output
        assert sorted(path.name for path in tmp_path.iterdir()) == ["shop.yaml"]

    def test_a_job_file_that_is_not_there_is_named(self) -> None:
        result = invoke("plan", "nowhere.yaml")

        assert result.exit_code == 2
        assert "nowhere.yaml" in result.stderr


class Shell:
    """The command line in processes of their own, started in a folder with the job's file."""

    def __init__(self, commands: Commands, folder: Path, source: Database, environment: dict[str, str]) -> None:
        self._commands = commands
        (folder / "shop.yaml").write_text(JOB, encoding="utf-8")
        (folder / "dagster").mkdir()
        self._folder = folder
        self._source = source
        self.environment = {
            **os.environ,
            **HOSTILE,
            "DAGSTER_HOME": str(folder / "dagster"),
            "GOBBLIN_HOME": str(folder / "home"),
            "GOBBLIN_JDBC_SHOP_URL": source.jdbc_url,
            "GOBBLIN_JDBC_SHOP_USER": source.user,
            "GOBBLIN_JDBC_SHOP_PASSWORD": source.password,
            **environment,
        }

    def __call__(self, *arguments: str, code: int = 0, **variables: str) -> Any:
        environment = {**self.environment, **variables}
        done = self._commands.run(*arguments, "--json", environment=environment, folder=self._folder)
        assert done.returncode == code, done.stderr
        assert self._source.password not in done.stdout + done.stderr
        return json.loads(done.stdout) if done.stdout else None

    def ask_dagster(self, question: str) -> Any:
        """Ask in a process that has its DAGSTER_HOME; ``i`` is the instance."""
        code = f"import dagster as dg, json; i = dg.DagsterInstance.get(); print(json.dumps({question}))"
        return json.loads(self._commands.ask(code, environment=self.environment))

    def find_materialized(self) -> Any:
        """The partitions that the Dagster instance knows."""
        key = "dg.AssetKey(['shop', 'public.orders'])"
        return self.ask_dagster(f"sorted(i.get_materialized_partitions({key}))")


@pytest.fixture
def shell(
    tmp_path: Path, fresh_database: Database, database_url: str, connect: ConnectServer, commands: Commands
) -> Shell:
    with fresh_database.connect() as connection:
        connection.execute("CREATE TABLE orders (n int PRIMARY KEY, at timestamptz NOT NULL)")
        connection.execute(
            "INSERT INTO orders"
            " SELECT n, timestamptz '2024-01-10Z' + n * interval '10 days' FROM generate_series(0, 6) n"
        )
    environment = {"GOBBLIN_DATABASE_URL": database_url, "GOBBLIN_SPARK_REMOTE": connect.url}
    return Shell(commands, tmp_path, fresh_database, environment)


@pytest.mark.core
def test_the_installed_script_answers_and_refuses() -> None:
    script = Path(sys.executable).with_name("gobblin-assets")
    said, refused = (
        subprocess.run([script, *arguments], capture_output=True, text=True, timeout=60)
        for arguments in (["--version"], ["db", "backup"])
    )
    assert (said.returncode, refused.returncode) == (0, 2)
    assert said.stdout.split()[-1] == __version__
    assert "Missing argument" in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.mark.core
def test_a_killed_run_is_completed_by_the_next_and_told_to_dagster(shell: Shell) -> None:
    """Through Spark."""
    selection = ("shop.yaml", "--dataset", "public.orders", "--partition-range", f"{JANUARY}...{FEBRUARY}")

    found = shell("discover", "shop.yaml", "--dataset", "public.orders")
    planned = shell("plan", *selection)
    shell("run", *selection, code=-signal.SIGKILL, GOBBLIN_FAILPOINT="step_after=kill")
    done = shell("run", *selection, "--mode", "append", "--dagster=wait")
    cleaned = shell("cleanup", "shop.yaml")
    files = shell("ledger", "--files")["files"]

    assert found["tables"] == ["public.orders"]
    (described,) = found["columns"]
    assert (described["primary_key"], described["watermark"], described["casts"]) == (["n"], "n", {})
    assert [(each["name"], each["source_type"], each["spark_type"]) for each in described["columns"]] == [
        ("n", "integer", "int"),
        ("at", "timestamp with time zone", "timestamp"),
    ]
    assert cleaned["public.orders"]["remaining"] == 0
    assert [each["partition"] for each in planned] == [JANUARY, FEBRUARY]
    assert all(each["units"] for each in planned)
    assert len(done["recovered"]) == 1
    assert {each["outcome"] for each in done["datasets"]} == {"COMMITTED"}
    numbers = sorted(n for file in files for n in pq.read_table(file["path"])["n"].to_pylist())
    assert numbers == [0, 1, 2, 3, 4, 5]
    assert shell.find_materialized() == [JANUARY, FEBRUARY]
    assert shell.ask_dagster("sorted(run.status.value for run in i.get_runs())") == ["FAILURE", "SUCCESS"]
    assert sorted(each["state"] for each in shell("history")) == ["COMMITTED", "FAILED"]
    assert shell("report", "shop.yaml") == []


def test_a_killed_run_is_completed_by_hand_and_told_to_dagster_by_hand(shell: Shell) -> None:
    shell("discover", "shop.yaml")
    shell("run", "shop.yaml", "--partition", MARCH, code=-signal.SIGKILL, GOBBLIN_FAILPOINT="step_after=kill")
    recovered = _until_published(lambda: shell("commit", "recover", "--job-file", "shop.yaml"))
    assert [each["partition"] for each in recovered] == [MARCH]
    assert [each["partition"] for each in shell("report", "shop.yaml")] == [MARCH]
    assert shell.find_materialized() == [MARCH]
    shell("commit", "recover", "--job-file", "shop.yaml", "--job", "another", code=2)


def _until_published(recover: Callable[[], Any]) -> Any:
    """The killed run's lease lasts two more seconds."""
    end = time.monotonic() + 60
    while not (published := recover()["published"]):
        assert time.monotonic() < end, "the dead run's lease never ran out"
    return published


class TestServers:
    """The servers of a separate home, by commands as a person types them."""

    @pytest.fixture(autouse=True)
    def own_home(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("GOBBLIN_DATABASE_URL", raising=False)
        monkeypatch.setenv("GOBBLIN_HOME", str(home))

    def test_a_backup_brings_the_log_back_in_an_empty_home(
        self, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        lake = Lake(embedded.start(home, print).url("gobblin"), str(tmp_path))
        assert ask("status") == []
        Path(lake.root).mkdir()
        for urn in lake.urns:
            lake.add_rows(urn, 13)
        world = World(lake)
        world.run()
        world.close()
        before = ask("ledger", "--files")
        target = home / "backup"

        backed_up = invoke("db", "backup", str(target))
        again = invoke("db", "backup", str(target))
        stopped = invoke("db", "stop")
        other = postgres.make_reachable_directory("gobblin-home-")
        monkeypatch.setenv("GOBBLIN_HOME", str(other))
        restored = invoke("db", "restore", str(target))
        after = ask("ledger", "--files")
        refused = invoke("db", "restore", str(target))
        state = ask("db", "status")["state"]
        assert invoke("db", "stop").exit_code == 0
        shutil.rmtree(other)

        assert [each.exit_code for each in (backed_up, stopped, restored)] == [0, 0, 0]
        assert len(before["files"]) > 0
        assert after == before
        assert (again.exit_code, refused.exit_code) == (2, 2)
        assert str(target) in again.stderr
        assert state == "running"

    def test_the_warm_spark_server_starts_once_is_found_and_stops(self) -> None:
        assert ask("spark", "status") == {"running": False}
        archive = invoke("spark", "archive").stdout.strip()
        try:
            started = invoke("spark", "start", "--master", "local[1]")
            again = invoke("spark", "start", "--master", "local[1]")
            found = ask("spark", "status")
            is_mapped = archive in Path(f"/proc/{found['pid']}/maps").read_text()
            taken = [find_warm(needed, print) is not None for needed in (["postgres"], ["kafka", "postgres"])]
            used = in_child(find_servers)
            other = invoke("spark", "start", "--master", "local[2]")
        finally:
            stopped = invoke("spark", "stop")

        assert (started.exit_code, again.exit_code) == (0, 0), started.output + again.output
        assert (found["running"], is_mapped) == (True, True)
        assert taken == [True, False], "a server without the connectors of a job was taken for it"
        assert used == [True, False], "jars alone are no reason for a session of its own; Spark's configuration is"
        assert str(found["pid"]) in started.stderr
        assert str(found["pid"]) in again.stderr
        assert other.exit_code == 2
        assert stopped.exit_code == 0
        assert ask("spark", "status") == {"running": False}
        assert "none was running" in invoke("spark", "stop").stderr
