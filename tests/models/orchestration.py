"""One job of an execution over several tickets: those that are moved from executors that died, and those of retries.

A ticket is a claim's, and a run's effect is a lease's and the ledger's, as other models prove. Here the service decides
that a job needs another ticket: since its ticket failed and may pass, or since nobody is heard who would take it. Any
process may die or be paused anywhere, each write may take effect and say error, and each claim and lease expires at any
time. So an executor that was taken for dead may come back, and go on where it was.

Faults: two tickets of the job that are open at once; a ticket that is claimed although it has ended; a claim that lives
and is taken away; a job that is published again for another ticket; one that ends although nothing ended it, or that
waits for a ticket that is not there.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, NamedTuple

TICKETS_MAX = 3
ATTEMPTS_MAX = 2
STARTS_MAX = 6


class Step(StrEnum):
    """What a process does next."""

    NOTHING = "nothing"
    BEGIN = "begin"
    SEND = "send"
    MARK = "mark"
    DECIDE = "decide"
    WITHDRAW = "withdraw"
    FOLD = "fold"
    CLAIM = "claim"
    LEASE = "lease"
    PUBLISH = "publish"
    END = "end"


class State(StrEnum):
    """Of the job, as the service has it. PENDING: its ticket is to be sent."""

    PENDING = "pending"
    SENT = "sent"
    COMPLETE = "complete"
    FAILED = "failed"
    CANCELLED = "cancelled"


class End(StrEnum):
    """Of a ticket, as the log has it. WITHDRAWN: it was ended since nobody worked on it."""

    OPEN = "open"
    COMPLETE = "complete"
    FAILED = "failed"
    WITHDRAWN = "withdrawn"


class Worker(NamedTuple):
    """A process of the service, or of an executor. ``read``: the end that it has read of the ticket.

    ``found``: what was published when its run began.
    """

    step: Step = Step.NOTHING
    ticket: int = 0
    attempt: int = 0
    read: End = End.OPEN
    found: int = 0


class Job(NamedTuple):
    """The service's row (``state``, ``ticket``, ``is_moving``) and the log.

    ``is_moving``: the end of the ticket was asked for, so that another executor gets one. ``sent``: tickets in the log;
    ``ends`` and ``attempts`` of each; ``live``: those whose last claim has not expired. ``lease``: the ticket and the
    attempt that have the dataset. ``published``: how often. ``slip``: what must never happen, and did.
    """

    state: State = State.PENDING
    ticket: int = 0
    is_moving: bool = False
    sent: frozenset[int] = frozenset()
    ends: tuple[End, ...] = (End.OPEN,) * TICKETS_MAX
    attempts: tuple[int, ...] = (0,) * TICKETS_MAX
    live: frozenset[int] = frozenset()
    lease: tuple[int, int] | None = None
    published: int = 0
    folded: frozenset[int] = frozenset()
    starts: int = 0
    slip: str = ""


Next = tuple[Job, Worker]
RESTING = Worker()


def _put(values: tuple[End, ...], number: int, value: End) -> tuple[End, ...]:
    return (*values[:number], value, *values[number + 1 :])


@dataclass(frozen=True)
class Orchestration:
    """The protocol. What the service knows changes only by the number of the ticket that it was decided for.

    A move is decided in the service's row, then asked of the log, and done only when the log says that the ticket has
    ended. The next ticket's run leaves out what earlier ones have published.
    """

    processes: int = 3
    knows_earlier: ClassVar[bool] = True
    idle: ClassVar[Worker] = RESTING
    start: ClassVar[Job] = Job()

    def list_moves(self, world: Job, mover: Worker) -> Iterator[Next]:
        if mover.step is Step.NOTHING:
            if world.starts < STARTS_MAX:
                begun = world._replace(starts=world.starts + 1)
                for chosen in self.choose(world):
                    yield begun, chosen
            return
        yield world, RESTING
        steps = {
            Step.BEGIN: self.begin,
            Step.SEND: self.send,
            Step.MARK: self.mark,
            Step.DECIDE: self.decide,
            Step.WITHDRAW: self.withdraw,
            Step.FOLD: self.fold,
            Step.CLAIM: self.claim,
            Step.LEASE: self.lease,
            Step.PUBLISH: self.publish,
            Step.END: self.end,
        }
        yield from steps[mover.step](world, mover)

    def choose(self, world: Job) -> Iterator[Worker]:
        if world.state is State.PENDING:
            yield Worker(Step.BEGIN, world.ticket)
        if world.state is State.SENT:
            yield Worker(Step.DECIDE, world.ticket)
            if (end := world.ends[world.ticket]) is not End.OPEN:
                yield Worker(Step.FOLD, world.ticket, read=end)
        for ticket in world.sent:
            if world.ends[ticket] is End.OPEN and ticket not in world.live and world.attempts[ticket] < ATTEMPTS_MAX:
                yield Worker(Step.CLAIM, ticket)

    # The service -----------------------------------------------------------------------------------------

    def begin(self, world: Job, mover: Worker) -> Iterator[Next]:
        if self.is_current(world, mover, State.PENDING):
            yield world, mover._replace(step=Step.SEND)

    def send(self, world: Job, mover: Worker) -> Iterator[Next]:
        """A ticket that is there stays as it is, also when it has ended."""
        after = world._replace(sent=world.sent | {mover.ticket})
        yield after, mover._replace(step=Step.MARK)
        yield after, RESTING

    def mark(self, world: Job, mover: Worker) -> Iterator[Next]:
        if self.is_current(world, mover, State.PENDING):
            yield world._replace(state=State.SENT), RESTING

    def decide(self, world: Job, mover: Worker) -> Iterator[Next]:
        """The executor is not heard, and another one may have the job: the row says so first."""
        if self.is_current(world, mover, State.SENT):
            after = world._replace(is_moving=True)
            yield after, mover._replace(step=Step.WITHDRAW)
            yield after, RESTING

    def withdraw(self, world: Job, mover: Worker) -> Iterator[Next]:
        """By the ticket's lock in the log: only what nobody works on is ended."""
        if world.ends[mover.ticket] is End.OPEN and mover.ticket not in world.live:
            yield world._replace(ends=_put(world.ends, mover.ticket, End.WITHDRAWN)), RESTING

    def fold(self, world: Job, mover: Worker) -> Iterator[Next]:
        if not self.is_current(world, mover, State.SENT):
            return
        known = world._replace(folded=world.folded | {mover.ticket})
        if mover.read is End.COMPLETE:
            yield known._replace(state=State.COMPLETE), RESTING
        elif mover.read is End.WITHDRAWN and not world.is_moving:
            yield known._replace(state=State.CANCELLED), RESTING
        elif world.ticket + 1 < TICKETS_MAX:
            yield self.renew(known), RESTING
        else:
            yield known._replace(state=State.FAILED), RESTING

    def renew(self, world: Job) -> Job:
        return world._replace(state=State.PENDING, ticket=world.ticket + 1, is_moving=False)

    def is_current(self, world: Job, mover: Worker, state: State) -> bool:
        return world.ticket == mover.ticket and world.state is state

    # Executors -------------------------------------------------------------------------------------------

    def claim(self, world: Job, mover: Worker) -> Iterator[Next]:
        if not self.may_claim(world, mover.ticket):
            return
        number = world.attempts[mover.ticket] + 1
        attempts = (*world.attempts[: mover.ticket], number, *world.attempts[mover.ticket + 1 :])
        slip = "CLAIMED AFTER ITS END" if world.ends[mover.ticket] is not End.OPEN else world.slip
        after = world._replace(attempts=attempts, live=world.live | {mover.ticket}, slip=slip)
        yield after, mover._replace(step=Step.LEASE, attempt=number)
        yield after, RESTING

    def may_claim(self, world: Job, ticket: int) -> bool:
        return world.ends[ticket] is End.OPEN and ticket not in world.live

    def lease(self, world: Job, mover: Worker) -> Iterator[Next]:
        if world.lease is None:
            after = world._replace(lease=(mover.ticket, mover.attempt))
            yield after, mover._replace(step=Step.PUBLISH, found=world.published)

    def publish(self, world: Job, mover: Worker) -> Iterator[Next]:
        """Fenced by the lease. A run may fail, with or without having published."""
        if world.lease != (mover.ticket, mover.attempt):
            return
        is_done = mover.found and (self.knows_earlier or mover.attempt > 1)
        after = world._replace(published=world.published + (0 if is_done else 1), lease=None)
        for left in (after, world._replace(lease=None)):
            yield left, mover._replace(step=Step.END, read=End.FAILED)
        yield after, mover._replace(step=Step.END, read=End.COMPLETE)

    def end(self, world: Job, mover: Worker) -> Iterator[Next]:
        if world.ends[mover.ticket] is End.OPEN and world.attempts[mover.ticket] == mover.attempt:
            after = world._replace(ends=_put(world.ends, mover.ticket, mover.read), live=world.live - {mover.ticket})
            yield after, RESTING

    def list_changes(self, world: Job) -> Iterator[Job]:
        for ticket in world.live:
            yield world._replace(live=world.live - {ticket})
        if world.lease is not None:
            yield world._replace(lease=None)

    def find_fault(self, world: Job, mover: Worker) -> str | None:
        del mover
        if world.slip:
            return world.slip
        if sum(world.ends[ticket] is End.OPEN for ticket in world.sent) > 1:
            return "TWO OPEN"
        if any(world.ends[ticket] is End.WITHDRAWN for ticket in world.live):
            return "TAKEN AWAY"
        if world.published > 1:
            return "DONE TWICE"
        if world.state is State.COMPLETE and not world.published:
            return "LOST"
        if world.state is State.CANCELLED:
            return "ENDED BY NOBODY"
        is_waiting = world.state is State.SENT and (world.ticket not in world.sent or world.ticket in world.folded)
        return "WAITS FOR NOTHING" if is_waiting else None


@dataclass(frozen=True)
class MovesAtOnce(Orchestration):
    """The next ticket is made when the move is decided, and not when the ticket has ended."""

    def decide(self, world: Job, mover: Worker) -> Iterator[Next]:
        for after, moved in super().decide(world, mover):
            yield (self.renew(after) if world.ticket + 1 < TICKETS_MAX else after), moved


@dataclass(frozen=True)
class EndsClaimed(Orchestration):
    """A ticket of an executor that is not heard is ended although its claim lives."""

    def withdraw(self, world: Job, mover: Worker) -> Iterator[Next]:
        if world.ends[mover.ticket] is End.OPEN:
            yield world._replace(ends=_put(world.ends, mover.ticket, End.WITHDRAWN)), RESTING


@dataclass(frozen=True)
class AsksBeforeItDecides(Orchestration):
    """The log is asked first: who dies before the row says so leaves a ticket that was ended for nothing."""

    def decide(self, world: Job, mover: Worker) -> Iterator[Next]:
        for after, _moved in super().withdraw(world, mover):
            yield after, RESTING
            if self.is_current(world, mover, State.SENT):
                yield after._replace(is_moving=True), RESTING


@dataclass(frozen=True)
class ClaimsWhatHasEnded(Orchestration):
    """A claim looks only at other claims."""

    def may_claim(self, world: Job, ticket: int) -> bool:
        return ticket not in world.live


@dataclass(frozen=True)
class KeepsTheId(Orchestration):
    """A retry sends the same ticket again, which has ended."""

    def renew(self, world: Job) -> Job:
        return world._replace(state=State.PENDING, is_moving=False)


@dataclass(frozen=True)
class ForgetsWhichTicket(Orchestration):
    """Who folds an end, or marks a send, looks at the state alone: it may be that of another ticket."""

    def is_current(self, world: Job, mover: Worker, state: State) -> bool:
        return world.state is state


@dataclass(frozen=True)
class BeginsAnew(Orchestration):
    """The next ticket's run knows what its own attempts have published, and not what an earlier ticket's have."""

    knows_earlier: ClassVar[bool] = False
