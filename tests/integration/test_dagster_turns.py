"""Runs of Dagster's on one dataset at once: each publishes its partitions when its turn comes, or fails."""

import multiprocessing
import os
import signal
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from sqlalchemy import Engine, text

from gobblin_assets.dagster import outcomes
from gobblin_assets.dagster.run_config import ASKED_AGAIN_TAG
from gobblin_assets.model.state import RunId
from gobblin_assets.model.urn import DatasetUrn, JobName
from gobblin_assets.state.leases import Holder, Lease
from gobblin_assets.state.postgres import PostgresDatasetStore, PostgresLeaseStore
from tests.support.dagster_instance import open_instance
from tests.support.dagster_world import build_world, published_numbers, write_numbers

pytestmark = pytest.mark.turns(of=8)

VISITS = "visits"
KEY = dg.AssetKey(["shop", VISITS])
CHECK = dg.AssetCheckKey(KEY, "gobblin_published")
MONTHS = [f"2013-{month:02d}-01" for month in range(1, 13)]
FORKS = multiprocessing.get_context("fork")
OPTIONS: dict[str, Any] = {
    "datasets": [
        {
            "table": VISITS,
            "extract": "append_only",
            "watermark": {"column": "day", "type": "date"},
            "partitions": {"kind": "monthly", "start": "2013-01-01", "end": "2014-01-01"},
        }
    ],
    "lease": {"ttl_s": 10, "wait_s": 0},
    "backfill": "multi_run",
}


class Visits:
    """A dataset of twelve months, runs of Dagster's in processes of their own, and another process that holds it."""

    def __init__(self, folder: Path, database_url: str, engine: Engine, instance: dg.DagsterInstance) -> None:
        self.folder = folder
        self.instance = instance
        self._database_url = database_url
        self._engine = engine
        self._reference = instance.get_ref()
        self._leases = PostgresLeaseStore(engine)
        for number, month in enumerate(MONTHS):
            write_numbers(folder / "source", VISITS, month, (2 * number, 2 * number + 1))

    def hold(self, *, ttl_s: float = 60.0) -> Lease:
        """Take the dataset, as a process does that works on it for a while."""
        store = PostgresDatasetStore(self._engine)
        ids = store.register(JobName("shop"), [DatasetUrn(VISITS)])
        (lease,) = self._leases.take(list(ids.values()), Holder("somebody", RunId(uuid.uuid4())), ttl_s=ttl_s)
        return lease

    def release(self, lease: Lease) -> None:
        self._leases.release([lease])

    def start(self, *months: str, tags: Mapping[str, str] | None = None) -> multiprocessing.process.BaseProcess:
        """A process that materializes these months, one run after the other; exit code 0 if all say success."""
        process = FORKS.Process(target=self._materialize, args=(months, dict(tags or {})))
        process.start()
        return process

    def _materialize(self, months: Sequence[str], tags: dict[str, str]) -> None:
        definitions = build_world(self.folder, self._database_url, **OPTIONS)
        job = definitions.resolve_job_def("shop_monthly")
        with dg.DagsterInstance.from_ref(self._reference) as instance:
            results = [
                job.execute_in_process(instance=instance, partition_key=month, tags=tags, raise_on_error=False)
                for month in months
            ]
        sys.exit(0 if all(result.success for result in results) else 1)

    def await_runs(self, count: int) -> None:
        """Until the log knows of so many runs that found the dataset held."""
        with self._engine.connect() as connection:
            for _ in range(600):
                if connection.execute(text("SELECT count(*) FROM gobblin.run")).scalar_one() >= count:
                    return
                connection.rollback()
                time.sleep(0.1)
        raise AssertionError(f"{count} runs never began")

    def await_line(self, said: str) -> None:
        """Until the log of a run says so."""
        for _ in range(600):
            for run in self.instance.get_runs():
                if any(said in each.user_message for each in self.instance.all_logs(run.run_id)):
                    return
            time.sleep(0.1)
        raise AssertionError(f"no run ever said: {said}")

    @property
    def materialized(self) -> list[str | None]:
        """The partition of each materialization."""
        records = self.instance.fetch_materializations(KEY, limit=100).records
        return sorted(record.asset_materialization.partition for record in records if record.asset_materialization)

    @property
    def history(self) -> list[tuple[str, str, str]]:
        """Of each run: its state, and the outcome of its partition."""
        query = text(
            "SELECT r.state, d.outcome, d.partition FROM gobblin.run r JOIN gobblin.run_dataset d USING (run_id)"
        )
        with self._engine.connect() as connection:
            return sorted(tuple(row) for row in connection.execute(query).all())


@pytest.fixture
def visits(tmp_path: Path, database_url: str, engine: Engine) -> Iterator[Visits]:
    with open_instance(tmp_path) as instance:
        yield Visits(tmp_path, database_url, engine, instance)


@pytest.mark.core
def test_each_partition_of_a_backfill_by_many_runs_is_published_by_the_run_that_was_asked_for_it(
    visits: Visits,
) -> None:
    lease = visits.hold()
    processes = [visits.start(*MONTHS[number::4]) for number in range(4)]
    visits.await_runs(4)
    visits.release(lease)
    assert [process.join() or process.exitcode for process in processes] == [0] * 4
    assert set(visits.materialized) == set(MONTHS), "an event may be sent again"
    assert published_numbers(visits.folder) == list(range(24))
    assert visits.history == [("COMMITTED", "COMMITTED", month) for month in MONTHS]


@pytest.mark.parametrize("tag", ["dagster/sensor_name", "dagster/schedule_name"])
def test_a_run_that_nobody_watches_waits_too_for_what_it_was_asked_for(visits: Visits, tag: str) -> None:
    lease = visits.hold()
    process = visits.start(MONTHS[0], tags={tag: "mornings"})
    visits.await_runs(1)
    visits.release(lease)
    process.join()
    assert (process.exitcode, visits.materialized) == (0, MONTHS[:1])


def test_a_run_that_its_sensor_asks_for_again_fails_and_keeps_nothing_else_waiting(
    visits: Visits, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outcomes, "RETRY_WAIT_S", 0.1)
    lease = visits.hold()
    process = visits.start(MONTHS[0], tags={"dagster/sensor_name": "new_data", ASKED_AGAIN_TAG: "true"})
    process.join()
    assert (process.exitcode, visits.materialized) == (1, [])
    assert set(visits.history) == {("FAILED", "SKIPPED", MONTHS[0])}
    (check,) = visits.instance.event_log_storage.get_asset_check_execution_history(CHECK, limit=1)
    assert check.status.value == "FAILED"
    visits.release(lease)


def test_a_run_waits_no_longer_than_its_holder_lives(visits: Visits) -> None:
    visits.hold(ttl_s=2.0)
    process = visits.start(MONTHS[0])
    process.join()
    assert (process.exitcode, visits.materialized, visits.history) == (
        *(0, MONTHS[:1]),
        [("COMMITTED", "COMMITTED", MONTHS[0])],
    )


def test_a_person_can_end_a_run_that_waits(visits: Visits) -> None:
    lease = visits.hold()
    process = visits.start(MONTHS[0])
    visits.await_line("waiting for its turn")
    # What the UI's button does.
    visits.instance.report_run_canceling(visits.instance.get_runs()[0])
    assert process.pid is not None
    os.kill(process.pid, signal.SIGINT)
    process.join()
    (run,) = visits.instance.get_runs()
    assert (run.status, visits.materialized) == (dg.DagsterRunStatus.CANCELED, [])
    visits.release(lease)
