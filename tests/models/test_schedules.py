"""Each slot of a schedule is accounted once in every order of moves, and no rule of firing can be left out."""

import pytest

from tests.models import schedules as models
from tests.models.exhaustive_search import search


def name_of(model: object) -> str:
    return type(model).__name__ if isinstance(model, models.Schedules) else ""


@pytest.mark.parametrize(
    ("model", "states"),
    [
        (models.Schedules(), 287262),
        (models.Schedules(queues=False), 221565),
        (models.Schedules(takes_all=True), 238407),
        (models.Overlapping(), 50773),
    ],
    ids=["latest, queue", "latest, skip", "all", "overlapping"],
)
def test_no_order_of_moves_leads_to_a_fault(model: models.Schedules, states: int) -> None:
    found = search(model)
    assert found.fault is None, found
    assert found.states == states


@pytest.mark.parametrize(
    ("model", "fault", "depth"),
    [
        (models.ComparesWithoutVersion(), "AS AN OLD VERSION SAYS", 3),
        (models.ComparesVersionAlone(), "ACCOUNTED TWICE", 3),
        (models.ComparesAtTheLookAlone(), "STARTED THOUGH PAUSED", 3),
        (models.ReadsItsOwnClock(), "NO SLOT, OR BEFORE ITS TIME", 2),
        (models.MovesBehindNow(), "LOST", 3),
        (models.MovesBeforeItAccounts(), "LOST", 2),
        (models.AccountsBeforeItMoves(), "ACCOUNTED TWICE", 3),
        (models.LooksForOpenExecutions(), "TWO ARE OPEN", 3),
        (models.CountsBeforeItBegins(), "MORE ARE OPEN THAN MAY OVERLAP", 4),
        (models.ForgetsWhatOverlapped(), "TWO ARE OPEN", 6),
        (models.BeginsWhatItSaw(), "EXECUTED OTHERWISE THAN ACCOUNTED", 8),
        (models.UpdatesForgetDueSlots(), "LOST", 1),
        (models.UpdatesBeginAtNow(), "ACCOUNTED TWICE", 2),
        (models.DeletionsLeaveWhatWaits(), "WAITS FOR EVER", 4),
    ],
    ids=name_of,
)
def test_a_rule_that_is_left_out_is_missed(model: models.Schedules, fault: str, depth: int) -> None:
    found = search(model)
    assert (found.fault, found.depth) == (fault, depth), found
