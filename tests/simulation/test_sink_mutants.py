"""Each mutant of a sink's worker is noticed by one of the histories from the seed on at which one noticed it before.

Histories take other turns when the product makes other calls, so that it may be another one than then.
"""

from collections.abc import Callable

import pytest

from tests.models.lane_traces import Transition
from tests.simulation.guards import Guard
from tests.simulation.hunting import hunt_in_sink_histories
from tests.simulation.mutant import Mutant, without
from tests.simulation.sink_history import run_sink_history
from tests.simulation.sink_moves import run_moves
from tests.simulation.sink_mutants import IN_SINK_HISTORIES, IN_SINK_MOVES
from tests.simulation.world import stepped

SEEDS = 150
BACKED = (
    Guard.MOVE_CHECKS_FENCE,
    Guard.MOVE_WAITS_FOR_OPEN,
    Guard.SEAL_CHECKS_LANE,
    Guard.SEAL_COMPARES_WATERMARKS,
    Guard.ONE_OPEN_SEQUENCE,
)
MUTANTS = {each.name: each for each in (*IN_SINK_HISTORIES, *IN_SINK_MOVES)}
NOTICED_BY = {
    "recovery rewinds what is not visible": 2,
    "files become visible without a row": 1,
    "a row stands before its data is durable": 69,
    "a cut inside of an epoch": 5,
    "a vnode is in two lanes": 15,
    "the log is truncated at the seal": 3,
    "an empty cut is not recorded": 12,
    "a row is given up without capture": 2,
    "one start for all vnodes, which no seal compares": 2,
    "two open rows a lane, of which one is not recovered before vnodes are read": 13,
    "two open rows a lane, and a seal without an answer is not done": 2,
    "a library's exception in the read loop": 0,
    "a mover neither holds its lane nor looks for open rows": 5,
    "a mover does not hold its lane, and a seal is blind to whose the vnodes are": 1,
}


@pytest.mark.rotating
@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=lambda each: each.name)
def test_a_mutant_is_noticed_by_histories_from_a_known_one_on(mutant: Mutant) -> None:
    known = NOTICED_BY[mutant.name]
    assert hunt_in_sink_histories(mutant, range(known, known + SEEDS)).by is not None


@pytest.mark.rotating
@pytest.mark.parametrize("seed", range(6))
def test_whoever_lost_a_lane_moves_nothing_away_amid_the_next_holder_s_cut(seed: int) -> None:
    with stepped():
        found = run_moves(seed)
    assert {Transition.MOVE, Transition.TAKE, Transition.FINISH} <= set(found)


@pytest.mark.thorough
@pytest.mark.parametrize("play", [run_moves, run_sink_history], ids=["moves", "any"])
@pytest.mark.parametrize("guard", BACKED, ids=str)
def test_a_guard_of_a_pair_may_be_missing_alone(guard: Guard, play: Callable[[int], object]) -> None:
    """A step may then be none of the model's, but nothing is lost or doubled."""
    for seed in range(40):
        with stepped(), without(guard)():
            try:
                play(seed)
            except AssertionError as error:
                if not str(error).startswith("observation"):
                    raise
