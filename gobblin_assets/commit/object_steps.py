"""The kinds of steps that publish objects in a store, most of them at given names, which other publications use too.

The staged version of an object is an upload that was begun and has all of its parts. Its completion makes it the object
at the name, in one moment and under a condition that the store checks: that the name is free, or that the planned
version stands there. Then the upload is used up, so that a paused process that completes it later has no effect.

An object is the step's own by the id in its metadata, and by its length and its ETag, where that is known: another tool
may rewrite an object and keep its metadata. An ETag alone proves nothing: the same bytes have the same ETag in each
publication. For the same reason nothing at a given name is ever removed by the ETag of its bytes. A removal puts a
mark in the place of the old version, by an upload of its own, and removes the mark, whose bytes nobody else has.

The old version is put aside by a copy inside the store, before its place is taken. ``object_decisions`` has the tables
of what is done, ``object_undo`` takes a step back.
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from gobblin_assets.commit.named_faults import (
    PUT_BACK,
    STRANGER_AT_FREE_NAME,
    STRANGER_IN_PLACE_OF_OLD,
    STRANGER_ON_THE_WAY,
)
from gobblin_assets.commit.named_steps import Phase
from gobblin_assets.commit.object_attempts import slot_of
from gobblin_assets.commit.object_decisions import (
    ObjectAct,
    Stands,
    decide_place_object,
    decide_remove_object,
    decide_replace_object,
)
from gobblin_assets.commit.object_undo import ObjectUndo, is_version
from gobblin_assets.commit.step_world import StepWorld
from gobblin_assets.commit.steps import (
    CapturedStaging,
    CommitStep,
    PublishedStepFile,
    StepFault,
    StepVerdict,
    UndoOutcome,
)
from gobblin_assets.errors import OutcomeUnknownError
from gobblin_assets.fs.objects import (
    Absent,
    Condition,
    HasEtag,
    ObjectEntry,
    ObjectFiles,
    UploadId,
    UploadPart,
    WriteOutcome,
)
from gobblin_assets.model.files import FileIdentity

ACTS_MAX: Final = 4
"""A removal is a completion and the removal of a mark; a stranger on the way costs one more."""


@dataclass(frozen=True, slots=True)
class ObjectStep(CommitStep):
    """What the kinds have in common.

    ``staging``: where the attempt keeps its work, as the log has it. ``number``: unique in the attempt. ``upload`` and
    ``parts``: the staged version.
    """

    staging: str
    target: str
    number: str
    upload: UploadId
    parts: tuple[UploadPart, ...]

    @property
    def is_independent(self) -> bool:
        """Each has a name of its own, and most of its time waits for the store."""
        return True

    @property
    def id(self) -> str:
        """In the metadata of the staged version."""
        return object_id(self.staging, self.number)

    @property
    def replaced(self) -> FileIdentity | None:
        """The version that was planned to stand at the name."""
        return None

    @property
    def staged(self) -> FileIdentity:
        """What the upload becomes. Of a mark, the length is all that counts."""
        mark = FileIdentity(sum(each.size_bytes for each in self.parts))
        return next((identity for _path, identity, _rows in self.published()), mark)

    @property
    def slot(self) -> str:
        return slot_of(self.staging, self.number)

    def decide(self, files: ObjectFiles) -> tuple[ObjectAct, ObjectEntry | None]:
        """What the name, looked at now, asks for, and what was found there; of a kind that takes a free name."""
        found = files.find_object(self.target)
        return decide_place_object(self.judge(found)), found

    def judge(self, entry: ObjectEntry | None) -> Stands:
        """What this is to the step. ``entry`` has its metadata."""
        if entry is None:
            return Stands.NOTHING
        if is_version(entry, self.id, self.staged):
            return Stands.NEW
        return Stands.OLD if self.replaced is not None and entry.etag == self.replaced.tag else Stands.OTHER

    def verify(self, world: StepWorld) -> StepVerdict:
        if not world.was_free(self.target):
            act, _found = self.decide(world.objects)
            if act.is_answer:
                return StepVerdict(act.value)
        if world.may_be_used_up(self.upload) and not world.objects.has_upload(self.target, self.upload):
            # Asked for the upload first: it could have become the object since.
            act, _found = self.decide(world.objects)
            return StepVerdict(act.value) if act.is_answer else StepVerdict.LOST
        return StepVerdict.DO

    def execute(self, world: StepWorld) -> None:
        world.note_try(self.upload)
        self.complete(world.objects, Absent())

    def complete(self, files: ObjectFiles, condition: Condition) -> None:
        """Whatever the store answers, or does not answer, what stands at the name is looked at afterwards."""
        files.complete_upload(self.target, self.upload, self.parts, condition)

    def replace_old(self, files: ObjectFiles, old: FileIdentity) -> None:
        """Put the old version aside, and take its place. If it is another one by now, nothing happens."""
        etag = old.tag or ""
        if files.copy_object(self.target, self.slot, etag) is WriteOutcome.WRITTEN:
            self.complete(files, HasEtag(etag))

    def undo(self, world: StepWorld, captured: CapturedStaging) -> UndoOutcome:
        undo = ObjectUndo(
            world.objects, self.staging, self.target, self.number, self.upload, self.id, self.staged, captured
        )
        return undo.run(self.replaced, removes=self.removes)

    @property
    def removes(self) -> bool:
        return False

    def uploads(self) -> Iterable[UploadId]:
        return (self.upload,)

    def find_fault(self, world: StepWorld, verdict: StepVerdict) -> StepFault:
        if verdict is StepVerdict.LOST:
            return StepFault(self.target, "is neither staged nor published: its upload is gone")
        found = world.objects.find_object(self.target)
        if found is None:
            return StepFault(self.target, "is missing: something else removed it", PUT_BACK)
        planned = "what was staged" if self.replaced is None else "the object that was planned there"
        kept = None if self.replaced is None else world.objects.find_object(self.slot)
        hint = self.hint_of_stranger
        return StepFault(
            self.target,
            f"is not {planned}: something else put it there",
            hint if kept is None else f"{hint} A copy of what was there before is kept in {self.slot}.",
        )

    @property
    def hint_of_stranger(self) -> str:
        """What a person can do about something else at the name."""
        return STRANGER_ON_THE_WAY


@dataclass(frozen=True, slots=True)
class PlaceObject(ObjectStep):
    """Publish an object at a name that is free."""

    identity: FileIdentity
    is_metadata: bool = False

    @property
    def kind(self) -> str:
        return "place_object"

    @property
    def phase(self) -> int:
        return Phase.METADATA if self.is_metadata else Phase.NEW

    @property
    def hint_of_stranger(self) -> str:
        return STRANGER_AT_FREE_NAME

    def expects(self) -> Iterable[str]:
        return (self.target,)

    def published(self) -> Iterable[PublishedStepFile]:
        return ((self.target, self.identity, 0),)


@dataclass(frozen=True, slots=True)
class PublishObject(ObjectStep):
    """Publish an object of ``row_count`` rows at a name that is new with each sequence: nobody else uses it.

    So no later version can ever stand there, and what was published is taken back by a removal alone: readers of the
    directory never find a mark among the files of rows.
    """

    identity: FileIdentity
    row_count: int

    @property
    def kind(self) -> str:
        return "publish_object"

    def expects(self) -> Iterable[str]:
        return (self.target,)

    def published(self) -> Iterable[PublishedStepFile]:
        return ((self.target, self.identity, self.row_count),)

    def undo(self, world: StepWorld, captured: CapturedStaging) -> UndoOutcome:
        files = world.objects
        files.abort_upload(self.target, self.upload)
        for number in range(ACTS_MAX):
            found = files.find_object(self.target)
            if found is None or self.judge(found) is not Stands.NEW:
                return UndoOutcome.UNDONE if number else UndoOutcome.NEVER_HAPPENED
            captured.require_held()
            # Without an answer, what stands there then says what happened.
            with suppress(OutcomeUnknownError):
                files.remove_object(self.target, found.etag)
        return UndoOutcome.STRANGER


@dataclass(frozen=True, slots=True)
class ReplaceObject(ObjectStep):
    """Publish an object in the place of another one, whose ETag was planned."""

    identity: FileIdentity
    old: FileIdentity
    is_metadata: bool = False

    @property
    def kind(self) -> str:
        return "replace_object"

    @property
    def phase(self) -> int:
        return Phase.METADATA if self.is_metadata else Phase.REPLACEMENTS

    @property
    def replaced(self) -> FileIdentity | None:
        return self.old

    @property
    def hint_of_stranger(self) -> str:
        return STRANGER_IN_PLACE_OF_OLD

    def decide(self, files: ObjectFiles) -> tuple[ObjectAct, ObjectEntry | None]:
        found = files.find_object(self.target)
        return decide_replace_object(self.judge(found)), found

    def execute(self, world: StepWorld) -> None:
        world.note_try(self.upload)
        self.replace_old(world.objects, self.old)

    def published(self) -> Iterable[PublishedStepFile]:
        return ((self.target, self.identity, 0),)


@dataclass(frozen=True, slots=True)
class RemoveObject(ObjectStep):
    """Take an object of planned ETag away from its name. The staged version is the mark that takes its place."""

    old: FileIdentity

    @property
    def kind(self) -> str:
        return "remove_object"

    @property
    def phase(self) -> int:
        return Phase.REMOVALS

    @property
    def replaced(self) -> FileIdentity | None:
        return self.old

    @property
    def removes(self) -> bool:
        return True

    def judge(self, entry: ObjectEntry | None) -> Stands:
        # ``super()`` without arguments finds no class in a dataclass with slots.
        found = ObjectStep.judge(self, entry)
        return Stands.MARKER if found is Stands.NEW else found

    def decide(self, files: ObjectFiles) -> tuple[ObjectAct, ObjectEntry | None]:
        is_pending = files.has_upload(self.target, self.upload)
        found = files.find_object(self.target)
        return decide_remove_object(self.judge(found), is_pending=is_pending), found

    def verify(self, world: StepWorld) -> StepVerdict:
        act, _found = self.decide(world.objects)
        return StepVerdict(act.value) if act.is_answer else StepVerdict.DO

    def execute(self, world: StepWorld) -> None:
        files = world.objects
        for _act in range(ACTS_MAX):
            act, found = self.decide(files)
            if act.is_answer:
                break
            if act is ObjectAct.COMPLETE:
                self.replace_old(files, self.old)
            elif act is ObjectAct.USE_UP:
                files.abort_upload(self.target, self.upload)
            elif found is not None:
                # By the ETag of its bytes, which no other object ever has.
                files.remove_object(self.target, found.etag)


def object_id(staging: str, number: str) -> str:
    """The id of an attempt's object, from the attempt's own name, which no other attempt has."""
    return f"{staging.rpartition('/')[2]}-{number}"
