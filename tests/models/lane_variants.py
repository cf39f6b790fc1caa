"""Variants of the protocol of lanes that leave one of its rules out, or break it."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from tests.models.lane_writers import Lanes, Move, row_of
from tests.models.lanes import Content, LaneWorld, Name, Range, Row, Step, Writer


@dataclass(frozen=True)
class AttemptsRecur(Lanes):
    """An attempt is named by what it holds, so that a cut that is staged once more has the name of the first one."""

    def number_cut(self, writer: Writer) -> int:
        return writer.cuts


@dataclass(frozen=True)
class ReadsBeforeItResolves(Lanes):
    """Vnodes are read, whatever row is open."""

    def resolve(self, world: LaneWorld, writer: Writer) -> Iterator[Move]:
        yield world, writer._replace(step=Step.READ, row=None)


@dataclass(frozen=True)
class MovesAreCopies(Lanes):
    """The old lane keeps the vnode as well."""

    def moved(self, lanes: frozenset[int], to: int) -> frozenset[int]:
        return lanes | {to}


@dataclass(frozen=True)
class RewindsWhatIsNotVisible(Lanes):
    """The file is visible: truncate; it is not: rewind. A zombie may make it visible afterwards."""

    def check(self, world: LaneWorld, writer: Writer) -> Iterator[Move]:
        if self.has_data(row_of(writer)):
            yield from self.check_again(world, writer)
        else:
            yield from super().check(world, writer)


@dataclass(frozen=True)
class DestroysTheSourceFirst(Lanes):
    """The source is destroyed, then the file is looked for, and then the row rewound: this is safe, too."""

    def check(self, world: LaneWorld, writer: Writer) -> Iterator[Move]:
        if self.has_data(row_of(writer)):
            yield world.without_source(row_of(writer)), writer._replace(step=Step.CHECK_AGAIN)
        else:
            yield from super().check(world, writer)


@dataclass(frozen=True)
class NoRow(Lanes):
    """Files become visible first, then the epochs move: no row ever says that a file will come."""

    def seal(self, world: LaneWorld, writer: Writer) -> Iterator[Move]:
        yield world, writer._replace(step=Step.SHOW)

    def is_pending(self, world: LaneWorld, row: Row) -> bool:
        return all(world.committed[each.vnode] == each.start for each in row.ranges)

    def find_unnamed(self, world: LaneWorld) -> str | None:
        del world
        return None


@dataclass(frozen=True)
class RowBeforeData(Lanes):
    """The row stands before its data is durable. A row without data is rewound."""

    def stage(self, world: LaneWorld, writer: Writer) -> Iterator[Move]:
        yield world, writer._replace(step=Step.SEAL)

    def seal(self, world: LaneWorld, writer: Writer) -> Iterator[Move]:
        for after, moved in super().seal(world, writer):
            yield after, moved._replace(step=Step.STAGE_LATE) if moved.step is Step.SHOW else moved

    def lose(self, world: LaneWorld, writer: Writer) -> Iterator[Move]:
        for after, moved in super().lose(world, writer):
            yield after, moved._replace(step=Step.REWIND) if moved.step is Step.BLOCKED else moved


@dataclass(frozen=True)
class OneStartForAll(Lanes):
    """A file starts where the last of its vnodes is."""

    def list_cuts(self, world: LaneWorld, vnodes: list[int], end: int) -> Iterator[tuple[Range, ...]]:
        start = min((world.committed[each] for each in vnodes), default=end)
        if start < end:
            yield tuple(Range(each, start, end) for each in vnodes)


@dataclass(frozen=True)
class SealsAgain(Lanes):
    """A seal without an answer is taken for not done: what was cut is staged and sealed once more."""

    def ask(self, world: LaneWorld, writer: Writer) -> Iterator[Move]:
        number = self.number_cut(writer)
        row = row_of(writer)._replace(number=number)
        staged = writer._replace(step=Step.SEAL, row=row, cuts=number)
        yield world.with_source(row) if self.has_data(row) else world, staged


@dataclass(frozen=True)
class TruncatesAtTheSeal(Lanes):
    def sealed(self, world: LaneWorld, row: Row) -> LaneWorld:
        return super().sealed(world, row).with_truncated(row.ranges)


@dataclass(frozen=True)
class GivesUpWithoutCapture(Lanes):
    """A person gives a row up if its file is not visible, and leaves the source where it is."""

    def give_up(self, world: LaneWorld, row: Row) -> Iterator[LaneWorld]:
        if world.find_visible(self.name_of(row)) is None:
            yield world


@dataclass(frozen=True)
class EmptyCutsAreNoRows(Lanes):
    """The log is truncated for a cut without rows, and nothing is recorded."""

    def cut(self, world: LaneWorld, writer: Writer, row: Row) -> Move:
        if self.has_data(row):
            return super().cut(world, writer, row)
        return world.with_truncated(row.ranges), writer


@dataclass(frozen=True)
class CutsInsideOfEpochs(Lanes):
    """A position is the number of a chunk, and an epoch has two chunks, which come in any order at each reading."""

    def list_cuts(self, world: LaneWorld, vnodes: list[int], end: int) -> Iterator[tuple[Range, ...]]:
        for ranges, order in product(super().list_cuts(world, vnodes, end), (0, 1)):
            yield tuple(each._replace(order=order) for each in ranges)

    def contents_of(self, cut: Range) -> Iterator[Content]:
        for chunk in range(cut.start, cut.end):
            yield cut.vnode, chunk // 2, chunk % 2 ^ cut.order

    def committed_of(self, vnode: int, position: int) -> Iterator[Content]:
        """Of an epoch that is committed by half, nobody knows which half it is."""
        return self.contents_of(Range(vnode, 0, position // 2 * 2))


@dataclass(frozen=True)
class NamesByStart(Lanes):
    """A file is named by where its vnodes start: names come back."""

    def name_of(self, row: Row) -> Name:
        return tuple((each.vnode, each.start) for each in row.ranges)


@dataclass(frozen=True)
class ReplacesByName(NamesByStart, RewindsWhatIsNotVisible):
    def replaces(self) -> bool:
        return True


@dataclass(frozen=True)
class BlocksWithoutAsking(Lanes):
    """A writer that finds neither source nor file waits for a person, without a look at the log."""

    def lose(self, world: LaneWorld, writer: Writer) -> Iterator[Move]:
        yield world, writer._replace(step=Step.BLOCKED)
