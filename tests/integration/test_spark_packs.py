"""Tickets that share a run and its session of Spark, whose JVM dies: each ticket has an account of its own."""

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import dagster as dg
import psutil
import pytest

from gobblin_assets.dagster.runner_location import EXECUTOR_VARIABLE
from gobblin_assets.dagster.ticket_runs import TICKETS_JOB, find_owner_run
from gobblin_assets.dagster.ticket_sensors import MonitorTick, read_tickets
from gobblin_assets.failpoints import Failpoint
from gobblin_assets.model.clock import SystemClock
from gobblin_assets.model.job_ticket import TicketId
from gobblin_assets.state.tickets import TicketReportKind
from tests.support.dagster_instance import open_instance
from tests.support.dagster_workers import become_run
from tests.support.forks import FORKS
from tests.support.orders_to_die import WAIT, give_order, obey
from tests.support.spark import wait_until
from tests.support.ticket_shop import NAME, TicketShop, ticket_shop

__all__ = ["ticket_shop"]

pytestmark = [pytest.mark.timeout(1_200), pytest.mark.turns(of=4)]

ROWS = 9
JOBS = ("first", "second", "third", "fourth")
LIFE_S_MAX = 400


@dataclass
class Packs:
    """JobMonitor over the inbox of the shop, and runs as processes that may open a session of Spark."""

    shop: TicketShop
    instance: dg.DagsterInstance
    folder: Path
    environment: dict[str, str]
    processes: list[BaseProcess]

    def send(self, table: str, name: str) -> TicketId:
        reading = {"connection": "shop", "reader": "jdbc"}
        return self.shop.send(self.shop.make_job(name, source=reading, datasets=[{"urn": f"public.{table}"}]))

    def look(self) -> Sequence[dg.RunRequest]:
        """The runs that JobMonitor asks for."""
        tick = MonitorTick(NAME, 10, self.instance, self.shop.stores, SystemClock().now())
        tick.settle()
        requests, _cursor = tick.plan(None)
        return requests

    def start(self, request: dg.RunRequest) -> BaseProcess:
        arguments = (str(self.folder), self.environment, request.run_config, dict(request.tags))
        process = FORKS.Process(target=_run_pack, args=arguments)
        process.start()
        self.processes.append(process)
        return process

    def run(self, request: dg.RunRequest) -> None:
        process = self.start(request)
        process.join(LIFE_S_MAX)
        assert process.exitcode == 0

    def find_run(self, request: dg.RunRequest) -> dg.DagsterRun:
        (found,) = self.instance.get_runs(dg.RunsFilter(tags=dict(request.tags)))
        return found

    def describe(self, ticket_id: TicketId) -> list[str]:
        """Its reports, with the state of an end."""
        return [str(each.details.get("state", each.kind.value)) for each in self.shop.list_reports(ticket_id)]

    def count_publications(self, ticket_id: TicketId) -> int:
        return sum(self.shop.list_told(ticket_id).values())


def _run_pack(folder: str, environment: dict[str, str], run_config: Any, tags: dict[str, str]) -> None:
    obey(Path(folder))
    become_run(folder, environment, run_config, tags, job_name=TICKETS_JOB)


@pytest.fixture
def packs(ticket_shop: TicketShop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Packs]:
    environment = {**ticket_shop.environment, EXECUTOR_VARIABLE: NAME, "GOBBLIN_SPARK_MASTER": "local[1]"}
    for name in ("GOBBLIN_DATABASE_URL", "GOBBLIN_HOME"):
        monkeypatch.setenv(name, environment[name])
    folder = tmp_path / "dagster"
    with open_instance(folder) as instance:
        made = Packs(ticket_shop, instance, folder, environment, [])
        yield made
        for process in made.processes:
            for each in find_jvms(process):
                each.kill()
            process.kill()
            process.join()


def find_jvms(process: BaseProcess) -> list[psutil.Process]:
    try:
        children = psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []
    return [each for each in children if each.name() == "java"]


def count_work(process: BaseProcess) -> float:
    """The processor seconds that Spark has taken."""
    with suppress(psutil.NoSuchProcess):
        return sum(sum(each.cpu_times()[:2]) for each in find_jvms(process))
    return 0.0


def test_a_pack_runs_in_one_session_of_spark_and_one_ticket_fails_alone(packs: Packs) -> None:
    tickets = [packs.send("absent" if name == "second" else "customers", name) for name in JOBS]
    (request,) = packs.look()
    packs.run(request)
    run = packs.find_run(request)
    assert read_tickets(run) == tickets
    assert run.status is dg.DagsterRunStatus.FAILURE, "one of them failed"
    whole = ["claimed", "running", "published", "COMPLETE"]
    assert [packs.describe(each) for each in tickets] == [whole, ["claimed", "running", "FAILED"], whole, whole]
    assert len(list((packs.shop.folder / "home" / "spark").glob("driver-*.log"))) == 1, "one JVM"
    assert set(packs.shop.list_sequences().values()) == {1}
    assert not packs.look()


@pytest.mark.parametrize("moment", ["while a ticket is read", "between two tickets"])
def test_what_was_not_begun_when_the_jvm_died_goes_on_in_another_run_and_counts_no_attempt(
    packs: Packs, moment: str
) -> None:
    """``moment``: of the death. In the middle of a ticket, that ticket fails, and may be begun again by its flow."""
    is_amid = moment.startswith("while")
    with packs.shop.source.connect() as connection:
        connection.execute(
            "CREATE VIEW slow AS SELECT customers.* FROM customers CROSS JOIN (SELECT pg_sleep(600)) AS waited"
        )
    tables = {name: "slow" if is_amid and name == "second" else "customers" for name in JOBS}
    first, second, *others = (packs.send(tables[name], name) for name in JOBS)
    (request,) = packs.look()
    if not is_amid:
        give_order(packs.folder, Failpoint.TICKET_ENDED, WAIT)
    process = packs.start(request)

    def is_there() -> bool:
        if not is_amid:
            return (packs.folder / "obeyed").exists()
        asked = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'"
        with packs.shop.source.connect() as connection:
            return connection.execute(asked).fetchone() != (0,) and packs.describe(second)[-1:] == ["running"]

    wait_until(
        is_there,
        lambda: str([packs.describe(each) for each in (first, second)]),
        progress=lambda: count_work(process),
    )
    (jvm,) = find_jvms(process)
    os.kill(jvm.pid, signal.SIGKILL)
    (packs.folder / "obeyed").unlink(missing_ok=True)
    process.join(LIFE_S_MAX)
    assert process.exitcode == 0
    run = packs.find_run(request)
    assert run.status is dg.DagsterRunStatus.FAILURE

    whole = ["claimed", "running", "published", "COMPLETE"]
    assert packs.describe(first) == whole
    left = others if is_amid else [second, *others]
    if is_amid:
        assert packs.describe(second) == ["claimed", "running", "FAILED"]
        assert packs.shop.list_reports(second)[-1].details["family"] == "RetryableError"
    assert [packs.describe(each) for each in left] == [[]] * len(left), "nobody begins them without Spark"
    assert {each.last_attempt for each in packs.shop.stores.tickets.list_claimable(NAME, limit=9)} == {0}

    (following,) = packs.look()
    assert following.run_key != request.run_key
    packs.run(following)
    assert read_tickets(packs.find_run(following)) == left
    assert [packs.describe(each) for each in left] == [whole] * len(left)
    owners = {find_owner_run(str(each.details["owner"])) for each in claims_of(packs, [first, *left])}
    assert owners == {run.run_id, packs.find_run(following).run_id}
    assert [packs.count_publications(each) for each in (first, *left)] == [1] * (1 + len(left))
    assert sum(packs.shop.list_sequences().values()) == 1 + len(left), "what is published is not published again"
    assert not packs.look()


def claims_of(packs: Packs, tickets: Sequence[TicketId]) -> list[Any]:
    reports = [report for each in tickets for report in packs.shop.list_reports(each)]
    return [each for each in reports if each.kind is TicketReportKind.CLAIMED]
