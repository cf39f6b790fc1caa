"""Whatever dies, each ticket that an executor began by itself becomes one execution."""

import pytest

from tests.models import adoption as models
from tests.models.exhaustive_search import search


def name_of(model: object) -> str:
    return type(model).__name__ if isinstance(model, models.Adoption) else ""


def test_no_order_of_moves_leads_to_a_fault() -> None:
    found = search(models.Adoption())
    assert found.fault is None, found
    assert found.states == 9606


@pytest.mark.parametrize(
    ("model", "fault", "depth"),
    [
        (models.NumbersWithoutLock(), "MISSED", 7),
        (models.MarksFirst(), "MISSED", 5),
        (models.AdoptsWhatItKnew(), "TWICE", 8),
    ],
    ids=name_of,
)
def test_a_rule_that_is_left_out_is_missed(model: models.Adoption, fault: str, depth: int) -> None:
    found = search(model)
    assert (found.fault, found.depth) == (fault, depth), found
