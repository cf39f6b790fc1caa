"""The protocol of lanes is safe in every order of moves, within bounds, and no rule of it can be left out."""

import re
from dataclasses import dataclass, field

import pytest

from tests.models import lane_variants as variants
from tests.models.exhaustive_search import search
from tests.models.lane_writers import Guard, Lanes
from tests.models.lanes import LaneWorld, Step, Writer

DUPLICATE = r"DUPLICATE: .* is visible 2 times"
LOST = r"LOST: vnode \d is truncated to 1, and 0 is committed"
PHANTOM = "PHANTOM: nothing names the file"
BLOCKED = "BLOCKED: a writer waits for a person without a cause"

SMALLER = [
    Lanes(epochs=1, processes=3),
    Lanes(epochs=1, moves=2, abandonments=1),
    Lanes(epochs=1, fences=3, abandonments=2),
    Lanes(epochs=1, vnodes=3, abandonments=1),
    variants.NamesByStart(epochs=1, abandonments=1),
    variants.DestroysTheSourceFirst(epochs=1, abandonments=1),
    variants.SealsAgain(epochs=1),
    variants.TruncatesAtTheSeal(epochs=1),
]

LONGER = [
    Lanes(moves=2, abandonments=1),
    Lanes(processes=3),
    Lanes(fences=3, moves=0, abandonments=1),
    Lanes(vnodes=3),
    variants.NamesByStart(),
    variants.DestroysTheSourceFirst(),
    variants.SealsAgain(),
]

LEFT_OUT = [
    *({each} for each in Guard),
    {Guard.MOVE_OPEN, Guard.SEAL_MEMBERS},
    {Guard.SEAL_OPEN, Guard.SEAL_STARTS},
]


def name_of(model: object) -> str:
    if isinstance(model, set):
        return "-".join(sorted(Guard(each).name for each in model))
    if not isinstance(model, Lanes):
        return ""
    bounds = f"{model.vnodes}x{model.epochs}x{model.lanes}-{model.processes}x{model.fences}"
    return f"{type(model).__name__}-{bounds}-{model.moves}-{model.abandonments}"


@pytest.mark.rotating(of=2)
@pytest.mark.parametrize("model", [Lanes(), Lanes(abandonments=1)], ids=name_of)
def test_no_order_of_moves_leads_to_a_fault(model: Lanes) -> None:
    found = search(model)
    assert found.fault is None, found
    assert found.states > 160_000


@pytest.mark.rotating
@pytest.mark.parametrize("model", SMALLER, ids=name_of)
def test_nor_does_any_within_other_bounds(model: Lanes) -> None:
    found = search(model)
    assert found.fault is None, found
    assert found.states > 10_000


@pytest.mark.thorough
@pytest.mark.parametrize("model", LONGER, ids=name_of)
def test_no_longer_order_of_moves_leads_to_a_fault(model: Lanes) -> None:
    found = search(model)
    assert found.fault is None, found


@pytest.mark.rotating
@pytest.mark.parametrize("guards", LEFT_OUT, ids=name_of)
def test_what_a_guard_keeps_out_other_guards_keep_out_too(guards: set[Guard]) -> None:
    found = search(Lanes(epochs=1, abandonments=1, without=frozenset(guards)))
    assert found.fault is None, found
    assert found.states > 13_000


@pytest.mark.thorough
@pytest.mark.parametrize("guards", LEFT_OUT, ids=name_of)
def test_what_a_guard_keeps_out_other_guards_keep_out_in_longer_orders(guards: set[Guard]) -> None:
    found = search(Lanes(abandonments=1, without=frozenset(guards)))
    assert found.fault is None, found


@pytest.mark.rotating
@pytest.mark.parametrize(
    ("model", "fault", "depth"),
    [
        (Lanes(without=frozenset({Guard.SEAL_FENCE, Guard.SEAL_OPEN, Guard.SEAL_STARTS})), PHANTOM, 11),
        (Lanes(without=frozenset({Guard.FINISH_FENCE, Guard.FINISH_OPEN})), PHANTOM, 15),
        (Lanes(without=frozenset({Guard.MOVE_FENCE, Guard.MOVE_OPEN})), DUPLICATE, 16),
        (Lanes(without=frozenset({Guard.MOVE_FENCE, Guard.SEAL_MEMBERS})), DUPLICATE, 16),
        (variants.ReadsBeforeItResolves(without=frozenset({Guard.SEAL_OPEN})), PHANTOM, 11),
        (variants.MovesAreCopies(), DUPLICATE, 14),
        (variants.RewindsWhatIsNotVisible(), PHANTOM, 10),
        (variants.NoRow(), DUPLICATE, 12),
        (variants.RowBeforeData(), PHANTOM, 12),
        (variants.OneStartForAll(without=frozenset({Guard.SEAL_STARTS})), DUPLICATE, 15),
        (variants.SealsAgain(without=frozenset({Guard.SEAL_OPEN})), PHANTOM, 11),
        (variants.AttemptsRecur(fences=3, epochs=1, abandonments=1), PHANTOM, 14),
        (variants.TruncatesAtTheSeal(abandonments=1), LOST, 6),
        (variants.GivesUpWithoutCapture(abandonments=1), PHANTOM, 7),
        (variants.EmptyCutsAreNoRows(), LOST, 3),
        (variants.CutsInsideOfEpochs(vnodes=1, lanes=1, moves=0, empty=frozenset()), DUPLICATE, 12),
        (variants.ReplacesByName(), PHANTOM, 10),
        (variants.BlocksWithoutAsking(abandonments=1), BLOCKED, 9),
    ],
    ids=name_of,
)
def test_a_rule_that_is_left_out_is_missed(model: Lanes, fault: str, depth: int) -> None:
    found = search(model)
    assert re.search(fault, found.fault or ""), found
    assert found.depth == depth, found


@pytest.mark.thorough
@pytest.mark.parametrize(("abandonments", "states"), [(0, 138_640), (1, 160_083)])
def test_the_states_are_those_of_the_protocol_s_first_model(abandonments: int, states: int) -> None:
    """It named attempts by what they hold, and had 275,118 and 317,818 states, with writers that are alike apart."""
    found = search(variants.AttemptsRecur(abandonments=abandonments))
    assert (found.fault, found.states) == (None, states)


@dataclass(frozen=True)
class Noted(Lanes):
    """``steps``: those that any writer came to. ``ends``: worlds in which a vnode moved and everything is done."""

    steps: set[Step] = field(default_factory=set)
    ends: set[LaneWorld] = field(default_factory=set)

    def find_fault(self, world: LaneWorld, writer: Writer) -> str | None:
        self.steps.add(writer.step)
        is_over = all(lane.open is None for lane in world.lanes) and set(world.committed) == {self.epochs}
        if is_over and world.moves:
            self.ends.add(world)
        return super().find_fault(world, writer)


def test_the_search_reaches_every_step_and_the_end() -> None:
    model = Noted(fences=3, epochs=1, abandonments=1)
    search(model)
    of_variants = {Step.STAGE_LATE, Step.CHECK_AGAIN, Step.REWIND}
    assert model.steps == set(Step) - of_variants - {Step.BLOCKED}
    assert any(world.abandonments for world in model.ends)
