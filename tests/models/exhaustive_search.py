"""An explicit-state search: every order of every move of every process, breadth first, until nothing new is found.

Processes are alike, and know of each other only what is in the world. So what a process can do follows from the world
and its own state. These pairs are few beside the states, and each is worked out once. A state is one integer, made of
the numbers of its world and of its crew (the states of all processes), so that no two states are taken for one.
"""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

W = TypeVar("W", bound=Hashable)
P = TypeVar("P", bound=Hashable)
T = TypeVar("T", bound=Hashable)
V = TypeVar("V")

_CREW_BITS: Final = 32
_CREW_MASK: Final = (1 << _CREW_BITS) - 1
_PROCESS_BITS: Final = 20
_PROCESS_MASK: Final = (1 << _PROCESS_BITS) - 1


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


class _Table(dict[int, V]):
    """Values by number, each worked out when it is first asked for."""

    def __init__(self, work_out: Callable[[int], V]) -> None:
        super().__init__()
        self._work_out = work_out

    def __missing__(self, number: int) -> V:
        found = self[number] = self._work_out(number)
        return found


class _FaultError(Exception):
    pass


class _Search(Generic[W, P]):
    """The numbers of a model's values, and of what follows from them.

    The number of a pair: that of the world, or of the other processes, before that of a process.
    """

    def __init__(self, model: Model[W, P]) -> None:
        self._model = model
        self._worlds: _Numbered[W] = _Numbered()
        self._processes: _Numbered[P] = _Numbered()
        self._crews: _Numbered[tuple[int, ...]] = _Numbered()

    def start(self) -> int:
        idle = self._processes.number(self._model.idle)
        crew = self._crews.number((idle,) * self._model.processes)
        return self._worlds.number(self._model.start) << _CREW_BITS | crew

    def list_members(self, crew: int) -> list[tuple[int, int]]:
        """Each different process of a crew, with the number of the others, in its place in a pair."""
        members = self._crews.values[crew]
        return [
            (member, self._crews.number(members[:position] + members[position + 1 :]) << _PROCESS_BITS)
            for position, member in enumerate(members)
            if member not in members[:position]
        ]

    def join(self, pair: int) -> int:
        """The crew of the others and a process."""
        others = self._crews.values[pair >> _PROCESS_BITS]
        return self._crews.number(tuple(sorted((*others, pair & _PROCESS_MASK))))

    def list_moves(self, pair: int) -> list[tuple[int, int]]:
        """The worlds, in their place in a state, and the processes after the moves of a process in a world."""
        before, mover = self._worlds.values[pair >> _PROCESS_BITS], self._processes.values[pair & _PROCESS_MASK]
        fault = self._model.find_fault(before, mover)
        if fault is not None:
            raise _FaultError(fault)
        return [
            (self._worlds.number(after) << _CREW_BITS, self._processes.number(moved))
            for after, moved in self._model.list_moves(before, mover)
        ]

    def list_changes(self, world: int) -> list[int]:
        """The worlds, in their place in a state, after each change from outside."""
        changed = self._model.list_changes(self._worlds.values[world])
        return [self._worlds.number(each) << _CREW_BITS for each in changed]

    def describe(self, state: int) -> str:
        crew = self._crews.values[state & _CREW_MASK]
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


def _expander(known: _Search[W, P]) -> Callable[[int], list[int]]:
    """A function from a state to the states that follow it."""
    members, joined = _Table(known.list_members), _Table(known.join)
    moves, changes = _Table(known.list_moves), _Table(known.list_changes)

    def expand(state: int) -> list[int]:
        world, crew = state >> _CREW_BITS, state & _CREW_MASK
        following = [after | crew for after in changes[world]]
        world <<= _PROCESS_BITS
        for process, others in members[crew]:
            following += [after | joined[others | moved] for after, moved in moves[world | process]]
        return following

    return expand


def _path_to(state: int, parents: dict[int, int]) -> list[int]:
    path = [state]
    while parents[path[-1]] != path[-1]:
        path.append(parents[path[-1]])
    return path[::-1]
