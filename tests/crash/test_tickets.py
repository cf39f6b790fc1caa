"""Attempts at tickets that are killed anywhere: the next one publishes the rest, and each publication is told once."""

import signal

import pytest

from gobblin_assets.failpoints import Failpoint
from gobblin_assets.state.tickets import TicketReportKind
from tests.support.ticket_shop import Executor, TicketShop, only_first, ticket_shop

__all__ = ["ticket_shop"]

pytestmark = pytest.mark.turns(of=4)

BESIDE_REPORTS = (
    Failpoint.SEQUENCE_BEGUN,
    Failpoint.STAGE_COMMITTED,
    Failpoint.SEAL_COMMITTED,
    Failpoint.STEP_AFTER,
    Failpoint.FINISH_COMMITTED,
    Failpoint.FINISHED_BEFORE_EVENTS,
)
OF_REPORTS = (f"{Failpoint.TICKET_REPORTED}=kill@{number}" for number in (1, 2, 4, 5))


def check_published_and_told(shop: TicketShop, ticket_id: object) -> None:
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
    assert executor.attempts[0].reached() == [f"{failpoint}@1" if "@" not in failpoint else failpoint]
    assert executor.attempts[0].poll() == -signal.SIGKILL
    reports = ticket_shop.list_reports(ticket_id)
    if failpoint.startswith(Failpoint.TICKET_ENDED):
        assert [each.attempt for each in reports if each.kind is TicketReportKind.ENDED] == [1]
        return
    died = next(each for each in reports if each.kind is TicketReportKind.ENDED)
    assert (died.attempt, died.details["state"], died.details["message"]) == (1, "DIED", "died of signal 9")
    assert reports[-1].attempt == 2
