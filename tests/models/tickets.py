"""One execution of a flow's job, as values: senders of its ticket, attempts at it, and the reports that end it.

The run itself is exactly-once by lease and ledger, which other models prove. Here a run publishes one dataset as a
whole, and another run would publish it again. Any process may die or be paused anywhere, each write may take effect and
say error, and a claim expires at any time. Faults: a ticket that is complete although nothing is published;
publications that are not counted once; an end that changes; a job that is done again for a second ticket, or by a
second attempt.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, NamedTuple

STARTS_MAX = 5
ATTEMPTS_MAX = 3


class Do(StrEnum):
    """What a process does next."""

    NOTHING = "nothing"
    SEND = "send"
    MARK = "mark"
    CLAIM = "claim"
    RUN = "run"
    COUNT = "count"
    END = "end"


class Actor(NamedTuple):
    """A process of the service, or of an executor. ``knows``: it has seen that its run published.

    ``ticket``: the number of the ticket, of which a correct service has one. ``attempt``: that it has claimed.
    """

    do: Do = Do.NOTHING
    ticket: int = 0
    attempt: int = 0
    knows: bool = False


class Log(NamedTuple):
    """``marked``: the service knows that the ticket is sent. ``sent``: tickets. ``attempt``: the last one of each.

    ``live``: tickets whose last claim has not expired. ``published``: publications of the dataset. ``counted``: reports
    of the first one. ``end``: how the first ticket ended. ``ends``: how many different ends were reported for it.
    ``runs``: tickets whose run came to its end.
    """

    marked: bool = False
    sent: frozenset[int] = frozenset()
    attempt: tuple[int, int] = (0, 0)
    live: frozenset[int] = frozenset()
    published: int = 0
    counted: int = 0
    ended: frozenset[int] = frozenset()
    ends: int = 0
    runs: frozenset[int] = frozenset()
    starts: int = 0


Move = tuple[Log, Actor]
IDLE = Actor()


@dataclass(frozen=True)
class Tickets:
    """The protocol. The ticket's id is stored before the ticket is sent. A report of an attempt that is not the last is
    refused. Publications are counted from the ledger, by their ids, before the end is reported.
    """

    processes: int = 3
    reads_again: ClassVar[bool] = False
    idle: ClassVar[Actor] = IDLE
    start: ClassVar[Log] = Log()

    def list_moves(self, world: Log, mover: Actor) -> Iterator[Move]:
        if mover.do is not Do.NOTHING:
            yield world, IDLE
        match mover.do:
            case Do.NOTHING:
                yield from self.begin(world)
            case Do.SEND:
                after = world._replace(sent=world.sent | {mover.ticket})
                yield after, mover._replace(do=Do.MARK)
                yield after, IDLE
            case Do.MARK:
                yield world._replace(marked=True), IDLE
            case Do.CLAIM:
                yield from self.claim(world, mover)
            case Do.RUN:
                yield from self.run(world, mover)
            case Do.COUNT:
                yield from self.count(world, mover)
            case Do.END:
                yield from self.end(world, mover)

    def begin(self, world: Log) -> Iterator[Move]:
        if world.starts == STARTS_MAX:
            return
        begun = world._replace(starts=world.starts + 1)
        if not world.marked:
            yield begun, Actor(Do.SEND, self.choose_ticket(world))
        for ticket in world.sent - world.ended:
            if ticket not in world.live and world.attempt[ticket] < ATTEMPTS_MAX:
                yield begun, Actor(Do.CLAIM, ticket)

    def choose_ticket(self, world: Log) -> int:
        del world
        return 0

    def claim(self, world: Log, mover: Actor) -> Iterator[Move]:
        """An INSERT of the next attempt: only one process makes it."""
        if mover.ticket in world.live or mover.ticket in world.ended:
            return
        attempts = list(world.attempt)
        attempts[mover.ticket] += 1
        after = world._replace(attempt=tuple(attempts), live=world.live | {mover.ticket})
        yield after, mover._replace(do=Do.RUN, attempt=attempts[mover.ticket])
        yield after, IDLE

    def run(self, world: Log, mover: Actor) -> Iterator[Move]:
        """Read and publish, or find that all is published. A run may also fail, and leave the rest to an attempt."""
        again = int(self.reads_again and world.published == 1)
        after = world._replace(published=max(world.published, 1) + again, runs=world.runs | {mover.ticket})
        yield after, mover._replace(do=Do.COUNT, knows=not world.published)
        yield after, IDLE

    def count(self, world: Log, mover: Actor) -> Iterator[Move]:
        if not self.may_report(world, mover):
            return
        after = world._replace(counted=self.counted(world, mover))
        yield after, mover._replace(do=Do.END)
        yield after, mover

    def counted(self, world: Log, mover: Actor) -> int:
        """A publication of the ledger has an id: its report is there once."""
        del mover
        return max(world.counted, min(world.published, 1))

    def end(self, world: Log, mover: Actor) -> Iterator[Move]:
        if not self.may_report(world, mover):
            return
        after = world._replace(ended=world.ended | {mover.ticket}, ends=world.ends + 1)
        yield after, IDLE
        yield after, mover

    def may_report(self, world: Log, mover: Actor) -> bool:
        """A lock on the ticket: it has not ended, and the attempt is its last one."""
        return mover.ticket not in world.ended and mover.attempt == world.attempt[mover.ticket]

    def list_changes(self, world: Log) -> Iterator[Log]:
        for ticket in world.live:
            yield world._replace(live=world.live - {ticket})

    def find_fault(self, world: Log, mover: Actor) -> str | None:
        del mover
        if world.ended and not world.published:
            return "LOST"
        if world.counted > 1 or (world.ended and world.counted != 1):
            return "MISCOUNTED"
        if world.published > 1 and len(world.runs) == 1:
            return "READ TWICE"
        if world.ends > 1:
            return "ENDED TWICE"
        return "DONE TWICE" if len(world.runs) > 1 else None


@dataclass(frozen=True)
class NamesAtEachTry(Tickets):
    """The id is made for each send: a lost acknowledgement sends a second ticket."""

    def choose_ticket(self, world: Log) -> int:
        return min(len(world.sent), 1)


@dataclass(frozen=True)
class CountsWhatItKnows(Tickets):
    """The run reports the publications that it has made, and not those of the ledger."""

    def counted(self, world: Log, mover: Actor) -> int:
        return max(world.counted, int(mover.knows))


@dataclass(frozen=True)
class CountsWithoutIds(Tickets):
    def counted(self, world: Log, mover: Actor) -> int:
        del mover
        return world.counted + min(world.published, 1)


@dataclass(frozen=True)
class TakesLateReports(Tickets):
    """An attempt whose claim has expired, and been followed, still reports."""

    def may_report(self, world: Log, mover: Actor) -> bool:
        del world, mover
        return True


@dataclass(frozen=True)
class EndsBeforeItRuns(Tickets):
    """The claim itself says that the work is done."""

    def claim(self, world: Log, mover: Actor) -> Iterator[Move]:
        for after, moved in super().claim(world, mover):
            yield after._replace(ended=after.ended | {mover.ticket}, ends=after.ends + 1), moved


@dataclass(frozen=True)
class ReadsAgain(Tickets):
    """An attempt publishes the whole dataset again, although an attempt before it has published it."""

    reads_again: ClassVar[bool] = True
