"""One fault of each kind at each call of a process, and a pause before each: nothing is lost, nothing is doubled.

The numbers of calls are kept in ``counts.json``: a call that is no longer reached would be a fault no longer tried.
``python -m tests.simulation.counts`` writes the file anew, to be read before it is committed.
"""

import pytest

from tests.simulation.counts import read_counts
from tests.simulation.exploring import FAULTS, TAKEOVERS, explore_singles, explore_zombies
from tests.simulation.scenarios import SCENARIOS, Scenario

each_scenario = pytest.mark.parametrize("scenario", SCENARIOS, ids=[each.name for each in SCENARIOS])


@each_scenario
def test_any_single_fault_is_repaired_by_the_next_runs(scenario: Scenario) -> None:
    tally = explore_singles(scenario)

    assert tally.calls == read_counts()[scenario.name]
    assert tally.histories == sum(tally.calls.values()) * len(FAULTS)


@each_scenario
def test_a_zombie_that_wakes_up_anywhere_does_no_harm(scenario: Scenario) -> None:
    tally = explore_zombies(scenario)

    assert tally.histories == sum(read_counts()[scenario.name].values()) * len(TAKEOVERS)
