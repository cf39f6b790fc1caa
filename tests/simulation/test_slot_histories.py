"""Histories of workers over one slot: each change is published once at every moment, and each mutant is noticed."""

import pytest

from tests.simulation.hunting import hunt_in_slot_histories
from tests.simulation.mutant import Mutant
from tests.simulation.slot_history import Loss, run_lost_history, run_slot_history
from tests.simulation.slot_mutants import IN_SLOT_HISTORIES
from tests.simulation.world import stepped
from tests.support.shares import Share, cross

pytestmark = pytest.mark.turns(of=4)

HISTORIES = 60
SEEDS = 150
NOTICED_BY = {
    "the slot is moved before T3": 0,
    "a cut inside of a transaction": 1,
    "a keepalive's position without a recorded cut": 0,
    "the successor does not end the old walsender": 1,
    "what a copy has is not left out of the log": 0,
    "a new reader does not learn what the last one copied": 114,
    "a copy does not wait for running transactions": 32,
    "a copy does not wait for the newest transaction": 37,
    "a change is judged by another range's snapshot": 0,
    "bounds are decided anew": 0,
    "the log is followed from the last range's place": 0,
    "a row's move is left out as a whole": 1,
    "a table is told by its name": 0,
    "a lane fails amid a barrier": 18,
    "a copy is taken before the place": 0,
}


def test_whatever_happens_to_workers_each_change_is_published_once(share: Share) -> None:
    for seed in sorted(share.numbers(HISTORIES, "slot histories")):
        with stepped():
            run_slot_history(seed)


@pytest.mark.thorough
def test_many_more_histories_of_a_slot() -> None:
    for seed in range(HISTORIES, 20 * HISTORIES):
        with stepped():
            run_slot_history(seed)


@pytest.mark.parametrize(("seed", "loss"), cross(range(3), list(Loss)), ids=str)
def test_a_log_that_is_lost_stops_its_tables_and_what_is_published_stays_exact(seed: int, loss: Loss) -> None:
    with stepped():
        run_lost_history(seed, loss)


@pytest.mark.rotating
@pytest.mark.parametrize("mutant", IN_SLOT_HISTORIES, ids=lambda each: each.name)
def test_a_mutant_of_the_reader_is_noticed_by_histories_from_a_known_one_on(mutant: Mutant) -> None:
    known = NOTICED_BY[mutant.name]
    assert hunt_in_slot_histories(mutant, range(known, known + SEEDS)).by is not None
