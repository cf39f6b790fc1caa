"""A batch is at its destination once, in every order of moves, and no rule of marks can be left out."""

import pytest

from tests.models import destinations as models
from tests.models.exhaustive_search import search


def name_of(model: object) -> str:
    if isinstance(model, models.Loads):
        return f"{type(model).__name__}-{model.abandonments}"
    return ""


@pytest.mark.parametrize(
    ("model", "states"),
    [
        (models.TableLoads(), 46),
        (models.TopicLoads(), 222),
        (models.SnapshotLoads(expirations=1), 366),
        (models.TableLoads(abandonments=2, processes=3), 474),
        (models.TopicLoads(abandonments=2, processes=3), 3785),
        (models.SnapshotLoads(expirations=1, abandonments=2, processes=3), 4474),
    ],
    ids=name_of,
)
def test_no_order_of_moves_leads_to_a_fault(model: models.Loads, states: int) -> None:
    """The first three have 74, 408 and 620 states where processes that are alike are counted apart."""
    found = search(model)
    assert found.fault is None, found
    assert found.states == states


@pytest.mark.parametrize(
    ("model", "fault", "depth"),
    [
        (models.LooksFirst(), "DUPLICATE", 6),
        (models.TwoTransactions(), "DUPLICATE", 6),
        (models.NoMark(), "DUPLICATE", 5),
        (models.GivesUpByTheLog(abandonments=1), "PHANTOM", 6),
        (models.GivesUpBeforeItAsks(abandonments=1), "PHANTOM", 5),
        (models.LooksBeforeInit(), "DUPLICATE", 10),
        (models.TopicWithoutMark(), "DUPLICATE", 8),
        (models.ReadsUncommitted(), "LOST", 8),
        (models.RetriesOnNewerSnapshot(), "DUPLICATE", 6),
        (models.MarkInSnapshot(expirations=1), "DUPLICATE", 6),
    ],
    ids=name_of,
)
def test_a_rule_that_is_left_out_is_missed(model: models.Loads, fault: str, depth: int) -> None:
    found = search(model)
    assert (found.fault, found.depth) == (fault, depth), found
