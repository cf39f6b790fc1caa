"""What a process does to a world while faults happen: each scenario is a starting state and one action."""

from collections.abc import Callable
from dataclasses import dataclass

from gobblin_assets.model.extract import Mode
from gobblin_assets.model.policy import CommitPolicy
from gobblin_assets.model.state import SequenceId
from tests.simulation.history import Checker
from tests.simulation.process import Fault
from tests.simulation.world import URNS, Runner, World


@dataclass(frozen=True)
class Scenario:
    """``prepare`` makes the starting state of every history; ``act`` is the action of the first process.

    ``new_checker``: who looks at the world of such histories.
    """

    name: str
    prepare: Callable[[], World]
    act: Callable[[Runner], object]
    new_checker: Callable[[], Checker] = Checker


def _published() -> World:
    """One batch of each dataset is published; nothing is new."""
    world = World()
    world.add_rows()
    report = world.open_process().run()
    assert report is not None
    assert not report.failed
    return world


def _with_new_rows() -> World:
    world = _published()
    world.add_rows()
    return world


def _with_a_bad_unit() -> World:
    """One dataset's first WorkUnit can't be read: under ``successful``, nothing of the second may be published."""
    world = _with_new_rows()
    world.policy = CommitPolicy.SUCCESSFUL
    world.bad_units = frozenset({(URNS[0], 0)})
    return world


def _with_a_bad_unit_to_refresh() -> World:
    """The second WorkUnit of a refresh can't be read: a refresh is published whole or not at all."""
    world = _with_a_bad_unit()
    world.bad_units = frozenset({(URNS[0], 1)})
    return world


def _with_new_rows_to_share() -> World:
    world = _with_new_rows()
    world.shares = True
    return world


def _with_publications_to_fold() -> World:
    """Three publications of each dataset, the second one a refresh. From here on, all publications are folded."""
    world = _published()
    world.open_process().run(Mode.REFRESH)
    world.add_rows()
    world.open_process().run()
    world.folds = True
    return world


def _half_published() -> World:
    """A process died after the first of its two renames; its lease has run out."""
    world = _with_new_rows()
    trial = world.copy().open_process()
    trial.run()
    first_publication = max(n for n, call in enumerate(trial.process.calls) if call == "log.seal") + 1
    renames = [n for n, call in enumerate(trial.process.calls) if call == "fs.rename_no_replace"]
    second = [n for n in renames if n > first_publication][1]
    world.open_process(faults={second: Fault.KILLED_BEFORE}).run()
    world.expire_leases()
    return world


def open_sequence(world: World) -> SequenceId:
    (found,) = world.list_open()
    return found


def _empty() -> World:
    """Nothing exists yet: no destination, no dataset in the log."""
    world = World()
    world.add_rows()
    return world


SCENARIOS = (
    Scenario("first", _empty, lambda runner: runner.run()),
    Scenario("append", _with_new_rows, lambda runner: runner.run()),
    Scenario("refresh", _with_new_rows, lambda runner: runner.run(Mode.REFRESH)),
    Scenario("partial", _with_a_bad_unit, lambda runner: runner.run()),
    Scenario("refresh in part", _with_a_bad_unit_to_refresh, lambda runner: runner.run(Mode.REFRESH)),
    Scenario("together", _with_new_rows_to_share, lambda runner: runner.run()),
    Scenario("fold", _with_publications_to_fold, lambda runner: runner.clean()),
    Scenario("recover", _half_published, lambda runner: runner.recover()),
    Scenario("abandon", _half_published, lambda runner: runner.abandon(open_sequence(runner.world))),
)
