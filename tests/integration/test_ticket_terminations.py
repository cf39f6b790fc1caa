"""A person terminates a run of tickets: what it has not begun ends with it, wherever the signal comes."""

import uuid
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from sqlalchemy import Engine

from gobblin_assets.dagster.ports import FILE_SYSTEMS_KEY, SPARK_KEY, STORES_KEY
from gobblin_assets.dagster.resources.spark import GobblinSparkResource
from gobblin_assets.dagster.ticket_runs import INTERRUPTED, TERMINATED, TICKETS_OP, build_tickets_job
from gobblin_assets.model.job_ticket import JobTicket, SentTicket, TicketId, TicketVerb
from gobblin_assets.run.postgres import open_stores
from gobblin_assets.run.stores import Stores
from gobblin_assets.state.tickets import TicketStore
from tests.support.dagster_instance import open_instance

pytestmark = pytest.mark.turns(of=6)

RUN_ID = str(uuid.uuid4())


@dataclass
class TerminatedTickets:
    """The log's tickets. Dagster terminates the run at the first ``during``; its signal comes then, or never."""

    tickets: TicketStore
    instance: dg.DagsterInstance
    during: str
    is_heard: bool

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.tickets, name)
        if name != self.during:
            return found

        def call(*arguments: Any, **options: Any) -> Any:
            if self.during:
                self.during = ""
                run = self.instance.get_run_by_id(RUN_ID)
                assert run is not None
                self.instance.report_run_canceling(run)
                if self.is_heard:
                    raise dg.DagsterExecutionInterruptedError
            return found(*arguments, **options)

        return call


def send_refused(stores: Stores) -> TicketId:
    """A ticket whose attempt fails at once."""
    ticket = JobTicket("gobblin-job:/sales/orders/orders", "1", "ingest.jdbc", {"job": "orders"})
    sent = SentTicket(TicketId(uuid.uuid4()), TicketVerb.ADD, "lake", ticket)
    stores.tickets.send(sent)
    return sent.ticket_id


@pytest.mark.parametrize(
    ("during", "is_heard", "states"),
    [
        pytest.param("claim", True, ["CANCELLED", "CANCELLED"], id="before the claim is made"),
        pytest.param("list_cancels", False, ["FAILED", "CANCELLED"], id="while the end of a ticket is reported"),
    ],
)
def test_what_a_terminated_run_has_not_begun_is_cancelled(
    engine: Engine, tmp_path: Path, during: str, states: list[str], *, is_heard: bool
) -> None:
    stores = open_stores(engine)
    tickets = [send_refused(stores), send_refused(stores)]
    with open_instance(tmp_path) as instance:
        terminated: Any = TerminatedTickets(stores.tickets, instance, during, is_heard)
        resources = {
            STORES_KEY: replace(stores, tickets=terminated),
            FILE_SYSTEMS_KEY: dg.ResourceDefinition.none_resource(),
            SPARK_KEY: GobblinSparkResource(),
        }
        config = {"ops": {TICKETS_OP: {"config": {"tickets": [str(each) for each in tickets]}}}}
        with pytest.raises(INTERRUPTED):
            build_tickets_job("lake").execute_in_process(
                run_config=config, instance=instance, resources=resources, run_id=RUN_ID
            )
    ends = stores.tickets.find_ends(tickets)
    assert [ends[each].details["state"] for each in tickets] == states
    assert ends[tickets[1]].details["message"] == TERMINATED
