"""What processes do at one published name: plan, stage, seal, claim, capture, execute, finish, abandon, clean.

Each move is one transaction of the log or one call of the file system. What a look asks for is decided by
``named_decisions`` itself. The model is stricter than the code in two points: one impossible verdict is enough to
fail, where the code looks twice, and a sequence is finished after one look that found it done, where the code looks
again after its syncs. And it is looser in two: a process goes on for ever, where the code gives up after some passes,
and a look into a directory that is gone finds either that, or nothing in it, since the code asks for both; an undo
finds nothing in it, and goes on even if it was overtaken.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

from gobblin_assets.destinations.fixed_names.named_decisions import (
    Act,
    Found,
    decide_place,
    decide_remove,
    decide_replace,
    decide_undo,
)
from tests.models.fixed_names import (
    GUEST,
    NOTHING,
    UNCAPTURED,
    Doing,
    Log,
    Open,
    Places,
    Plan,
    Process,
    Way,
    World,
    carry_out,
    find_world_fault,
)

Move = tuple[World, Process]
IDLE = Process()

LOOKED_AT = {
    Way.CREATE: ("source", "name"),
    Way.REPLACE: ("source", "slot", "name"),
    Way.REMOVE: ("slot", "name"),
}
"""The places that a step looks at before it acts, in the code's order."""

LOOKED_AT_BACK = ("source", "slot", "name", "returned")


@dataclass(frozen=True)
class FixedNames:
    """The model, within bounds. ``fences``: how many processes may begin, one after another or over each other.

    ``acts``: how often a stranger writes the name, or removes what is there. ``blocks_are_faults``: a sequence that
    waits for a person, without a stranger's act, is a fault. ``copies_max``: the names that one file may have.
    """

    exchanges: bool = True
    processes: int = 2
    sequences: int = 3
    fences: int = 4
    acts: int = 0
    abandons: bool = True
    cleans: bool = True
    blocks_are_faults: bool = True
    copies_max: int = 1

    @property
    def start(self) -> World:
        return World(acts_left=self.acts)

    @property
    def idle(self) -> Process:
        return IDLE

    def list_moves(self, world: World, process: Process) -> Iterator[Move]:
        if process.doing is Doing.BLOCKED:
            return
        if process.doing is not Doing.IDLE:
            # It is killed.
            yield world, IDLE
        yield from self._moves[process.doing](world, process)

    @cached_property
    def _moves(self) -> dict[Doing, Callable[[World, Process], Iterator[Move]]]:
        return {
            Doing.IDLE: self.begin,
            Doing.CHOOSE: self.choose,
            Doing.PLAN: self.plan,
            Doing.STAGE: self.stage,
            Doing.SEAL: self.seal,
            Doing.CLAIM: self.claim,
            Doing.CAPTURE: self.capture,
            Doing.LOOK: self.look,
            Doing.MOVE: self.move,
            Doing.FINISH: self.finish,
            Doing.FAIL: self.fail,
            Doing.BEGIN_ABANDON: self.begin_abandon,
            Doing.LOOK_BACK: self.look,
            Doing.MOVE_BACK: self.move,
            Doing.END_ABANDON: self.end_abandon,
            Doing.MARK: self.mark,
            Doing.REMOVE_TREE: self.remove_tree,
            Doing.MARK_CLEANED: self.mark_cleaned,
        }

    def list_changes(self, world: World) -> Iterator[World]:
        """A stranger writes the name, or removes what is there."""
        if not world.acts_left:
            return
        destroyed = world.destroyed | ({world.name} if world.name > NOTHING else set())
        guests = world.guests - {world.name}
        after = world._replace(acts_left=world.acts_left - 1, destroyed=destroyed)
        guest = GUEST + world.acts_left
        yield after._replace(guests=guests | {guest}).with_name(guest)
        if world.name:
            yield after._replace(guests=guests).with_name(NOTHING)

    def find_fault(self, world: World, process: Process) -> str | None:
        is_undisturbed = world.acts_left == self.acts
        if process.doing is Doing.BLOCKED and is_undisturbed and self.blocks_are_faults:
            return f"a sequence waits for a person without a reason: {process.act}"
        return find_world_fault(world, exchanges=self.exchanges, copies_max=self.copies_max)

    # --- what a look asks for

    def decide(self, plan: Plan, seen: tuple[Found, ...]) -> str:
        """``seen``: what is at the places of ``LOOKED_AT``."""
        match plan.way:
            case Way.CREATE:
                return decide_place(*seen)
            case Way.REMOVE:
                return decide_remove(*seen)
            case Way.REPLACE:
                return decide_replace(*seen, exchanges=self.exchanges)

    def decide_back(self, plan: Plan, seen: tuple[Found, ...]) -> str:
        return decide_undo(*seen, has_old=plan.way is not Way.CREATE)

    # --- a sequence, up to its seal

    def begin(self, world: World, process: Process) -> Iterator[Move]:
        """T0: a new fence, whoever was there before."""
        fence = world.log.fence + 1
        if fence <= self.fences:
            yield world.with_log(world.log._replace(fence=fence)), Process(Doing.CHOOSE, fence)

    def choose(self, world: World, process: Process) -> Iterator[Move]:
        log, fence = world.log, process.fence
        if log.open is None:
            for number, _fences in log.over if self.cleans else ():
                yield world, Process(Doing.MARK, fence, number=number)
            if log.next_number <= self.sequences:
                yield world, Process(Doing.PLAN, fence, version=log.version)
            return
        plan = log.open.plan
        if not log.open.is_abandoning:
            yield world, Process(Doing.CLAIM, fence, plan, plan.number)
        if log.open.is_abandoning or self.abandons:
            yield world, Process(Doing.BEGIN_ABANDON, fence, plan, plan.number)

    def plan(self, world: World, process: Process) -> Iterator[Move]:
        """The name as it stands now is what the sequence is planned to find."""
        number = world.log.next_number
        if number > self.sequences:
            return
        planned = world.with_log(world.log._replace(next_number=number + 1))
        for way in (Way.REPLACE, Way.REMOVE) if world.name else (Way.CREATE,):
            plan = Plan(number, way, world.name, process.fence)
            yield planned, process._replace(doing=Doing.STAGE, plan=plan, number=number)

    def stage(self, world: World, process: Process) -> Iterator[Move]:
        plan = _plan_of(process)
        staged = world.with_places(plan.number, UNCAPTURED, Places(source=plan.new))
        yield staged, process._replace(doing=Doing.SEAL)

    def seal(self, world: World, process: Process) -> Iterator[Move]:
        log, plan = world.log, _plan_of(process)
        if log.fence != process.fence or log.open is not None or log.version != process.version:
            # Nobody ever names what is staged.
            yield world.with_places(plan.number, UNCAPTURED, None), IDLE
            return
        sealed = world.with_log(log._replace(open=Open(plan, ()), published=plan.old))
        # A file that was planned to be replaced is a stranger's no more.
        yield sealed._replace(guests=world.guests - {plan.old}), process._replace(doing=Doing.LOOK, version=0)

    # --- the directory of an attempt

    def fence_in_name(self, process: Process) -> int:
        """Under which name a process knows the attempt's directory."""
        is_sealer = process.doing in (Doing.LOOK, Doing.MOVE) and process.fence == _plan_of(process).sealer
        return UNCAPTURED if is_sealer else process.fence

    def claim(self, world: World, process: Process) -> Iterator[Move]:
        """The fence is in the log before the directory has its name."""
        sequence = self.find_held(world, process)
        if sequence is None or sequence.is_abandoning:
            yield world, IDLE
            return
        claimed = sequence._replace(fences=(*sequence.fences, process.fence))
        yield world.with_log(world.log._replace(open=claimed)), self.new_capture(process, sequence.fences, Doing.LOOK)

    def new_capture(self, process: Process, fences: tuple[int, ...], then: Doing) -> Process:
        return process._replace(doing=Doing.CAPTURE, left=(UNCAPTURED, *sorted(fences)), then=then)

    def capture(self, world: World, process: Process) -> Iterator[Move]:
        """One rename of the chain."""
        source, *left = process.left
        number, fence = process.number, process.fence
        found, taken = world.find_places(number, source), world.find_places(number, fence)
        if found is not None and taken is not None:
            yield world, process._replace(doing=Doing.FAIL, left=(), then=Doing.IDLE, act="two directories")
            return
        if found is not None:
            world = world.with_places(number, source, None).with_places(number, fence, found)
        following = process._replace(left=tuple(left))
        yield world, following if left else following._replace(doing=process.then, then=Doing.IDLE)

    # --- execution and undo

    def look(self, world: World, process: Process) -> Iterator[Move]:
        """At one place. After the last one it is decided what the places ask for."""
        plan, is_back = _plan_of(process), process.doing is Doing.LOOK_BACK
        looked_at = LOOKED_AT_BACK if is_back else LOOKED_AT[plan.way]
        here = self.find_here(world, process)
        if here is None and not process.seen and not is_back:
            yield world, process._replace(doing=Doing.FAIL, act=Act.LOST)
        place = looked_at[len(process.seen)]
        content = world.name if place == "name" else getattr(here or Places(), place)
        seen = (*process.seen, plan.judge(content))
        if len(seen) < len(looked_at):
            yield world, process._replace(seen=seen)
            return
        act = self.decide_back(plan, seen) if is_back else self.decide(plan, seen)
        yield (
            world,
            process._replace(doing=_following(act, is_back=is_back), seen=(), act="" if act == Act.DONE else act),
        )

    def move(self, world: World, process: Process) -> Iterator[Move]:
        """The rename that was decided, and another look, whether it was refused or not."""
        places = self.find_here(world, process)
        moved = None if places is None else self.carry_out(process.act, world.name, places)
        if moved is not None:
            name, places = moved
            world = world if name == world.name else self.show(world, process, name)
            world = world.with_places(process.number, self.fence_in_name(process), places)
        look = Doing.LOOK_BACK if process.doing is Doing.MOVE_BACK else Doing.LOOK
        yield world, process._replace(doing=look, act="")

    def carry_out(self, act: str, name: int, places: Places) -> tuple[int, Places] | None:
        return carry_out(act, name, places)

    def show(self, world: World, process: Process, name: int) -> World:
        """Another file is at the name after the process's move."""
        del process
        return world.with_name(name)

    def find_here(self, world: World, process: Process) -> Places | None:
        """The attempt's directory, under the name by which the process knows it."""
        return world.find_places(process.number, self.fence_in_name(process))

    def find_held(self, world: World, process: Process) -> Open | None:
        """The process's sequence, if it is open and its fence is the dataset's; what a guarded transaction asks."""
        sequence = world.log.open
        is_held = sequence is not None and sequence.plan.number == process.number and world.log.fence == process.fence
        return sequence if is_held else None

    def finish(self, world: World, process: Process) -> Iterator[Move]:
        sequence = self.find_held(world, process)
        if sequence is None or sequence.is_abandoning:
            yield world, IDLE
            return
        log = world.log._replace(version=world.log.version + 1, published=sequence.plan.new)
        yield world.with_log(self.close(log._replace(open=None), sequence)), IDLE

    def close(self, log: Log, sequence: Open) -> Log:
        return log._replace(over=(*log.over, (sequence.plan.number, sequence.fences))) if self.cleans else log

    def fail(self, world: World, process: Process) -> Iterator[Move]:
        """An impossible finding counts only while the log says that the sequence is open, and this process's."""
        if self.find_held(world, process) is None:
            yield world, IDLE
        else:
            yield world, Process(Doing.BLOCKED, act=process.act)

    # --- abandonment

    def begin_abandon(self, world: World, process: Process) -> Iterator[Move]:
        sequence = self.find_held(world, process)
        if sequence is None:
            yield world, IDLE
            return
        begun = sequence._replace(fences=(*sequence.fences, process.fence), is_abandoning=True)
        yield (
            world.with_log(world.log._replace(open=begun)),
            self.new_capture(process, sequence.fences, Doing.LOOK_BACK),
        )

    def end_abandon(self, world: World, process: Process) -> Iterator[Move]:
        sequence = self.find_held(world, process)
        if sequence is not None and sequence.is_abandoning:
            world = world.with_log(self.close(world.log._replace(open=None), sequence))
        yield world, IDLE

    # --- cleanup

    def mark(self, world: World, process: Process) -> Iterator[Move]:
        log, number = world.log, process.number
        if log.fence != process.fence or number not in dict(log.over):
            yield world, IDLE
            return
        fences = log.fences_of(number)
        marked = tuple((each, (*found, process.fence) if each == number else found) for each, found in log.over)
        yield world.with_log(log._replace(over=marked)), self.new_capture(process, fences, Doing.REMOVE_TREE)

    def remove_tree(self, world: World, process: Process) -> Iterator[Move]:
        yield world.with_places(process.number, process.fence, None), process._replace(doing=Doing.MARK_CLEANED)

    def mark_cleaned(self, world: World, process: Process) -> Iterator[Move]:
        """Unless a newer owner has marked the attempt since."""
        is_newest = max(world.log.fences_of(process.number), default=0) <= process.fence
        over = tuple(each for each in world.log.over if each[0] != process.number or not is_newest)
        yield world.with_log(world.log._replace(over=over)), IDLE


def _plan_of(process: Process) -> Plan:
    if process.plan is None:
        raise AssertionError(f"{process.doing} needs a plan")
    return process.plan


def _following(act: str, *, is_back: bool) -> Doing:
    match act:
        case Act.DONE:
            return Doing.END_ABANDON if is_back else Doing.FINISH
        case Act.CONFLICT | Act.LOST:
            return Doing.FAIL
        case _:
            return Doing.MOVE_BACK if is_back else Doing.MOVE
