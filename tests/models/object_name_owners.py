"""What processes do at one name of an object store: plan, stage, seal, execute, finish, abandon, clean.

Each move is one transaction of the log or one request. What a look asks for is decided by ``object_steps`` itself.
The model is stricter than the code: one impossible verdict is enough to fail, where the code looks twice. And it is
looser: a process goes on for ever, where the code gives up after some passes.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple

from gobblin_assets.destinations.fixed_names.object_steps import (
    ObjectAct,
    Stands,
    decide_place_object,
    decide_remove_object,
    decide_replace_object,
    decide_undo_object,
)
from tests.models.fixed_names import GUEST, NOTHING, Way
from tests.models.object_names import (
    STAGED,
    Etags,
    ObjectPlan,
    ObjectWorld,
    OpenPlan,
    Token,
    find_object_fault,
    mark_of,
)


class Step(StrEnum):
    """What a process does next."""

    IDLE = "idle"
    CHOOSE = "choose"
    PLAN = "plan"
    STAGE = "stage"
    SEAL = "seal"
    ASK = "ask for the upload"
    LOOK = "look"
    ACT = "act"
    FINISH = "finish"
    FAIL = "fail"
    BLOCKED = "blocked"
    BEGIN_ABANDON = "begin to abandon"
    ABORT = "abort"
    READ_JOURNAL = "read the journal"
    LOOK_BACK = "look back"
    BEGIN_TOKEN = "begin an upload"
    WRITE_JOURNAL = "write the journal"
    CHECK = "check the fence"
    ACT_BACK = "act back"
    END_ABANDON = "end the abandonment"
    MARK = "mark for cleanup"
    REMOVE_ASIDE = "remove the copy"
    MARK_CLEANED = "mark cleaned"


class Owner(NamedTuple):
    """``left``: uploads that are still to be aborted, and ``then`` what comes after it. ``etag``: what was at the
    name at the last look. ``is_pending``: whether the staged upload was there. ``act``: what was decided.
    """

    step: Step = Step.IDLE
    fence: int = 0
    plan: ObjectPlan | None = None
    number: int = 0
    version: int = 0
    left: tuple[Token, ...] = ()
    then: Step = Step.IDLE
    etag: int = NOTHING
    is_pending: bool = False
    act: str = ""


Move = tuple[ObjectWorld, Owner]
IDLE = Owner()


@dataclass(frozen=True)
class ObjectNames:
    """The model, within bounds, which are those of ``fixed_name_owners``. ``etags``: which versions are alike."""

    etags: Etags = Etags.OWN
    processes: int = 2
    sequences: int = 3
    fences: int = 4
    acts: int = 0
    abandons: bool = True
    cleans: bool = True
    blocks_are_faults: bool = True

    @property
    def start(self) -> ObjectWorld:
        return ObjectWorld(acts_left=self.acts)

    @property
    def idle(self) -> Owner:
        return IDLE

    def list_moves(self, world: ObjectWorld, owner: Owner) -> Iterator[Move]:
        if owner.step is Step.BLOCKED:
            return
        if owner.step is not Step.IDLE:
            # It is killed.
            yield world, IDLE
        yield from self._moves[owner.step](world, owner)

    @cached_property
    def _moves(self) -> dict[Step, Callable[[ObjectWorld, Owner], Iterator[Move]]]:
        return {
            Step.IDLE: self.begin,
            Step.CHOOSE: self.choose,
            Step.PLAN: self.plan,
            Step.STAGE: self.stage,
            Step.SEAL: self.seal,
            Step.ASK: self.ask,
            Step.LOOK: self.look,
            Step.ACT: self.act,
            Step.FINISH: self.finish,
            Step.FAIL: self.fail,
            Step.BEGIN_ABANDON: self.begin_abandon,
            Step.ABORT: self.abort,
            Step.READ_JOURNAL: self.read_journal,
            Step.LOOK_BACK: self.look_back,
            Step.BEGIN_TOKEN: self.begin_token,
            Step.WRITE_JOURNAL: self.write_journal,
            Step.CHECK: self.check,
            Step.ACT_BACK: self.act_back,
            Step.END_ABANDON: self.end_abandon,
            Step.MARK: self.mark,
            Step.REMOVE_ASIDE: self.remove_aside,
            Step.MARK_CLEANED: self.mark_cleaned,
        }

    def list_changes(self, world: ObjectWorld) -> Iterator[ObjectWorld]:
        """A stranger writes the name, or removes what is there. A mark is not a stranger's business."""
        if not world.acts_left:
            return
        destroyed = world.destroyed | ({world.name} if world.name > NOTHING else set())
        guests = world.guests - {world.name}
        after = world._replace(acts_left=world.acts_left - 1, destroyed=destroyed)
        guest = GUEST + world.acts_left
        yield after._replace(name=guest, guests=guests | {guest})
        if world.name:
            yield after._replace(name=NOTHING, guests=guests)

    def find_fault(self, world: ObjectWorld, owner: Owner) -> str | None:
        if owner.step is Step.BLOCKED and world.acts_left == self.acts and self.blocks_are_faults:
            return f"a sequence waits for a person without a reason: {owner.act}"
        return find_object_fault(world, self.etags)

    # --- what a look asks for

    def decide(self, plan: ObjectPlan, name: Stands, *, is_pending: bool) -> ObjectAct:
        match plan.way:
            case Way.CREATE:
                return decide_place_object(name)
            case Way.REPLACE:
                return decide_replace_object(name)
            case Way.REMOVE:
                return decide_remove_object(name, is_pending=is_pending)

    def decide_back(self, plan: ObjectPlan, name: Stands, *, has_copy: bool) -> ObjectAct:
        removes = plan.way is Way.REMOVE
        return decide_undo_object(name, has_old=plan.way is not Way.CREATE, removes=removes, has_copy=has_copy)

    # --- a sequence, up to its seal

    def begin(self, world: ObjectWorld, owner: Owner) -> Iterator[Move]:
        """T0: a new fence, whoever was there before."""
        fence = world.log.fence + 1
        if fence <= self.fences:
            yield world.with_log(world.log._replace(fence=fence)), Owner(Step.CHOOSE, fence)

    def choose(self, world: ObjectWorld, owner: Owner) -> Iterator[Move]:
        log, fence = world.log, owner.fence
        if log.open is None:
            for number in log.over if self.cleans else ():
                yield world, Owner(Step.MARK, fence, number=number)
            if log.next_number <= self.sequences:
                yield world, Owner(Step.PLAN, fence, version=log.version)
            return
        plan = log.open.plan
        if not log.open.is_abandoning:
            yield world, Owner(self.first_look(plan), fence, plan, plan.number)
        if log.open.is_abandoning or self.abandons:
            yield world, Owner(Step.BEGIN_ABANDON, fence, plan, plan.number)

    def plan(self, world: ObjectWorld, owner: Owner) -> Iterator[Move]:
        """The name as it stands now is what the sequence is planned to find."""
        number = world.log.next_number
        if number > self.sequences or world.name < NOTHING:
            # A mark is never planned to be replaced.
            return
        planned = world.with_log(world.log._replace(next_number=number + 1))
        for way in (Way.REPLACE, Way.REMOVE) if world.name else (Way.CREATE,):
            plan = ObjectPlan(number, way, world.name)
            yield planned, owner._replace(step=Step.STAGE, plan=plan, number=number)

    def stage(self, world: ObjectWorld, owner: Owner) -> Iterator[Move]:
        plan = _plan_of(owner)
        yield world.with_upload((plan.number, STAGED), plan.staged), owner._replace(step=Step.SEAL)

    def seal(self, world: ObjectWorld, owner: Owner) -> Iterator[Move]:
        log, plan = world.log, _plan_of(owner)
        if log.fence != owner.fence or log.open is not None or log.version != owner.version:
            # Nobody ever completes what is staged.
            yield world.without_upload((plan.number, STAGED)), IDLE
            return
        sealed = world.with_log(log._replace(open=OpenPlan(plan), published=plan.old))
        # An object that was planned to be replaced is a stranger's no more.
        after = owner._replace(step=self.first_look(plan), version=0)
        yield sealed._replace(guests=world.guests - {plan.old}), after

    # --- execution

    def first_look(self, plan: ObjectPlan) -> Step:
        return Step.ASK if plan.way is Way.REMOVE else Step.LOOK

    def ask(self, world: ObjectWorld, owner: Owner) -> Iterator[Move]:
        """Whether the staged upload is there."""
        is_pending = world.find_upload((owner.number, STAGED)) is not None
        yield world, owner._replace(step=Step.LOOK, is_pending=is_pending)

    def look(self, world: ObjectWorld, owner: Owner) -> Iterator[Move]:
        plan = _plan_of(owner)
        act = self.decide(plan, plan.judge(world.name, self.etags), is_pending=owner.is_pending)
        step = Step.ACT
        if act.is_answer:
            step = Step.FINISH if act is ObjectAct.DONE else Step.FAIL
        # Before an old version gives way, a copy of it is put aside.
        word = "copy" if act is ObjectAct.COMPLETE and plan.old else str(act)
        yield world, owner._replace(step=step, etag=self.etags.of(world.name), act=word, is_pending=False)

    def act(self, world: ObjectWorld, owner: Owner) -> Iterator[Move]:
        """One request, and another look; or the completion that follows a copy."""
        plan, name = _plan_of(owner), world.name
        again = owner._replace(step=self.first_look(plan), act="", etag=NOTHING)
        match owner.act:
            case "copy":
                if self.copies(plan, name):
                    yield world.with_aside(plan.number, name), owner._replace(act=ObjectAct.COMPLETE)
                else:
                    yield world, again
            case ObjectAct.COMPLETE:
                yield self.complete(world, (plan.number, STAGED), self.etags.of(plan.old)), again
            case ObjectAct.CLEAR:
                yield self.clear(world, owner), again
            case ObjectAct.USE_UP:
                yield world.without_upload((plan.number, STAGED)), again

    def copies(self, plan: ObjectPlan, name: int) -> bool:
        return name != NOTHING and self.etags.of(name) == self.etags.of(plan.old)

    def complete(self, world: ObjectWorld, token: Token, etag: int) -> ObjectWorld:
        """``etag``: that of the object that must stand at the name; NOTHING: the name must be free."""
        content = world.find_upload(token)
        if content is None or self.etags.of(world.name) != etag:
            return world
        return world.without_upload(token)._replace(name=content)

    def clear(self, world: ObjectWorld, owner: Owner) -> ObjectWorld:
        """DELETE with the ETag that the last look found."""
        return world._replace(name=NOTHING) if self.etags.of(world.name) == owner.etag else world

    def find_held(self, world: ObjectWorld, owner: Owner) -> OpenPlan | None:
        """The owner's sequence, if it is open and the owner's fence is the dataset's; a guarded transaction asks."""
        sequence = world.log.open
        is_held = sequence is not None and sequence.plan.number == owner.number and world.log.fence == owner.fence
        return sequence if is_held else None

    def finish(self, world: ObjectWorld, owner: Owner) -> Iterator[Move]:
        sequence = self.find_held(world, owner)
        if sequence is None or sequence.is_abandoning:
            yield world, IDLE
            return
        log = world.log._replace(version=world.log.version + 1, published=sequence.plan.after)
        yield self.close(world.with_log(log), sequence), IDLE

    def close(self, world: ObjectWorld, sequence: OpenPlan) -> ObjectWorld:
        over = (*world.log.over, sequence.plan.number) if self.cleans else world.log.over
        return world.with_log(world.log._replace(open=None, over=over))

    def fail(self, world: ObjectWorld, owner: Owner) -> Iterator[Move]:
        """An impossible finding counts only while the log says that the sequence is open, and this owner's."""
        yield world, IDLE if self.find_held(world, owner) is None else Owner(Step.BLOCKED, act=owner.act)

    # --- abandonment

    def begin_abandon(self, world: ObjectWorld, owner: Owner) -> Iterator[Move]:
        sequence = self.find_held(world, owner)
        if sequence is None:
            yield world, IDLE
            return
        begun = world.with_log(world.log._replace(open=sequence._replace(is_abandoning=True)))
        yield begun, owner._replace(step=Step.ABORT, left=((owner.number, STAGED),), then=Step.READ_JOURNAL)

    def abort(self, world: ObjectWorld, owner: Owner) -> Iterator[Move]:
        if not owner.left:
            yield world, owner._replace(step=owner.then, then=Step.IDLE)
            return
        token, *left = owner.left
        yield world.without_upload(token), owner._replace(left=tuple(left))

    def read_journal(self, world: ObjectWorld, owner: Owner) -> Iterator[Move]:
        """The uploads of earlier abandoners. Later ones belong to those that took over from this one."""
        found = sorted(each for each in world.journal if each[0] == owner.number and each[1] < owner.fence)
        yield world, owner._replace(step=Step.ABORT, left=tuple(found), then=Step.LOOK_BACK)

    def look_back(self, world: ObjectWorld, owner: Owner) -> Iterator[Move]:
        plan = _plan_of(owner)
        has_copy = plan.number in dict(world.aside)
        act = self.decide_back(plan, plan.judge(world.name, self.etags), has_copy=has_copy)
        step = Step.ACT_BACK if act is ObjectAct.CLEAR else Step.BEGIN_TOKEN
        if act.is_answer:
            step = Step.END_ABANDON if act is ObjectAct.DONE else Step.FAIL
        yield world, owner._replace(step=step, etag=self.etags.of(world.name), act=str(act))

    def begin_token(self, world: ObjectWorld, owner: Owner) -> Iterator[Move]:
        token, plan = (owner.number, owner.fence), _plan_of(owner)
        content = mark_of(*token) if owner.act == ObjectAct.MARK else plan.old
        yield world.with_upload(token, content), owner._replace(step=Step.WRITE_JOURNAL)

    def write_journal(self, world: ObjectWorld, owner: Owner) -> Iterator[Move]:
        written = world._replace(journal=world.journal | {(owner.number, owner.fence)})
        yield written, owner._replace(step=Step.CHECK)

    def check(self, world: ObjectWorld, owner: Owner) -> Iterator[Move]:
        """The log is asked after the upload is written down: whoever takes over later finds it there."""
        yield world, IDLE if self.find_held(world, owner) is None else owner._replace(step=Step.ACT_BACK)

    def act_back(self, world: ObjectWorld, owner: Owner) -> Iterator[Move]:
        again = owner._replace(step=Step.LOOK_BACK, act="", etag=NOTHING)
        if owner.act == ObjectAct.CLEAR:
            yield self.clear(world, owner), again
        else:
            yield self.complete(world, (owner.number, owner.fence), owner.etag), again

    def end_abandon(self, world: ObjectWorld, owner: Owner) -> Iterator[Move]:
        sequence = self.find_held(world, owner)
        if sequence is not None and sequence.is_abandoning:
            world = self.close(world, sequence)
        yield world, IDLE

    # --- cleanup

    def mark(self, world: ObjectWorld, owner: Owner) -> Iterator[Move]:
        if world.log.fence != owner.fence or owner.number not in world.log.over:
            yield world, IDLE
            return
        found = sorted(each for each in world.journal if each[0] == owner.number)
        left = ((owner.number, STAGED), *found)
        yield world, owner._replace(step=Step.ABORT, left=left, then=Step.REMOVE_ASIDE)

    def remove_aside(self, world: ObjectWorld, owner: Owner) -> Iterator[Move]:
        journal = frozenset(each for each in world.journal if each[0] != owner.number)
        yield world.with_aside(owner.number, None)._replace(journal=journal), owner._replace(step=Step.MARK_CLEANED)

    def mark_cleaned(self, world: ObjectWorld, owner: Owner) -> Iterator[Move]:
        over = tuple(each for each in world.log.over if each != owner.number)
        yield world.with_log(world.log._replace(over=over)), IDLE


def _plan_of(owner: Owner) -> ObjectPlan:
    if owner.plan is None:
        raise AssertionError(f"{owner.step} needs a plan")
    return owner.plan
