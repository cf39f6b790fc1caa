"""Variants of the protocol at names of an object store that leave one of its rules out. Each of them must fall."""

from collections.abc import Iterator
from dataclasses import dataclass

from gobblin_assets.destinations.fixed_names.object_steps import ObjectAct, Stands
from tests.models.fixed_names import NOTHING, Way
from tests.models.object_name_owners import Move, ObjectNames, Owner, Step
from tests.models.object_names import STAGED, ObjectPlan, ObjectWorld, Token


@dataclass(frozen=True)
class RemovesByDelete(ObjectNames):
    """DELETE of the old version by its ETag, after it was put aside; the staged upload is not used."""

    def decide(self, plan: ObjectPlan, name: Stands, *, is_pending: bool) -> ObjectAct:
        if plan.way is not Way.REMOVE or name is Stands.OTHER:
            return super().decide(plan, name, is_pending=is_pending)
        return ObjectAct.DONE if name is Stands.NOTHING else ObjectAct.COMPLETE

    def complete(self, world: ObjectWorld, token: Token, etag: int) -> ObjectWorld:
        content = world.find_upload(token)
        if content is not None and content >= NOTHING:
            return super().complete(world, token, etag)
        return world._replace(name=NOTHING) if self.etags.of(world.name) == etag else world


@dataclass(frozen=True)
class UndoRemovesByDelete(ObjectNames):
    """An abandoner removes the new version by its ETag."""

    def decide_back(self, plan: ObjectPlan, name: Stands, *, has_copy: bool) -> ObjectAct:
        act = super().decide_back(plan, name, has_copy=has_copy)
        return ObjectAct.CLEAR if act is ObjectAct.MARK else act


@dataclass(frozen=True)
class LooksBeforeItAborts(ObjectNames):
    """An abandoner that finds nothing of the sequence at the name is content."""

    def begin_abandon(self, world: ObjectWorld, owner: Owner) -> Iterator[Move]:
        for after, begun in super().begin_abandon(world, owner):
            yield (
                after,
                begun if begun.step is Step.IDLE else begun._replace(step=Step.LOOK_BACK, left=(), then=Step.IDLE),
            )


@dataclass(frozen=True)
class CompletesWithoutCondition(ObjectNames):
    def complete(self, world: ObjectWorld, token: Token, etag: int) -> ObjectWorld:
        del etag
        return super().complete(world, token, self.etags.of(world.name))


@dataclass(frozen=True)
class VerifiesByEtag(ObjectNames):
    """The step's own version is known by its ETag alone."""

    def look(self, world: ObjectWorld, owner: Owner) -> Iterator[Move]:
        plan = owner.plan
        is_alike = plan is not None and plan.after and self.etags.of(world.name) == self.etags.of(plan.after)
        for after, looked in super().look(world, owner):
            yield after, looked._replace(step=Step.FINISH, act="") if is_alike else looked


@dataclass(frozen=True)
class UndoDoesNotAskTheLog(ObjectNames):
    def check(self, world: ObjectWorld, owner: Owner) -> Iterator[Move]:
        yield world, owner._replace(step=Step.ACT_BACK)


@dataclass(frozen=True)
class UndoAsksTheLogFirst(ObjectNames):
    """The log is asked before the upload is begun."""

    def look_back(self, world: ObjectWorld, owner: Owner) -> Iterator[Move]:
        for after, looked in super().look_back(world, owner):
            yield after, looked._replace(step=Step.CHECK) if looked.step is Step.BEGIN_TOKEN else looked

    def check(self, world: ObjectWorld, owner: Owner) -> Iterator[Move]:
        for after, checked in super().check(world, owner):
            yield after, checked if checked.step is Step.IDLE else checked._replace(step=Step.BEGIN_TOKEN)

    def write_journal(self, world: ObjectWorld, owner: Owner) -> Iterator[Move]:
        for after, written in super().write_journal(world, owner):
            yield after, written._replace(step=Step.ACT_BACK)


@dataclass(frozen=True)
class UndoWritesNoJournal(ObjectNames):
    def write_journal(self, world: ObjectWorld, owner: Owner) -> Iterator[Move]:
        yield world, owner._replace(step=Step.CHECK)


@dataclass(frozen=True)
class NothingIsPutAside(ObjectNames):
    def look(self, world: ObjectWorld, owner: Owner) -> Iterator[Move]:
        for after, looked in super().look(world, owner):
            yield after, looked._replace(act=ObjectAct.COMPLETE) if looked.act == "copy" else looked


@dataclass(frozen=True)
class CopiesWithoutCondition(ObjectNames):
    def copies(self, plan: ObjectPlan, name: int) -> bool:
        return name != NOTHING


@dataclass(frozen=True)
class RemovedIfNothingIsThere(ObjectNames):
    """A removal is done once nothing is at the name, although its upload is still there."""

    def decide(self, plan: ObjectPlan, name: Stands, *, is_pending: bool) -> ObjectAct:
        is_gone = plan.way is Way.REMOVE and name is Stands.NOTHING
        return ObjectAct.DONE if is_gone else super().decide(plan, name, is_pending=is_pending)


@dataclass(frozen=True)
class PutsBackByCopy(ObjectNames):
    """A copy inside the store has no condition on its target."""

    def act_back(self, world: ObjectWorld, owner: Owner) -> Iterator[Move]:
        plan = owner.plan
        for after, acted in super().act_back(world, owner):
            is_copy = owner.act == ObjectAct.PUT_BACK and plan is not None
            yield world._replace(name=plan.old) if is_copy and plan is not None else after, acted


@dataclass(frozen=True)
class UploadsAreReused(ObjectNames):
    """A completed upload is begun again by whoever finds it gone, with what was read once."""

    def act(self, world: ObjectWorld, owner: Owner) -> Iterator[Move]:
        plan, token = owner.plan, (owner.number, STAGED)
        if owner.act == ObjectAct.COMPLETE and plan is not None and world.find_upload(token) is None:
            world = world.with_upload(token, plan.staged)
        return super().act(world, owner)
