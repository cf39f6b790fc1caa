"""The protocol of lanes as a model: every move of a writer, between which it may stop for any time, or for ever.

Each transaction is one move. A writer may be killed before any move, and its lane may be taken at any time, while the
writer knows nothing of it. The answer to a seal or to a finish may be lost, and a file may become visible although the
answer is an error. A person may give an open row up.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from tests.models.lanes import (
    Content,
    Lane,
    LaneWorld,
    Name,
    Range,
    Row,
    Step,
    Writer,
    advanced,
    find_duplicate,
    find_lost,
    find_phantom,
)

Move = tuple[LaneWorld, Writer]
IDLE = Writer()

_KEEPS_THE_SOURCE = {Step.SEAL, Step.SHOW, Step.FINISH, Step.ASK}


class Guard(StrEnum):
    """What a transaction looks at before it changes anything."""

    SEAL_FENCE = "the lane's fence, at the seal"
    SEAL_OPEN = "one open row a lane"
    SEAL_MEMBERS = "the vnodes are the lane's, at the seal"
    SEAL_STARTS = "each start is what is committed, at the seal"
    FINISH_FENCE = "the lane's fence, at the finish"
    FINISH_OPEN = "the row is still open, at the finish"
    MOVE_FENCE = "the mover holds the lane"
    MOVE_OPEN = "no open row covers a vnode that moves"


@dataclass(frozen=True)
class Lanes:
    """The model, within bounds. ``fences``: of each lane. ``empty``: (vnode, epoch) without rows.

    ``abandonments``: how often a person gives a row up. ``without``: guards that are left out.
    """

    vnodes: int = 2
    epochs: int = 2
    lanes: int = 2
    processes: int = 2
    fences: int = 2
    moves: int = 1
    abandonments: int = 0
    empty: frozenset[tuple[int, int]] = frozenset({(1, 1)})
    without: frozenset[Guard] = frozenset()

    @property
    def start(self) -> LaneWorld:
        nowhere = (0,) * self.vnodes
        lanes_of = tuple(frozenset({vnode % self.lanes}) for vnode in range(self.vnodes))
        return LaneWorld(nowhere, lanes_of, (Lane(),) * self.lanes, nowhere)

    @property
    def idle(self) -> Writer:
        return IDLE

    def list_moves(self, world: LaneWorld, writer: Writer) -> Iterator[Move]:
        if writer.step is not Step.IDLE:
            yield self.clean(world, writer, IDLE)
        for after, moved in self._moves[writer.step](world, writer):
            yield self.clean(after, writer, moved)

    def clean(self, world: LaneWorld, before: Writer, after: Writer) -> Move:
        """The source of a writer that gives up before its row stands is removed: nobody can name the source."""
        if before.row is not None and before.step in (Step.STAGE, Step.SEAL) and after.step not in _KEEPS_THE_SOURCE:
            world = world.without_source(before.row)
        return world, after

    @cached_property
    def _moves(self) -> dict[Step, Callable[[LaneWorld, Writer], Iterator[Move]]]:
        return {
            Step.IDLE: self.take,
            Step.RESOLVE: self.resolve,
            Step.READ: self.read,
            Step.STAGE: self.stage,
            Step.SEAL: self.seal,
            Step.STAGE_LATE: self.stage_late,
            Step.ASK: self.ask,
            Step.SHOW: self.show,
            Step.FINISH: self.finish,
            Step.CHECK: self.check,
            Step.CHECK_AGAIN: self.check_again,
            Step.REWIND: self.rewind,
            Step.LOST: self.lose,
            Step.BLOCKED: lambda _world, _writer: iter(()),
        }

    def list_changes(self, world: LaneWorld) -> Iterator[LaneWorld]:
        """A person gives an open row up, under a new fence."""
        if world.abandonments >= self.abandonments:
            return
        for number, lane in enumerate(world.lanes):
            if lane.open is None or lane.fence >= self.fences:
                continue
            taken = world.with_lane(number, Lane(lane.fence + 1))._replace(abandonments=world.abandonments + 1)
            yield from self.give_up(taken, lane.open)

    def give_up(self, world: LaneWorld, row: Row) -> Iterator[LaneWorld]:
        """The source is captured first, so that nobody makes it visible any more."""
        yield world.without_source(row).without_visible(self.name_of(row))

    # --- what must never be

    def find_fault(self, world: LaneWorld, writer: Writer) -> str | None:
        if writer.step is Step.BLOCKED:
            return "BLOCKED: a writer waits for a person without a cause"
        return (
            find_duplicate(world, self.contents_of)
            or find_lost(world, self.contents_of, self.committed_of)
            or self.find_unnamed(world)
        )

    def find_unnamed(self, world: LaneWorld) -> str | None:
        return find_phantom(world, self.name_of)

    def contents_of(self, cut: Range) -> Iterator[Content]:
        for epoch in range(cut.start + 1, cut.end + 1):
            if (cut.vnode, epoch) not in self.empty:
                yield cut.vnode, epoch

    def committed_of(self, vnode: int, position: int) -> Iterator[Content]:
        """What must be visible of a vnode whose committed epoch is ``position``."""
        return self.contents_of(Range(vnode, 0, position))

    def has_data(self, row: Row) -> bool:
        return any(True for each in row.ranges for _ in self.contents_of(each))

    def name_of(self, row: Row) -> Name:
        return row

    def is_visible(self, world: LaneWorld, row: Row) -> bool:
        return world.find_visible(self.name_of(row)) == row.ranges

    # --- a lane is taken, and its open row brought to an end

    def is_held(self, world: LaneWorld, writer: Writer) -> bool:
        """Whether the writer's fence is still the lane's."""
        return world.lanes[writer.lane].fence == writer.fence

    def again(self, world: LaneWorld, writer: Writer) -> Writer:
        """From the start, or no further: the lane is another writer's."""
        return resolving(writer) if self.is_held(world, writer) else IDLE

    def take(self, world: LaneWorld, writer: Writer) -> Iterator[Move]:
        """A new fence, whoever was there before."""
        del writer
        for number, lane in enumerate(world.lanes):
            fence = lane.fence + 1
            if fence <= self.fences:
                yield world.with_lane(number, lane._replace(fence=fence)), Writer(Step.RESOLVE, number, fence)

    def resolve(self, world: LaneWorld, writer: Writer) -> Iterator[Move]:
        """An open row is brought to its end before the lane's vnodes are read."""
        row = world.lanes[writer.lane].open
        yield world, writer._replace(step=Step.READ if row is None else Step.CHECK, row=row)

    def check(self, world: LaneWorld, writer: Writer) -> Iterator[Move]:
        """A row only goes forward."""
        row = row_of(writer)
        if not self.has_data(row):
            step = Step.FINISH
        elif row in world.sources:
            step = Step.SHOW
        else:
            step = Step.FINISH if self.is_visible(world, row) else Step.LOST
        yield world, writer._replace(step=step)

    def check_again(self, world: LaneWorld, writer: Writer) -> Iterator[Move]:
        """Variants only: looks whether the file is visible, and goes back if not."""
        is_done = self.is_visible(world, row_of(writer))
        yield world, writer._replace(step=Step.FINISH if is_done else Step.REWIND)

    def lose(self, world: LaneWorld, writer: Writer) -> Iterator[Move]:
        """There is neither a source nor a file: this counts only while the row is open, and the lane this writer's."""
        if world.lanes[writer.lane].open == writer.row and self.is_held(world, writer):
            yield world, writer._replace(step=Step.BLOCKED)
        else:
            yield world, self.again(world, writer)

    def rewind(self, world: LaneWorld, writer: Writer) -> Iterator[Move]:
        """Variants only: the row goes, and its epochs are read again."""
        is_held = Guard.FINISH_FENCE in self.without or self.is_held(world, writer)
        if is_held and world.lanes[writer.lane].open == writer.row:
            yield world.with_row(writer.lane, None), resolving(writer)
        else:
            yield world, IDLE

    # --- a cut, up to its seal

    def read(self, world: LaneWorld, writer: Writer) -> Iterator[Move]:
        """Cuts the lane's vnodes at an epoch, or hands one of them over to another lane."""
        for epoch in range(1, self.epochs + 1):
            for ranges in self.list_cuts(world, world.vnodes_of(writer.lane), epoch):
                yield self.cut(world, writer, Row(writer.lane, writer.fence, ranges, self.number_cut(writer)))
        if world.moves < self.moves:
            yield from self.move(world, writer)

    def list_cuts(self, world: LaneWorld, vnodes: list[int], end: int) -> Iterator[tuple[Range, ...]]:
        """Each vnode that is not there yet, from its own committed epoch."""
        ranges = tuple(Range(each, world.committed[each], end) for each in vnodes if world.committed[each] < end)
        if ranges:
            yield ranges

    def cut(self, world: LaneWorld, writer: Writer, row: Row) -> Move:
        """An empty cut becomes a row, too."""
        return world, writer._replace(step=Step.STAGE, row=row, cuts=row.number)

    def number_cut(self, writer: Writer) -> int:
        """No attempt is ever named as an earlier one was."""
        return writer.cuts + 1

    def stage(self, world: LaneWorld, writer: Writer) -> Iterator[Move]:
        """The data is durable before the row stands."""
        row = row_of(writer)
        yield world.with_source(row) if self.has_data(row) else world, writer._replace(step=Step.SEAL)

    def seal(self, world: LaneWorld, writer: Writer) -> Iterator[Move]:
        row = row_of(writer)
        if not self.may_seal(world, writer, row):
            yield world, self.again(world, writer)
            return
        sealed = self.sealed(world, row)
        yield sealed, writer._replace(step=Step.SHOW if self.has_data(row) else Step.FINISH)
        yield sealed, writer._replace(step=Step.ASK)

    def may_seal(self, world: LaneWorld, writer: Writer, row: Row) -> bool:
        kept = {
            Guard.SEAL_FENCE: self.is_held(world, writer),
            Guard.SEAL_OPEN: world.lanes[writer.lane].open is None,
            Guard.SEAL_MEMBERS: all(writer.lane in world.lanes_of[each.vnode] for each in row.ranges),
            Guard.SEAL_STARTS: all(world.committed[each.vnode] == each.start for each in row.ranges),
        }
        return all(is_kept or guard in self.without for guard, is_kept in kept.items())

    def sealed(self, world: LaneWorld, row: Row) -> LaneWorld:
        return world.with_row(row.lane, row)

    def stage_late(self, world: LaneWorld, writer: Writer) -> Iterator[Move]:
        """Variants only: the data becomes durable after the row stands."""
        yield world.with_source(row_of(writer)), writer._replace(step=Step.SHOW)

    def ask(self, world: LaneWorld, writer: Writer) -> Iterator[Move]:
        """The answer to the seal was lost: the log knows whether the row stands."""
        row = row_of(writer)
        if world.lanes[writer.lane].open == row:
            yield world, writer._replace(step=Step.SHOW if self.has_data(row) else Step.FINISH)
        else:
            yield world, resolving(writer)

    # --- execution

    def show(self, world: LaneWorld, writer: Writer) -> Iterator[Move]:
        """A rename that never replaces. It may take effect and report an error."""
        row = row_of(writer)
        there = world.find_visible(self.name_of(row))
        if row not in world.sources:
            yield world, writer._replace(step=Step.CHECK)
        elif there is not None and not self.replaces():
            yield world, writer._replace(step=Step.CHECK if there == row.ranges else Step.BLOCKED)
        else:
            shown = world.without_source(row).with_visible(self.name_of(row), row.ranges)
            yield shown, writer._replace(step=Step.FINISH)
            yield shown, writer._replace(step=Step.CHECK)

    def replaces(self) -> bool:
        return False

    def finish(self, world: LaneWorld, writer: Writer) -> Iterator[Move]:
        """The epochs move, the row goes, and after it the log is truncated."""
        row = row_of(writer)
        is_held = Guard.FINISH_FENCE in self.without or self.is_held(world, writer)
        is_open = Guard.FINISH_OPEN in self.without or self.is_pending(world, row)
        yield self.finished(world, row) if is_held and is_open else world, self.again(world, writer)

    def is_pending(self, world: LaneWorld, row: Row) -> bool:
        """Whether the finish is still to come."""
        return world.lanes[row.lane].open == row

    def finished(self, world: LaneWorld, row: Row) -> LaneWorld:
        if Guard.FINISH_OPEN in self.without:
            ends = {each.vnode: each.end for each in row.ranges}
            committed = tuple(ends.get(vnode, position) for vnode, position in enumerate(world.committed))
            return world.with_row(row.lane, None)._replace(committed=committed).with_truncated(row.ranges)
        closed = world.with_row(row.lane, None) if world.lanes[row.lane].open == row else world
        return closed._replace(committed=advanced(world.committed, row.ranges)).with_truncated(row.ranges)

    # --- rescaling

    def move(self, world: LaneWorld, writer: Writer) -> Iterator[Move]:
        row = world.lanes[writer.lane].open
        if Guard.MOVE_FENCE not in self.without and not self.is_held(world, writer):
            return
        for vnode in world.vnodes_of(writer.lane):
            if row is not None and row.covers(vnode) and Guard.MOVE_OPEN not in self.without:
                continue
            for lane in range(self.lanes):
                if lane != writer.lane:
                    lanes = self.moved(world.lanes_of[vnode], lane)
                    lanes_of = (*world.lanes_of[:vnode], lanes, *world.lanes_of[vnode + 1 :])
                    yield world._replace(lanes_of=lanes_of, moves=world.moves + 1), resolving(writer)

    def moved(self, lanes: frozenset[int], to: int) -> frozenset[int]:
        del lanes
        return frozenset({to})


def resolving(writer: Writer) -> Writer:
    """The writer looks for an open row first, as after it took the lane."""
    return writer._replace(step=Step.RESOLVE, row=None)


def row_of(writer: Writer) -> Row:
    if writer.row is None:
        raise AssertionError(f"{writer.step} needs a row")
    return writer.row
