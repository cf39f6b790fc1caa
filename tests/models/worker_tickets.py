"""Tickets of workers whose processes follow each other, as values: an ADD, the UPDATE that replaces it, their CANCELs.

Each process is an attempt: it claims, works until its time is over or somebody wants the worker to end, and reports its
end. Processes are asked for more than once, die or are paused anywhere, and reports take effect and say error. An
executor that is held for lost, rightly or wrongly, loses its ticket although its claim lives, and an UPDATE for another
executor follows. That no row is published twice is proved by other models. Faults: a worker that ends for good although
nobody wanted that; one that begins behind the end of its ticket, or ends it again; one of the old job that begins
behind one of the new job, or holds its lanes beside it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, NamedTuple

STARTS_MAX = 5
OLD, NEW = 0, 1


class Do(StrEnum):
    """What a process does next. DRAIN: ask all workers of the job to end, as one has decided it before."""

    NOTHING = "nothing"
    CLAIM = "claim"
    REPLACE = "replace"
    BEGIN = "begin"
    WORK = "work"
    END = "end"
    DRAIN = "drain"


class Run(NamedTuple):
    """A process. ``ends``: whether its end is that of the ticket, too."""

    do: Do = Do.NOTHING
    ticket: int = OLD
    attempt: int = 0
    ends: bool = False


Attempt = tuple[int, int]


class Board(NamedTuple):
    """The log. ``live``: tickets whose last claim has neither ended nor run out.

    ``closed``: attempts that have ended, or were the last ones when their ticket ended. ``working``: attempts at work
    whose leases have not run out. ``drained``: attempts that were asked to end by the list of workers. ``is_sent``: the
    UPDATE is. ``has_begun``: a worker of it has been at work.
    """

    is_sent: bool = False
    cancels: frozenset[int] = frozenset()
    attempt: tuple[int, int] = (0, 0)
    live: frozenset[int] = frozenset()
    ended: frozenset[int] = frozenset()
    closed: frozenset[Attempt] = frozenset()
    working: frozenset[Attempt] = frozenset()
    drained: frozenset[Attempt] = frozenset()
    has_begun: bool = False
    starts: int = 0
    fault: str | None = None


Move = tuple[Board, Run]
IDLE = Run()


@dataclass(frozen=True)
class WorkerTickets:
    """The protocol. An attempt asks the log whether its ticket is cancelled or replaced. Time and terminations drain
    it, which leaves the ticket to the next one. An UPDATE ends older tickets before its own worker begins.
    """

    processes: int = 3
    idle: ClassVar[Run] = IDLE
    start: ClassVar[Board] = Board()

    def list_moves(self, world: Board, mover: Run) -> Iterator[Move]:
        if mover.do is not Do.NOTHING:
            yield self.leave(world, mover), IDLE
        match mover.do:
            case Do.NOTHING:
                yield from self.begin(world)
            case Do.CLAIM:
                yield from self.claim(world, mover)
            case Do.REPLACE:
                yield from self.replace(world, mover)
            case Do.BEGIN:
                if self.may_report(world, mover):
                    yield self.enter(world, mover), mover._replace(do=Do.WORK)
            case Do.WORK:
                for ends in self.list_ends(world, mover):
                    yield self.leave(world, mover), mover._replace(do=Do.END, ends=ends)
            case Do.END:
                yield from self.end(world, mover)
            case Do.DRAIN:
                yield world._replace(drained=world.drained | world.working), IDLE

    def begin(self, world: Board) -> Iterator[Move]:
        if world.starts == STARTS_MAX:
            return
        begun = world._replace(starts=world.starts + 1)
        if not world.is_sent:
            yield begun._replace(is_sent=True), IDLE
        if OLD not in world.ended:
            yield self.withdraw(begun), IDLE
        for ticket in self.list_open(world):
            if ticket not in world.cancels:
                yield begun._replace(cancels=world.cancels | {ticket}), IDLE
            elif ticket not in world.live:
                # Answered by whoever looks after the inbox.
                yield self.end_idle(begun, ticket), IDLE
            yield begun, Run(Do.CLAIM, ticket)

    def list_open(self, world: Board) -> list[int]:
        return [ticket for ticket in (OLD, NEW) if ticket not in world.ended and (ticket is OLD or world.is_sent)]

    def claim(self, world: Board, mover: Run) -> Iterator[Move]:
        if mover.ticket in world.live or not self.may_claim(world, mover.ticket):
            return
        attempts = list(world.attempt)
        attempts[mover.ticket] += 1
        after = world._replace(attempt=tuple(attempts), live=world.live | {mover.ticket})
        begins = Do.REPLACE if mover.ticket is NEW else Do.BEGIN
        yield after, mover._replace(do=begins, attempt=attempts[mover.ticket])
        yield after, IDLE

    def may_claim(self, world: Board, ticket: int) -> bool:
        return ticket not in world.ended

    def withdraw(self, world: Board) -> Board:
        """The executor is held for lost: the ticket ends, and its attempt with it, whoever is at work."""
        return self.end_idle(world, OLD)._replace(live=world.live - {OLD})

    def replace(self, world: Board, mover: Run) -> Iterator[Move]:
        """Older tickets that nobody works on end; workers that live are asked to."""
        olds = self.list_older_workers(world)
        if OLD in world.live or olds:
            yield world._replace(drained=world.drained | olds), mover
        elif OLD in world.ended:
            yield world, mover._replace(do=Do.BEGIN)
        else:
            yield self.end_idle(world, OLD), mover

    def list_older_workers(self, world: Board) -> frozenset[Attempt]:
        return frozenset(each for each in world.working if each[0] is OLD)

    def enter(self, world: Board, mover: Run) -> Board:
        """Its report says that it begins, under the ticket's lock."""
        fault = "GOES ON" if mover.ticket in world.ended else None
        if mover.ticket is OLD and world.has_begun:
            fault = "OLD AGAIN"
        if mover.ticket is NEW and any(each[0] is OLD for each in world.working):
            fault = "BESIDE"
        began = world.has_begun or mover.ticket is NEW
        return world._replace(working=world.working | {mover[1:3]}, has_begun=began, fault=fault)

    def leave(self, world: Board, mover: Run) -> Board:
        return world._replace(working=world.working - {mover[1:3]})

    def list_ends(self, world: Board, mover: Run) -> Iterator[bool]:
        """Of attempts at work: whether the ticket ends with them."""
        if mover[1:3] in world.drained or mover.ticket in world.cancels or self.is_replaced(world, mover.ticket):
            yield True
        yield self.drains_for_good

    drains_for_good: ClassVar[bool] = False

    def is_replaced(self, world: Board, ticket: int) -> bool:
        return ticket is OLD and world.is_sent and NEW not in world.ended

    def end(self, world: Board, mover: Run) -> Iterator[Move]:
        if not self.may_report(world, mover):
            return
        after = world._replace(live=world.live - {mover.ticket}, closed=world.closed | {mover[1:3]})
        if mover.ends:
            is_wanted = mover.ticket in world.cancels or (mover.ticket is OLD and world.is_sent)
            fault = "ENDED TWICE" if mover.ticket in world.ended else None if is_wanted else "STOPPED"
            after = after._replace(ended=world.ended | {mover.ticket}, fault=fault)
        yield after, IDLE
        yield after, mover

    def may_report(self, world: Board, mover: Run) -> bool:
        """A lock on the ticket: the attempt is its last one, and has not ended."""
        return mover.attempt == world.attempt[mover.ticket] and mover[1:3] not in world.closed

    def end_idle(self, world: Board, ticket: int) -> Board:
        last = (ticket, world.attempt[ticket])
        return world._replace(ended=world.ended | {ticket}, closed=world.closed | {last})

    def list_changes(self, world: Board) -> Iterator[Board]:
        for ticket in world.live:
            yield world._replace(live=world.live - {ticket})
        for attempt in world.working:
            # Its leases run out: it publishes nothing more, and who lists workers does not see it.
            yield world._replace(working=world.working - {attempt})

    def find_fault(self, world: Board, mover: Run) -> str | None:
        del mover
        return world.fault


@dataclass(frozen=True)
class DrainsForGood(WorkerTickets):
    """A run whose time is over, or that a person terminates, ends the ticket."""

    drains_for_good: ClassVar[bool] = True


@dataclass(frozen=True)
class DrainsFromBeside(WorkerTickets):
    """Whoever looks after the tickets asks the job's workers to end once it has seen an UPDATE."""

    def begin(self, world: Board) -> Iterator[Move]:
        yield from super().begin(world)
        if world.starts < STARTS_MAX and world.is_sent and NEW not in world.live:
            yield world._replace(starts=world.starts + 1), Run(Do.DRAIN)


@dataclass(frozen=True)
class ClaimsWhatHasEnded(WorkerTickets):
    """A run that was asked for before its ticket ended begins anyway."""

    def may_claim(self, world: Board, ticket: int) -> bool:
        del world, ticket
        return True


@dataclass(frozen=True)
class LeavesOlderOpen(WorkerTickets):
    """An UPDATE waits for workers that live, and leaves tickets open that nobody works on now."""

    def replace(self, world: Board, mover: Run) -> Iterator[Move]:
        if OLD in world.live or self.list_older_workers(world):
            yield from super().replace(world, mover)
        else:
            yield world, mover._replace(do=Do.BEGIN)


@dataclass(frozen=True)
class WithdrawsTheTicketAlone(WorkerTickets):
    """What is withdrawn from a lost executor leaves the attempt open: who comes back reports as before."""

    def withdraw(self, world: Board) -> Board:
        return world._replace(ended=world.ended | {OLD})


@dataclass(frozen=True)
class BeginsBeside(WorkerTickets):
    """The worker at the next executor begins as soon as the ticket of the lost one has ended."""

    def list_older_workers(self, world: Board) -> frozenset[Attempt]:
        return frozenset() if OLD in world.ended else super().list_older_workers(world)
