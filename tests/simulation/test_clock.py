"""The database's clock is set back by an hour while leases are held: waits get longer, and nothing else changes."""

import pytest

from gobblin_assets.model.extract import Mode
from gobblin_assets.model.state import DatasetOutcome
from tests.simulation.history import Checker
from tests.simulation.process import Fault, Process
from tests.simulation.world import LEASE_S, SILENT_S_MAX, URNS, Runner, World
from tests.support.shares import Share

pytestmark = pytest.mark.turns(of=4)

HOUR_S = 3_600.0
STRIDE = 8
"""One in so many calls of a run, by the seed; the random histories set the clock back between any two calls."""

modes = pytest.mark.parametrize("mode", [Mode.APPEND, Mode.REFRESH])


@pytest.fixture(scope="module")
def published() -> World:
    """One batch of each dataset is published, another one waits at the source."""
    world = World()
    world.add_rows()
    world.open_process().run()
    world.add_rows()
    return world


def count_calls(published: World, mode: Mode) -> int:
    runner = published.copy().open_process()
    runner.run(mode)
    return len(runner.process.calls)


def calls_of(published: World, mode: Mode, share: Share) -> range:
    return range(share.seed % STRIDE, count_calls(published, mode), STRIDE)


def set_back_at(runner: Runner, number: int) -> None:
    """Set the clock back before the process's call of this number; heartbeats go on."""
    beat, db = runner.process.on_call, runner.world.db
    assert beat is not None

    def hook(process: Process) -> None:
        beat(process)
        if len(process.calls) == number:
            db.advance(-HOUR_S)

    runner.process.on_call = hook


def check_in_the_end(world: World, checker: Checker) -> None:
    for _ in range(2):
        world.db.advance(SILENT_S_MAX)
        checker.acknowledge(world, world.open_process().run())
        checker.look(world)
    checker.check_rest(world)


@modes
def test_a_run_under_way_does_not_notice(published: World, mode: Mode, share: Share) -> None:
    for number in calls_of(published, mode, share):
        world, checker = published.copy(), Checker()
        checker.look(world)
        runner = world.open_process()
        set_back_at(runner, number)

        report = runner.run(mode)

        assert report is not None
        assert {each.outcome for each in report.datasets} == {DatasetOutcome.COMMITTED}, f"at call {number}"
        checker.acknowledge(world, report)
        checker.look(world)
        world.add_rows()
        after = world.open_process().run()
        assert after is not None
        assert not after.failed, f"the next run, after call {number}"
        check_in_the_end(world, checker)


@modes
def test_the_lease_of_a_dead_run_lives_an_hour_longer_and_its_work_is_then_completed(
    published: World, mode: Mode, share: Share
) -> None:
    held = 0
    for number in calls_of(published, mode, share):
        world, checker = published.copy(), Checker()
        world.open_process(faults={number: Fault.KILLED_AFTER}).run(mode)
        checker.look(world)
        world.db.advance(-HOUR_S)
        busy = {lease.lane_id for lease in world.db.leases.values() if lease.owner is not None}

        world.db.advance(LEASE_S)
        early = world.open_process().run()

        assert early is not None
        skipped = [each for each in early.datasets if each.outcome is DatasetOutcome.SKIPPED]
        assert len(skipped) == len(busy), f"a lease was taken from one who may live, after call {number}"
        checker.look(world)
        held += bool(busy)
        world.db.advance(HOUR_S)
        late = world.open_process().run()
        assert late is not None
        assert {each.outcome for each in late.datasets} == {DatasetOutcome.COMMITTED}, f"after call {number}"
        checker.acknowledge(world, late)
        check_in_the_end(world, checker)
    assert held > len(URNS), "the runs were never killed with a lease in their hands"


@modes
def test_one_who_was_taken_over_does_not_own_again_what_an_older_clock_would_give_him(
    published: World, mode: Mode, share: Share
) -> None:
    """Between two of its calls, its leases run out, another run publishes all, and the clock goes back behind that."""
    taken_over = 0
    for number in calls_of(published, mode, share):
        world, checker = published.copy(), Checker()
        checker.look(world)
        sleeper = world.open_process()

        def sleep(process: Process, number: int = number, world: World = world, checker: Checker = checker) -> None:
            if len(process.calls) == number:
                world.db.advance(LEASE_S + HOUR_S)
                checker.acknowledge(world, world.open_process().run())
                checker.look(world)
                world.db.advance(-HOUR_S - LEASE_S)

        sleeper.process.on_call = sleep
        report = sleeper.run(mode)

        checker.acknowledge(world, report)
        checker.look(world)
        taken_over += report is not None and bool(report.failed)
        check_in_the_end(world, checker)
    assert taken_over > 0, "nobody was ever taken over"
