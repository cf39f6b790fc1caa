"""Copies: every fault at every call, and a pause before each call, with others who publish further changes meanwhile.

A second fault meets the recovery from the first, too: `make proof` tries all pairs, and a run some of each scenario.

At every moment each name has the old or the new version, and after DONE the log's. A run tries one history in
``HISTORIES_OF``; the thorough tests try all. ``counts.json`` has the numbers of calls.
"""

from collections import Counter
from collections.abc import Sequence

import pytest

from tests.simulation.copy_scenarios import COPY_OVERLAPS, COPY_SCENARIOS, COPY_TAKEOVERS
from tests.simulation.counts import read_counts
from tests.simulation.exploring import FAULTS, Tally, explore_exceptions, explore_pairs, explore_singles
from tests.simulation.scenarios import Scenario
from tests.simulation.zombies import explore_overlaps, explore_zombies
from tests.support.shares import EVERYTHING, Share

pytestmark = pytest.mark.turns(of=4)

HISTORIES_OF = 80
FIRST_FAULTS = 2
SECOND_FAULTS_OF = 64
"""A power of two: with an odd number of shares of first faults, the seeds reach all pairs."""

each_scenario = pytest.mark.parametrize("scenario", COPY_SCENARIOS, ids=[each.name for each in COPY_SCENARIOS])
some_and_all = pytest.mark.parametrize("is_all", [False, pytest.param(True, marks=pytest.mark.thorough)])


def share_of(share: Share, *, is_all: bool) -> Share:
    return EVERYTHING if is_all else Share(share.seed, of=HISTORIES_OF)


def parts_of(count: int, of: int) -> set[int]:
    return {count // of, -(-count // of)}


@each_scenario
@some_and_all
def test_any_single_fault_of_a_copy_is_repaired_by_the_next_runs(
    scenario: Scenario, share: Share, *, is_all: bool
) -> None:
    mine = share_of(share, is_all=is_all)

    tally = explore_singles(scenario, share=mine)

    assert tally.calls == read_counts()[scenario.name]
    assert tally.histories in parts_of(sum(tally.calls.values()) * len(FAULTS), mine.of)


@pytest.mark.turns("copies beside others")
@each_scenario
@some_and_all
def test_an_exception_of_a_library_is_the_failure_of_some_file_sets(
    scenario: Scenario, share: Share, *, is_all: bool
) -> None:
    mine = share_of(share, is_all=is_all)

    tally = explore_exceptions(scenario, share=mine)

    assert tally.histories in parts_of(2 * sum(read_counts()[scenario.name].values()), mine.of)


@pytest.mark.turns("copies beside others")
@each_scenario
@some_and_all
def test_a_copy_that_wakes_up_anywhere_takes_no_later_version_away(
    scenario: Scenario, share: Share, *, is_all: bool
) -> None:
    mine = share_of(share, is_all=is_all)

    tally = explore_zombies(scenario, share=mine, takeovers=COPY_TAKEOVERS)

    assert tally.histories in parts_of(sum(tally.calls.values()) * len(COPY_TAKEOVERS), mine.of)


@pytest.mark.turns("copies beside others")
@each_scenario
@some_and_all
def test_a_copy_that_wakes_up_amid_the_next_owners_work_disturbs_nobody(
    scenario: Scenario, share: Share, *, is_all: bool
) -> None:
    mine = share_of(share, is_all=is_all)

    tally = explore_overlaps(scenario, share=mine, overlaps=COPY_OVERLAPS)

    assert tally.histories in parts_of(sum(tally.calls.values()) * len(COPY_OVERLAPS), mine.of)


def test_a_second_fault_in_the_recovery_of_a_copy_is_repaired_too(share: Share) -> None:
    tally = explore_some_pairs(COPY_SCENARIOS, share)

    assert tally.histories > len(COPY_SCENARIOS)


def explore_some_pairs(scenarios: Sequence[Scenario], share: Share) -> Tally:
    """``FIRST_FAULTS`` of each scenario, and after each of them one in ``SECOND_FAULTS_OF`` second ones."""
    tally = Tally()
    for scenario in scenarios:
        planned = sum(read_counts()[scenario.name].values()) * len(FAULTS)
        firsts = Share(share.seed, of=planned // FIRST_FAULTS | 1)
        tally += explore_pairs(scenario, firsts=firsts, seconds=Share(share.seed, of=SECOND_FAULTS_OF))
    return tally


def test_the_scenarios_reach_each_act_of_the_protocol() -> None:
    counts = sum((Counter(read_counts()[each.name]) for each in COPY_SCENARIOS), Counter[str]())

    for call in (
        "fs.exchange",
        "fs.rename_no_replace",
        "fs.rename_onto_empty",
        "fs.change_mode",
        "fs.remove_tree",
        "log.claim",
        "log.begin_abandon",
        "log.mark_cleaned",
        "log.mark_for_reuse",
        "transfer.take",
    ):
        assert counts[call] > 0, call
