"""Variants of the protocol at given names that leave one of its rules out. Each of them must fall."""

from collections.abc import Iterator
from dataclasses import dataclass

from gobblin_assets.destinations.fixed_names.named_decisions import Act, Found
from tests.models.fixed_name_owners import IDLE, FixedNames, Move
from tests.models.fixed_names import NOTHING, UNCAPTURED, Doing, Places, Plan, Process, Way, World

LINK = "link"
"""A second name for the old version, in the slot."""
UNLINK = "unlink"
OVER = "over"
"""A rename of the source that replaces what is at the name."""
SET_ATTRIBUTES = "set attributes"
UNSET = -1


def _without_capture(moves: Iterator[Move], then: Doing) -> Iterator[Move]:
    for world, process in moves:
        is_capture = process.doing is Doing.CAPTURE
        yield world, process._replace(doing=then, left=(), then=Doing.IDLE) if is_capture else process


@dataclass(frozen=True)
class ExecutorsDoNotCapture(FixedNames):
    def fence_in_name(self, process: Process) -> int:
        return UNCAPTURED if process.doing in (Doing.LOOK, Doing.MOVE) else process.fence

    def claim(self, world: World, process: Process) -> Iterator[Move]:
        return _without_capture(super().claim(world, process), Doing.LOOK)


@dataclass(frozen=True)
class SlotsAreMadeAgain(ExecutorsDoNotCapture):
    """A slot whose directory is missing is made again."""

    def find_here(self, world: World, process: Process) -> Places | None:
        found = super().find_here(world, process)
        return Places() if found is None and process.act == Act.AWAY else found


@dataclass(frozen=True)
class CleanupDoesNotCapture(SlotsAreMadeAgain):
    """It removes the directories of all fences under their names."""

    def mark(self, world: World, process: Process) -> Iterator[Move]:
        return _without_capture(super().mark(world, process), Doing.REMOVE_TREE)

    def remove_tree(self, world: World, process: Process) -> Iterator[Move]:
        for fence in (UNCAPTURED, *world.log.fences_of(process.number)):
            world = world.with_places(process.number, fence, None)
        yield world, process._replace(doing=Doing.MARK_CLEANED)


@dataclass(frozen=True)
class AbandonersDoNotCapture(FixedNames):
    """They undo in the directory as it is named."""

    def fence_in_name(self, process: Process) -> int:
        is_back = process.doing in (Doing.LOOK_BACK, Doing.MOVE_BACK)
        sealer = process.plan.sealer if process.plan is not None else 0
        return UNCAPTURED if is_back or process.fence == sealer else process.fence

    def begin_abandon(self, world: World, process: Process) -> Iterator[Move]:
        return _without_capture(super().begin_abandon(world, process), Doing.LOOK_BACK)


@dataclass(frozen=True)
class CapturesKeepTheirNames(FixedNames):
    """Abandonments as for names that are always new: each has a directory of its own, and makes its places."""

    def new_capture(self, process: Process, fences: tuple[int, ...], then: Doing) -> Process:
        made = super().new_capture(process, fences, then)
        return made._replace(left=(UNCAPTURED,)) if then is Doing.LOOK_BACK else made

    def find_here(self, world: World, process: Process) -> Places | None:
        found = super().find_here(world, process)
        if process.doing is Doing.MOVE_BACK:
            return found or Places()
        if process.doing is not Doing.LOOK_BACK:
            return found
        known = [each for (number, _fence), each in sorted(world.directories) if number == process.number]
        return Places(*(next(filter(None, contents), NOTHING) for contents in zip(Places(), *known, strict=True)))


@dataclass(frozen=True)
class CaptureDescends(FixedNames):
    """The chain looks for the directory from the newest fence to the oldest."""

    def new_capture(self, process: Process, fences: tuple[int, ...], then: Doing) -> Process:
        made = super().new_capture(process, fences, then)
        return made._replace(left=made.left[::-1])


@dataclass(frozen=True)
class ClaimAfterTheCapture(FixedNames):
    """The directory has its name before the fence is in the log."""

    def claim(self, world: World, process: Process) -> Iterator[Move]:
        sequence = self.find_held(world, process)
        if process.act or sequence is None:
            yield from _without_capture(super().claim(world, process._replace(act="")), Doing.LOOK)
        else:
            yield world, self.new_capture(process._replace(act="captured"), sequence.fences, Doing.CLAIM)


@dataclass(frozen=True)
class FencesAreTrimmed(FixedNames):
    """The log keeps the newest fence of an attempt only."""

    def claim(self, world: World, process: Process) -> Iterator[Move]:
        for after, claimed in super().claim(world, process):
            sequence = after.log.open
            if sequence is None or claimed.doing is not Doing.CAPTURE:
                yield after, claimed
            else:
                trimmed = sequence._replace(fences=sequence.fences[-1:])
                yield after.with_log(after.log._replace(open=trimmed)), claimed


@dataclass(frozen=True)
class LosesFences(FencesAreTrimmed):
    """The log forgets fences, as one that was restored; the chain looks under all of them, known or not."""

    def new_capture(self, process: Process, fences: tuple[int, ...], then: Doing) -> Process:
        return super().new_capture(process, tuple(range(1, process.fence)), then)


@dataclass(frozen=True)
class LosesAttempts(FixedNames):
    """Somebody removes the attempt's directory, under whatever name it has."""

    def list_changes(self, world: World) -> Iterator[World]:
        yield from super().list_changes(world)
        sequence = world.log.open
        if sequence is None or not world.acts_left:
            return
        lost = {key: places for key, places in world.directories if key[0] == sequence.plan.number}
        contents = {each for places in lost.values() for each in places if each}
        kept = frozenset((key, places) for key, places in world.directories if key not in lost)
        if lost:
            yield world._replace(
                directories=kept,
                acts_left=world.acts_left - 1,
                guests=world.guests - contents,
                destroyed=world.destroyed | contents,
            )


@dataclass(frozen=True)
class GivesUpWithoutTheName(LosesAttempts):
    """Where the attempt's directory is gone, it is given up whatever is at the name."""

    def decide_back(self, plan: Plan, seen: tuple[Found, ...]) -> str:
        source, slot, name, returned = seen
        is_gone = (source, slot, returned) == (Found.NOTHING, Found.NOTHING, Found.NOTHING)
        return Act.DONE if is_gone and name is Found.NEW else super().decide_back(plan, seen)


@dataclass(frozen=True)
class RemovesByName(FixedNames):
    """An unlink of the name, after a look that compared identities; the slot has a second name of the old file."""

    copies_max: int = 2

    def decide(self, plan: Plan, seen: tuple[Found, ...]) -> str:
        if plan.way is not Way.REMOVE:
            return super().decide(plan, seen)
        slot, name = seen
        if name is not Found.OLD:
            return Act.DONE if slot is Found.OLD else Act.CONFLICT
        return UNLINK if slot is Found.OLD else LINK

    def carry_out(self, act: str, name: int, places: Places) -> tuple[int, Places] | None:
        return (name, places._replace(slot=name)) if act == LINK and name else super().carry_out(act, name, places)

    def move(self, world: World, process: Process) -> Iterator[Move]:
        # No path in the attempt's directory takes part in it.
        is_unlink = process.act == UNLINK
        return super().move(world.with_name(NOTHING) if is_unlink else world, process)


@dataclass(frozen=True)
class AttributesByName(FixedNames):
    """Attributes are set by the published name, once the new version is there."""

    def show(self, world: World, process: Process, name: int) -> World:
        shown = super().show(world, process, name)
        return shown._replace(attributes=UNSET) if process.act in (Act.PUBLISH, Act.EXCHANGE) else shown

    def look(self, world: World, process: Process) -> Iterator[Move]:
        for after, looked in super().look(world, process):
            is_bare = looked.doing is Doing.FINISH and after.attributes not in (NOTHING, looked.number)
            yield after, looked._replace(doing=Doing.MOVE, act=SET_ATTRIBUTES) if is_bare else looked

    def move(self, world: World, process: Process) -> Iterator[Move]:
        is_setting = process.act == SET_ATTRIBUTES and world.name != NOTHING
        return super().move(world._replace(attributes=process.number) if is_setting else world, process)


@dataclass(frozen=True)
class WriterComesBack(FixedNames):
    """A task that had been given up makes its directory again, under its first name, and writes a part of a file."""

    def list_changes(self, world: World) -> Iterator[World]:
        yield from super().list_changes(world)
        sequence = world.log.open
        if sequence is not None and world.find_places(sequence.plan.number, UNCAPTURED) is None:
            yield world.with_places(sequence.plan.number, UNCAPTURED, Places(source=-sequence.plan.number))


@dataclass(frozen=True)
class VerifiesByExistence(FixedNames):
    """Whatever is at a place is taken for what should be there."""

    def decide(self, plan: Plan, seen: tuple[Found, ...]) -> str:
        name = seen[-1] is not Found.NOTHING
        if plan.way is Way.CREATE:
            return Act.DONE if name else Act.PUBLISH
        slot = seen[-2] is not Found.NOTHING
        if plan.way is Way.REMOVE:
            return Act.DONE if slot else Act.AWAY
        return (Act.DONE if name else Act.PUBLISH) if slot else Act.AWAY


@dataclass(frozen=True)
class ReplacesByRename(FixedNames):
    """The old version gets a second name in the slot; then the new one is renamed over it."""

    copies_max: int = 4

    def decide(self, plan: Plan, seen: tuple[Found, ...]) -> str:
        if plan.way is not Way.REPLACE:
            return super().decide(plan, seen)
        source, slot, name = seen
        if slot is not Found.OLD:
            return LINK if slot is Found.NOTHING and name is Found.OLD else Act.CONFLICT
        if name is Found.NEW:
            return Act.DONE
        return OVER if source is Found.NEW else Act.LOST

    def decide_back(self, plan: Plan, seen: tuple[Found, ...]) -> str:
        _source, slot, name, _returned = seen
        is_linked_only = slot is Found.OLD and name is Found.OLD
        return Act.DONE if is_linked_only else super().decide_back(plan, seen)

    def carry_out(self, act: str, name: int, places: Places) -> tuple[int, Places] | None:
        if act == LINK and name and not places.slot:
            return name, places._replace(slot=name)
        if act == OVER and places.source:
            return places.source, places._replace(source=NOTHING)
        return super().carry_out(act, name, places)


@dataclass(frozen=True)
class PutsBackWhereTheNameIsFree(FixedNames):
    """A sequence does not wait for a person while a stranger's file could stand at the name again."""

    def find_fault(self, world: World, process: Process) -> str | None:
        is_kept = any(world.guests & set(places) for _key, places in world.directories)
        if process.doing is Doing.BLOCKED and world.name == NOTHING and is_kept:
            return "nothing is at the name, and a stranger's file waits in an attempt's directory"
        return super().find_fault(world, process)


@dataclass(frozen=True)
class PutsBackAlways(FixedNames):
    """No sequence waits for a person while a stranger's file is in its attempt's directory."""

    def find_fault(self, world: World, process: Process) -> str | None:
        is_kept = any(world.guests & set(places) for _key, places in world.directories)
        if process.doing is Doing.BLOCKED and is_kept:
            return "a stranger's file waits in an attempt's directory"
        return super().find_fault(world, process)


@dataclass(frozen=True)
class ForgetsNothing(FixedNames):
    """The log leads to every directory of an attempt that was sealed once."""

    def find_fault(self, world: World, process: Process) -> str | None:
        known = dict(world.log.over).keys() | ({world.log.open.plan.number} if world.log.open else set())
        if any(fence != UNCAPTURED and number not in known for (number, fence), _places in world.directories):
            return "no row leads to an attempt's directory"
        return super().find_fault(world, process)


@dataclass(frozen=True)
class MarksCleanedForAllOwners(ForgetsNothing):
    """An owner that finds nothing marks the attempt cleaned, although a newer one has captured it meanwhile."""

    def mark_cleaned(self, world: World, process: Process) -> Iterator[Move]:
        over = tuple(each for each in world.log.over if each[0] != process.number)
        yield world.with_log(world.log._replace(over=over)), IDLE


@dataclass(frozen=True)
class UndoLeavesTheSlot(PutsBackWhereTheNameIsFree):
    """A stranger's file in the slot is no matter of the undo."""

    def decide_back(self, plan: Plan, seen: tuple[Found, ...]) -> str:
        source, slot, name, returned = seen
        return super().decide_back(plan, (source, Found.NOTHING if slot is Found.OTHER else slot, name, returned))


@dataclass(frozen=True)
class UndoKeepsWhatItReturned(FixedNames):
    """Whatever a return took along is taken for the new version."""

    def decide_back(self, plan: Plan, seen: tuple[Found, ...]) -> str:
        *others, returned = seen
        return super().decide_back(plan, (*others, Found.NEW if returned is Found.OTHER else returned))


@dataclass(frozen=True)
class UndoKeepsWhatItExchanged(PutsBackWhereTheNameIsFree):
    """The undo exchanges only the old version back."""

    def decide_back(self, plan: Plan, seen: tuple[Found, ...]) -> str:
        source, _slot, name, returned = seen
        if source is Found.OTHER and name is Found.NEW and returned is Found.NOTHING:
            return Act.RETURN
        return super().decide_back(plan, seen)


@dataclass(frozen=True)
class ExecutionKeepsWhatItTook(PutsBackWhereTheNameIsFree):
    """A stranger's file in the slot is left there."""

    def decide(self, plan: Plan, seen: tuple[Found, ...]) -> str:
        act = super().decide(plan, seen)
        return Act.CONFLICT if act == Act.PUT_BACK else act
