"""What a copying process does to a world while faults happen, and what other processes do while it is paused."""

from collections.abc import Callable, Mapping
from functools import partial

from tests.simulation.copy_history import CopyChecker
from tests.simulation.copy_world import KEEP_S, CopyWorld
from tests.simulation.process import Fault
from tests.simulation.scenarios import Scenario, open_sequence
from tests.simulation.world import Runner, World
from tests.simulation.zombies import OVERLAPS, Overlap


def _empty() -> CopyWorld:
    """A source, and no destination."""
    world = CopyWorld()
    world.write_source("changed", "removed", "_SUCCESS")
    return world


def _changed(*, exchanges: bool) -> CopyWorld:
    """A first copy is published. The source has changed since: new, other and missing files, and a new directory.

    Where names are exchanged, the dataset's directory lets nobody write.
    """
    world = _empty()
    world.disk.exchanges = exchanges
    report = world.open_process().run()
    assert report is not None
    assert not report.failed, [each.error for each in report.datasets]
    if exchanges:
        world.close_directory()
    world.change_source()
    return world


def _half_published(*, exchanges: bool) -> CopyWorld:
    """A process died amid its replacements; its lease has run out."""
    world = _changed(exchanges=exchanges)
    trial = world.copy().open_process()
    trial.run()
    first = trial.process.calls.index("log.seal")
    moves = ("fs.exchange", "fs.rename_no_replace")
    acts = [number for number, call in enumerate(trial.process.calls) if call in moves and number > first]
    world.open_process(faults={acts[len(acts) // 2]: Fault.KILLED_BEFORE}).run()
    world.expire_leases()
    return world


def _recovered_in_part() -> CopyWorld:
    """A second process died at its capture: the attempt's directory has the name of its fence."""
    world = _half_published(exchanges=True)
    trial = world.copy().open_process()
    trial.recover()
    captured = trial.process.calls.index("log.claim") + 2
    world.open_process(faults={captured: Fault.KILLED_BEFORE}).recover()
    world.expire_leases()
    return world


def _half_copied() -> CopyWorld:
    """A process died amid its copies; what it finished is there for the next."""
    world = _changed(exchanges=True)
    trial = world.copy().open_process()
    trial.run()
    written = [number for number, call in enumerate(trial.process.calls) if call == "transfer.journal"]
    world.open_process(faults={written[2]: Fault.KILLED_AFTER}).run()
    world.expire_leases()
    return world


def _with_old_slots() -> CopyWorld:
    """A change is published, and its slots have been kept for their time."""
    world = _changed(exchanges=True)
    world.open_process().run()
    world.db.advance(KEEP_S + 1)
    return world


def _with_publications_to_fold() -> CopyWorld:
    """The slots of two changes are emptied. From here on, all publications are folded."""
    world = _changed(exchanges=True)
    world.open_process().run()
    world.change_source()
    world.open_process().run()
    world.db.advance(KEEP_S + 1)
    world.open_process().clean()
    world.folds = True
    return world


def _run(runner: Runner) -> object:
    return runner.run()


def _recover(runner: Runner) -> None:
    runner.recover()


def _abandon(runner: Runner) -> None:
    runner.abandon(open_sequence(runner.world))


def _clean(runner: Runner) -> None:
    runner.clean()


COPY_SCENARIOS = tuple(
    Scenario(name, prepare, act, CopyChecker)
    for name, prepare, act in (
        ("first copy", _empty, _run),
        ("update by exchange", partial(_changed, exchanges=True), _run),
        ("update by two renames", partial(_changed, exchanges=False), _run),
        ("recover by exchange", partial(_half_published, exchanges=True), _recover),
        ("recover by two renames", partial(_half_published, exchanges=False), _recover),
        ("recover what was captured", _recovered_in_part, _recover),
        ("abandon an exchange", partial(_half_published, exchanges=True), _abandon),
        ("abandon two renames", partial(_half_published, exchanges=False), _abandon),
        ("abandon what was captured", _recovered_in_part, _abandon),
        ("copy what was left", _half_copied, _run),
        ("empty the slots", _with_old_slots, _clean),
        ("fold what was copied", _with_publications_to_fold, _clean),
    )
)


def _others_run(world: World) -> None:
    world.open_process().run()


def _others_run_twice(world: World) -> None:
    """The second run publishes a further change of each file."""
    assert isinstance(world, CopyWorld)
    _others_run(world)
    world.change_source()
    _others_run(world)


def _others_empty_the_slots(world: World) -> None:
    _others_run_twice(world)
    world.db.advance(KEEP_S + 1)
    world.open_process().clean()


def _others_give_up(world: World) -> None:
    for sequence_id in world.list_open():
        world.open_process().abandon(sequence_id)


def _others_give_up_and_run(world: World) -> None:
    _others_give_up(world)
    _others_run_twice(world)


COPY_TAKEOVERS: Mapping[str, Callable[[World], None]] = {
    "others run": _others_run,
    "others run, and publish a further change": _others_run_twice,
    "others publish a further change, and empty the slots": _others_empty_the_slots,
    "others give up what is open": _others_give_up,
    "others give up what is open, and publish a further change": _others_give_up_and_run,
}

COPY_OVERLAPS: Mapping[str, Overlap] = {
    "the next owner is about to capture": Overlap("log.claim", 0),
    "the next owner has moved one name": Overlap("fs.rename_no_replace", 1),
    "the next owner has exchanged one name": Overlap("fs.exchange", 1),
    "the next owner finishes": OVERLAPS["the next owner finishes"],
    "both go on call by call": OVERLAPS["both go on call by call"],
}
