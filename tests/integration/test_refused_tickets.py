"""Tickets that an executor of Dagster cannot run: each is refused with field and fix, and nothing begins."""

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from sqlalchemy import text

from gobblin_assets.dagster.runner_location import EXECUTOR_VARIABLE, build_runner_definitions
from gobblin_assets.dagster.ticket_runs import TICKETS_JOB, TICKETS_OP
from gobblin_assets.dagster.ticket_sensors import MonitorTick
from gobblin_assets.dagster.worker_runs import WORKERS_JOB, WORKERS_OP
from gobblin_assets.model.clock import SystemClock
from gobblin_assets.model.job_ticket import SentTicket, TicketId
from gobblin_assets.state.tickets import AttemptEnd
from tests.support.dagster_instance import open_instance
from tests.support.ticket_shop import NAME, TicketShop, make_sent, ticket_shop

__all__ = ["ticket_shop"]

pytestmark = pytest.mark.turns(of=2)

CHANGE_BODY = """
    UPDATE gobblin.job_ticket SET body = CAST(jsonb_set(CAST(body AS jsonb), CAST(:path AS text[]), :value) AS json)
     WHERE ticket_id = :ticket_id
"""


@dataclass
class Executor:
    """Dagster as the executor of the shop, whose daemon is the test."""

    shop: TicketShop
    instance: dg.DagsterInstance
    environment: dict[str, str]

    def send(self, job: dict[str, Any], change: Callable[[SentTicket], SentTicket] = lambda sent: sent) -> TicketId:
        sent = change(make_sent(TicketId(uuid.uuid4()), job))
        self.shop.stores.tickets.send(sent)
        return sent.ticket_id

    def change_body(self, ticket_id: TicketId, path: str, value: str) -> None:
        """As a later release of the service would have written it, or as somebody changed it in the log."""
        arguments = {"ticket_id": ticket_id, "path": path, "value": value}
        statement = text(CHANGE_BODY.replace(":value", "CAST(:value AS jsonb)"))
        with self.shop.engine.begin() as connection:
            assert connection.execute(statement, arguments).rowcount == 1

    def run_all(self) -> list[dg.DagsterRunStatus]:
        """What JobMonitor asks for, one run after the other."""
        tick = MonitorTick(NAME, 99, self.instance, self.shop.stores, SystemClock().now())
        tick.settle()
        requests, _cursor = tick.plan(None)
        job = build_runner_definitions(self.environment).resolve_job_def(TICKETS_JOB)
        states = []
        for request in requests:
            done = job.execute_in_process(
                instance=self.instance, run_config=request.run_config, tags=dict(request.tags), raise_on_error=False
            )
            run = self.instance.get_run_by_id(done.run_id)
            assert run is not None
            states.append(run.status)
        return states


@pytest.fixture
def executor(ticket_shop: TicketShop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Executor]:
    environment = {**ticket_shop.environment, EXECUTOR_VARIABLE: NAME}
    for name, value in environment.items():
        if name.startswith("GOBBLIN_"):
            monkeypatch.setenv(name, value)
    with open_instance(tmp_path / "dagster") as instance:
        yield Executor(ticket_shop, instance, environment)


def test_each_ticket_that_the_executor_can_t_run_is_refused_by_its_field_beside_one_that_it_can(
    executor: Executor, tmp_path: Path
) -> None:
    shop = executor.shop
    tree = {"kind": "distcp", "source": str(tmp_path / "absent"), "datasets": [{"urn": "all"}]}
    newer, without_uri, changed, expired = (
        executor.send(shop.make_job("newer")),
        executor.send(shop.make_job("without_uri")),
        executor.send(shop.make_job("changed")),
        executor.send(shop.make_job("expired"), lambda sent: replace(sent, expires_after_s=0.001)),
    )
    executor.change_body(newer, "{ticket,colour}", '"red"')
    executor.change_body(without_uri, "{ticket}", '{"later": 1}')
    executor.change_body(changed, "{ticket,job,destination}", '"/elsewhere"')
    refused = {
        newer: ("ticket.colour", "Known are"),
        without_uri: ("ticket.later", "Known are"),
        changed: (f"the ticket {changed} is not what was sent", "Somebody changed it in the log"),
        executor.send(shop.make_job("unconnected", source={"connection": "bank"})): ("GOBBLIN_JDBC_BANK_URL", ""),
        executor.send(shop.make_job("packaged", kind="acme.cleaning")): ("acme.cleaning", ""),
        executor.send({"job": "rootless", "destination": str(tmp_path / "copied"), **tree}): (
            str(tmp_path / "absent"),
            "",
        ),
        executor.send(shop.make_job("relative", destination="lake/shop")): ("destination", ""),
    }
    good = executor.send(shop.make_job())
    cancelled = executor.send(shop.make_job("cancelled"))
    # As for a flow that is deleted.
    shop.cancel(cancelled)

    states = executor.run_all()

    assert set(states) <= {dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.SUCCESS}
    ends = shop.stores.tickets.find_ends([*refused, good, cancelled, expired])
    for ticket_id, (said, hint) in refused.items():
        end = ends[ticket_id]
        assert end.details["state"] == AttemptEnd.FAILED.value, (said, end)
        assert said in end.details["message"], end.details
        assert end.details["hint"], end.details
        assert hint in end.details["hint"]
        assert end.details["family"] in {"RejectedError", "CorruptionError"}, end.details
        assert "published" not in shop.kinds(ticket_id)
    assert ends[good].details["state"] == "COMPLETE"
    assert (ends[cancelled].details["state"], shop.kinds(cancelled)) == ("CANCELLED", ["ended"])
    assert (ends[expired].details["state"], shop.kinds(expired)) == ("CANCELLED", ["ended"])
    assert "it has expired" in ends[expired].details["message"]
    assert shop.lake_rows() == shop.source_rows()
    with shop.engine.connect() as connection:
        jobs = connection.execute(
            text("SELECT DISTINCT job FROM gobblin.dataset JOIN gobblin.commit_sequence USING (dataset_id)")
        )
        assert list(jobs.scalars()) == ["shop"]
    assert executor.run_all() == [], "nothing is tried again"


@pytest.mark.parametrize(
    ("job", "op", "option"), [(TICKETS_JOB, TICKETS_OP, "tickets"), (WORKERS_JOB, WORKERS_OP, "ticket")]
)
def test_a_run_that_a_person_launches_with_a_ticket_of_another_executor_or_no_id_begins_nothing(
    executor: Executor, job: str, op: str, option: str
) -> None:
    own = executor.send(executor.shop.make_job())
    foreign = executor.send(executor.shop.make_job("foreign"), lambda sent: replace(sent, executor="far"))
    definition = build_runner_definitions(executor.environment).resolve_job_def(job)
    for ticket, said in (
        (str(foreign), f"The ticket {foreign} is for the executor far, and this one is {NAME}. Launch it where far"),
        ("4711", "expected the id of a ticket, such as"),
    ):
        given: Any = [str(own), ticket] if option == "tickets" else ticket
        with pytest.raises(dg.Failure, match=said):
            definition.execute_in_process(
                instance=executor.instance, run_config={"ops": {op: {"config": {option: given}}}}
            )
    assert executor.shop.kinds(own) == executor.shop.kinds(foreign) == []
