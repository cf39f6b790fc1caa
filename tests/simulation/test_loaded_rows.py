"""Runs that load rows: every fault at every call, and a pause before each call, with others who load then.

A run tries one history in ``HISTORIES_OF``; the thorough tests try all.
"""

from collections import Counter

import pytest

from tests.simulation.counts import read_counts
from tests.simulation.exploring import FAULTS, explore_singles
from tests.simulation.hunting import hunt_among_loaded_rows
from tests.simulation.loaded_rows import IN_THE_WORLD_OF_LOADED_ROWS, LOADED_ROWS_SCENARIOS
from tests.simulation.mutant import Mutant
from tests.simulation.scenarios import Scenario
from tests.simulation.test_copies import parts_of
from tests.simulation.test_stored_rows import share_of
from tests.simulation.zombies import TAKEOVERS, explore_zombies
from tests.support.shares import Share

each_scenario = pytest.mark.parametrize(
    "scenario", LOADED_ROWS_SCENARIOS, ids=[each.name for each in LOADED_ROWS_SCENARIOS]
)
some_and_all = pytest.mark.parametrize("is_all", [False, pytest.param(True, marks=pytest.mark.thorough)])


@each_scenario
@some_and_all
def test_any_single_fault_is_repaired_by_the_next_runs(scenario: Scenario, share: Share, *, is_all: bool) -> None:
    mine = share_of(share, is_all=is_all)

    tally = explore_singles(scenario, share=mine)

    assert tally.calls == read_counts()[scenario.name]
    assert tally.histories in parts_of(sum(tally.calls.values()) * len(FAULTS), mine.of)


@each_scenario
@some_and_all
def test_who_wakes_up_anywhere_loads_nothing(scenario: Scenario, share: Share, *, is_all: bool) -> None:
    mine = share_of(share, is_all=is_all)

    tally = explore_zombies(scenario, share=mine)

    assert tally.histories in parts_of(sum(tally.calls.values()) * len(TAKEOVERS), mine.of)


@pytest.mark.rotating
@pytest.mark.parametrize("mutant", IN_THE_WORLD_OF_LOADED_ROWS, ids=[each.name for each in IN_THE_WORLD_OF_LOADED_ROWS])
def test_a_mutant_is_caught(mutant: Mutant) -> None:
    assert hunt_among_loaded_rows(mutant).by is not None


def test_the_scenarios_reach_each_act_of_a_load() -> None:
    counts = sum((Counter(read_counts()[each.name]) for each in LOADED_ROWS_SCENARIOS), Counter[str]())

    for call in ("begin", "create", "delete", "insert", "replace", "commit"):
        assert counts[f"sqlite.{call}"] > 0, call
