"""Reports reach the service in every order of moves, whatever a topic loses, and no rule of wires can be left out."""

import pytest

from tests.models import wires as models
from tests.models.exhaustive_search import search


def name_of(model: object) -> str:
    return type(model).__name__ if isinstance(model, models.Wires) else ""


def test_no_order_of_moves_leads_to_a_fault() -> None:
    found = search(models.Wires())
    assert found.fault is None, found
    assert found.states == 126_184


@pytest.mark.parametrize(
    ("model", "fault", "depth"),
    [
        (models.TakesBehindGaps(), "HIDDEN", 7),
        (models.TrustsNewTopics(), "LOST", 11),
        (models.NotesLate(), "LOST", 18),
    ],
    ids=name_of,
)
def test_a_rule_that_is_left_out_is_missed(model: models.Wires, fault: str, depth: int) -> None:
    found = search(model)
    assert (found.fault, found.depth) == (fault, depth), found
