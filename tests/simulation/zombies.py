"""Histories with a process that is paused anywhere: what other processes do meanwhile, and when it wakes up.

Three kinds. A zombie wakes up after others took over and ended. A visited process has a live lease when others come,
so they are refused. An overlapped process wakes up in the middle of the next owner's work, whose lease is live.
"""

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from tests.simulation.exploring import HistoryError, Tally, list_calls, look, settle_once, take
from tests.simulation.process import Pause
from tests.simulation.scenarios import Scenario
from tests.simulation.sleeping import Sleeper
from tests.simulation.world import Runner, World
from tests.support.shares import EVERYTHING, Share


def _run_as(runner: Runner) -> None:
    runner.run()


def _run(world: World) -> None:
    _run_as(world.open_process())


def _give_up(world: World) -> None:
    for sequence_id in world.list_open():
        world.open_process().abandon(sequence_id)


def _give_up_and_run(world: World) -> None:
    _give_up(world)
    _run(world)


TAKEOVERS: Mapping[str, Callable[[World], None]] = {
    "others run": _run,
    "others give up what is open": _give_up,
    "others give up what is open, and run": _give_up_and_run,
}

VISITS: Final = ("others give up, recover, clean and run while its lease lives",)


def _to_the_end(first: Sleeper, second: Sleeper) -> None:
    first.wake()
    second.wake()


def _in_turns(first: Sleeper, second: Sleeper) -> None:
    while not (first.has_ended and second.has_ended):
        first.step()
        second.step()


@dataclass(frozen=True)
class Overlap:
    """The next owner makes its calls up to the one of this label and number, from 0, or ends if it makes no such call.
    Then the first process wakes up, and both ``go_on``.
    """

    label: str
    number: int
    go_on: Callable[[Sleeper, Sleeper], None] = _to_the_end


OVERLAPS: Mapping[str, Overlap] = {
    "the next owner begins": Overlap("log.begin", 0),
    "the next owner stages": Overlap("log.stage", 0),
    "the next owner seals": Overlap("log.seal", 0),
    "the next owner has done a rename": Overlap("fs.rename_no_replace", 1),
    "the next owner finishes": Overlap("log.finish_all", 0),
    "the next owner finishes once more": Overlap("log.finish_all", 1),
    "the next owner cleans": Overlap("log.mark_for_cleanup", 0),
    "both go on call by call": Overlap("leases.take", 0, _in_turns),
}


def explore_zombies(
    scenario: Scenario,
    tally: Tally | None = None,
    *,
    share: Share = EVERYTHING,
    takeovers: Mapping[str, Callable[[World], None]] = TAKEOVERS,
) -> Tally:
    """Paused before each call; others take over and finish; then the first process wakes up and goes on.

    Of these, the histories of ``share`` are tried.
    """

    def meet(world: World, _first: Sleeper, others: str) -> None:
        world.expire_leases()
        takeovers[others](world)

    return _explore(scenario, tally or Tally(), share, "zombies", takeovers, meet)


def explore_visits(scenario: Scenario, tally: Tally | None = None, *, share: Share = EVERYTHING) -> Tally:
    """Paused before each call; others come while its lease is live, if it has one; then it goes on undisturbed."""

    def meet(world: World, first: Sleeper, _others: str) -> Sleeper | None:
        held = first.holds_a_lease
        _give_up(world)
        world.open_process().recover()
        world.open_process().clean()
        scenario.new_checker().acknowledge(world, world.open_process().run())
        return first if held else None

    return _explore(scenario, tally or Tally(), share, "visits", VISITS, meet)


def explore_overlaps(
    scenario: Scenario,
    tally: Tally | None = None,
    *,
    share: Share = EVERYTHING,
    overlaps: Mapping[str, Overlap] = OVERLAPS,
) -> Tally:
    """Paused before each call until its lease has run out. It wakes up in the middle of the next owner's run, which
    goes on undisturbed.
    """

    def meet(world: World, first: Sleeper, others: str) -> Sleeper:
        world.expire_leases()
        overlap = overlaps[others]
        second = Sleeper(world.open_process(), _run_as, Pause(overlap.number, overlap.label))
        try:
            overlap.go_on(first, second)
        finally:
            second.kill()
        return second

    return _explore(scenario, tally or Tally(), share, "overlaps", overlaps, meet)


def _explore(
    scenario: Scenario,
    tally: Tally,
    share: Share,
    kind: str,
    ways: Iterable[str],
    meet: Callable[[World, Sleeper, str], Sleeper | None],
) -> Tally:
    """``meet`` is what happens while the first process is paused. It returns the process with a live lease, if
    there is one: that process must be refused nothing.
    """
    base = scenario.prepare()
    calls = list_calls(scenario, base)
    tally.add_calls(calls)
    settled: set[object] = set()
    histories = [*itertools.product(enumerate(calls), ways)]
    for (number, call), others in take(share, f"{kind} of {scenario.name}", histories):
        world, checker = base.copy(), scenario.new_checker()
        tally.histories += 1
        story = f"{scenario.name}: paused before call {number} ({call}), {others}, it wakes up"
        checker.look(world)
        first = Sleeper(world.open_process(), scenario.act, Pause(number))
        if first.has_ended:
            raise HistoryError(f"{story}: never paused")
        try:
            holder = meet(world, first, others)
            look(checker, world, story)
            first.wake()
        finally:
            first.kill()
        look(checker, world, story)
        if holder is not None and holder.runner.process.refusals:
            raise HistoryError(f"{story}: who holds a lease is refused {holder.runner.process.refusals[0]}")
        tally.executed += settle_once(world, checker, story, settled)
    return tally
