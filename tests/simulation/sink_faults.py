"""Every fault at every call of a sink's worker, in short histories; and a second one in the work of its successor.

A history is: the worker meets its fault; its leases run out; others take over, until all of the log is published.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from typing import Final

from tests.simulation.exploring import FAULTS, HistoryError, PlannedFault, Tally, take
from tests.simulation.library_errors import LIBRARY_ERRORS
from tests.simulation.process import NO_FAULTS, Fault, Faults, Raised
from tests.simulation.sink_world import SinkWorld
from tests.simulation.stepping import Actor
from tests.support.shares import EVERYTHING, Share

_VNODES: Final = 3
_EPOCHS: Final = 5
_CALLS_MAX: Final = 4000
_TURN_S: Final = 0.1
_REST_S: Final = 30.0
_LIVES: Final = 8
_SEED: Final = 2
"""Of a log with two epochs without records."""

RECOVERY_CALLS: Final = 60
"""A worker that takes over has recovered its lanes after so many calls."""

SINK_OVERLAPS: Final = (_CALLS_MAX, 30, 60, 90)
"""How many calls others make while a worker sleeps; it sleeps to their end, or wakes up amid their work."""

_BESIDE_A_LOCK: Final = 120
"""At most so many where the sleeper keeps them from their end."""

_SECONDS: Final = (Fault.KILLED_BEFORE, Fault.ERROR, Fault.UNKNOWN, Fault.REPEATED)


def _make_sink_world(watches_log: bool) -> SinkWorld:
    return SinkWorld(_SEED, vnode_count=_VNODES, epoch_count=_EPOCHS, watches_log=watches_log)


def _leave_all_as_it_is(_world: SinkWorld) -> None:
    """Nothing happens besides."""


@dataclass(frozen=True)
class SinkScenario:
    """``prepare``: what happened before. ``later``: by the number of a call of the worker, what others do then.

    ``behind``: what others do once the worker has ended, or was stopped.
    """

    name: str
    prepare: Callable[[SinkWorld], None]
    later: Mapping[int, Callable[[SinkWorld], None]]

    watches_log: bool = False
    make_world: Callable[[bool], SinkWorld] = _make_sink_world
    behind: Callable[[SinkWorld], None] = _leave_all_as_it_is

    def open_world(self) -> SinkWorld:
        world = self.make_world(self.watches_log)
        try:
            self.prepare(world)
        except BaseException:
            world.stop()
            raise
        world.is_over = world.is_published
        return world

    def list_calls(self) -> list[str]:
        """The calls that an undisturbed worker makes, in order."""
        world = self.open_world()
        try:
            return self.work(world).process.calls
        finally:
            world.stop()

    def work(self, world: SinkWorld, faults: Faults = NO_FAULTS, until: int = _CALLS_MAX) -> Actor:
        """Be the worker, up to the call of this number."""
        worker = world.start_worker(faults)
        done: set[int] = set()
        while not worker.is_over and len(worker.process.calls) < until:
            for number, act in self.later.items():
                if number <= len(worker.process.calls) and number not in done:
                    done.add(number)
                    act(world)
            worker.go_on(1)
            world.db.advance(_TURN_S)
        if not worker.is_over and until == _CALLS_MAX:
            raise HistoryError(f"{self.name}: {_CALLS_MAX} calls did not suffice: {worker.lines[-3:]}")
        self.behind(world)
        return worker


def _leave_an_open_row(world: SinkWorld) -> None:
    """A worker died between a seal and the last of its renames, and somebody wants more lanes."""
    worker = world.start_worker()
    while not any(row.file_count for row in world.list_open()):
        worker.go_on(1)
    worker.kill()
    world.expire()
    world.spread(_VNODES)


SINK_SCENARIOS: Final = (
    SinkScenario("a sink begins", _leave_all_as_it_is, {}),
    SinkScenario(
        "a sink goes on with other lanes, and is drained",
        _leave_an_open_row,
        {90: lambda world: world.spread(1), 200: SinkWorld.drain},
    ),
)


def explore_sink_singles(scenario: SinkScenario, *, share: Share = EVERYTHING) -> Tally:
    """One fault at each call, of each kind; of these histories, those of ``share``."""
    calls = scenario.list_calls()
    tally = Tally()
    tally.add_calls(calls)
    for number, planned in take(share, f"singles of {scenario.name}", [*product(range(len(calls)), FAULTS)]):
        with _told(scenario, f"call {number} ({calls[number]}): {planned}") as world:
            _meet(scenario, world, number, planned)
            _settle(world)
        tally += Tally(histories=1, executed=1)
    return tally


def explore_sink_exceptions(scenario: SinkScenario, *, share: Share = EVERYTHING) -> Tally:
    """At each call of a worker that has begun, an exception of a library, before or behind its effect.

    The worker itself goes on, until all of the log is published, or somebody drains the sink.
    """
    calls = scenario.list_calls()
    begin = calls.index("workers.beat")
    tally = Tally()
    tally.add_calls(calls)
    histories = [*product(range(begin, len(calls)), (False, True))]
    for place, (number, has_effect) in enumerate(take(share, f"exceptions of {scenario.name}", histories)):
        error = LIBRARY_ERRORS[place % len(LIBRARY_ERRORS)]()
        with _told(scenario, f"call {number} ({calls[number]}): {error!r}, {has_effect=}") as world:
            worker = scenario.work(world, {number: Raised(error, has_effect)})
            assert len(worker.process.calls) > number, "the call was not reached"
            assert worker.error is None, f"the worker has ended: {worker.error}"
            _settle(world)
        tally += Tally(histories=1, executed=1)
    return tally


def explore_sink_zombies(scenario: SinkScenario, *, share: Share = EVERYTHING) -> Tally:
    """Paused before each call; the next one works to the end, or for some calls; then both go on in turns."""
    calls = scenario.list_calls()
    tally = Tally()
    for number, count in take(share, f"zombies of {scenario.name}", [*product(range(len(calls)), SINK_OVERLAPS)]):
        with _told(scenario, f"paused before call {number} ({calls[number]}), others make {count}") as world:
            first = scenario.work(world, until=number)
            world.expire()
            second = world.start_worker()
            _go_on(world, (second,), min(count, _BESIDE_A_LOCK) if world.is_locked else count)
            _go_on(world, (first, second))
            _settle(world)
        tally += Tally(histories=1, executed=1)
    return tally


def explore_sink_pairs(scenario: SinkScenario, *, share: Share = EVERYTHING) -> Tally:
    """A second fault at each of the first calls of the next worker, in which it recovers what was left."""
    calls = scenario.list_calls()
    tally = Tally()
    pairs = [*product(range(len(calls)), _SECONDS, range(RECOVERY_CALLS), _SECONDS)]
    for number, first, second, fault in take(share, f"pairs of {scenario.name}", pairs):
        with _told(scenario, f"call {number}: {first}; then call {second} of the next one: {fault}") as world:
            _meet(scenario, world, number, PlannedFault(first))
            _go_on(world, (world.start_worker({second: fault}),))
            world.expire()
            _settle(world)
        tally += Tally(histories=1, executed=1)
    return tally


@contextmanager
def _told(scenario: SinkScenario, story: str) -> Iterator[SinkWorld]:
    """A world of the scenario; what goes wrong in it is told as a HistoryError of this story."""
    world = scenario.open_world()
    try:
        yield world
    except AssertionError as error:
        raise HistoryError(f"{scenario.name}: {story}: {error}") from error
    finally:
        world.stop()


def _meet(scenario: SinkScenario, world: SinkWorld, number: int, planned: PlannedFault) -> None:
    worker = scenario.work(world, {number: planned.fault})
    assert len(worker.process.calls) > number, "the call was not reached"
    if planned.power_cut:
        world.cut_power()
    world.expire()


def _go_on(world: SinkWorld, actors: Sequence[Actor], calls: int = _CALLS_MAX) -> None:
    """All of them in turns, call by call, until they end or have made so many."""
    for _call in range(calls):
        left = [each for each in actors if not each.is_over]
        for each in left:
            each.go_on(1)
        world.db.advance(_TURN_S)
        if not left:
            return
    assert calls < _CALLS_MAX, f"{calls} calls did not suffice"


def _settle(world: SinkWorld) -> None:
    """Undisturbed workers, one after the other, bring it to an end; then the promises and the steps are checked."""
    for _life in range(_LIVES):
        if world.is_published() and not world.list_open():
            break
        world.expire()
        world.db.advance(_REST_S)
        _go_on(world, (world.start_worker(),))
    world.check_promises()
    world.check()
