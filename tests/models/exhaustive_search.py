"""An explicit-state search: every order of every move of every process, breadth first, until nothing new is found.

Processes are alike, and know of each other only what is in the world. So what a process can do follows from the world
and its own state. These pairs are few beside the states, and each is worked out once. A state is one integer, made of
the numbers of its world and of its crew (the states of all processes), so that no two states are taken for one.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final, Generic, Protocol, TypeVar

W = TypeVar("W", bound=Hashable)
P = TypeVar("P", bound=Hashable)
T = TypeVar("T", bound=Hashable)

_CREW_BITS: Final = 32
_PROCESS_BITS: Final = 20


class Model(Protocol[W, P]):
    """What is searched. Worlds and processes are values; a process that does nothing is ``idle``."""

    @property
    def processes(self) -> int: ...

    @property
    def start(self) -> W: ...

    @property
    def idle(self) -> P: ...

    def list_moves(self, world: W, process: P) -> Iterable[tuple[W, P]]:
        """The world and the process after each of the process's possible next moves."""
        ...

    def list_changes(self, world: W) -> Iterable[W]:
        """The world after each change that comes from outside."""
        ...

    def find_fault(self, world: W, process: P) -> str | None:
        """What must not be, in a world with such a process; None if all is well."""
        ...


@dataclass(frozen=True)
class Searched:
    """``fault``: the first one, after the fewest moves; None: there is none in any state. ``trace`` leads to it."""

    states: int
    depth: int
    fault: str | None = None
    trace: tuple[str, ...] = ()

    def __str__(self) -> str:
        found = f"{self.fault or 'no fault'}, {self.states:,} states, depth {self.depth}"
        return "\n".join((found, *self.trace))


class _Numbered(Generic[T]):
    """Values by number, in the order in which they were first seen."""

    def __init__(self) -> None:
        self.values: list[T] = []
        self._numbers: dict[T, int] = {}

    def number(self, value: T) -> int:
        found = self._numbers.setdefault(value, len(self.values))
        if found == len(self.values):
            self.values.append(value)
        return found


class _FaultError(Exception):
    pass


class _Search(Generic[W, P]):
    def __init__(self, model: Model[W, P]) -> None:
        self._model = model
        self._worlds: _Numbered[W] = _Numbered()
        self._processes: _Numbered[P] = _Numbered()
        self._crews: _Numbered[tuple[int, ...]] = _Numbered()
        self._joined: dict[int, int] = {}  # crew by the others' number and the process's

    def start(self) -> int:
        idle = self._processes.number(self._model.idle)
        crew = self._crews.number((idle,) * self._model.processes)
        return self._worlds.number(self._model.start) << _CREW_BITS | crew

    def list_members(self, crew: int) -> list[tuple[int, int]]:
        """Each different process of a crew, with the number of the crew that the others are."""
        members = self._crews.values[crew]
        return [
            (member, self._crews.number(members[:position] + members[position + 1 :]))
            for position, member in enumerate(members)
            if member not in members[:position]
        ]

    def join(self, others: int, process: int) -> int:
        key = others << _PROCESS_BITS | process
        found = self._joined.get(key)
        if found is None:
            found = self._joined[key] = self._crews.number(tuple(sorted((*self._crews.values[others], process))))
        return found

    def list_moves(self, world: int, process: int) -> list[tuple[int, int]]:
        """By numbers; that of the world in its place in a state."""
        before, mover = self._worlds.values[world], self._processes.values[process]
        fault = self._model.find_fault(before, mover)
        if fault is not None:
            raise _FaultError(fault)
        return [
            (self._worlds.number(after) << _CREW_BITS, self._processes.number(moved))
            for after, moved in self._model.list_moves(before, mover)
        ]

    def list_changes(self, world: int) -> list[int]:
        changed = self._model.list_changes(self._worlds.values[world])
        return [self._worlds.number(each) << _CREW_BITS for each in changed]

    def describe(self, state: int) -> str:
        crew = self._crews.values[state & ((1 << _CREW_BITS) - 1)]
        shown = (self._worlds.values[state >> _CREW_BITS], *(self._processes.values[each] for each in crew))
        return "  |  ".join(map(str, shown))


def search(model: Model[W, P]) -> Searched:
    """All reachable states, or the first fault."""
    known = _Search(model)
    first = known.start()
    parents = {first: first}
    level, depth = [first], 0
    expand = _expander(known)
    while level:
        found: list[int] = []
        for state in level:
            try:
                following = expand(state)
            except _FaultError as fault:
                trace = tuple(known.describe(each) for each in _path_to(state, parents))
                return Searched(len(parents), depth, str(fault), trace)
            for each in following:
                if each not in parents:
                    parents[each] = state
                    found.append(each)
        level = found
        depth += 1
    return Searched(len(parents), depth)


def _expander(known: _Search[W, P]) -> Callable[[int], Iterable[int]]:
    """A function from a state to the states that follow. Its tables are local, since it is called a million times."""
    members: dict[int, list[tuple[int, int]]] = {}
    moves: dict[int, list[tuple[int, int]]] = {}
    changes: dict[int, list[int]] = {}
    crew_mask = (1 << _CREW_BITS) - 1

    def expand(state: int) -> Iterable[int]:
        world, crew = state >> _CREW_BITS, state & crew_mask
        if crew not in members:
            members[crew] = known.list_members(crew)
        following: list[int] = []
        for process, others in members[crew]:
            key = world << _PROCESS_BITS | process
            if key not in moves:
                moves[key] = known.list_moves(world, process)
            following += [after | known.join(others, moved) for after, moved in moves[key]]
        if world not in changes:
            changes[world] = known.list_changes(world)
        return chain(following, (after | crew for after in changes[world]))

    return expand


def _path_to(state: int, parents: dict[int, int]) -> Sequence[int]:
    path = [state]
    while parents[path[-1]] != path[-1]:
        path.append(parents[path[-1]])
    return path[::-1]
