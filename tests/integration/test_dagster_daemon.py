"""`dagster dev` for real, with the instance that we ship: work of dead processes is finished without a person."""

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.run_coordinator.queued_run_coordinator import QueuedRunCoordinator
from sqlalchemy import Engine, text

from gobblin_assets.dagster.instance import HOME_VARIABLE, URL_VARIABLE, prepare_instance
from gobblin_assets.dagster.ticket_sensors import find_slots
from gobblin_assets.dagster.worker_slots import find_workers_max
from gobblin_assets.db import embedded
from gobblin_assets.db.embedded import EmbeddedServer
from gobblin_assets.settings import Settings
from tests.support import postgres
from tests.support.dagster_process import DagsterProcess
from tests.support.dagster_world import DATABASE_VARIABLE, WORLD_VARIABLE, published_numbers, write_numbers

SALES, VISITS = dg.AssetKey(["shop", "sales"]), dg.AssetKey(["store", "visits"])
MONTHS = [f"2013-{month:02d}-01" for month in range(1, 13)]
JANUARY, FEBRUARY, MARCH, APRIL = MONTHS[:4]
LOCATION = "tests.support.dagster_location"

pytestmark = [pytest.mark.timeout(600), pytest.mark.turns(of=4)]


class Dev(DagsterProcess):
    """`dagster dev` over a world."""

    def launch(self, **tags: str) -> str:
        return self.launch_job(LOCATION, "shop_monthly", tags)

    def backfill(self, key: dg.AssetKey, partitions: list[str]) -> str:
        answer = self.ask(
            """mutation ($params: LaunchBackfillParams!) { launchPartitionBackfill(backfillParams: $params) {
                 __typename ... on LaunchBackfillSuccess { backfillId } ... on PythonError { message } } }""",
            params={"partitionNames": partitions, "assetSelection": [{"path": list(key.path)}]},
        )
        return str(answer["launchPartitionBackfill"]["backfillId"])

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
                command = [sys.executable, "-m", "dagster", "dev", "-m", LOCATION]
                running = Dev(folder, command, environment, instance)
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
            coordinator = instance.run_coordinator
            assert isinstance(coordinator, QueuedRunCoordinator)
            assert coordinator.dequeue_interval_seconds == 1
            assert (find_slots(instance), find_workers_max(instance)) == (4, 2), "the limits beside it are taken"
    mine = Path(environment[HOME_VARIABLE], "dagster.yaml")
    mine.write_text("telemetry: {enabled: false}\n", encoding="utf-8")
    prepare_instance(Settings(home=home), lambda _line: None)
    assert mine.read_text(encoding="utf-8") == "telemetry: {enabled: false}\n", "somebody's own file was replaced"
