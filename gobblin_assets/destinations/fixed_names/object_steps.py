"""Steps that publish objects at given names of a store, which other publications use too.

Each completes an upload (``files.upload_step``), under the condition that the name is free, or that the planned version
stands there. Nothing at a given name is ever removed by the ETag of its bytes: the same bytes have the same ETag in
each publication. A removal puts a mark in the place of the old version, by an upload of its own, and removes the mark,
whose bytes nobody else has.

The old version is put aside by a copy inside the store, before its place is taken. ``object_decisions`` has the tables
of what is done, ``object_undo`` takes a step back.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from gobblin_assets.commit.object_attempts import slot_of
from gobblin_assets.commit.step_world import StepWorld
from gobblin_assets.commit.steps import (
    CapturedStaging,
    CommitStep,
    PublishedStepFile,
    StepFault,
    StepKind,
    StepRow,
    StepVerdict,
    UndoOutcome,
)
from gobblin_assets.destinations.files.upload_step import (
    UploadStep,
    columns_of_uploads,
    read_parts,
    write_upload,
)
from gobblin_assets.destinations.fixed_names.named_codecs import format_identity, parse_identity
from gobblin_assets.destinations.fixed_names.named_faults import (
    PUT_BACK,
    STRANGER_AT_FREE_NAME,
    STRANGER_IN_PLACE_OF_OLD,
    STRANGER_ON_THE_WAY,
)
from gobblin_assets.destinations.fixed_names.named_steps import Phase
from gobblin_assets.destinations.fixed_names.object_decisions import (
    ObjectAct,
    Stands,
    decide_place_object,
    decide_remove_object,
    decide_replace_object,
)
from gobblin_assets.destinations.fixed_names.object_undo import ObjectUndo
from gobblin_assets.errors import CorruptionError
from gobblin_assets.fs.objects import (
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
class ObjectStep(UploadStep):
    """The common part of the kinds at given names."""

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
        if self.is_ours(entry):
            return Stands.NEW
        return Stands.OLD if self.replaced is not None and entry.etag == self.replaced.tag else Stands.OTHER

    def look(self, files: ObjectFiles) -> StepVerdict:
        act, _found = self.decide(files)
        return StepVerdict(act.value) if act.is_answer else StepVerdict.DO

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

    def find_fault(self, world: StepWorld, verdict: StepVerdict) -> StepFault:
        if verdict is StepVerdict.LOST:
            # ``super()`` without arguments finds no class in a dataclass with slots.
            return UploadStep.find_fault(self, world, verdict)
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
        # As above, of ``super()``.
        found = ObjectStep.judge(self, entry)
        return Stands.MARKER if found is Stands.NEW else found

    def decide(self, files: ObjectFiles) -> tuple[ObjectAct, ObjectEntry | None]:
        is_pending = files.has_upload(self.target, self.upload)
        found = files.find_object(self.target)
        return decide_remove_object(self.judge(found), is_pending=is_pending), found

    def verify(self, world: StepWorld) -> StepVerdict:
        return self.look(world.objects)

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


class _ObjectCodec:
    """The codec of the kinds, a row each; ``_make`` makes a step of the one.

    A row with a target and without a size is an object that is removed.
    """

    def to_columns(self, steps: Sequence[ObjectStep], first: int) -> Sequence[Sequence[object]]:
        payloads = [
            write_upload(
                step,
                None if step.replaced is None else format_identity(step.replaced),
                is_metadata=isinstance(step, PlaceObject | ReplaceObject) and step.is_metadata,
            )
            for step in steps
        ]
        return columns_of_uploads(steps, first, payloads)

    def from_rows(self, rows: Iterable[StepRow]) -> Iterator[CommitStep]:
        for _, _, staging, number, target_dir, target, size, inode, mtime, tag, _rows, payload in rows:
            identity = None if size is None else FileIdentity(size, inode, mtime, tag)
            upload, parts, old, is_metadata = json.loads(payload)
            common = (staging or "", f"{target_dir}/{target}", number or "", UploadId(upload), read_parts(parts))
            yield self._make(common, identity, None if old is None else parse_identity(old), bool(is_metadata))

    def _make(
        self,
        common: tuple[str, str, str, UploadId, tuple[UploadPart, ...]],
        identity: FileIdentity | None,
        old: FileIdentity | None,
        is_metadata: bool,  # noqa: FBT001  a column of the payload
    ) -> CommitStep:
        if identity is None:
            return RemoveObject(*common, old=_require(old))
        if old is None:
            return PlaceObject(*common, identity=identity, is_metadata=is_metadata)
        return ReplaceObject(*common, identity=identity, old=old, is_metadata=is_metadata)


def _require(identity: FileIdentity | None) -> FileIdentity:
    if identity is None:
        raise CorruptionError("a stored removal of an object has no old version")
    return identity


_AS_FILE: Final = "place_object"

OBJECT_KINDS: Final = (
    StepKind(_AS_FILE, _ObjectCodec(), at_given_names=True),
    StepKind("replace_object", _ObjectCodec(), at_given_names=True, folded_as=_AS_FILE),
    StepKind("remove_object", _ObjectCodec(), at_given_names=True, removes_files=True),
)
