"""Tickets that executors begin by themselves, as values, and the nodes of a service that make executions of them.

A writer numbers its ticket, and commits or dies. A node reads up to where the log's tickets were adopted, lists what is
committed behind that, adopts each one, and notes the last number. Any process may die or be paused anywhere. Faults: a
ticket that no look will find any more; one with two executions.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, NamedTuple

TICKETS_MAX = 3


class Do(StrEnum):
    """What a process does next."""

    NOTHING = "nothing"
    COMMIT = "commit"
    LIST = "list"
    ADOPT = "adopt"
    MARK = "mark"


class Actor(NamedTuple):
    """A process. ``number``: of its ticket, or up to where it has read. ``page``: what it has listed, and not adopted.

    ``known``: those of its page that had no execution when it looked.
    """

    do: Do = Do.NOTHING
    number: int = 0
    page: tuple[int, ...] = ()
    known: frozenset[int] = frozenset()


class Log(NamedTuple):
    """``last``: the last number that was given out. ``open``: those that are not committed. ``adopted``: executions."""

    last: int = 0
    open: frozenset[int] = frozenset()
    committed: frozenset[int] = frozenset()
    adopted: tuple[int, ...] = ()
    marked: int = 0


@dataclass(frozen=True)
class Adoption:
    """The protocol. A number is given out under a lock that is held until the commit."""

    processes: int = 3
    idle: ClassVar[Actor] = Actor()
    start: ClassVar[Log] = Log()

    def list_moves(self, world: Log, mover: Actor) -> Iterator[tuple[Log, Actor]]:
        match mover.do:
            case Do.NOTHING:
                yield world, Actor(Do.LIST, world.marked)
                if world.last < TICKETS_MAX and self.may_number(world):
                    given = world.last + 1
                    yield world._replace(last=given, open=world.open | {given}), Actor(Do.COMMIT, given)
            case Do.COMMIT:
                closed = world._replace(open=world.open - {mover.number})
                yield closed._replace(committed=world.committed | {mover.number}), self.idle
                # It dies, and its number is given out again if it is the last one.
                yield closed._replace(last=max(closed.committed | closed.open, default=0)), self.idle
            case Do.LIST:
                page = tuple(sorted(each for each in world.committed if each > mover.number))
                known = frozenset(page) - frozenset(world.adopted)
                yield world, self.begin(Actor(Do.ADOPT, max(page), page, known)) if page else self.idle
            case Do.ADOPT:
                adopted = self.adopt(world, mover, mover.page[0])
                yield world._replace(adopted=tuple(sorted(adopted))), self.go_on(mover._replace(page=mover.page[1:]))
            case Do.MARK:
                marked = world._replace(marked=max(world.marked, mover.number))
                yield marked, self.follow_mark(mover)
        if mover.do in (Do.LIST, Do.ADOPT, Do.MARK):
            yield world, self.idle

    def may_number(self, world: Log) -> bool:
        return not world.open

    def begin(self, node: Actor) -> Actor:
        return node

    def go_on(self, node: Actor) -> Actor:
        return node if node.page else node._replace(do=Do.MARK, known=frozenset())

    def follow_mark(self, node: Actor) -> Actor:
        del node
        return self.idle

    def adopt(self, world: Log, node: Actor, number: int) -> tuple[int, ...]:
        """A ticket that has an execution gets no other one."""
        del node
        return world.adopted if number in world.adopted else (*world.adopted, number)

    def list_changes(self, world: Log) -> Iterator[Log]:
        del world
        yield from ()

    def find_fault(self, world: Log, mover: Actor) -> str | None:
        del mover
        if len(set(world.adopted)) < len(world.adopted):
            return "TWICE"
        if any(each <= world.marked for each in world.committed | world.open if each not in world.adopted):
            return "MISSED"
        return None


@dataclass(frozen=True)
class NumbersWithoutLock(Adoption):
    """Numbers are given out as by a sequence, or by the clock: they are not in the order of commits."""

    def may_number(self, world: Log) -> bool:
        del world
        return True


@dataclass(frozen=True)
class MarksFirst(Adoption):
    """A node notes what it has listed, and adopts it then."""

    def begin(self, node: Actor) -> Actor:
        return node._replace(do=Do.MARK)

    def follow_mark(self, node: Actor) -> Actor:
        return node._replace(do=Do.ADOPT)

    def go_on(self, node: Actor) -> Actor:
        return node if node.page else self.idle


@dataclass(frozen=True)
class AdoptsWhatItKnew(Adoption):
    """A node decides by what it has read before, and not by the write."""

    def adopt(self, world: Log, node: Actor, number: int) -> tuple[int, ...]:
        return (*world.adopted, number) if number in node.known else world.adopted
