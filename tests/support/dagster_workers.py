"""Tickets of workers, a Dagster instance, ticks of their sensors, and runs as processes that may be killed."""

import multiprocessing
import os
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Final
from unittest import mock

import dagster as dg
from sqlalchemy import text

from gobblin_assets import failpoints
from gobblin_assets.dagster.runner_location import build_runner_definitions
from gobblin_assets.dagster.ticket_sensors import TICKET_TAG
from gobblin_assets.dagster.worker_runs import WORKERS_JOB
from gobblin_assets.dagster.worker_sensor import WORKERS_SENSOR
from gobblin_assets.jobs.sink import sink_rules
from gobblin_assets.model.job_ticket import JobTicket, SentTicket, TicketId, TicketShape, TicketVerb
from gobblin_assets.run.postgres import open_stores
from gobblin_assets.run.stores import Stores
from gobblin_assets.state.tickets import TicketReport, TicketReportKind
from tests.support.changed_tables import ChangedTables
from tests.support.dagster_executor import EXECUTOR
from tests.support.forks import FORKS
from tests.support.spark import wait_until

MONITOR: Final = "job_monitor"


@dataclass
class WorkersInDagster:
    """``environment``: of runs, and of this process as long as the test lasts."""

    tables: ChangedTables
    instance: dg.DagsterInstance
    folder: Path
    environment: Mapping[str, str]
    processes: list[BaseProcess] = field(default_factory=list)
    cursors: dict[str, str | None] = field(default_factory=dict)

    @property
    def stores(self) -> Stores:
        return open_stores(self.tables.engine)

    def send(self, verb: TicketVerb = TicketVerb.ADD, *, worker_s: float = 300.0, **options: Any) -> TicketId:
        return send_worker(self.stores, {**self.tables.described, **options}, verb, worker_s=worker_s)

    def cancel(self, other: TicketId) -> TicketId:
        return send_cancel(self.stores, other)

    def tick(self, name: str = WORKERS_SENSOR) -> Sequence[dg.RunRequest]:
        """What the sensor asks for; its cursor goes on from tick to tick."""
        definitions = build_runner_definitions(self.environment)
        sensor = definitions.resolve_sensor_def(name)
        assert definitions.resources is not None
        with dg.build_sensor_context(
            instance=self.instance, resources=dict(definitions.resources), cursor=self.cursors.get(name)
        ) as context:
            found = sensor.evaluate_tick(context)
        self.cursors[name] = found.cursor
        self.said = found.skip_message
        return found.run_requests or []

    said: str | None = None

    def run(self, request: dg.RunRequest) -> dg.DagsterRun:
        """The run, in this process, until it ends."""
        return work(self.instance, self.environment, request.run_config, request.tags)

    def start(self, request: dg.RunRequest, failpoint: str = "") -> BaseProcess:
        """The run, in a process of its own."""
        arguments = (str(self.folder), dict(self.environment), request.run_config, dict(request.tags), failpoint)
        process = FORKS.Process(target=become_run, args=arguments)
        process.start()
        self.processes.append(process)
        return process

    def make_run(self, request: dg.RunRequest, status: dg.DagsterRunStatus) -> dg.DagsterRun:
        """As Dagster's daemon does, without a process."""
        job = build_runner_definitions(self.environment).resolve_job_def(WORKERS_JOB)
        return self.instance.create_run_for_job(job, status=status, tags=request.tags, run_config=request.run_config)

    def find_runs(self, ticket_id: TicketId) -> list[dg.DagsterRun]:
        """The oldest first."""
        return list(reversed(self.instance.get_runs(dg.RunsFilter(tags={TICKET_TAG: str(ticket_id)}))))

    def list_reports(self, ticket_id: TicketId) -> Sequence[TicketReport]:
        return self.stores.tickets.list_reports([ticket_id], {}, limit=1_000)

    def list_ends(self, ticket_id: TicketId) -> list[str]:
        """The states of its ends, of attempts and of the ticket."""
        kinds = [each for each in self.list_reports(ticket_id) if each.kind is TicketReportKind.ENDED]
        return [str(each.details["state"]) for each in kinds]

    def await_report(self, ticket_id: TicketId, kind: TicketReportKind, *, attempt: int = 1) -> None:
        def look() -> bool:
            return any(each.kind is kind and each.attempt == attempt for each in self.list_reports(ticket_id))

        wait_until(look, lambda: f"{kind}: {self.list_reports(ticket_id)}")

    def expire(self) -> None:
        """As if the claims of all tickets had run out."""
        with self.tables.engine.begin() as connection:
            connection.execute(text("UPDATE gobblin.ticket_claim SET expires_at = clock_timestamp()"))

    def move_ends(self, *, seconds: float) -> None:
        """As if all attempts had ended so much earlier."""
        move = "UPDATE gobblin.ticket_claim SET ended_at = ended_at - make_interval(secs => :s)"
        with self.tables.engine.begin() as connection:
            connection.execute(text(move), {"s": seconds})

    def move_runs(self, *, seconds: float) -> None:
        """As if all runs had ended so much earlier."""
        with self.instance.run_storage.connect() as connection:  # type: ignore[attr-defined]  # of SQLite
            for column in ("start_time", "end_time"):
                connection.execute(text(f"UPDATE runs SET {column} = {column} - :s"), {"s": seconds})
            connection.commit()

    def close(self) -> None:
        for each in self.processes:
            each.kill()
            each.join()


def send_worker(
    stores: Stores, job: Mapping[str, Any], verb: TicketVerb = TicketVerb.ADD, *, worker_s: float = 300.0
) -> TicketId:
    described = {**job, "sink": {**job["sink"], "worker_s": worker_s}}
    ticket = JobTicket("gobblin-job:/tests/shop/shop", "1", "change log", described, TicketShape.WORKER)
    sent = SentTicket(TicketId(uuid.uuid4()), verb, EXECUTOR, ticket)
    stores.tickets.send(sent)
    return sent.ticket_id


def send_cancel(stores: Stores, other: TicketId) -> TicketId:
    ticket_id = TicketId(uuid.uuid4())
    stores.tickets.send(SentTicket(ticket_id, TicketVerb.CANCEL, EXECUTOR, cancels=other))
    return ticket_id


def work(
    instance: dg.DagsterInstance,
    environment: Mapping[str, str],
    run_config: Any,
    tags: Mapping[str, str],
    job_name: str = WORKERS_JOB,
) -> dg.DagsterRun:
    """Be the run until it ends."""
    job = build_runner_definitions(environment).resolve_job_def(job_name)
    with mock.patch.object(sink_rules, "EMPTY_CUT_AGE_S", 0.3):
        done = job.execute_in_process(instance=instance, run_config=run_config, tags=dict(tags), raise_on_error=False)
    run = instance.get_run_by_id(done.run_id)
    assert run is not None
    return run


def become_run(
    folder: str,
    environment: Mapping[str, str],
    run_config: Any,
    tags: Mapping[str, str],
    failpoint: str = "",
    job_name: str = WORKERS_JOB,
) -> None:
    """Be the run in a process of its own."""
    os.environ.clear()
    os.environ.update(environment)
    if failpoint:
        failpoints.arm(failpoint, f"{folder}/reached")
    # No code server is left that would report the end of this process.
    mock.patch.object(multiprocessing, "parent_process", return_value=None).start()
    with dg.DagsterInstance.from_config(folder) as instance:
        work(instance, environment, run_config, tags, job_name)
