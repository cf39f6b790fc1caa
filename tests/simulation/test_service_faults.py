"""One fault of each kind at each call of a short story of the service: its promises hold, and all of it ends.

A run tries a small share of these histories; `make proof` tries all of them.
"""

from typing import Any

import pytest

from gobblin_assets.service.executor_health import ExecutorHealths, HealthState
from gobblin_assets.service.placement import JobPlacement
from tests.simulation.service_history import STORIES, Story, run_story
from tests.simulation.service_mutants import SENT_ONCE
from tests.simulation.service_world import CalledLogs, Fault, ServiceWorld
from tests.support.shares import Share

SHARE_OF = 600


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
def test_any_single_fault_is_made_good(story: Story, share: Share) -> None:
    calls = run_story(story)
    faults = list(Fault)
    tried = Share(share.seed, of=SHARE_OF).numbers(calls * len(faults), story.name)
    assert tried
    for number in sorted(tried):
        run_story(story, 1 + number // len(faults), faults[number % len(faults)])


@pytest.mark.thorough
@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
def test_every_single_fault_is_made_good(story: Story) -> None:
    for at in range(1, run_story(story) + 1):
        for fault in Fault:
            run_story(story, at, fault)


def test_a_ticket_that_is_not_sent_again_behind_a_lost_topic_is_noticed() -> None:
    story = next(each for each in STORIES if each.name == "a flow over a wire whose topic is made anew")
    with SENT_ONCE.change(), pytest.raises(AssertionError, match="is ORCHESTRATED"):
        run_story(story)


def test_an_executor_that_has_left_the_topology_gets_no_more() -> None:
    world = ServiceWorld()
    logs: Any = CalledLogs(world, "node 0")
    healths = ExecutorHealths(world.find_topology, logs, world.monotonic)
    healths.look()
    placement = JobPlacement(world.find_topology, healths.get)
    assert healths.get("a").inbox_max == 2 * world.executors["a"].slots
    world.change_topology("b", "c")
    assert placement.find_health("a").state is HealthState.UNHEALTHY
    assert placement.list_well() == ["b", "c"]
