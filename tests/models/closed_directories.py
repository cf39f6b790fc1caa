"""One closed directory, and the sequences that change a name in it, as values: a world of the exhaustive search.

Its mode takes the right to write from its owner. A sequence opens it, changes the name, and closes it, or takes all of
this back; a stranger may change the mode, or put another directory in its place. What becomes of the name's contents is
in ``fixed_names``; here it only needs an open directory. Decisions are those of ``named_decisions``.
"""

import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from gobblin_assets.destinations.fixed_names.named_decisions import (
    Act,
    decide_close,
    decide_open,
    decide_open_again,
)

CLOSED = 0o555
STRANGE_MODES = (0o500, 0o711, CLOSED | stat.S_IWUSR)


class Sequence(NamedTuple):
    """The open one. ``closed``: the mode that was planned; None: the directory was open, and nobody changes it.

    ``holder``: the fence that has the attempt's directory; whoever has another one finds no place there.
    """

    number: int
    inode: int
    closed: int | None
    holder: int
    is_abandoning: bool = False


class World(NamedTuple):
    """``name``: the number of the last sequence whose change it has. ``strange``: the mode that a stranger left."""

    mode: int = CLOSED
    inode: int = 1
    name: int = 0
    fence: int = 0
    published: int = 0
    next_number: int = 1
    open: Sequence | None = None
    strange: int | None = None
    acts_left: int = 0


class Doing(StrEnum):
    IDLE = "idle"
    CAPTURE = "capture"
    LOOK = "look"
    CHANGE = "change"
    MOVE = "move"
    END = "end"
    REFUSED = "refused"


class Stage(StrEnum):
    """What a process is at: forwards in this order, backwards in the reverse one."""

    OPEN = "open"
    NAME = "name"
    CLOSE = "close"


FORWARDS = (Stage.OPEN, Stage.NAME, Stage.CLOSE)


class Process(NamedTuple):
    """``seen``: the inode at its last look. ``left``: the stages that are not over, the next one first."""

    doing: Doing = Doing.IDLE
    fence: int = 0
    sequence: Sequence | None = None
    left: tuple[Stage, ...] = ()
    act: Act = Act.DONE
    seen: int = 0


IDLE = Process()
Move = tuple[World, Process]


@dataclass(frozen=True)
class ClosedDirectoryModel:
    """The model, within bounds. ``acts``: how often a stranger changes the mode, or replaces the directory."""

    processes: int = 2
    sequences: int = 2
    fences: int = 4
    acts: int = 0

    @property
    def start(self) -> World:
        return World(acts_left=self.acts)

    @property
    def idle(self) -> Process:
        return IDLE

    def list_moves(self, world: World, process: Process) -> Iterator[Move]:
        if process.doing is Doing.REFUSED:
            return
        if process.doing is not Doing.IDLE:
            # It is killed.
            yield world, IDLE
        moves: dict[Doing, Callable[[World, Process], Iterator[Move]]] = {
            Doing.IDLE: self.begin,
            Doing.CAPTURE: self.capture,
            Doing.LOOK: self.look,
            Doing.CHANGE: self.change,
            Doing.MOVE: self.move,
            Doing.END: self.end,
        }
        yield from moves[process.doing](world, process)

    def list_changes(self, world: World) -> Iterator[World]:
        if not world.acts_left:
            return
        disturbed = world._replace(acts_left=world.acts_left - 1)
        sequence = world.open
        for mode in STRANGE_MODES:
            # Who gives only the right that an open sequence gives as well is not told from it.
            is_known = sequence is None or world.inode != sequence.inode or sequence.closed != mode & ~stat.S_IWUSR
            if mode != world.mode:
                yield disturbed._replace(mode=mode, strange=mode if is_known else None)
        mode = CLOSED | stat.S_IWUSR
        yield disturbed._replace(inode=world.inode + 1, mode=mode, strange=mode)

    def find_fault(self, world: World, process: Process) -> str | None:
        is_undisturbed = world.acts_left == self.acts
        if process.doing is Doing.REFUSED and is_undisturbed:
            return "a sequence waits for a person without a reason"
        if world.open is not None:
            return None
        if world.name != world.published:
            return f"the name holds {world.name}, and the log says {world.published}"
        if is_undisturbed and world.mode != CLOSED:
            return "the directory is open, and no sequence is"
        if world.strange is not None and world.mode != world.strange:
            return f"a stranger's mode {world.strange:o} was overwritten"
        return None

    # --- a sequence

    def begin(self, world: World, process: Process) -> Iterator[Move]:
        """T0, under a new fence: a new sequence, or the open one, to execute it or to take it back."""
        del process
        fence = world.fence + 1
        if fence > self.fences:
            return
        begun = world._replace(fence=fence)
        sequence = world.open
        if sequence is None:
            if world.next_number <= self.sequences:
                closed = None if world.mode & stat.S_IWUSR else world.mode
                sequence = Sequence(world.next_number, world.inode, closed, holder=fence)
                # What was there when it was planned is what it goes back to.
                strange = None if world.strange == world.mode else world.strange
                sealed = begun._replace(open=sequence, next_number=world.next_number + 1, strange=strange)
                yield sealed, Process(Doing.LOOK, fence, sequence, FORWARDS)
            return
        if not sequence.is_abandoning:
            yield begun, Process(Doing.CAPTURE, fence, sequence, FORWARDS)
        given_up = sequence._replace(is_abandoning=True)
        yield begun._replace(open=given_up), Process(Doing.CAPTURE, fence, given_up, FORWARDS[::-1])

    def capture(self, world: World, process: Process) -> Iterator[Move]:
        """It moves up only: from the name of a lower fence to that of a higher one."""
        sequence = world.open
        if sequence is not None and self.is_its(sequence, process) and sequence.holder < process.fence:
            world = world._replace(open=sequence._replace(holder=process.fence))
        yield world, process._replace(doing=Doing.LOOK)

    def is_its(self, sequence: Sequence, process: Process) -> bool:
        return process.sequence is not None and sequence.number == process.sequence.number

    def holds_the_attempt(self, world: World, process: Process) -> bool:
        """Whether the attempt's directory has the name that the process knows."""
        sequence = world.open
        return sequence is not None and self.is_its(sequence, process) and sequence.holder == process.fence

    def look(self, world: World, process: Process) -> Iterator[Move]:
        if not process.left:
            yield world, process._replace(doing=Doing.END)
            return
        stage, *rest = process.left
        sequence = _sequence_of(process)
        if stage is Stage.NAME:
            yield world, process._replace(doing=Doing.MOVE)
            return
        is_there = sequence.closed is not None and self.is_the_directory(world, sequence)
        act = self.decide(stage, sequence, world.mode if is_there else None)
        if act is Act.DONE:
            yield world, process._replace(left=tuple(rest))
        elif act is Act.CONFLICT:
            yield world, self.refuse(world, process)
        else:
            yield world, process._replace(doing=Doing.CHANGE, act=act, seen=world.inode)

    def is_the_directory(self, world: World, sequence: Sequence) -> bool:
        return world.inode == sequence.inode

    def decide(self, stage: Stage, sequence: Sequence, mode: int | None) -> Act:
        closed = sequence.closed or 0
        if stage is Stage.OPEN:
            return decide_close(mode, closed) if sequence.is_abandoning else decide_open(mode, closed)
        return decide_open_again(mode, closed) if sequence.is_abandoning else decide_close(mode, closed)

    def change(self, world: World, process: Process) -> Iterator[Move]:
        """One act: the attempt's directory, the inode and the mode are as they were found, or nothing happens."""
        closed = _sequence_of(process).closed or 0
        old, new = (closed, closed | stat.S_IWUSR) if process.act is Act.OPEN else (closed | stat.S_IWUSR, closed)
        if self.holds_the_attempt(world, process) and world.inode == process.seen and self.is_as_found(world, old):
            world = world._replace(mode=new)
        yield world, process._replace(doing=Doing.LOOK, act=Act.DONE, seen=0)

    def is_as_found(self, world: World, old: int) -> bool:
        return world.mode == old

    def move(self, world: World, process: Process) -> Iterator[Move]:
        """A rename between the attempt and the name: it needs both, and the right to write."""
        sequence = _sequence_of(process)
        wanted = world.published if sequence.is_abandoning else sequence.number
        if world.name == wanted:
            yield world, process._replace(doing=Doing.LOOK, left=process.left[1:])
        elif not self.holds_the_attempt(world, process):
            yield world, IDLE
        elif not world.mode & stat.S_IWUSR:
            yield world, self.refuse(world, process)
        else:
            yield world._replace(name=wanted), process._replace(doing=Doing.LOOK, left=process.left[1:])

    def refuse(self, world: World, process: Process) -> Process:
        """Only the owner's failure counts."""
        return Process(Doing.REFUSED) if self.holds_the_attempt(world, process) else IDLE

    def end(self, world: World, process: Process) -> Iterator[Move]:
        sequence = world.open
        if sequence is not None and self.is_its(sequence, process) and world.fence == process.fence:
            published = world.published if sequence.is_abandoning else sequence.number
            world = world._replace(open=None, published=published)
        yield world, IDLE


def _sequence_of(process: Process) -> Sequence:
    if process.sequence is None:
        raise AssertionError(f"{process.doing} needs a sequence")
    return process.sequence


@dataclass(frozen=True)
class ChangesWithoutTheAttempt(ClosedDirectoryModel):
    """A mode is changed wherever the attempt's directory is."""

    def change(self, world: World, process: Process) -> Iterator[Move]:
        sequence = world.open
        yield from super().change(world, process)
        closed = _sequence_of(process).closed or 0
        if process.act is Act.OPEN and world.mode == closed and (sequence is None or sequence.holder != process.fence):
            yield world._replace(mode=closed | stat.S_IWUSR), IDLE


@dataclass(frozen=True)
class UndoLeavesItOpen(ClosedDirectoryModel):
    """Only what was moved is taken back."""

    def decide(self, stage: Stage, sequence: Sequence, mode: int | None) -> Act:
        is_back = sequence.is_abandoning and stage is Stage.OPEN
        return Act.DONE if is_back else super().decide(stage, sequence, mode)


@dataclass(frozen=True)
class UndoOpensNothing(ClosedDirectoryModel):
    """What is taken back is moved as the directory stands."""

    def decide(self, stage: Stage, sequence: Sequence, mode: int | None) -> Act:
        is_back = sequence.is_abandoning and stage is Stage.CLOSE
        return Act.DONE if is_back else super().decide(stage, sequence, mode)


@dataclass(frozen=True)
class ClosesAnyMode(ClosedDirectoryModel):
    """Whatever mode lets the owner write is taken for the own one."""

    def decide(self, stage: Stage, sequence: Sequence, mode: int | None) -> Act:
        is_open = mode is not None and mode & stat.S_IWUSR and sequence.closed is not None
        return super().decide(stage, sequence, (sequence.closed or 0) | stat.S_IWUSR if is_open else mode)

    def is_as_found(self, world: World, old: int) -> bool:
        return bool(world.mode & stat.S_IWUSR) == bool(old & stat.S_IWUSR)


@dataclass(frozen=True)
class ClosesAnyDirectory(ClosedDirectoryModel):
    """Whatever directory is at the name is taken for the planned one."""

    def is_the_directory(self, world: World, sequence: Sequence) -> bool:
        return True
