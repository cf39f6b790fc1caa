"""What a process that copies to a store does while faults happen, and what others do while it is paused."""

from collections.abc import Callable, Mapping

from tests.simulation.copy_scenarios import COPY_TAKEOVERS
from tests.simulation.copy_world import KEEP_S
from tests.simulation.object_history import ObjectChecker
from tests.simulation.object_world import ObjectWorld
from tests.simulation.process import Fault
from tests.simulation.scenarios import Scenario, open_sequence
from tests.simulation.world import Runner, World
from tests.simulation.zombies import OVERLAPS, Overlap


def _empty() -> ObjectWorld:
    world = ObjectWorld()
    world.write_source("changed", "removed", "_SUCCESS")
    return world


def _changed() -> ObjectWorld:
    """A first copy is published. The source has changed since: new, other and missing files."""
    world = _empty()
    report = world.open_process().run()
    assert report is not None
    assert not report.failed, [each.error for each in report.datasets]
    world.change_source()
    return world


def _half_published() -> ObjectWorld:
    """A process died amid its completions; its lease has run out."""
    return _killed_at("store.complete_upload", 2)


def _half_removed() -> ObjectWorld:
    """A process died while a mark stood at the name of the removed file."""
    return _killed_at("store.remove_object", 0)


def _killed_at(call: str, number: int) -> ObjectWorld:
    world = _changed()
    trial = world.copy().open_process()
    trial.run()
    sealed = trial.process.calls.index("log.seal")
    found = [each for each, name in enumerate(trial.process.calls) if name == call and each > sealed]
    world.open_process(faults={found[number]: Fault.KILLED_BEFORE}).run()
    world.expire_leases()
    return world


def _half_given_up() -> ObjectWorld:
    """A first abandoner died before it completed an upload of its own."""
    world = _half_removed()
    trial = world.copy().open_process()
    _abandon(trial)
    found = trial.process.calls.index("store.complete_upload")
    _abandon(world.open_process(faults={found: Fault.KILLED_BEFORE}))
    world.expire_leases()
    return world


def _with_old_slots() -> ObjectWorld:
    """A change is published, and what it replaced has been kept for its time."""
    world = _changed()
    world.open_process().run()
    world.db.advance(KEEP_S + 1)
    return world


def _run(runner: Runner) -> object:
    return runner.run()


def _recover(runner: Runner) -> None:
    runner.recover()


def _abandon(runner: Runner) -> None:
    runner.abandon(open_sequence(runner.world))


def _clean(runner: Runner) -> None:
    runner.clean()


OBJECT_SCENARIOS = tuple(
    Scenario(name, prepare, act, ObjectChecker)
    for name, prepare, act in (
        ("first copy to a store", _empty, _run),
        ("update in a store", _changed, _run),
        ("recover in a store", _half_published, _recover),
        ("recover a mark", _half_removed, _recover),
        ("abandon in a store", _half_published, _abandon),
        ("abandon a mark", _half_removed, _abandon),
        ("abandon again", _half_given_up, _abandon),
        ("empty the slots of a store", _with_old_slots, _clean),
    )
)

OBJECT_TAKEOVERS: Mapping[str, Callable[[World], None]] = COPY_TAKEOVERS

OBJECT_OVERLAPS: Mapping[str, Overlap] = {
    "the next owner has completed one upload": Overlap("store.complete_upload", 1),
    "the next owner has aborted one upload": Overlap("store.abort_upload", 1),
    "the next owner finishes": OVERLAPS["the next owner finishes"],
    "both go on call by call": OVERLAPS["both go on call by call"],
}
