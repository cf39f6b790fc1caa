"""One published name, and everything that publications do to it, as values: the world of the exhaustive search.

A log with fences, an attempt's directory for each sequence, and processes that each stop for any time, or for ever,
between any two calls. Sequences follow each other at the name: one creates a file, one replaces it, one removes it. A
stranger may write the name or remove what is there. Contents are numbers: 0 is nothing, a sequence's number is the
version that it staged, numbers from ``GUEST`` on are a stranger's files, and negative ones are parts of files.
"""

from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from gobblin_assets.destinations.fixed_names.named_decisions import Act, Found

NOTHING: Final = 0
GUEST: Final = 100

UNCAPTURED: Final = 0
"""In the place of a fence: the name under which an attempt's directory is made."""


class Way(StrEnum):
    CREATE = "create"
    REPLACE = "replace"
    REMOVE = "remove"


class Plan(NamedTuple):
    """What a sequence does at the name. ``old``: what it was planned to find. ``sealer``: the fence that sealed it."""

    number: int
    way: Way
    old: int
    sealer: int

    @property
    def new(self) -> int:
        return NOTHING if self.way is Way.REMOVE else self.number

    def judge(self, content: int) -> Found:
        """As the steps judge an entry by its identity."""
        if content == NOTHING:
            return Found.NOTHING
        if content == self.new:
            return Found.NEW
        return Found.OLD if content == self.old else Found.OTHER


class Places(NamedTuple):
    """What an attempt's directory holds."""

    source: int = NOTHING
    slot: int = NOTHING
    returned: int = NOTHING


class Open(NamedTuple):
    """The open sequence. ``fences``: those of its attempt, under which its directory may stand."""

    plan: Plan
    fences: tuple[int, ...]
    is_abandoning: bool = False


class Log(NamedTuple):
    """``published``: what should be at the name while no sequence is open. ``over``: attempts that are not cleaned."""

    fence: int = 0
    version: int = 0
    published: int = NOTHING
    next_number: int = 1
    open: Open | None = None
    over: tuple[tuple[int, tuple[int, ...]], ...] = ()

    def fences_of(self, number: int) -> tuple[int, ...]:
        """Those of an attempt whose sequence is over; none of one that is cleaned."""
        return dict(self.over).get(number, ())


class World(NamedTuple):
    """``directories``: those of attempts, by the number of the sequence and the fence in their name.

    ``attributes``: the version whose attributes the file at the name has. ``guests``: a stranger's files that nobody
    may lose. ``destroyed``: what the stranger replaced or removed. ``acts_left``: what a stranger may still do.
    """

    name: int = NOTHING
    attributes: int = NOTHING
    directories: frozenset[tuple[tuple[int, int], Places]] = frozenset()
    log: Log = Log()
    guests: frozenset[int] = frozenset()
    destroyed: frozenset[int] = frozenset()
    acts_left: int = 0

    def __str__(self) -> str:
        return _shown(self, World())

    def find_places(self, number: int, fence: int) -> Places | None:
        return dict(self.directories).get((number, fence))

    def with_name(self, name: int) -> "World":
        """A staged file brings its attributes with it."""
        return self._replace(name=name, attributes=name)

    def with_places(self, number: int, fence: int, places: Places | None) -> "World":
        """None: without this directory."""
        others = {key: value for key, value in self.directories if key != (number, fence)}
        if places is not None:
            others[number, fence] = places
        return self._replace(directories=frozenset(others.items()))

    def with_log(self, log: Log) -> "World":
        return self._replace(log=log)


class Doing(StrEnum):
    """What a process does next."""

    IDLE = "idle"
    CHOOSE = "choose"
    PLAN = "plan"
    STAGE = "stage"
    SEAL = "seal"
    CLAIM = "claim"
    CAPTURE = "capture"
    LOOK = "look"
    MOVE = "move"
    FINISH = "finish"
    FAIL = "fail"
    BLOCKED = "blocked"
    BEGIN_ABANDON = "begin to abandon"
    LOOK_BACK = "look back"
    MOVE_BACK = "move back"
    END_ABANDON = "end the abandonment"
    MARK = "mark for cleanup"
    REMOVE_TREE = "remove the attempt"
    MARK_CLEANED = "mark cleaned"


class Process(NamedTuple):
    """``left``: fences in names that a capture still tries, and ``then`` what comes after it. ``seen``: what a look has
    found up to now, in the order of the code's looks. ``act``: what it then decided, or why it fails.
    """

    doing: Doing = Doing.IDLE
    fence: int = 0
    plan: Plan | None = None
    number: int = 0
    version: int = 0
    left: tuple[int, ...] = ()
    then: Doing = Doing.IDLE
    seen: tuple[Found, ...] = ()
    act: str = ""

    def __str__(self) -> str:
        return _shown(self, Process())


def carry_out(act: str, name: int, places: Places) -> tuple[int, Places] | None:
    """Name and places after a rename that never replaces; None: it is refused."""
    source, slot, returned = places
    match act:
        case Act.PUBLISH if source and not name:
            return source, Places(NOTHING, slot, returned)
        case Act.EXCHANGE if source and name:
            return source, Places(name, slot, returned)
        case Act.AWAY if name and not slot:
            return NOTHING, Places(source, name, returned)
        case Act.SETTLE if source and not slot:
            return name, Places(NOTHING, source, returned)
        case Act.UNSETTLE if slot and not source:
            return name, Places(slot, NOTHING, returned)
        case Act.PUT_BACK if slot and not name:
            return slot, Places(source, NOTHING, returned)
        case Act.RETURN if name and not returned:
            return NOTHING, Places(source, slot, name)
        case Act.UNRETURN if returned and not name:
            return returned, Places(source, slot, NOTHING)
        case _:
            return None


def _shown(value: World | Process, usual: World | Process) -> str:
    """Its fields that are not as usual, for the trace of a fault."""
    pairs = zip(value._fields, value, usual, strict=True)
    return f"{type(value).__name__}({', '.join(f'{name}={each}' for name, each, normal in pairs if each != normal)})"


def find_world_fault(world: World, *, exchanges: bool, copies_max: int = 1) -> str | None:
    """What must not be at the name and in the places, whatever the processes are about to do."""
    if world.name < NOTHING:
        return "part of a file is at the name"
    counts = Counter(each for places in dict(world.directories).values() for each in places if each)
    counts[world.name] += 1
    for content, count in counts.items():
        if content and count > copies_max:
            return f"version {content} stands in {count} places"
    lost = world.guests - counts.keys()
    if lost:
        return f"the stranger's file {min(lost)} is lost"
    if world.log.open is None:
        return _find_fault_at_rest(world)
    return _find_fault_while_open(world, world.log.open, counts, exchanges=exchanges)


def _find_fault_at_rest(world: World) -> str | None:
    expected = world.log.published
    is_strangers = world.name in (NOTHING, *world.guests) and expected in (NOTHING, *world.destroyed)
    if world.name != expected and not is_strangers:
        return f"the name holds {world.name}, and the log says {expected}"
    if world.attributes != world.name:
        return f"the name holds {world.name} with the attributes of {world.attributes}"
    return None


def _find_fault_while_open(world: World, sequence: Open, counts: Mapping[int, int], *, exchanges: bool) -> str | None:
    plan = sequence.plan
    if world.name not in (NOTHING, plan.old, plan.new, *world.guests):
        return f"the name holds {world.name}, while sequence {plan.number} goes from {plan.old} to {plan.new}"
    for each in (plan.old, plan.new):
        if each and each not in counts and each not in world.destroyed:
            return f"version {each} is lost before the end of sequence {plan.number}"
    is_gap = world.name == NOTHING and plan.way is Way.REPLACE and exchanges and not sequence.is_abandoning
    if is_gap and not world.destroyed & {plan.old, plan.new}:
        return "a reader finds nothing at the name during a replacement"
    return None
