"""Every fault at every call: histories of one fault and of two, checked during the faults and afterwards.

A history is: a scenario's process meets its fault; leases run out; another process takes over; and so on until the
world has come to rest. After each of these steps the checker looks.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Self, TypeVar

from gobblin_assets.run.run_values import RunReport
from tests.simulation.history import Checker
from tests.simulation.library_errors import LIBRARY_ERRORS
from tests.simulation.process import Fault, Raised
from tests.simulation.scenarios import Scenario
from tests.simulation.world import SILENT_S_MAX, Runner, World
from tests.support.shares import EVERYTHING, Share

H = TypeVar("H")


@dataclass(frozen=True)
class PlannedFault:
    """``power_cut``: the machine also loses unsynced changes."""

    fault: Fault
    power_cut: bool = False

    def __str__(self) -> str:
        return f"{self.fault}, then the power is cut" if self.power_cut else str(self.fault)


FAULTS = (*(PlannedFault(fault) for fault in Fault), *(PlannedFault(f, power_cut=True) for f in Fault if f.kills))
_OF_DATASETS = (
    "source.",
    "worker.",
    "transfer.",
    "destination.list",
    "log.register_attempt",
    "log.stage",
    "log.seal",
    "log.finish_all",
    "dagster.event",
)
"""Calls of ports that belong to some datasets of a run."""

_SECOND_FAULTS = (Fault.KILLED_BEFORE, Fault.ERROR, Fault.UNKNOWN, Fault.REPEATED)


@dataclass
class Tally:
    """Counts of tried histories. ``calls`` counts each kind of call that the scenario's process makes, undisturbed.

    Histories that reach a world that another history reached before are the same from there on: only ``executed``
    histories were carried on to their end.
    """

    histories: int = 0
    executed: int = 0
    calls: dict[str, int] = field(default_factory=dict)

    def add_calls(self, calls: Sequence[str]) -> None:
        for label in sorted(calls):
            self.calls[label] = self.calls.get(label, 0) + 1

    def __iadd__(self, other: "Tally") -> Self:
        self.histories += other.histories
        self.executed += other.executed
        for label, count in other.calls.items():
            self.calls[label] = self.calls.get(label, 0) + count
        return self


class HistoryError(AssertionError):
    """A history that breaks the promise; its text is for people."""


def list_calls(scenario: Scenario, base: World) -> list[str]:
    """The calls that an undisturbed process of the scenario makes, in order."""
    runner = base.copy().open_process()
    scenario.act(runner)
    return runner.process.calls


def explore_singles(scenario: Scenario, tally: Tally | None = None, *, share: Share = EVERYTHING) -> Tally:
    """One fault at each call, of each kind; of these histories, those of ``share``."""
    tally = tally or Tally()
    base = scenario.prepare()
    calls = list_calls(scenario, base)
    tally.add_calls(calls)
    settled: set[object] = set()
    for number, planned in take(share, f"singles of {scenario.name}", [*_plan_faults(calls)]):
        world, checker, runner = _meet(scenario, base, number, planned)
        tally.histories += 1
        tally.executed += settle_once(world, checker, _story(scenario, runner, number, planned), settled)
    return tally


def explore_exceptions(scenario: Scenario, *, share: Share) -> Tally:
    """An exception of a library at each call, before or behind its effect: what is open then is repaired as ever.

    Where a call belongs to some datasets, the run goes on with the others, and ends with its report.
    """
    base = scenario.prepare()
    calls = list_calls(scenario, base)
    tally = Tally()
    for number, has_effect in take(
        share, f"exceptions of {scenario.name}", [*product(range(len(calls)), (False, True))]
    ):
        error = LIBRARY_ERRORS[number % len(LIBRARY_ERRORS)]()
        story = f"{scenario.name}: call {number} ({calls[number]}): {error!r}, {has_effect=}"
        world, checker = base.copy(), scenario.new_checker()
        checker.look(world)
        runner = world.open_process(faults={number: Raised(error, has_effect)})
        try:
            report = scenario.act(runner)
        except Exception as raised:
            if raised is not error or calls[number].startswith(_OF_DATASETS):
                raise HistoryError(f"{story}: the run has ended") from raised
            report = None
        checker.acknowledge(world, report if isinstance(report, RunReport) else None)
        look(checker, world, story)
        _settle(world, checker, story)
        tally += Tally(histories=1, executed=1)
    return tally


def explore_pairs(
    scenario: Scenario, *, shard: int = 0, shards: int = 1, firsts: Share = EVERYTHING, seconds: Share = EVERYTHING
) -> Tally:
    """A second fault at each call of the process that takes over after the first.

    ``shard`` of ``shards``: only its part of the worlds after first faults is carried on. Of the first faults and of
    the second ones, a share each.
    """
    base = scenario.prepare()
    tally = Tally()
    settled: set[object] = set()
    seen: dict[object, int] = {}
    planned_firsts = [*_plan_faults(list_calls(scenario, base))]
    for number, planned in take(firsts, f"first faults of {scenario.name}", planned_firsts):
        world, checker, runner = _meet(scenario, base, number, planned)
        world.expire_leases()
        state = _state(world, checker)
        known = seen.get(state)
        if known is not None:
            tally.histories += known
            continue
        seen[state] = 0
        if len(seen) % shards != shard:
            continue
        second = _explore_second(world, checker, _story(scenario, runner, number, planned), settled, seconds)
        seen[state] = second.histories
        tally += second
    return tally


def _explore_second(after_first: World, checker: Checker, story: str, settled: set[object], share: Share) -> Tally:
    """Second faults until recovery is over and planning begins: from there on it is a run like any other.

    A kill before a call equals a kill after the one before it, and a power cut follows a kill: one run serves all.
    """
    trial = after_first.copy().open_process()
    trial.run()
    calls = trial.process.calls
    recovery = calls[: calls.index("source.plan")] if "source.plan" in calls else calls
    tally = Tally()
    seconds = [*product(range(len(recovery)), _SECOND_FAULTS)]
    for number, fault in take(share, f"second faults after {story}", seconds):
        world, looking = after_first.copy(), checker.copy()
        runner = world.open_process(faults={number: fault})
        _act(runner, lambda one: one.run(), world, looking, PlannedFault(fault))
        for planned in _served_by(fault):
            met, saw = world.copy(), looking.copy()
            if planned.power_cut:
                met.disk.power_cut()
            told = f"{story}; the next one: {_place(runner, number, planned)}"
            look(saw, met, told)
            tally.executed += settle_once(met, saw, told, settled)
        tally.histories += len(FAULTS) - len(_SECOND_FAULTS) + 1 if fault.kills else 1
    return tally


def _served_by(fault: Fault) -> list[PlannedFault]:
    return [PlannedFault(fault), PlannedFault(fault, power_cut=True)] if fault.kills else [PlannedFault(fault)]


def take(share: Share, name: str, histories: Sequence[H]) -> list[H]:
    return [histories[number] for number in sorted(share.numbers(len(histories), name))]


def _plan_faults(calls: Sequence[str]) -> Iterator[tuple[int, PlannedFault]]:
    for number, _call in enumerate(calls):
        for planned in FAULTS:
            yield number, planned


def _meet(scenario: Scenario, base: World, number: int, planned: PlannedFault) -> tuple[World, Checker, Runner]:
    world, checker = base.copy(), scenario.new_checker()
    checker.look(world)
    runner = world.open_process(faults={number: planned.fault})
    _act(runner, scenario.act, world, checker, planned)
    look(checker, world, _story(scenario, runner, number, planned))
    return world, checker, runner


def _act(
    runner: Runner, act: Callable[[Runner], object], world: World, checker: Checker, planned: PlannedFault
) -> None:
    report = act(runner)
    checker.acknowledge(world, report if isinstance(report, RunReport) else None)
    if planned.power_cut:
        world.disk.power_cut()


def settle_once(world: World, checker: Checker, story: str, settled: set[object]) -> bool:
    """Carry a history on to its end, unless another one has done so from the same state."""
    state = _state(world, checker)
    if state in settled:
        return False
    _settle(world, checker, story)
    settled.add(state)
    return True


def _state(world: World, checker: Checker) -> object:
    return (world.fingerprint(), checker.fingerprint())


def _settle(world: World, checker: Checker, story: str) -> None:
    """Go on until nothing is left to do: a sequence that is still open now would stay open for ever."""
    world.bad_units = frozenset()
    world.expire_leases()
    world.open_process().run()
    look(checker, world, story)
    world.db.advance(SILENT_S_MAX)
    world.open_process().run()
    look(checker, world, story)
    try:
        checker.check_rest(world)
    except AssertionError as error:
        raise HistoryError(f"{story}: {error}") from error


def look(checker: Checker, world: World, story: str) -> None:
    try:
        checker.look(world)
    except AssertionError as error:
        raise HistoryError(f"{story}: {error}") from error


def _story(scenario: Scenario, runner: Runner, number: int, planned: PlannedFault) -> str:
    return f"{scenario.name}: {_place(runner, number, planned)}"


def _place(runner: Runner, number: int, planned: PlannedFault) -> str:
    call = runner.process.calls[number] if number < len(runner.process.calls) else "not reached"
    return f"call {number} ({call}): {planned}"
