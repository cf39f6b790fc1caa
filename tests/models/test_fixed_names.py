"""The protocol at given names is safe in every order of moves, within bounds, and no rule of it can be left out."""

import re
from dataclasses import dataclass, field, replace

import pytest

from gobblin_assets.destinations.fixed_names.named_decisions import Act, Found
from tests.models import fixed_name_variants as variants
from tests.models.exhaustive_search import search
from tests.models.fixed_name_owners import FixedNames
from tests.models.fixed_names import Doing, Plan, Process, World
from tests.support.shares import OFTEN_SHARES

THREE_SEQUENCES = FixedNames()
THREE_PROCESSES = FixedNames(processes=3, sequences=2, cleans=False)
STRANGER = variants.PutsBackWhereTheNameIsFree(sequences=2, acts=1)
TWO_ACTS = FixedNames(sequences=2, fences=3, acts=2)
LOSES_ATTEMPTS = variants.LosesAttempts(sequences=2, fences=3, acts=1)
LOSES_FENCES = variants.LosesFences(sequences=2)

LONGER = [
    FixedNames(sequences=4, fences=5),
    FixedNames(processes=3, sequences=2),
    variants.PutsBackWhereTheNameIsFree(sequences=3, acts=1, cleans=False),
    STRANGER,
    variants.LosesAttempts(sequences=2, acts=1),
    variants.LosesFences(sequences=3),
]

BLOCKED = "a sequence waits for a person without a reason"
REVERTED = r"the name holds \d+, and the log says \d"
LOST = r"version \d is lost"
STRANGER_LOST = r"the stranger's file \d+ is lost"
KEPT = "nothing is at the name, and a stranger's file waits"


def ways(*models: FixedNames) -> list[FixedNames]:
    """Each model, by exchange and by moving aside."""
    return [replace(model, exchanges=exchanges) for model in models for exchanges in (True, False)]


def name_of(model: object) -> str:
    if not isinstance(model, FixedNames):
        return ""
    way = "exchange" if model.exchanges else "aside"
    return f"{type(model).__name__}-{way}-{model.processes}x{model.sequences}x{model.fences}-{model.acts}"


@pytest.mark.rotating(of=OFTEN_SHARES)
@pytest.mark.parametrize("model", [*ways(THREE_SEQUENCES, THREE_PROCESSES, TWO_ACTS), STRANGER], ids=name_of)
def test_no_order_of_moves_leads_to_a_fault(model: FixedNames) -> None:
    found = search(model)
    assert found.fault is None, found
    assert found.states > 90_000


@pytest.mark.rotating(of=OFTEN_SHARES)
@pytest.mark.parametrize("model", ways(LOSES_ATTEMPTS, LOSES_FENCES), ids=name_of)
def test_no_loss_of_an_attempt_or_of_fences_leads_to_a_fault(model: FixedNames) -> None:
    found = search(model)
    assert found.fault is None, found
    assert found.states > 50_000


@pytest.mark.thorough
@pytest.mark.parametrize("model", ways(*LONGER), ids=name_of)
def test_no_longer_order_of_moves_leads_to_a_fault(model: FixedNames) -> None:
    found = search(model)
    assert found.fault is None, found


@pytest.mark.rotating
@pytest.mark.parametrize(
    ("model", "fault"),
    [
        (variants.ExecutorsDoNotCapture(sequences=2, abandons=False, cleans=False), BLOCKED),
        (
            variants.ExecutorsDoNotCapture(
                sequences=2, abandons=False, cleans=False, processes=3, blocks_are_faults=False
            ),
            REVERTED,
        ),
        (
            variants.SlotsAreMadeAgain(exchanges=False, abandons=False, sequences=2, blocks_are_faults=False),
            REVERTED,
        ),
        (
            variants.CleanupDoesNotCapture(exchanges=False, abandons=False, sequences=2, blocks_are_faults=False),
            REVERTED,
        ),
        (variants.AbandonersDoNotCapture(blocks_are_faults=False), REVERTED),
        (variants.CapturesKeepTheirNames(), REVERTED),
        (variants.CaptureDescends(), BLOCKED),
        (variants.CaptureDescends(blocks_are_faults=False), REVERTED),
        (variants.ClaimAfterTheCapture(abandons=False), BLOCKED),
        (variants.FencesAreTrimmed(), BLOCKED),
        (variants.GivesUpWithoutTheName(sequences=2, fences=3, acts=1), REVERTED),
        (variants.MarksCleanedForAllOwners(sequences=2), "no row leads to"),
        (variants.RemovesByName(abandons=False), LOST),
        (variants.AttributesByName(sequences=2, abandons=False, cleans=False), "with the attributes of"),
        (variants.WriterComesBack(abandons=False), "part of a file is at the name"),
        (variants.VerifiesByExistence(sequences=2, fences=3, acts=1, exchanges=False, abandons=False), REVERTED),
        (variants.ReplacesByRename(sequences=2, fences=3, acts=1), STRANGER_LOST),
        (variants.ExecutionKeepsWhatItTook(sequences=2, fences=3, acts=1), KEPT),
        (variants.ExecutionKeepsWhatItTook(sequences=2, fences=3, acts=1, exchanges=False), KEPT),
        (variants.UndoLeavesTheSlot(sequences=2, fences=3, acts=1), KEPT),
        (variants.UndoKeepsWhatItReturned(sequences=2, fences=3, acts=1), STRANGER_LOST),
        (variants.UndoKeepsWhatItExchanged(sequences=2, fences=3, acts=1), KEPT),
    ],
    ids=name_of,
)
def test_a_rule_that_is_left_out_is_missed(model: FixedNames, fault: str) -> None:
    found = search(model)
    assert re.search(fault, found.fault or ""), found


@pytest.mark.rotating(of=OFTEN_SHARES)
@pytest.mark.parametrize(
    "model",
    [
        variants.PutsBackAlways(sequences=2, fences=3, acts=1, exchanges=False),
        variants.PutsBackAlways(sequences=2, fences=3, acts=1, abandons=False),
        variants.PutsBackAlways(sequences=2, fences=3, acts=1),
    ],
    ids=name_of,
)
def test_a_stranger_s_file_never_waits_in_an_attempt(model: FixedNames) -> None:
    found = search(model)
    assert found.fault is None, found


def test_the_log_leads_to_every_directory() -> None:
    found = search(variants.ForgetsNothing(sequences=2))
    assert found.fault is None, found


@dataclass(frozen=True)
class Noted(FixedNames):
    """What the tables decide in any state."""

    acts_seen: set[str] = field(default_factory=set)
    undone_beside_strangers: list[World] = field(default_factory=list)

    def decide(self, plan: Plan, seen: tuple[Found, ...]) -> str:
        act = super().decide(plan, seen)
        self.acts_seen.add(f"{plan.way}: {act}")
        return act

    def decide_back(self, plan: Plan, seen: tuple[Found, ...]) -> str:
        act = super().decide_back(plan, seen)
        self.acts_seen.add(f"undo: {act}")
        return act

    def find_fault(self, world: World, process: Process) -> str | None:
        if process.doing is Doing.END_ABANDON and world.name in world.guests:
            self.undone_beside_strangers.append(world)
        return super().find_fault(world, process)


@dataclass(frozen=True)
class NotedWithoutCapture(Noted, variants.ExecutorsDoNotCapture):
    pass


def test_the_searches_reach_every_answer_of_the_tables() -> None:
    """But one: a replacement is settled too early only where two processes act in one directory at once."""
    seen: set[str] = set()
    for exchanges in (True, False):
        model = Noted(sequences=2, fences=3, acts=1, exchanges=exchanges)
        search(model)
        # A stranger's file at the name is no hindrance: nothing of the sequence is there.
        assert model.undone_beside_strangers
        seen |= model.acts_seen
    place = {Act.DONE, Act.PUBLISH, Act.CONFLICT, Act.LOST}
    remove = {Act.DONE, Act.AWAY, Act.PUT_BACK, Act.CONFLICT}
    back = {Act.DONE, Act.EXCHANGE, Act.RETURN, Act.UNRETURN, Act.PUT_BACK, Act.CONFLICT}
    assert seen == {
        *(f"create: {act}" for act in place),
        *(f"remove: {act}" for act in remove),
        *(f"replace: {act}" for act in place | remove | {Act.EXCHANGE, Act.SETTLE}),
        *(f"undo: {act}" for act in back),
    }
    together = NotedWithoutCapture(sequences=2, abandons=False, cleans=False, blocks_are_faults=False)
    search(together)
    assert together.acts_seen - seen == {f"replace: {Act.UNSETTLE}"}
