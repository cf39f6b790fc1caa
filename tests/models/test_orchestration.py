"""A job has one open ticket at a time, over moves and retries, in every order of moves."""

import pytest

from tests.models import orchestration as models
from tests.models.exhaustive_search import search


def test_no_order_of_moves_retries_and_revivals_leads_to_a_fault() -> None:
    found = search(models.Orchestration())
    assert found.fault is None, found
    assert found.states == 94775


@pytest.mark.parametrize(
    ("model", "fault"),
    [
        (models.MovesAtOnce(), "TWO OPEN"),
        (models.EndsClaimed(), "TAKEN AWAY"),
        (models.AsksBeforeItDecides(), "ENDED BY NOBODY"),
        (models.ClaimsWhatHasEnded(), "CLAIMED AFTER ITS END"),
        (models.KeepsTheId(), "WAITS FOR NOTHING"),
        (models.ForgetsWhichTicket(), "WAITS FOR NOTHING"),
        (models.BeginsAnew(), "DONE TWICE"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, models.Orchestration) else "",
)
def test_no_rule_of_moves_can_be_left_out(model: models.Orchestration, fault: str) -> None:
    found = search(model)
    assert found.fault == fault, found
