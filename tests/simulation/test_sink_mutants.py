"""Each mutant of a sink's worker is noticed by a history that is known to notice it. `make proof` looks for others.

``NOTICED_BY``: the seed of that history. It may have to be looked for anew if histories take other turns.
"""

import pytest

from tests.models.lane_traces import Transition
from tests.simulation.hunting import hunt_in_sink_histories
from tests.simulation.mutant import Mutant
from tests.simulation.sink_moves import run_moves
from tests.simulation.sink_mutants import IN_SINK_HISTORIES, IN_SINK_MOVES
from tests.simulation.world import stepped

MUTANTS = {each.name: each for each in (*IN_SINK_HISTORIES, *IN_SINK_MOVES)}
NOTICED_BY = {
    "recovery rewinds what is not visible": 0,
    "files become visible without a row": 2,
    "a row stands before its data is durable": 69,
    "a cut inside of an epoch": 4,
    "a vnode is in two lanes": 21,
    "the log is truncated at the seal": 1,
    "an empty cut is not recorded": 10,
    "a row is given up without capture": 0,
    "one start for all vnodes, which no seal compares": 2,
    "two open rows a lane, of which one is not recovered before vnodes are read": 5,
    "two open rows a lane, and a seal without an answer is not done": 2,
    "a mover neither holds its lane nor looks for open rows": 0,
    "a mover does not hold its lane, and a seal is blind to whose the vnodes are": 1,
}


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=lambda each: each.name)
def test_a_mutant_is_noticed_by_the_history_that_noticed_it_before(mutant: Mutant) -> None:
    assert hunt_in_sink_histories(mutant, [NOTICED_BY[mutant.name]]).by is not None


@pytest.mark.parametrize("seed", range(6))
def test_whoever_lost_a_lane_moves_nothing_away_amid_the_next_holder_s_cut(seed: int) -> None:
    with stepped():
        found = run_moves(seed)
    assert {Transition.MOVE, Transition.TAKE, Transition.FINISH} <= set(found)
