"""One fault of each kind at each call of a sink's worker, and a pause before each: nothing is lost, nothing is doubled.

A run tries a small share of these histories; `make proof` tries all single faults and pauses, and more of the pairs.
``counts.json`` has the numbers of calls.
"""

from dataclasses import replace

import pytest

from tests.simulation.counts import read_counts
from tests.simulation.exploring import FAULTS
from tests.simulation.library_errors import LIBRARY_ERRORS
from tests.simulation.sink_faults import (
    SINK_OVERLAPS,
    SINK_SCENARIOS,
    SinkScenario,
    explore_sink_exceptions,
    explore_sink_pairs,
    explore_sink_singles,
    explore_sink_zombies,
)
from tests.support.shares import Share

pytestmark = pytest.mark.turns(of=4)

SINGLES_OF = 120
PAIRS_OF = 40_000
EXCEPTIONS_OF = 40

each_scenario = pytest.mark.parametrize("scenario", SINK_SCENARIOS, ids=[each.name for each in SINK_SCENARIOS])


@each_scenario
def test_any_single_fault_of_a_worker_is_repaired_by_the_next_ones(scenario: SinkScenario, share: Share) -> None:
    tally = explore_sink_singles(scenario, share=Share(share.seed, of=SINGLES_OF))

    assert tally.calls == read_counts()[scenario.name]
    assert tally.histories >= sum(tally.calls.values()) * len(FAULTS) // SINGLES_OF


@each_scenario
def test_a_worker_that_wakes_up_anywhere_does_no_harm(scenario: SinkScenario, share: Share) -> None:
    tally = explore_sink_zombies(scenario, share=Share(share.seed, of=SINGLES_OF))

    assert tally.histories >= sum(read_counts()[scenario.name].values()) * len(SINK_OVERLAPS) // SINGLES_OF


@each_scenario
def test_a_second_fault_while_the_first_is_repaired_does_no_harm(scenario: SinkScenario, share: Share) -> None:
    assert explore_sink_pairs(scenario, share=Share(share.seed, of=PAIRS_OF)).histories


@each_scenario
def test_no_exception_of_a_library_ends_a_worker(scenario: SinkScenario, share: Share) -> None:
    watched = replace(scenario, watches_log=True)

    tally = explore_sink_exceptions(watched, share=Share(share.seed, of=EXCEPTIONS_OF))

    assert {"reader.read", "reader.assign", "decoder.decode", "source.find_start", "log.seal"} <= tally.calls.keys()
    assert tally.histories >= len(LIBRARY_ERRORS)
