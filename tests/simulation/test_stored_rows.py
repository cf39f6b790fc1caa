"""Rows in an object store: every fault at every call, and a pause before each call, with others who publish then.

A run tries one history in ``HISTORIES_OF``; the thorough tests try all.
"""

from collections import Counter

import pytest

from tests.simulation.counts import read_counts
from tests.simulation.exploring import FAULTS, explore_singles
from tests.simulation.scenarios import Scenario
from tests.simulation.stored_rows import STORED_ROWS_SCENARIOS
from tests.simulation.test_copies import parts_of
from tests.simulation.zombies import TAKEOVERS, explore_zombies
from tests.support.shares import EVERYTHING, Share

HISTORIES_OF = 120

each_scenario = pytest.mark.parametrize(
    "scenario", STORED_ROWS_SCENARIOS, ids=[each.name for each in STORED_ROWS_SCENARIOS]
)
some_and_all = pytest.mark.parametrize("is_all", [False, pytest.param(True, marks=pytest.mark.thorough)])


def share_of(share: Share, *, is_all: bool) -> Share:
    return EVERYTHING if is_all else Share(share.seed, of=HISTORIES_OF)


@each_scenario
@some_and_all
def test_any_single_fault_is_repaired_by_the_next_runs(scenario: Scenario, share: Share, *, is_all: bool) -> None:
    mine = share_of(share, is_all=is_all)

    tally = explore_singles(scenario, share=mine)

    assert tally.calls == read_counts()[scenario.name]
    assert tally.histories in parts_of(sum(tally.calls.values()) * len(FAULTS), mine.of)


@each_scenario
@some_and_all
def test_who_wakes_up_anywhere_changes_nothing(scenario: Scenario, share: Share, *, is_all: bool) -> None:
    mine = share_of(share, is_all=is_all)

    tally = explore_zombies(scenario, share=mine)

    assert tally.histories in parts_of(sum(tally.calls.values()) * len(TAKEOVERS), mine.of)


def test_the_scenarios_reach_each_act_of_the_protocol() -> None:
    counts = sum((Counter(read_counts()[each.name]) for each in STORED_ROWS_SCENARIOS), Counter[str]())

    for call in ("begin_upload", "put_if_absent", "write_part", "complete_upload", "abort_upload", "remove_object"):
        assert counts[f"store.{call}"] > 0, call
