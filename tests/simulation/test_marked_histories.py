"""Histories of sinks that load a table or the example's file: each row is there once at every moment.

Each mutant is noticed. A seed is tried with one of the places, which take turns.
"""

from collections import Counter

import pytest

from tests.models.lane_traces import Transition
from tests.simulation.file_mutants import IN_A_FILE
from tests.simulation.hunting import hunt_in_marked_histories
from tests.simulation.marked_mutants import IN_MARKED_HISTORIES
from tests.simulation.marked_world import FileWorld, TableWorld, run_marked_history
from tests.simulation.mutant import Mutant
from tests.support.shares import Share

HISTORIES = 24
SEEDS = 150
NOTICED_BY = {
    "a mark apart from its data": 2,
    "a publication is abandoned and its mark not told": 0,
    "a mark is set and not compared": 8,
    "a mark's version is not compared": 12,
    "what was given up is not compared": 8,
    "in a file, a mark apart from its rows": 6,
}
PLACES = (TableWorld, FileWorld)


def test_whatever_happens_to_workers_each_row_is_in_the_table_once(share: Share) -> None:
    found: Counter[Transition] = Counter()
    for number, seed in enumerate(sorted(share.numbers(HISTORIES, "marked histories"))):
        found.update(run_marked_history(seed, PLACES[number % 2]))
    assert {Transition.FINISH, Transition.TAKE} <= found.keys()


@pytest.mark.thorough
def test_many_more_histories_of_marks() -> None:
    for seed in range(HISTORIES, 20 * HISTORIES):
        run_marked_history(seed, PLACES[seed % 2])


@pytest.mark.rotating
@pytest.mark.parametrize("mutant", [*IN_MARKED_HISTORIES, *IN_A_FILE], ids=lambda each: each.name)
def test_a_mutant_of_the_marks_is_noticed_by_histories_from_a_known_one_on(mutant: Mutant) -> None:
    known = NOTICED_BY[mutant.name]
    assert hunt_in_marked_histories(mutant, range(known, known + SEEDS)).by is not None
