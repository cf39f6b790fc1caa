"""`dagster dev` for real, with the instance that we ship: work of dead processes is finished without a person."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import psutil
import pytest
from sqlalchemy import Engine, text

from gobblin_assets.dagster.instance import HOME_VARIABLE, URL_VARIABLE, prepare_instance
from gobblin_assets.db import embedded
from gobblin_assets.db.embedded import EmbeddedServer
from gobblin_assets.settings import Settings
from tests.support import postgres
from tests.support.dagster_world import DATABASE_VARIABLE, WORLD_VARIABLE, published_numbers, write_numbers

SALES, VISITS = dg.AssetKey(["shop", "sales"]), dg.AssetKey(["store", "visits"])
MONTHS = [f"2013-{month:02d}-01" for month in range(1, 13)]
JANUARY, FEBRUARY, MARCH, APRIL = MONTHS[:4]
WAIT_S_MAX = 150.0
POLL_S = 0.5

pytestmark = [pytest.mark.timeout(600), pytest.mark.turns(of=3)]


class Dev:
    """`dagster dev` over a world, and its instance as this process sees it."""

    def __init__(self, folder: Path, environment: dict[str, str], instance: dg.DagsterInstance) -> None:
        self.folder = folder
        self.instance = instance
        self._environment = environment
        self._log = (folder / "dev.log").open("ab")
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0

    def start(self) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = probe.getsockname()[1]
        arguments = ["dev", "-m", "tests.support.dagster_location", "-h", "127.0.0.1", "-p", str(self._port)]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "dagster", *arguments],
            env=self._environment,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )
        self.wait(self._answers, "the web server answers")

    def kill_all(self) -> None:
        """Kill all of it at once, as when a machine goes down: nothing is left to report the end of a run."""
        if self._process is None:
            return
        tree = psutil.Process(self._process.pid)
        # Stopped first, so that no parent starts or reports anything while its children are killed.
        processes = [tree, *tree.children(recursive=True)]
        for signal_number in (signal.SIGSTOP, signal.SIGKILL):
            for process in processes:
                process.send_signal(signal_number)
        psutil.wait_procs(processes, timeout=30)
        self._process.wait(30)
        self._process = None

    def close(self) -> None:
        self.kill_all()
        self._log.close()

    def launch(self, **tags: str) -> str:
        """Launch through the run queue and the launcher, like the UI's button; returns the run's id."""
        answer = self.ask(
            """mutation ($params: ExecutionParams!) { launchPipelineExecution(executionParams: $params) {
                 __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } } }""",
            params={
                "selector": {
                    "repositoryLocationName": "tests.support.dagster_location",
                    "repositoryName": "__repository__",
                    "pipelineName": "shop_monthly",
                },
                "executionMetadata": {"tags": [{"key": key, "value": value} for key, value in tags.items()]},
            },
        )
        return str(answer["launchPipelineExecution"]["run"]["runId"])

    def backfill(self, key: dg.AssetKey, partitions: list[str]) -> str:
        answer = self.ask(
            """mutation ($params: LaunchBackfillParams!) { launchPartitionBackfill(backfillParams: $params) {
                 __typename ... on LaunchBackfillSuccess { backfillId } ... on PythonError { message } } }""",
            params={"partitionNames": partitions, "assetSelection": [{"path": list(key.path)}]},
        )
        return str(answer["launchPartitionBackfill"]["backfillId"])

    def ask(self, query: str, **variables: Any) -> dict[str, Any]:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._port}/graphql",
            data=json.dumps({"query": query, "variables": variables}).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30) as response:
            answer = json.load(response)
        assert "errors" not in answer, answer["errors"]
        return dict(answer["data"])

    def status_of(self, run_id: str) -> dg.DagsterRunStatus:
        run = self.instance.get_run_by_id(run_id)
        assert run is not None
        return run.status

    def wait_for_status(self, run_id: str, status: dg.DagsterRunStatus) -> None:
        self.wait(lambda: self.status_of(run_id) is status, f"run {run_id} is {status}")

    def wait(self, is_so: Callable[[], bool], what: str) -> None:
        """A bounded wait; only the awaited condition proves anything."""
        until = time.monotonic() + WAIT_S_MAX
        while not is_so():
            if time.monotonic() > until:
                log = (self.folder / "dev.log").read_text(encoding="utf-8", errors="replace")
                raise AssertionError(f"never came true: {what}\n{log[-6_000:]}")
            time.sleep(POLL_S)

    def runs_of(self, backfill: str) -> list[dg.DagsterRun]:
        """The runs of a backfill, once it has ended."""
        self.wait(lambda: self._has_ended(backfill), f"backfill {backfill} ends")
        return list(self.instance.get_runs(dg.RunsFilter(tags={"dagster/backfill": backfill})))

    def _has_ended(self, backfill: str) -> bool:
        found = self.instance.get_backfill(backfill)
        return found is not None and found.status.value.startswith(("COMPLETED", "FAILED", "CANCELED"))

    def events(self, key: dg.AssetKey = SALES) -> dict[str | None, dg.AssetMaterialization]:
        records = self.instance.fetch_materializations(key, limit=100, ascending=True).records
        events = [record.asset_materialization for record in records]
        return {event.partition: event for event in events if event is not None}

    def _answers(self) -> bool:
        try:
            return "version" in self.ask("{ version }")
        except OSError:
            return False


@pytest.fixture
def dev(server: EmbeddedServer, database_url: str) -> Iterator[Dev]:
    folder = postgres.make_reachable_directory("gobblin-dev-")
    with postgres.temporary_database(server) as dagster_database:
        settings = Settings(home=folder, database_url=server.url(dagster_database))
        environment = {
            **os.environ,
            **prepare_instance(settings, lambda _line: None),
            WORLD_VARIABLE: str(folder),
            DATABASE_VARIABLE: database_url,
            "PYTHONPATH": str(Path(__file__).parents[2]),
        }
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(URL_VARIABLE, environment[URL_VARIABLE])
            with dg.DagsterInstance.from_config(environment[HOME_VARIABLE]) as instance:
                running = Dev(folder, environment, instance)
                try:
                    running.start()
                    yield running
                finally:
                    running.close()
                    shutil.rmtree(folder)


NUMBERS = {JANUARY: [1, 2], FEBRUARY: [3, 4], MARCH: [5], APRIL: ["no number"]}


def test_a_run_whose_worker_died_is_finished_announced_and_not_left_started(dev: Dev, engine: Engine) -> None:
    """The worker is killed in the middle of a publication."""
    for partition, values in NUMBERS.items():
        write_numbers(dev.folder / "source", "sales", partition, values)
    (dev.folder / "die").write_text("SIGKILL", encoding="ascii")
    first = dev.launch(**{"dagster/partition": JANUARY})
    dev.wait((dev.folder / "died").exists, "the worker died between a rename and the watermark")
    dev.wait_for_status(first, dg.DagsterRunStatus.FAILURE)
    dev.wait(lambda: JANUARY in dev.events(), "the sensor has January finished and announced")
    check_recovered(dev, engine, JANUARY, died=first)
    assert published_numbers(dev.folder) == [1, 2]


@pytest.mark.thorough
def test_what_died_with_all_of_dagster_is_finished_and_backfills_follow(dev: Dev, engine: Engine) -> None:
    for partition, values in NUMBERS.items():
        write_numbers(dev.folder / "source", "sales", partition, values)

    # All of `dagster dev` is killed while the run publishes, and started again.
    (dev.folder / "die").write_text("SIGSTOP", encoding="ascii")
    second = dev.launch(**{"dagster/partition": FEBRUARY})
    dev.wait((dev.folder / "died").exists, "the worker stopped between a rename and the watermark")
    dev.kill_all()
    assert dev.status_of(second) is dg.DagsterRunStatus.STARTED, "somebody told Dagster: this proves nothing"
    dev.start()
    dev.wait(lambda: FEBRUARY in dev.events(), "the sensor has February finished and announced")
    check_recovered(dev, engine, FEBRUARY, died=second)
    dev.wait_for_status(second, dg.DagsterRunStatus.FAILURE)

    # The queue is free: two backfills, one in a single run whose bad partition fails alone, one by partitions, whose
    # runs wait for each other's lease.
    visits = {month: NUMBERS.get(month, [10 + number]) for number, month in enumerate(MONTHS)}
    for partition, values in visits.items():
        write_numbers(dev.folder / "source", "visits", partition, values)
    single, several = dev.backfill(SALES, [MARCH, APRIL]), dev.backfill(VISITS, MONTHS)
    assert [run.status for run in dev.runs_of(single)] == [dg.DagsterRunStatus.FAILURE]
    assert set(dev.events()) == {FEBRUARY, MARCH}
    ended = {run.tags["dagster/asset_partition_range_start"]: run.status.value for run in dev.runs_of(several)}
    assert ended == {month: "FAILURE" if month == APRIL else "SUCCESS" for month in MONTHS}
    assert set(dev.events(VISITS)) == set(MONTHS) - {APRIL}
    published = [number for month in MONTHS if month != APRIL for number in visits[month]]
    assert published_numbers(dev.folder) == sorted([3, 4, 5, *published])


def check_recovered(dev: Dev, engine: Engine, partition: str, *, died: str) -> None:
    """The event is that of the dead run's sequence, logged by the run that finished it."""
    query = text("SELECT sequence_id, state FROM gobblin.commit_sequence WHERE partition = :partition")
    with engine.connect() as connection:
        (sequence,) = connection.execute(query, {"partition": partition}).all()
    event = dev.events()[partition]
    assert sequence.state == "DONE"
    assert event.metadata["gobblin/sequence_id"].value == str(sequence.sequence_id)
    assert event.metadata["gobblin/recovered"].value is True
    (run,) = dev.instance.get_runs(dg.RunsFilter(tags={"gobblin/sequence_id": str(sequence.sequence_id)}))
    assert run.job_name == "shop_recovery"
    dev.wait_for_status(run.run_id, dg.DagsterRunStatus.SUCCESS)
    assert run.run_id != died


def test_the_embedded_server_holds_dagster_s_storage_in_a_database_of_its_own(home: Path) -> None:
    environment = prepare_instance(Settings(home=home), lambda _line: None)
    url = environment[URL_VARIABLE]
    assert url.startswith("postgresql+psycopg2://")
    assert embedded.start(home, lambda _line: None).password() not in url
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(URL_VARIABLE, url)
        with dg.DagsterInstance.from_config(environment[HOME_VARIABLE]) as instance:
            instance.add_dynamic_partitions("tenants", ["acme"])
            assert instance.get_dynamic_partitions("tenants") == ["acme"]
    mine = Path(environment[HOME_VARIABLE], "dagster.yaml")
    mine.write_text("telemetry: {enabled: false}\n", encoding="utf-8")
    prepare_instance(Settings(home=home), lambda _line: None)
    assert mine.read_text(encoding="utf-8") == "telemetry: {enabled: false}\n", "somebody's own file was replaced"
