"""The protocol at names of an object store is safe in every order of moves, and no rule of it can be left out."""

import re
from dataclasses import dataclass, field, replace

import pytest

from gobblin_assets.destinations.fixed_names.object_steps import ObjectAct, Stands
from tests.models import object_name_variants as variants
from tests.models.exhaustive_search import search
from tests.models.fixed_names import Way
from tests.models.object_name_owners import ObjectNames
from tests.models.object_names import Etags, ObjectPlan
from tests.support.shares import OFTEN_SHARES

ALIKE = Etags.EQUAL
"""The worst case: no condition on an ETag tells one version from another."""

SAFE = [
    ObjectNames(),
    ObjectNames(processes=3, sequences=2, cleans=False),
    ObjectNames(sequences=2, fences=3, acts=2),
]

LONGER = [
    ObjectNames(sequences=4, fences=5),
    ObjectNames(processes=3, sequences=3),
    ObjectNames(sequences=3, acts=1),
    ObjectNames(processes=3, sequences=2, acts=1, cleans=False),
]

REVERTED = r"the name holds -?\d+, (and the log says|while sequence) \d"
GAP = "a reader finds nothing at the name during a replacement"
BLOCKED = "a sequence waits for a person without a reason"
OLD_LOST = r"version \d+ is lost"
STRANGER_LOST = r"the stranger's object \d+ is lost"


def of_etags(*models: ObjectNames, of: tuple[Etags, ...] = tuple(Etags)) -> list[ObjectNames]:
    return [replace(model, etags=etags) for model in models for etags in of]


def name_of(model: object) -> str:
    if not isinstance(model, ObjectNames):
        return ""
    bounds = f"{model.processes}x{model.sequences}x{model.fences}-{model.acts}"
    return f"{type(model).__name__}-{model.etags}-{bounds}"


@pytest.mark.rotating(of=OFTEN_SHARES)
@pytest.mark.parametrize("model", [ObjectNames(), *of_etags(*SAFE, of=(ALIKE,))], ids=name_of)
def test_no_order_of_moves_leads_to_a_fault(model: ObjectNames) -> None:
    found = search(model)
    assert found.fault is None, found
    assert found.states > 60_000


@pytest.mark.thorough
@pytest.mark.parametrize("model", of_etags(*SAFE, *LONGER), ids=name_of)
def test_no_longer_order_of_moves_leads_to_a_fault(model: ObjectNames) -> None:
    found = search(model)
    assert found.fault is None, found


@pytest.mark.rotating
@pytest.mark.parametrize(
    ("model", "fault"),
    [
        (variants.RemovesByDelete(etags=ALIKE, abandons=False, cleans=False), GAP),
        (variants.UndoRemovesByDelete(etags=ALIKE, sequences=2, cleans=False), REVERTED),
        (variants.LooksBeforeItAborts(sequences=2, cleans=False), REVERTED),
        (variants.CompletesWithoutCondition(sequences=2, fences=3, acts=1, abandons=False), STRANGER_LOST),
        (variants.VerifiesByEtag(etags=ALIKE, sequences=2, abandons=False, cleans=False), REVERTED),
        (variants.UndoDoesNotAskTheLog(etags=ALIKE, sequences=2, cleans=False), REVERTED),
        (variants.UndoAsksTheLogFirst(etags=ALIKE, sequences=2, cleans=False), REVERTED),
        (variants.UndoWritesNoJournal(etags=ALIKE, sequences=2, cleans=False), REVERTED),
        (variants.NothingIsPutAside(sequences=2, fences=2, abandons=False, cleans=False), OLD_LOST),
        (variants.CopiesWithoutCondition(sequences=2, cleans=False, fences=3), OLD_LOST),
        (variants.RemovedIfNothingIsThere(etags=ALIKE, acts=1, abandons=False, cleans=False), REVERTED),
        (variants.PutsBackByCopy(sequences=2, fences=3, acts=1, cleans=False), STRANGER_LOST),
        (variants.UploadsAreReused(abandons=False, cleans=False), BLOCKED),
    ],
    ids=name_of,
)
def test_a_rule_that_is_left_out_is_missed(model: ObjectNames, fault: str) -> None:
    found = search(model)
    assert re.search(fault, found.fault or ""), found


@dataclass(frozen=True)
class Noted(ObjectNames):
    """What the tables decide in any state."""

    seen: set[str] = field(default_factory=set)

    def decide(self, plan: ObjectPlan, name: Stands, *, is_pending: bool) -> ObjectAct:
        act = super().decide(plan, name, is_pending=is_pending)
        self.seen.add(f"{plan.way}: {act}")
        return act

    def decide_back(self, plan: ObjectPlan, name: Stands, *, has_copy: bool) -> ObjectAct:
        act = super().decide_back(plan, name, has_copy=has_copy)
        self.seen.add(f"undo {plan.way}: {act}")
        return act


def test_the_searches_reach_every_answer_of_the_tables() -> None:
    model = Noted(sequences=2, fences=3, acts=1)
    search(model)

    ends = {ObjectAct.DONE, ObjectAct.COMPLETE, ObjectAct.CONFLICT}
    back = {ObjectAct.DONE, ObjectAct.PUT_BACK, ObjectAct.CONFLICT}
    assert model.seen == {
        *(f"{way}: {act}" for way in Way for act in ends),
        f"remove: {ObjectAct.CLEAR}",
        f"remove: {ObjectAct.USE_UP}",
        f"remove: {ObjectAct.LOST}",
        *(f"undo create: {act}" for act in (ObjectAct.DONE, ObjectAct.MARK, ObjectAct.CLEAR)),
        *(f"undo {way}: {act}" for way in (Way.REPLACE, Way.REMOVE) for act in back),
    }
