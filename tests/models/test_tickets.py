"""A ticket is done once and counted once in every order of moves, and no rule of tickets can be left out."""

import pytest

from tests.models import tickets as models
from tests.models.exhaustive_search import search


def name_of(model: object) -> str:
    return type(model).__name__ if isinstance(model, models.Tickets) else ""


def test_no_order_of_moves_leads_to_a_fault() -> None:
    found = search(models.Tickets())
    assert found.fault is None, found
    assert found.states == 9127


@pytest.mark.parametrize(
    ("model", "fault", "depth"),
    [
        (models.NamesAtEachTry(), "DONE TWICE", 10),
        (models.CountsWhatItKnows(), "MISCOUNTED", 11),
        (models.CountsWithoutIds(), "MISCOUNTED", 7),
        (models.TakesLateReports(), "ENDED TWICE", 8),
        (models.EndsBeforeItRuns(), "LOST", 4),
        (models.ReadsAgain(), "READ TWICE", 9),
    ],
    ids=name_of,
)
def test_a_rule_that_is_left_out_is_missed(model: models.Tickets, fault: str, depth: int) -> None:
    found = search(model)
    assert (found.fault, found.depth) == (fault, depth), found
