"""No process works on a log of another release, in any order of moves; and no rule of the drain can be left out."""

import pytest

from tests.models import log_drains as models
from tests.models.exhaustive_search import search


def test_nobody_works_on_a_log_of_another_release() -> None:
    found = search(models.LogDrains())
    assert found.fault is None, found
    assert found.states == 1939


@pytest.mark.parametrize(
    ("model", "depth"),
    [
        (models.DrainsBesideClaims(), 7),
        (models.ClaimsWhatItListed(), 7),
        (models.ClaimsInAnyRelease(), 8),
        (models.UpgradesUnseen(), 6),
    ],
    ids=lambda each: type(each).__name__ if isinstance(each, models.LogDrains) else "",
)
def test_a_rule_of_the_drain_that_is_left_out_is_missed(model: models.LogDrains, depth: int) -> None:
    found = search(model)
    assert (found.fault, found.depth) == ("OLD WORKS", depth), found
