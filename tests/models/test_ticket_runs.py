"""Whatever becomes of Dagster's runs, each ticket is worked on by one at a time, and none is forgotten."""

import pytest

from tests.models import ticket_runs as models
from tests.models.exhaustive_search import search


def name_of(model: object) -> str:
    return type(model).__name__ if isinstance(model, models.TicketRuns) else ""


def test_no_order_of_moves_leads_to_a_fault() -> None:
    found = search(models.TicketRuns())
    assert found.fault is None, found
    assert found.states == 37742


@pytest.mark.parametrize(
    ("model", "fault", "depth"),
    [
        (models.KeysWithoutNumbers(), "FORGOTTEN", 2),
        (models.KeptByTheDead(), "FORGOTTEN", 3),
        (models.AsksForAll(), "TOO MANY", 4),
        (models.WithoutClaims(), "WORKED ON TWICE", 5),
    ],
    ids=name_of,
)
def test_a_rule_that_is_left_out_is_missed(model: models.TicketRuns, fault: str, depth: int) -> None:
    found = search(model)
    assert (found.fault, found.depth) == (fault, depth), found
