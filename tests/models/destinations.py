"""One sealed batch of a lane and the processes that execute it, one of them perhaps a zombie, at a destination that is
no file system, as values: the worlds of an exhaustive search.

The destination keeps one mark of the lane. A process may die or be paused anywhere, and each call may take effect and
say error. Faults: the rows are there twice; the log has the batch as done, and the rows are not there; the batch was
given up, and the rows are there.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, NamedTuple

from gobblin_assets.commit.steps import StepVerdict
from gobblin_assets.destinations.lane_marks import LaneMark, decide_load

BATCH = "batch"
STARTS_MAX = 3


class Do(StrEnum):
    """What a process does next."""

    NOTHING = "nothing"
    INIT = "init"
    LOOK = "look"
    BEGIN = "begin"
    COMMIT = "commit"
    WRITE = "write"
    MARK = "mark"
    FINISH = "finish"
    BAR = "bar"
    GIVE_UP = "give_up"


class Executor(NamedTuple):
    """``epoch``: of its producer. ``snapshot``: the one that it looked at."""

    do: Do = Do.NOTHING
    epoch: int = 0
    snapshot: int = 0


class Destination(NamedTuple):
    """``rows``: committed copies of the batch. ``mark``: what says that it is there. ``barred``: it must not come.

    ``done`` and ``given_up``: in the log. ``epoch``, ``open``: of Kafka, the newest producer's epoch, and the epochs
    with an open transaction. ``snapshot``, ``expired``: of Iceberg.
    """

    rows: int = 0
    mark: bool = False
    barred: bool = False
    done: bool = False
    given_up: bool = False
    epoch: int = 0
    open: frozenset[int] = frozenset()
    snapshot: int = 0
    expired: int = 0
    starts: int = 0
    abandonments: int = 0

    @property
    def is_over(self) -> bool:
        return self.done or self.given_up


Move = tuple[Destination, Executor]
IDLE = Executor()


@dataclass(frozen=True)
class Loads:
    """What every destination has in common. ``abandonments``: how often a person may begin to give the batch up."""

    abandonments: int = 0
    processes: int = 2
    idle: ClassVar[Executor] = IDLE
    start: ClassVar[Destination] = Destination()
    first: ClassVar[Do] = Do.LOOK

    def list_moves(self, world: Destination, mover: Executor) -> Iterator[Move]:
        if mover.do is not Do.NOTHING:
            yield world, IDLE
        match mover.do:
            case Do.NOTHING:
                if world.starts < STARTS_MAX and not world.is_over:
                    yield world._replace(starts=world.starts + 1), Executor(self.first)
                if world.abandonments < self.abandonments and not world.is_over:
                    yield world._replace(abandonments=world.abandonments + 1), Executor(Do.BAR)
            case Do.FINISH:
                # The log refuses a finish of what was given up.
                yield (world if world.given_up else world._replace(done=True)), IDLE
            case Do.BAR:
                yield from self.bar(world)
            case Do.GIVE_UP:
                yield (world if world.done else world._replace(given_up=True)), IDLE
            case _:
                yield from self.load(world, mover)

    def bar(self, world: Destination) -> Iterator[Move]:
        """In one transaction: the mark says that the batch is there, or it refuses the batch from now on."""
        if self.sees_mark(world):
            yield world, IDLE
        else:
            yield world._replace(barred=True), Executor(Do.GIVE_UP)

    def decide(self, world: Destination) -> StepVerdict:
        """As the product does it. The batch is the lane's first."""
        seen = self.sees_mark(world)
        mark = LaneMark(int(seen), (BATCH,) if seen else (), (BATCH,) if world.barred else ())
        return decide_load(mark, 1, BATCH)

    def sees_mark(self, world: Destination) -> bool:
        return world.mark

    def load(self, world: Destination, mover: Executor) -> Iterator[Move]:
        raise NotImplementedError

    def list_changes(self, world: Destination) -> Iterator[Destination]:
        del world
        return iter(())

    def find_fault(self, world: Destination, mover: Executor) -> str | None:
        del mover
        if world.rows > 1:
            return "DUPLICATE"
        if world.done and not world.rows:
            return "LOST"
        return "PHANTOM" if world.given_up and world.rows else None

    def written(self, world: Destination) -> Destination:
        """The rows are there, and the mark, if it belongs to them."""
        return world._replace(rows=world.rows + 1, mark=True)


@dataclass(frozen=True)
class TableLoads(Loads):
    """Rows and mark in one transaction; the mark is compared and set."""

    def load(self, world: Destination, mover: Executor) -> Iterator[Move]:
        if mover.do is Do.LOOK:
            match self.decide(world):
                case StepVerdict.DONE:
                    yield world, Executor(Do.FINISH)
                case StepVerdict.DO:
                    yield world, Executor(Do.WRITE)
                case _:
                    pass
        elif mover.do is Do.WRITE:
            yield from self.write(world)
        else:
            yield world._replace(mark=True), Executor(Do.FINISH)

    def write(self, world: Destination) -> Iterator[Move]:
        if self.decide(world) is not StepVerdict.DO:
            yield world, Executor(Do.LOOK)
            return
        yield self.written(world), Executor(Do.FINISH)
        yield self.written(world), Executor(Do.LOOK)


@dataclass(frozen=True)
class LooksFirst(TableLoads):
    """The mark was looked at, and is not compared again."""

    def write(self, world: Destination) -> Iterator[Move]:
        yield self.written(world), Executor(Do.FINISH)
        yield self.written(world), Executor(Do.LOOK)


@dataclass(frozen=True)
class TwoTransactions(TableLoads):
    def write(self, world: Destination) -> Iterator[Move]:
        if self.decide(world) is StepVerdict.DO:
            yield world._replace(rows=world.rows + 1), Executor(Do.MARK)
        else:
            yield world, Executor(Do.LOOK)


@dataclass(frozen=True)
class NoMark(TableLoads):
    def written(self, world: Destination) -> Destination:
        return world._replace(rows=world.rows + 1)


@dataclass(frozen=True)
class GivesUpByTheLog(TableLoads):
    """Whoever gives up looks whether the rows are there, and tells the destination nothing."""

    def bar(self, world: Destination) -> Iterator[Move]:
        yield world, IDLE if self.sees_mark(world) else Executor(Do.GIVE_UP)


@dataclass(frozen=True)
class GivesUpBeforeItAsks(TableLoads):
    """The decision is recorded first, and the destination is told after that."""

    def bar(self, world: Destination) -> Iterator[Move]:
        yield (world if world.done else world._replace(given_up=True, barred=True)), IDLE


@dataclass(frozen=True)
class TopicLoads(Loads):
    """Kafka: a new epoch fences older producers and ends their transactions; only then the mark is looked at."""

    first: ClassVar[Do] = Do.INIT
    after_init: ClassVar[Do] = Do.LOOK

    def load(self, world: Destination, mover: Executor) -> Iterator[Move]:
        match mover.do:
            case Do.INIT:
                yield self.fenced(world), Executor(self.after_init, world.epoch + 1)
            case Do.LOOK:
                yield from self.look(world, mover)
            case Do.BEGIN if mover.epoch == world.epoch:
                yield world._replace(open=world.open | {mover.epoch}), mover._replace(do=Do.COMMIT)
            case Do.COMMIT if mover.epoch == world.epoch and mover.epoch in world.open:
                after = self.written(world._replace(open=world.open - {mover.epoch}))
                yield after, Executor(Do.FINISH)
                yield after, Executor(Do.LOOK, mover.epoch)

    def fenced(self, world: Destination) -> Destination:
        return world._replace(epoch=world.epoch + 1, open=frozenset())

    def look(self, world: Destination, mover: Executor) -> Iterator[Move]:
        match self.decide(world):
            case StepVerdict.DONE:
                yield world, Executor(Do.FINISH)
            case StepVerdict.DO:
                yield world, mover._replace(do=Do.BEGIN)
            case _:
                pass

    def bar(self, world: Destination) -> Iterator[Move]:
        """By a producer of its own: its epoch fences what was open."""
        yield from super().bar(self.fenced(world))


@dataclass(frozen=True)
class LooksBeforeInit(TopicLoads):
    first: ClassVar[Do] = Do.LOOK
    after_init: ClassVar[Do] = Do.BEGIN

    def look(self, world: Destination, mover: Executor) -> Iterator[Move]:
        del mover
        yield world, Executor(Do.FINISH if self.decide(world) is StepVerdict.DONE else Do.INIT)


@dataclass(frozen=True)
class TopicWithoutMark(TopicLoads):
    def written(self, world: Destination) -> Destination:
        return world._replace(rows=world.rows + 1)


@dataclass(frozen=True)
class ReadsUncommitted(TopicLoads):
    def sees_mark(self, world: Destination) -> bool:
        return world.mark or bool(world.open)


@dataclass(frozen=True)
class SnapshotLoads(Loads):
    """Iceberg: appended to the snapshot that was looked at, with the mark as a property of the table.

    Somebody else appends too. ``expirations``: of snapshots.
    """

    expirations: int = 0

    def load(self, world: Destination, mover: Executor) -> Iterator[Move]:
        if mover.do is Do.LOOK:
            match self.decide(world):
                case StepVerdict.DONE:
                    yield world, Executor(Do.FINISH)
                case StepVerdict.DO:
                    yield world, Executor(Do.WRITE, snapshot=world.snapshot)
                case _:
                    pass
        elif self.may_append(world, mover):
            after = self.written(world._replace(snapshot=world.snapshot + 1))
            yield after, Executor(Do.FINISH)
            yield after, Executor(Do.LOOK)
        else:
            yield world, Executor(Do.LOOK)

    def bar(self, world: Destination) -> Iterator[Move]:
        """A commit of its own, on the snapshot that was looked at."""
        yield from super().bar(world if self.sees_mark(world) else world._replace(snapshot=world.snapshot + 1))

    def may_append(self, world: Destination, mover: Executor) -> bool:
        return mover.snapshot == world.snapshot

    def list_changes(self, world: Destination) -> Iterator[Destination]:
        if world.snapshot < 2 and not world.is_over:
            yield world._replace(snapshot=world.snapshot + 1)
        if world.expired < self.expirations and world.snapshot > 0:
            yield self.without_old_snapshots(world._replace(expired=world.expired + 1))

    def without_old_snapshots(self, world: Destination) -> Destination:
        return world


@dataclass(frozen=True)
class RetriesOnNewerSnapshot(SnapshotLoads):
    def may_append(self, world: Destination, mover: Executor) -> bool:
        del world, mover
        return True


@dataclass(frozen=True)
class MarkInSnapshot(SnapshotLoads):
    def without_old_snapshots(self, world: Destination) -> Destination:
        return world._replace(mark=False)
