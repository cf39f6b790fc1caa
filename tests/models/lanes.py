"""A sink dataset with many writers, and everything that lanes do to it, as values: the world of an exhaustive search.

A **lane** has a fence and at most one open row. The row promises ranges of epochs of the lane's **vnodes**, and names
the file that holds them. Each vnode has a committed epoch, belongs to a lane, and may move to another one. The data of
a row is durable as a source that no reader sees, before it becomes visible under the row's name. Epochs are numbers
from 1; a position is the number of the last epoch that lies before it.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from enum import StrEnum
from typing import NamedTuple

Name = Hashable
"""The name of a visible file."""

Content = tuple[int, ...]
"""What must be visible once: in most models a vnode and an epoch."""


class Range(NamedTuple):
    """The epochs of a vnode after ``start``, up to and with ``end``. ``order``: that of the chunks of an epoch."""

    vnode: int
    start: int
    end: int
    order: int = 0


class Row(NamedTuple):
    """``lane``, ``fence`` and ``number`` tell one attempt from all others: the writer's cuts under its fence."""

    lane: int
    fence: int
    ranges: tuple[Range, ...]
    number: int = 0

    def covers(self, vnode: int) -> bool:
        return any(each.vnode == vnode for each in self.ranges)


class Lane(NamedTuple):
    fence: int = 0
    open: Row | None = None


class LaneWorld(NamedTuple):
    """``committed``, ``truncated`` and ``lanes_of`` have an entry for each vnode.

    ``lanes_of``: the lanes that a vnode belongs to; more than one only where a move goes wrong. ``sources``: rows whose
    data is durable and not visible. ``visible``: the ranges in each visible file. ``truncated``: the epochs that the
    log has no more. ``moves`` and ``abandonments``: how many there were.
    """

    committed: tuple[int, ...]
    lanes_of: tuple[frozenset[int], ...]
    lanes: tuple[Lane, ...]
    truncated: tuple[int, ...]
    sources: frozenset[Row] = frozenset()
    visible: frozenset[tuple[Name, tuple[Range, ...]]] = frozenset()
    moves: int = 0
    abandonments: int = 0

    def find_visible(self, name: Name) -> tuple[Range, ...] | None:
        return dict(self.visible).get(name)

    def vnodes_of(self, lane: int) -> list[int]:
        return [vnode for vnode, lanes in enumerate(self.lanes_of) if lane in lanes]

    def with_lane(self, number: int, lane: Lane) -> "LaneWorld":
        return self._replace(lanes=(*self.lanes[:number], lane, *self.lanes[number + 1 :]))

    def with_row(self, number: int, row: Row | None) -> "LaneWorld":
        return self.with_lane(number, self.lanes[number]._replace(open=row))

    def with_source(self, row: Row) -> "LaneWorld":
        return self._replace(sources=self.sources | {row})

    def without_source(self, row: Row) -> "LaneWorld":
        return self._replace(sources=self.sources - {row})

    def with_visible(self, name: Name, ranges: tuple[Range, ...]) -> "LaneWorld":
        return self._replace(visible=self.without_visible(name).visible | {(name, ranges)})

    def without_visible(self, name: Name) -> "LaneWorld":
        return self._replace(visible=frozenset(each for each in self.visible if each[0] != name))

    def with_truncated(self, ranges: Iterable[Range]) -> "LaneWorld":
        return self._replace(truncated=advanced(self.truncated, ranges))


def advanced(positions: tuple[int, ...], ranges: Iterable[Range]) -> tuple[int, ...]:
    """Positions after the ends of ranges; none goes back."""
    ends = {each.vnode: each.end for each in ranges}
    return tuple(max(position, ends.get(vnode, position)) for vnode, position in enumerate(positions))


class Step(StrEnum):
    """What a writer does next."""

    IDLE = "idle"
    RESOLVE = "resolve"
    READ = "read"
    STAGE = "stage"
    SEAL = "seal"
    STAGE_LATE = "stage after the seal"
    ASK = "ask whether the seal took effect"
    SHOW = "make visible"
    FINISH = "finish"
    CHECK = "check an open row"
    CHECK_AGAIN = "check an open row again"
    REWIND = "rewind"
    LOST = "lost"
    BLOCKED = "blocked"


class Writer(NamedTuple):
    """A process. ``fence``: the one under which it took the lane. ``row``: the one it stages, seals or ends.

    ``cuts``: how many there were under this fence.
    """

    step: Step = Step.IDLE
    lane: int = 0
    fence: int = 0
    row: Row | None = None
    cuts: int = 0


Contents = Callable[[Range], Iterable[Content]]


def find_duplicate(world: LaneWorld, contents_of: Contents) -> str | None:
    for content, count in _count_visible(world, contents_of).items():
        if count > 1:
            return f"DUPLICATE: {content} is visible {count} times"
    return None


def find_lost(
    world: LaneWorld, contents_of: Contents, committed_of: Callable[[int, int], Iterable[Content]]
) -> str | None:
    """What is committed and not visible, or truncated and neither committed nor in an open row."""
    visible = _count_visible(world, contents_of)
    for vnode, committed in enumerate(world.committed):
        for content in committed_of(vnode, committed):
            if content not in visible:
                return f"LOST: {content} is committed and not visible"
        is_promised = any(lane.open is not None and lane.open.covers(vnode) for lane in world.lanes)
        if world.truncated[vnode] > committed and not is_promised:
            return f"LOST: vnode {vnode} is truncated to {world.truncated[vnode]}, and {committed} is committed"
    return None


def find_phantom(world: LaneWorld, name_of: Callable[[Row], Name]) -> str | None:
    """A visible file that holds more than is committed, and that no open row names."""
    named = {name_of(lane.open) for lane in world.lanes if lane.open is not None}
    for name, ranges in world.visible:
        if name not in named and any(world.committed[each.vnode] < each.end for each in ranges):
            return f"PHANTOM: nothing names the file of {ranges}"
    return None


def _count_visible(world: LaneWorld, contents_of: Contents) -> Counter[Content]:
    return Counter(content for _, ranges in world.visible for each in ranges for content in contents_of(each))
