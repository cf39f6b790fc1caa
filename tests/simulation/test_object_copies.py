"""Copies to an object store: every fault at every call, and a pause before each call, with others who publish then.

At every moment each name has the old or the new version, and after DONE the log's, although versions of the same bytes
follow each other. A run tries one history in ``HISTORIES_OF``; the thorough tests try all.
"""

from collections import Counter

import pytest

from tests.simulation.counts import read_counts
from tests.simulation.exploring import FAULTS, explore_exceptions, explore_singles
from tests.simulation.object_scenarios import OBJECT_OVERLAPS, OBJECT_SCENARIOS, OBJECT_TAKEOVERS
from tests.simulation.scenarios import Scenario
from tests.simulation.test_copies import explore_some_pairs, parts_of
from tests.simulation.zombies import explore_overlaps, explore_zombies
from tests.support.shares import EVERYTHING, Share

pytestmark = pytest.mark.turns(of=4)

HISTORIES_OF = 120

each_scenario = pytest.mark.parametrize("scenario", OBJECT_SCENARIOS, ids=[each.name for each in OBJECT_SCENARIOS])
some_and_all = pytest.mark.parametrize("is_all", [False, pytest.param(True, marks=pytest.mark.thorough)])


def share_of(share: Share, *, is_all: bool) -> Share:
    return EVERYTHING if is_all else Share(share.seed, of=HISTORIES_OF)


@each_scenario
@some_and_all
def test_any_single_fault_of_a_copy_is_repaired_by_the_next_runs(
    scenario: Scenario, share: Share, *, is_all: bool
) -> None:
    mine = share_of(share, is_all=is_all)

    tally = explore_singles(scenario, share=mine)

    assert tally.calls == read_counts()[scenario.name]
    assert tally.histories in parts_of(sum(tally.calls.values()) * len(FAULTS), mine.of)


@pytest.mark.turns("copies to stores beside others")
@each_scenario
@some_and_all
def test_an_exception_of_a_library_is_the_failure_of_some_file_sets(
    scenario: Scenario, share: Share, *, is_all: bool
) -> None:
    mine = share_of(share, is_all=is_all)

    tally = explore_exceptions(scenario, share=mine)

    assert tally.histories in parts_of(2 * sum(read_counts()[scenario.name].values()), mine.of)


@pytest.mark.turns("copies to stores beside others")
@each_scenario
@some_and_all
def test_a_copy_that_wakes_up_anywhere_takes_no_later_version_away(
    scenario: Scenario, share: Share, *, is_all: bool
) -> None:
    mine = share_of(share, is_all=is_all)

    tally = explore_zombies(scenario, share=mine, takeovers=OBJECT_TAKEOVERS)

    assert tally.histories in parts_of(sum(tally.calls.values()) * len(OBJECT_TAKEOVERS), mine.of)


@pytest.mark.turns("copies to stores beside others")
@each_scenario
@some_and_all
def test_a_copy_that_wakes_up_amid_the_next_owners_work_disturbs_nobody(
    scenario: Scenario, share: Share, *, is_all: bool
) -> None:
    mine = share_of(share, is_all=is_all)

    tally = explore_overlaps(scenario, share=mine, overlaps=OBJECT_OVERLAPS)

    assert tally.histories in parts_of(sum(tally.calls.values()) * len(OBJECT_OVERLAPS), mine.of)


def test_a_second_fault_in_the_recovery_of_a_copy_is_repaired_too(share: Share) -> None:
    tally = explore_some_pairs(OBJECT_SCENARIOS, share)

    assert tally.histories > len(OBJECT_SCENARIOS)


def test_the_scenarios_reach_each_act_of_the_protocol() -> None:
    counts = sum((Counter(read_counts()[each.name]) for each in OBJECT_SCENARIOS), Counter[str]())

    for call in ("complete_upload", "copy_object", "remove_object", "abort_upload", "read_range", "has_upload"):
        assert counts[f"store.{call}"] > 0, call
