"""Histories of the service at random: nodes, logs and executors fail, people change flows, and the promises hold.

Each slot is accounted once; no job has two effects, and no dataset is under two logs; workers of two versions are not
at work beside each other; no executor gets more than it has room for; all that is begun ends; and what reports said is
what the ledger has.
"""

import time

import pytest

from tests.simulation.hunting import hunt_in_service_histories
from tests.simulation.mutant import Mutant
from tests.simulation.service_history import run_service_history
from tests.simulation.service_mutants import IN_SERVICE_HISTORIES
from tests.support.shares import Share

HISTORIES = 10_000
BUDGET_S = 4.0
"""Of processor time, in an ordinary run."""

SEEDS = 60
NOTICED_BY = {
    "a lost executor's worker keeps its attempt": 20,
    "an inbox has no bound": 12,
    "an attempt that died ends its job": 12,
    "each ticket of a job has one id": 11,
    "a replan leaves what sources keep": 8,
    "whoever looks may send": 6,
    "what was not reported is never told": 4,
    "any number of executions is open": 4,
    "slots that wait are never begun": 2,
    "what is complete is sent again": 2,
}
"""The others are noticed by the first or the second history."""


def test_whatever_happens_to_the_service_its_promises_hold(share: Share) -> None:
    until_s = time.process_time() + BUDGET_S
    for tried in range(HISTORIES):
        if time.process_time() >= until_s:
            break
        run_service_history((share.seed * 1_009 + tried) % HISTORIES)
    assert tried > 1


def test_a_history_goes_the_same_way_when_it_is_played_again() -> None:
    first, again = (run_service_history(3) for _ in range(2))
    assert (first.number, first.done, first.calls) == (again.number, again.done, again.calls)
    assert first.done
    assert list(first.tables.flows) == list(again.tables.flows)


@pytest.mark.thorough
@pytest.mark.parametrize("first", range(0, HISTORIES, 500))
def test_ten_thousand_histories_of_the_service(first: int) -> None:
    for seed in range(first, first + 500):
        run_service_history(seed)


@pytest.mark.rotating
@pytest.mark.parametrize("mutant", IN_SERVICE_HISTORIES, ids=lambda each: each.name)
def test_a_mutant_of_the_service_is_noticed_by_histories_from_a_known_one_on(mutant: Mutant) -> None:
    known = NOTICED_BY.get(mutant.name, 0)
    assert hunt_in_service_histories(mutant, range(known, known + SEEDS)).by is not None
