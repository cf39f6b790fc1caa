"""One fault of each kind at each call of a short story of the service: its promises hold, and all of it ends.

A run tries a small share of these histories; `make proof` tries all of them.
"""

from typing import Any

import pytest

from gobblin_assets.service.executor_health import ExecutorHealths
from tests.simulation.service_history import STORIES, Story, run_story
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


def test_an_executor_that_has_left_the_topology_is_heard_and_gets_no_more_than_it_begins_soon() -> None:
    world = ServiceWorld()
    logs: Any = CalledLogs(world, "node 0")
    one = ExecutorHealths(world.find_topology, logs, world.monotonic)
    one.look()
    world.change_topology("b", "c")
    other = ExecutorHealths(world.find_topology, logs, world.monotonic)
    for healths in (one, other):
        healths.look()
        assert healths.get("a").inbox_max == 2 * world.executors["a"].slots
