"""What a run does about datasets that another process holds: it waits for its turn, or says that it did nothing."""

import uuid
from collections.abc import Callable, Iterator

import pytest

from gobblin_assets.model.state import DatasetOutcome, RunId, WorkingState
from gobblin_assets.run.runner import WAITING_SAID_EVERY_S
from gobblin_assets.state.leases import Holder, Lease
from tests.simulation.history import Checker
from tests.simulation.lease_store import SimLeaseStore
from tests.simulation.process import Process
from tests.simulation.world import SILENT_S_MAX, URNS, World, stepped

FOREVER_S = 1e9


@pytest.fixture
def world() -> Iterator[World]:
    """One batch of both datasets is published, and another one is at the source."""
    with stepped():
        world = World()
        world.add_rows()
        world.open_process().run()
        world.add_rows()
        yield world


def hold(world: World, count: int = len(URNS)) -> list[Lease]:
    """Take some datasets, as a process does that works on them."""
    ids = [row.dataset_id for row in world.db.datasets.values()][:count]
    return SimLeaseStore(world.db).take(ids, Holder("somebody", RunId(uuid.UUID(int=7))), ttl_s=FOREVER_S)


def when_tried(times: int, do: Callable[[], object]) -> Callable[[Process], None]:
    """``do`` once, after so many tries to take leases; a try comes each second."""
    left = [do]

    def hook(process: Process) -> None:
        if left and process.calls.count("leases.take") == times:
            left.pop()()

    return hook


def check_in_the_end(world: World) -> None:
    checker = Checker()
    for _ in range(2):
        world.db.advance(SILENT_S_MAX)
        checker.acknowledge(world, world.open_process().run())
        checker.look(world)
    checker.check_rest(world)


@pytest.mark.parametrize("held", [1, 2])
def test_a_run_whose_turn_did_not_come_has_failed_and_says_who_kept_it(world: World, held: int) -> None:
    leases = hold(world, held)
    report = world.open_process().run()
    assert report is not None
    assert report.state is WorkingState.FAILED
    assert [each.outcome for each in report.failed] == [DatasetOutcome.SKIPPED] * held
    assert all("is being worked on by somebody" in (each.error or "") for each in report.failed)
    assert world.db.runs[report.run_id].state is WorkingState.FAILED, "the history says something else"
    Checker().acknowledge(world, report)
    SimLeaseStore(world.db).release(leases)
    check_in_the_end(world)


@pytest.mark.parametrize("held", [1, 2])
def test_a_run_waits_for_its_turn_and_says_so_as_long_as_it_waits(world: World, held: int) -> None:
    leases = hold(world, held)
    runner = world.open_process()
    seconds = int(2.5 * WAITING_SAID_EVERY_S)
    runner.process.on_call = when_tried(seconds, lambda: SimLeaseStore(world.db).release(leases))
    report = runner.run(waits_for_turn=True)
    assert report is not None
    assert {each.outcome for each in report.datasets} == {DatasetOutcome.COMMITTED}
    assert sum("waiting for its turn" in line for line in runner.lines) == 3
    Checker().acknowledge(world, report)
    check_in_the_end(world)


def test_a_turn_comes_when_its_holder_dies(world: World) -> None:
    hold(world)
    runner = world.open_process()
    runner.process.on_call = when_tried(5, lambda: world.db.advance(FOREVER_S + 1))
    report = runner.run(waits_for_turn=True)
    assert report is not None
    assert not report.failed
    check_in_the_end(world)


def test_what_others_published_meanwhile_is_not_published_again(world: World) -> None:
    leases = hold(world)
    runner = world.open_process()

    def publish() -> None:
        SimLeaseStore(world.db).release(leases)
        other = world.open_process().run()
        assert other is not None
        assert [each.publication is not None and each.publication.row_count for each in other.datasets]

    runner.process.on_call = when_tried(3, publish)
    report = runner.run(waits_for_turn=True)
    assert report is not None
    assert [each.publication.row_count for each in report.datasets if each.publication is not None] == [0, 0]
    Checker().acknowledge(world, report)
    check_in_the_end(world)
