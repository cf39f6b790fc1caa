"""One fault of each kind at each call of a process, and a pause before each: nothing is lost, nothing is doubled.

A run tries one in ``HISTORIES_OF`` of these histories and one overlap in ``OVERLAPS_OF``; `make proof` tries all.
``counts.json`` has the numbers of calls: a call that is no longer reached would be a fault that is no longer tried.
``python -m tests.simulation.counts`` writes the file anew; read it before you commit it.
"""

import pytest

from tests.simulation.counts import read_counts
from tests.simulation.exploring import FAULTS, explore_exceptions, explore_singles
from tests.simulation.scenarios import SCENARIOS, Scenario
from tests.simulation.zombies import OVERLAPS, TAKEOVERS, VISITS, explore_overlaps, explore_visits, explore_zombies
from tests.support.shares import SHARES, Share

HISTORIES_OF = 2 * SHARES
OVERLAPS_OF = HISTORIES_OF * len(OVERLAPS)
"""As many overlaps as with one way to overlap: for each call of the first process, one in ``HISTORIES_OF`` runs."""

each_scenario = pytest.mark.parametrize("scenario", SCENARIOS, ids=[each.name for each in SCENARIOS])


@each_scenario
def test_any_single_fault_is_repaired_by_the_next_runs(scenario: Scenario, share: Share) -> None:
    tally = explore_singles(scenario, share=Share(share.seed, of=HISTORIES_OF))

    assert tally.calls == read_counts()[scenario.name]
    assert tally.histories in counts_of(sum(tally.calls.values()) * len(FAULTS))


@each_scenario
def test_an_exception_of_a_library_is_the_failure_of_some_datasets(scenario: Scenario, share: Share) -> None:
    assert explore_exceptions(scenario, share=Share(share.seed, of=HISTORIES_OF)).histories


@each_scenario
def test_a_zombie_that_wakes_up_anywhere_does_no_harm(scenario: Scenario, share: Share) -> None:
    tally = explore_zombies(scenario, share=Share(share.seed, of=HISTORIES_OF))

    assert tally.histories in counts_of(sum(read_counts()[scenario.name].values()) * len(TAKEOVERS))


@each_scenario
def test_whoever_comes_while_a_lease_lives_disturbs_nobody(scenario: Scenario, share: Share) -> None:
    tally = explore_visits(scenario, share=Share(share.seed, of=HISTORIES_OF))

    assert tally.histories in counts_of(sum(read_counts()[scenario.name].values()) * len(VISITS))


@each_scenario
def test_a_zombie_that_wakes_up_amid_the_next_owners_work_disturbs_nobody(scenario: Scenario, share: Share) -> None:
    tally = explore_overlaps(scenario, share=Share(share.seed, of=OVERLAPS_OF))

    assert tally.histories in parts_of(sum(read_counts()[scenario.name].values()) * len(OVERLAPS), OVERLAPS_OF)


@pytest.mark.parametrize("count", [1, 28, 357])
def test_the_shares_are_everything_and_nothing_twice(count: int) -> None:
    shares = [Share(seed, of=HISTORIES_OF).numbers(count, "any") for seed in range(5, 5 + HISTORIES_OF)]

    assert sorted(number for each in shares for number in each) == list(range(count))
    assert {len(each) for each in shares} <= counts_of(count)


def counts_of(count: int) -> set[int]:
    return parts_of(count, HISTORIES_OF)


def parts_of(count: int, of: int) -> set[int]:
    return {count // of, -(-count // of)}
