"""One flow's schedule, as values: nodes that fire it, requests that change it, and executions that begin and end.

Time is the count of moments that have passed by the database's clock. The schedule has a slot at each moment; an update
may leave it slots at even moments only, or
change something else. A node looks, plans from what it saw, and fires by one statement that compares.
Any process may die or be paused anywhere, and each write may take effect and say error. Each slot is accounted once: it
runs, it is left to a later one, it waits, or it is skipped. Faults: a slot that nobody accounted, or that two did; one
before its time; one that the schedule of now does not have; two executions of a slot; two open ones, or more than may
overlap; a start while the flow is paused or gone.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, NamedTuple

MOMENTS = 4
STARTS_MAX = 4
OVERLAPS_MAX = 2
CHANGES_MAX = 2


class Slot(StrEnum):
    """What became of a slot. ``NONE``: it is not accounted."""

    NONE = "."
    RUN = "R"
    WAITING = "W"
    COALESCED = "C"
    SKIPPED = "S"


class Seen(NamedTuple):
    """A node, and what its look saw. ``until``: slots up to here were due. ``opens``: an execution was open then.

    ``fires``: it has a plan to fire. ``begins``: it begins the execution of the slot that waits, ``next``.
    ``has_moved``: of a node that writes in two statements, the first one is done.
    """

    fires: bool = False
    begins: bool = False
    version: int = 0
    is_sparse: bool = False
    next: int = 0
    until: int = -1
    opens: bool = False
    has_moved: bool = False


class Flow(NamedTuple):
    """``clock``: the moment that has come. ``next``: the first slot that is not accounted. ``due``: slots that came.

    ``slots``: of each moment. ``made``: how many executions each slot has. ``accounts``: how often it was accounted.
    ``open``: executions that are open. ``beside``: those that others may be open beside, as they may while it
    ``overlaps``. ``wrong``: what was done that must not be.
    """

    clock: int = 0
    version: int = 0
    is_sparse: bool = False
    next: int = 0
    due: frozenset[int] = frozenset({0})
    slots: tuple[Slot, ...] = (Slot.NONE,) * MOMENTS
    accounts: tuple[int, ...] = (0,) * MOMENTS
    made: tuple[int, ...] = (0,) * MOMENTS
    open: int = 0
    beside: int = 0
    overlaps: bool = False
    is_paused: bool = False
    is_gone: bool = False
    starts: int = 0
    changes: int = 0
    wrong: str = ""

    def has(self, slot: int) -> bool:
        """Whether the schedule has the slot."""
        return not self.is_sparse or slot % 2 == 0

    def follow(self, slot: int) -> int:
        """The first slot behind one."""
        return next(each for each in range(slot + 1, MOMENTS + 2) if self.has(each))

    def account(self, slot: int, state: Slot) -> "Flow":
        slots, accounts = list(self.slots), list(self.accounts)
        slots[slot] = state
        accounts[slot] += 1
        return self._replace(slots=tuple(slots), accounts=tuple(accounts))

    def turn(self, slot: int, state: Slot) -> "Flow":
        """A slot that waits becomes something else."""
        return self._replace(slots=(*self.slots[:slot], state, *self.slots[slot + 1 :]))

    def execute(self, slot: int) -> "Flow":
        made = list(self.made)
        made[slot] += 1
        wrong = "STARTED THOUGH PAUSED" if self.is_paused else "STARTED THOUGH GONE" if self.is_gone else self.wrong
        begun = self._replace(made=tuple(made), wrong=wrong)
        if self.overlaps:
            if self.open + self.beside >= OVERLAPS_MAX:
                begun = begun._replace(wrong="MORE ARE OPEN THAN MAY OVERLAP")
            return begun._replace(beside=self.beside + 1)
        return begun._replace(open=self.open + 1, wrong="TWO ARE OPEN" if self.beside else wrong)


Move = tuple[Flow, Seen]
IDLE = Seen()


@dataclass(frozen=True)
class Schedules:
    """The protocol. ``catch_up`` latest: all due slots but the last are COALESCED. A fire is one statement: if version
    and next slot are as the look saw them, it moves the next slot, accounts all that were due, and begins an execution.
    That no second one is open is a condition of the insert itself; then the slot waits (``queues``), or is skipped.
    """

    processes: int = 2
    queues: bool = True
    takes_all: bool = False
    idle: ClassVar[Seen] = IDLE
    start: ClassVar[Flow] = Flow()

    def list_moves(self, world: Flow, mover: Seen) -> Iterator[Move]:
        if mover != IDLE:
            yield world, IDLE
        if mover.fires:
            yield from self.fire(world, mover)
        elif mover.begins:
            yield from self.begin(world, mover)
        else:
            yield from self.look(world)

    def look(self, world: Flow) -> Iterator[Move]:
        if world.starts == STARTS_MAX or world.is_gone or world.is_paused:
            return
        begun = world._replace(starts=world.starts + 1)
        seen = Seen(version=world.version, is_sparse=world.is_sparse, opens=world.open > 0)
        seen = seen._replace(until=self.read_clock(world))
        if world.next <= seen.until:
            yield begun, seen._replace(fires=True, next=world.next)
        if Slot.WAITING in world.slots and not self.is_full(world):
            yield begun, seen._replace(begins=True, next=world.slots.index(Slot.WAITING))

    def read_clock(self, world: Flow) -> int:
        """The database's, in the statement that looks."""
        return world.clock

    def list_due(self, world: Flow, mover: Seen) -> list[int]:
        return [each for each in range(mover.next, mover.until + 1) if not mover.is_sparse or each % 2 == 0]

    def fire(self, world: Flow, mover: Seen) -> Iterator[Move]:
        if not self.compares(world, mover):
            return
        after = self.store(world, mover)
        yield after, IDLE
        yield after, mover  # the acknowledgement is lost: the node repeats the statement

    def compares(self, world: Flow, mover: Seen) -> bool:
        is_as_seen = (world.version, world.next) == (mover.version, mover.next)
        return is_as_seen and not world.is_paused and not world.is_gone

    def store(self, world: Flow, mover: Seen) -> Flow:
        due = self.list_due(world, mover)
        if mover.version != world.version:
            world = world._replace(wrong="AS AN OLD VERSION SAYS")
        after = self.move(world, due)
        if self.takes_all:
            return self._queue_all(after, due)
        for slot in due[:-1]:
            after = after.account(slot, Slot.COALESCED)
        for slot in range(MOMENTS):
            # A newer slot takes the place of one that waits.
            if after.slots[slot] is Slot.WAITING:
                after = after.turn(slot, Slot.COALESCED)
        return self._insert(after, due[-1], mover)

    def move(self, world: Flow, due: list[int]) -> Flow:
        return world._replace(next=world.follow(due[-1]))

    def _queue_all(self, world: Flow, due: list[int]) -> Flow:
        """Each slot gets its own execution: the first one at once if none waits before it, and none is open."""
        for slot in due:
            if Slot.WAITING in world.slots or self.is_full(world):
                world = world.account(slot, Slot.WAITING)
            else:
                world = world.account(slot, Slot.RUN).execute(slot)
        return world

    def _insert(self, world: Flow, slot: int, mover: Seen) -> Flow:
        if self.finds_open(world, mover):
            return world.account(slot, Slot.WAITING if self.queues else Slot.SKIPPED)
        return world.account(slot, Slot.RUN).execute(slot)

    def finds_open(self, world: Flow, mover: Seen) -> bool:
        """By a unique index: the insert conflicts with an open execution that came behind the look."""
        del mover
        return self.is_full(world)

    def is_full(self, world: Flow) -> bool:
        """No execution may begin beside those that are open."""
        return world.open + world.beside >= (OVERLAPS_MAX if world.overlaps else 1)

    def begin(self, world: Flow, mover: Seen) -> Iterator[Move]:
        """Begin the slot that waits longest, if it waits still."""
        if world.is_paused or world.is_gone or self.is_full(world) or not self.waits(world, mover.next):
            return
        after = world.turn(mover.next, Slot.RUN).execute(mover.next)
        yield after, IDLE
        yield after, mover

    def waits(self, world: Flow, slot: int) -> bool:
        return world.slots[slot] is Slot.WAITING

    def list_changes(self, world: Flow) -> Iterator[Flow]:
        if world.clock < MOMENTS - 1:
            moment = world.clock + 1
            comes = {moment} if world.has(moment) and not world.is_gone else set()
            yield world._replace(clock=moment, due=world.due | comes)
        if world.open:
            yield world._replace(open=world.open - 1)
        if world.beside:
            yield world._replace(beside=world.beside - 1)
        if world.changes == CHANGES_MAX or world.is_gone:
            return
        changed = world._replace(changes=world.changes + 1)
        yield changed._replace(is_paused=not world.is_paused)
        yield changed._replace(version=world.version + 1)
        if not world.is_sparse:
            yield self.update(changed)
        yield self.end_waiting(self.close(changed)._replace(is_gone=True))
        if world.overlaps:
            yield changed._replace(version=world.version + 1, overlaps=False)
        if not world.open and not world.beside:
            # Somebody asks for a run: of no slot.
            yield changed._replace(open=1)

    def update(self, world: Flow) -> Flow:
        """A version with another schedule: its first slot is behind now, and behind all that were accounted."""
        closed = self.close(world)
        behind = max((each for each in range(MOMENTS) if closed.accounts[each]), default=-1)
        sparse = closed._replace(version=world.version + 1, is_sparse=True)
        return sparse._replace(next=sparse.follow(max(world.clock, behind)))

    def close(self, world: Flow) -> Flow:
        """Whoever ends a schedule accounts what was due and not fired: in the transaction of the change."""
        for slot in range(world.next, world.clock + 1):
            if world.has(slot):
                world = world.account(slot, Slot.SKIPPED)
        return world._replace(next=max(world.next, world.follow(world.clock)))

    def end_waiting(self, world: Flow) -> Flow:
        for slot in range(MOMENTS):
            if world.slots[slot] is Slot.WAITING:
                world = world.turn(slot, Slot.SKIPPED)
        return world

    def find_fault(self, world: Flow, mover: Seen) -> str | None:
        del mover
        if world.wrong:
            return world.wrong
        for slot in range(MOMENTS):
            if world.accounts[slot] and slot not in world.due:
                return "NO SLOT, OR BEFORE ITS TIME"
            if world.accounts[slot] > 1:
                return "ACCOUNTED TWICE"
            if world.made[slot] != (world.slots[slot] is Slot.RUN):
                return "EXECUTED OTHERWISE THAN ACCOUNTED"
            if slot in world.due and not world.accounts[slot] and (slot < world.next or world.is_gone):
                return "LOST"
        if world.is_gone and Slot.WAITING in world.slots:
            return "WAITS FOR EVER"
        return "TWO ARE OPEN" if world.open > 1 else None


@dataclass(frozen=True)
class Overlapping(Schedules):
    """The flow may overlap at first, with all slots that it has missed."""

    processes: int = 1
    takes_all: bool = True
    start: ClassVar[Flow] = Flow(overlaps=True)


@dataclass(frozen=True)
class CountsBeforeItBegins(Overlapping):
    """Each execution of a fire counts what was open before the statement."""

    def _queue_all(self, world: Flow, due: list[int]) -> Flow:
        is_full = Slot.WAITING in world.slots or self.is_full(world)
        for slot in due:
            world = world.account(slot, Slot.WAITING) if is_full else world.account(slot, Slot.RUN).execute(slot)
        return world


@dataclass(frozen=True)
class ForgetsWhatOverlapped(Overlapping):
    """The index of executions that are alone does not have those that began as the flow might overlap."""

    def is_full(self, world: Flow) -> bool:
        return world.open + world.beside >= OVERLAPS_MAX if world.overlaps else world.open > 0


@dataclass(frozen=True)
class ComparesWithoutVersion(Schedules):
    """An update that leaves the schedule as it is leaves the next slot as well."""

    def compares(self, world: Flow, mover: Seen) -> bool:
        return world.next == mover.next and not world.is_paused and not world.is_gone


@dataclass(frozen=True)
class ComparesVersionAlone(Schedules):
    def compares(self, world: Flow, mover: Seen) -> bool:
        return world.version == mover.version and not world.is_paused and not world.is_gone


@dataclass(frozen=True)
class ComparesAtTheLookAlone(Schedules):
    """A pause or a deletion behind the look is not seen."""

    def compares(self, world: Flow, mover: Seen) -> bool:
        return (world.version, world.next) == (mover.version, mover.next)


@dataclass(frozen=True)
class ReadsItsOwnClock(Schedules):
    """The clock of a node is fast."""

    def read_clock(self, world: Flow) -> int:
        return min(world.clock + 1, MOMENTS - 1)


@dataclass(frozen=True)
class MovesBehindNow(Schedules):
    """The next slot is the first one behind the time of the fire, and not behind the slots of the look."""

    def move(self, world: Flow, due: list[int]) -> Flow:
        return world._replace(next=world.follow(max(world.clock, due[-1])))


@dataclass(frozen=True)
class MovesBeforeItAccounts(Schedules):
    """``next_fire_at`` is written by one statement, and the slots by another one behind it."""

    def fire(self, world: Flow, mover: Seen) -> Iterator[Move]:
        if mover.has_moved:
            yield self.store(world, mover), IDLE
        elif self.compares(world, mover):
            yield self.move(world, self.list_due(world, mover)), mover._replace(has_moved=True)


@dataclass(frozen=True)
class AccountsBeforeItMoves(Schedules):
    """The other order: slots and execution first, then ``next_fire_at``."""

    def fire(self, world: Flow, mover: Seen) -> Iterator[Move]:
        if mover.has_moved:
            yield self.move(world, self.list_due(world, mover)), IDLE
        elif self.compares(world, mover):
            yield self.store(world, mover)._replace(next=world.next), mover._replace(has_moved=True)


@dataclass(frozen=True)
class LooksForOpenExecutions(Schedules):
    """Whether an execution is open is what the look saw: an index does not keep a second one out."""

    def finds_open(self, world: Flow, mover: Seen) -> bool:
        del world
        return mover.opens


@dataclass(frozen=True)
class BeginsWhatItSaw(Schedules):
    """The slot that waited at the look begins, whatever became of it."""

    def waits(self, world: Flow, slot: int) -> bool:
        del world, slot
        return True


@dataclass(frozen=True)
class UpdatesForgetDueSlots(Schedules):
    """A new schedule begins behind now, and nobody asks for what was due by the old one."""

    def update(self, world: Flow) -> Flow:
        sparse = world._replace(version=world.version + 1, is_sparse=True)
        return sparse._replace(next=sparse.follow(world.clock))


@dataclass(frozen=True)
class UpdatesBeginAtNow(Schedules):
    """The new schedule has the moment of the update, which the old one has accounted."""

    def update(self, world: Flow) -> Flow:
        sparse = self.close(world)._replace(version=world.version + 1, is_sparse=True)
        return sparse._replace(next=sparse.follow(world.clock - 1))


@dataclass(frozen=True)
class DeletionsLeaveWhatWaits(Schedules):
    def end_waiting(self, world: Flow) -> Flow:
        return world
