"""Runs of Dagster that a sensor asks for, as values, and the tickets that they claim.

Two tickets, which may share a run. Dagster makes a run of a request once for each key that it has not seen, or twice,
and may fail it before it begins. A run's process may die, of which Dagster hears at once, or never. A claim that nobody
renews expires. The pauses of the sensor end some time: what it asks for then counts. Faults: a ticket that nobody will
work on; one that two runs work on; more runs than may wait.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, NamedTuple

RUNS_MAX = 4
ROOM = 2
TICKETS = (0, 1)


class Phase(StrEnum):
    """The phase of a run in Dagster. LOST: Dagster takes it for started, and its process is gone."""

    ASKED = "asked"
    STARTED = "started"
    LOST = "lost"
    ENDED = "ended"


class Run(NamedTuple):
    """``left``: tickets whose turn has not come. ``at``: the ticket that it works on."""

    tickets: tuple[int, ...]
    phase: Phase = Phase.ASKED
    left: tuple[int, ...] = ()
    at: int | None = None


class Inbox(NamedTuple):
    """``holders``: of each ticket the number of the run whose claim lives. ``keys``: those that Dagster has seen."""

    runs: tuple[Run, ...] = ()
    keys: frozenset[tuple[int, int]] = frozenset()
    holders: tuple[int | None, int | None] = (None, None)
    done: frozenset[int] = frozenset()


IDLE = None


@dataclass(frozen=True)
class TicketRuns:
    """The protocol. A key has the number of the run; a run claims each ticket when its turn comes."""

    processes: int = 1
    # A look asks while there is room, and what it asks for may be made twice.
    unfinished_max: ClassVar[int] = ROOM + 1
    idle: ClassVar[None] = IDLE
    start: ClassVar[Inbox] = Inbox()

    def list_moves(self, world: Inbox, mover: None) -> Iterator[tuple[Inbox, None]]:
        """A look of the sensor; its request may be made into a run twice."""
        for key, tickets in self.plan(world):
            once = self.make(world, key, tickets)
            yield once, mover
            yield once._replace(runs=(*once.runs, Run(tickets))[:RUNS_MAX]), mover

    def plan(self, world: Inbox) -> list[tuple[tuple[int, int], tuple[int, ...]]]:
        """The requests of a look whose pauses are over. Those with a key that Dagster has seen are left out by it."""
        waiting = [each for each in TICKETS if each not in world.done and world.holders[each] is None]
        kept = {each for run in world.runs if self.keeps(run) for each in run.tickets}
        free = tuple(each for each in waiting if each not in kept)
        unfinished = [run for run in world.runs if run.phase is not Phase.ENDED]
        if not free or len(world.runs) == RUNS_MAX or not self.has_room(len(unfinished)):
            return []
        key = self.name(world, free[0])
        return [] if key in world.keys else [(key, free)]

    def keeps(self, run: Run) -> bool:
        """Whether its tickets are left to the run. One that works for long keeps only what it has claimed."""
        return run.phase is Phase.ASKED

    def has_room(self, unfinished: int) -> bool:
        return unfinished < ROOM

    def name(self, world: Inbox, first: int) -> tuple[int, int]:
        return first, sum(run.tickets[0] == first for run in world.runs)

    def make(self, world: Inbox, key: tuple[int, int], tickets: tuple[int, ...]) -> Inbox:
        return world._replace(runs=(*world.runs, Run(tickets)), keys=world.keys | {key})

    def list_changes(self, world: Inbox) -> Iterator[Inbox]:
        for number, run in enumerate(world.runs):
            match run.phase:
                case Phase.ASKED:
                    yield self.put(world, number, run._replace(phase=Phase.STARTED, left=run.tickets))
                    yield self.put(world, number, run._replace(phase=Phase.ENDED))
                case Phase.STARTED:
                    yield from self.work(world, number, run)
                    for phase in (Phase.LOST, Phase.ENDED):
                        yield self.put(world, number, run._replace(phase=phase, left=(), at=None))
                case Phase.LOST:
                    # Whoever looks at its process tells Dagster; in a model, that may take for ever.
                    yield self.put(world, number, run._replace(phase=Phase.ENDED))
                case Phase.ENDED:
                    pass
        for ticket, holder in enumerate(world.holders):
            if holder is not None and world.runs[holder].phase is not Phase.STARTED:
                yield self.hold(world, ticket, None)

    def work(self, world: Inbox, number: int, run: Run) -> Iterator[Inbox]:
        if run.at is not None:
            ended = self.hold(world, run.at, None)._replace(done=world.done | {run.at})
            yield self.put(ended, number, run._replace(at=None))
        elif not run.left:
            yield self.put(world, number, run._replace(phase=Phase.ENDED))
        else:
            ticket, *left = run.left
            after = run._replace(left=tuple(left))
            if self.may_begin(world, ticket):
                yield self.put(self.hold(world, ticket, number), number, after._replace(at=ticket))
            else:
                yield self.put(world, number, after)

    def may_begin(self, world: Inbox, ticket: int) -> bool:
        """The claim."""
        return ticket not in world.done and world.holders[ticket] is None

    @staticmethod
    def put(world: Inbox, number: int, run: Run) -> Inbox:
        return world._replace(runs=(*world.runs[:number], run, *world.runs[number + 1 :]))

    @staticmethod
    def hold(world: Inbox, ticket: int, holder: int | None) -> Inbox:
        holders = list(world.holders)
        holders[ticket] = holder
        return world._replace(holders=(holders[0], holders[1]))

    def find_fault(self, world: Inbox, mover: None) -> str | None:
        del mover
        at = [run.at for run in world.runs if run.at is not None]
        if len(at) > len(set(at)):
            return "WORKED ON TWICE"
        unfinished = [run for run in world.runs if run.phase is not Phase.ENDED]
        if len(unfinished) > self.unfinished_max:
            return "TOO MANY"
        return "FORGOTTEN" if self.is_forgotten(world) else None

    def is_forgotten(self, world: Inbox) -> bool:
        """Whether a ticket waits, no run begins or works, and no look asks for one."""
        phases = [run.phase for run in world.runs]
        if len(phases) == RUNS_MAX or Phase.ASKED in phases or Phase.STARTED in phases:
            return False
        waits = any(each not in world.done and world.holders[each] is None for each in TICKETS)
        # Without room, those that are lost have to be told first.
        return waits and not self.plan(world) and phases.count(Phase.LOST) < ROOM


@dataclass(frozen=True)
class KeysWithoutNumbers(TicketRuns):
    """Dagster's memory of keys knows no failure: a run that failed before it claimed is never asked for again."""

    def name(self, world: Inbox, first: int) -> tuple[int, int]:
        del world
        return first, 0


@dataclass(frozen=True)
class KeptByTheDead(TicketRuns):
    """A run keeps its tickets for as long as Dagster takes it for started."""

    def keeps(self, run: Run) -> bool:
        return run.phase is not Phase.ENDED


@dataclass(frozen=True)
class WithoutClaims(TicketRuns):
    """A run begins what it was asked for."""

    def may_begin(self, world: Inbox, ticket: int) -> bool:
        return ticket not in world.done


@dataclass(frozen=True)
class AsksForAll(TicketRuns):
    """The sensor asks for runs whatever waits in Dagster's queue."""

    def has_room(self, unfinished: int) -> bool:
        del unfinished
        return True
