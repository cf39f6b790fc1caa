"""One fault of each kind at each call of a worker that loads a place of rows, and a pause before each.

After each call no row is there twice, and at the end place and log are equal. A run tries a small share.
"""

from collections.abc import Iterator

import pytest

from tests.simulation.exploring import FAULTS
from tests.simulation.library_errors import LIBRARY_ERRORS
from tests.simulation.marked_world import FileWorld, TableWorld, marked
from tests.simulation.sink_faults import (
    SINK_OVERLAPS,
    SinkScenario,
    explore_sink_exceptions,
    explore_sink_singles,
    explore_sink_zombies,
)
from tests.simulation.sink_world import SinkWorld
from tests.support.shares import EVERYTHING, Share

SHARE_OF = 240
_SEED = 2
_VNODES = 3
_EPOCHS = 3

OF_A_TABLE = frozenset({"tables.add_mark", "tables.copy", "tables.move_mark", "tables.commit"})
OF_A_FILE = frozenset({"sqlite.begin", "sqlite.create", "sqlite.insert", "sqlite.replace", "sqlite.commit"})


def _leave_nothing(_world: SinkWorld) -> None:
    """Nothing happened before."""


TABLE = SinkScenario(
    "a sink loads a table",
    _leave_nothing,
    {},
    make_world=lambda _watches_log: TableWorld(_SEED, vnode_count=_VNODES, epoch_count=_EPOCHS),
)
FILE = SinkScenario(
    "a sink loads a file",
    _leave_nothing,
    {},
    make_world=lambda _watches_log: FileWorld(_SEED, vnode_count=_VNODES, epoch_count=_EPOCHS),
)

each_place = pytest.mark.parametrize("scenario", [TABLE, FILE], ids=["table", "file"])
some_and_all = pytest.mark.parametrize("is_all", [False, pytest.param(True, marks=pytest.mark.thorough)])


@pytest.fixture(autouse=True)
def places() -> Iterator[None]:
    with marked():
        yield


def _share_of(share: Share, *, is_all: bool) -> Share:
    return EVERYTHING if is_all else Share(share.seed, of=SHARE_OF)


@each_place
@some_and_all
def test_any_single_fault_of_a_worker_is_repaired_by_the_next_ones(
    scenario: SinkScenario, share: Share, *, is_all: bool
) -> None:
    mine = _share_of(share, is_all=is_all)

    tally = explore_sink_singles(scenario, share=mine)

    assert (OF_A_FILE if scenario is FILE else OF_A_TABLE) <= tally.calls.keys()
    assert tally.histories >= sum(tally.calls.values()) * len(FAULTS) // mine.of


@each_place
@some_and_all
def test_a_worker_that_wakes_up_anywhere_does_no_harm(scenario: SinkScenario, share: Share, *, is_all: bool) -> None:
    found = explore_sink_zombies(scenario, share=_share_of(share, is_all=is_all))

    assert found.histories >= len(SINK_OVERLAPS) // 2


@each_place
@some_and_all
def test_no_exception_of_a_library_ends_a_worker(scenario: SinkScenario, share: Share, *, is_all: bool) -> None:
    found = explore_sink_exceptions(scenario, share=_share_of(share, is_all=is_all))

    assert found.histories >= (len(LIBRARY_ERRORS) if is_all else 1)
