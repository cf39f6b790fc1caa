"""One fault of each kind at each call of a worker over a slot, and a pause before each: its tables stay exact.

What is published is compared with what the tables had at the recorded positions, after each publication. A run tries a
small share of these histories; `make proof` tries all of them.
"""

from collections.abc import Iterator

import pytest

from tests.simulation.exploring import FAULTS
from tests.simulation.library_errors import LIBRARY_ERRORS
from tests.simulation.sink_faults import (
    SINK_OVERLAPS,
    SinkScenario,
    explore_sink_exceptions,
    explore_sink_singles,
    explore_sink_zombies,
)
from tests.simulation.sink_world import SinkWorld
from tests.simulation.slot_client import simulated_postgres
from tests.simulation.slot_world import SlotWorld
from tests.support.shares import Share

SHARE_OF = 120
_SEED = 2
_WRITTEN_UNTIL = 300


def _leave_nothing(_world: SinkWorld) -> None:
    """Nothing happened before."""


def _end_writing(world: SinkWorld) -> None:
    assert isinstance(world, SlotWorld)
    world.postgres.settle()


SLOT = SinkScenario(
    "tables of a slot are copied and followed",
    _leave_nothing,
    {_WRITTEN_UNTIL: _end_writing},
    make_world=lambda _watches_log: SlotWorld(_SEED),
    behind=_end_writing,
)


@pytest.fixture(autouse=True)
def postgres() -> Iterator[None]:
    with simulated_postgres():
        yield


def test_any_single_fault_of_a_worker_is_repaired_by_the_next_ones(share: Share) -> None:
    tally = explore_sink_singles(SLOT, share=Share(share.seed, of=SHARE_OF))

    assert {"server.execute", "server.fetch", "server.confirm", "fs.open_input"} <= tally.calls.keys()
    assert tally.histories >= sum(tally.calls.values()) * len(FAULTS) // SHARE_OF


def test_a_worker_that_wakes_up_anywhere_does_no_harm(share: Share) -> None:
    assert explore_sink_zombies(SLOT, share=Share(share.seed, of=SHARE_OF)).histories >= len(SINK_OVERLAPS)


def test_no_exception_of_a_library_ends_a_worker(share: Share) -> None:
    assert explore_sink_exceptions(SLOT, share=Share(share.seed, of=SHARE_OF)).histories >= len(LIBRARY_ERRORS) // 2
