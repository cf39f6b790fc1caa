"""Attempts at tickets that are killed anywhere: the next one publishes the rest, and each publication is told once."""

import os
import signal
import uuid
from collections.abc import Mapping

import pytest

from gobblin_assets import failpoints
from gobblin_assets.db.engine import open_external
from gobblin_assets.failpoints import Failpoint
from gobblin_assets.model.job_ticket import TicketId
from gobblin_assets.run.postgres import open_stores
from gobblin_assets.state.tickets import TicketReportKind
from tests.support.forks import FORKS
from tests.support.ticket_shop import WAIT_S_MAX, Executor, TicketShop, make_sent, only_first, ticket_shop

__all__ = ["ticket_shop"]

pytestmark = pytest.mark.turns(of=6)

BESIDE_REPORTS = (
    Failpoint.SEQUENCE_BEGUN,
    Failpoint.STAGE_COMMITTED,
    Failpoint.SEAL_COMMITTED,
    Failpoint.STEP_AFTER,
    Failpoint.FINISH_COMMITTED,
    Failpoint.FINISHED_BEFORE_EVENTS,
)
OF_REPORTS = (f"{Failpoint.TICKET_REPORTED}=kill@{number}" for number in (1, 2, 4, 5))


def test_a_ticket_whose_sender_is_killed_is_there_and_sent_again_it_is_the_same(ticket_shop: TicketShop) -> None:
    """By a process of its own, killed behind the commit."""
    ticket_id = TicketId(uuid.uuid4())
    reached = ticket_shop.folder / "reached"
    sender = FORKS.Process(
        target=_send, args=(ticket_shop.environment, ticket_shop.make_job(), ticket_id, str(reached))
    )
    sender.start()
    sender.join(WAIT_S_MAX)
    assert sender.exitcode == -signal.SIGKILL
    assert reached.exists()
    with Executor(ticket_shop):
        ticket_shop.send(ticket_id=ticket_id)
        check_published_and_told(ticket_shop, ticket_id)
    assert ticket_shop.kinds(ticket_id).count("claimed") == 1


def _send(environment: Mapping[str, str], job: Mapping[str, object], ticket_id: TicketId, reached: str) -> None:
    os.environ.update(environment)
    failpoints.arm(f"{Failpoint.TICKET_SENT}=kill", reached)
    engine = open_external(environment["GOBBLIN_DATABASE_URL"])
    open_stores(engine).tickets.send(make_sent(ticket_id, job))


def check_published_and_told(shop: TicketShop, ticket_id: TicketId) -> None:
    end = shop.await_end(ticket_id)
    assert end.details["state"] == "COMPLETE", shop.say()
    assert shop.lake_rows() == shop.source_rows()
    assert shop.list_told(ticket_id) == shop.list_sequences()
    assert set(shop.list_told(ticket_id).values()) == {1}


@pytest.mark.parametrize(
    "failpoint", [*(f"{point}=kill" for point in BESIDE_REPORTS), *OF_REPORTS, f"{Failpoint.TICKET_ENDED}=kill"]
)
def test_a_killed_attempt_is_followed_by_one_that_does_the_rest(ticket_shop: TicketShop, failpoint: str) -> None:
    ticket_id = ticket_shop.send()
    with Executor(ticket_shop, only_first(failpoint)) as executor:
        check_published_and_told(ticket_shop, ticket_id)
    assert len(ticket_shop.list_sequences()) == 4, "three months and a snapshot, which no second attempt reads again"
    assert executor.attempts[0].reached() == [f"{failpoint}@1" if "@" not in failpoint else failpoint]
    assert executor.attempts[0].poll() == -signal.SIGKILL
    reports = ticket_shop.list_reports(ticket_id)
    if failpoint.startswith(Failpoint.TICKET_ENDED):
        assert [each.attempt for each in reports if each.kind is TicketReportKind.ENDED] == [1]
        return
    died = next(each for each in reports if each.kind is TicketReportKind.ENDED)
    assert (died.attempt, died.details["state"], died.details["message"]) == (1, "DIED", "died of signal 9")
    assert reports[-1].attempt == 2
