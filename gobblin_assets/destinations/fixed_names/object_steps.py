"""Steps that publish objects at given names of a store, which other publications use too.

A store has no rename, so nothing can be captured. A **token** stops a paused process. A token is an upload that was
begun before. Its completion makes the object at the name (``files.upload_step``), and uses the token up. It is
completed under the condition that the name is free, or that the planned version is there. Nothing at a given name
is ever removed by the ETag of its bytes: the same bytes have the same ETag in each publication. A removal puts a mark
in the place of the old version, by an upload of its own, and removes the mark, whose bytes nobody else has.

The old version is put aside by a copy inside the store, before its place is taken. The decisions are one table for
every process: those of the exhaustive model that ``tests/models/object_names.py`` searches.

Taking back. The uploads are aborted first: the staged one, and those of earlier abandoners. From then on nobody else
can change the name. An object that is then found there is taken back by one more upload: a mark over a new object, or
the old version again. It is begun, then written down in the attempt, and then the log is asked whether the sequence is
still ours. So whoever takes over later finds the upload written down, and whoever has lost the sequence before does not
complete it.
"""

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import google_crc32c

from gobblin_assets.commit.object_attempts import ID_KEY, aborted_on_error, list_undone, plan_parts, slot_of, write_undo
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
    is_version,
    read_parts,
    write_upload,
)
from gobblin_assets.destinations.fixed_names.named_codecs import format_identity, parse_identity
from gobblin_assets.destinations.fixed_names.named_steps import (
    PUT_BACK,
    STRANGER_AT_FREE_NAME,
    STRANGER_IN_PLACE_OF_OLD,
    STRANGER_ON_THE_WAY,
    Phase,
)
from gobblin_assets.errors import CorruptionError, FencedError, OutcomeUnknownError, RetryableError
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


class Stands(StrEnum):
    """The judgement of what is at a name. NEW: the step's own version, by the id in its metadata, its length, and
    its known ETag. OLD: what was planned to be there, by its ETag. MARKER: a mark of this step that says that nothing
    is to be here. OTHER: something else.
    """

    NOTHING = "nothing"
    NEW = "new"
    OLD = "old"
    MARKER = "marker"
    OTHER = "other"


class ObjectAct(StrEnum):
    """One act on a name, or an answer that ends the work on the step.

    COMPLETE: the staged upload becomes the object, after a copy of the old version was put aside. CLEAR: the mark is
    removed. USE_UP: the staged upload is aborted, because it has no work left. Of an undo, MARK: a mark takes the place
    of the step's version. PUT_BACK: the copy that was put aside becomes the object again. CONFLICT: something else is
    at the name. LOST: the staged upload is gone, and has not become the object.
    """

    DONE = "done"
    COMPLETE = "complete"
    CLEAR = "clear"
    USE_UP = "use up"
    MARK = "mark"
    PUT_BACK = "put back"
    CONFLICT = "conflict"
    LOST = "lost"

    @property
    def is_answer(self) -> bool:
        return self in (ObjectAct.DONE, ObjectAct.CONFLICT, ObjectAct.LOST)


def decide_place_object(name: Stands) -> ObjectAct:
    """Publish an object at a name that was free."""
    if name is Stands.NEW:
        return ObjectAct.DONE
    return ObjectAct.COMPLETE if name is Stands.NOTHING else ObjectAct.CONFLICT


def decide_replace_object(name: Stands) -> ObjectAct:
    """Publish an object in the place of the old version."""
    if name is Stands.NEW:
        return ObjectAct.DONE
    return ObjectAct.COMPLETE if name is Stands.OLD else ObjectAct.CONFLICT


def decide_remove_object(name: Stands, *, is_pending: bool) -> ObjectAct:
    """Take the old version away: the staged upload, a mark, takes its place, and is removed by its own ETag.

    A DELETE of the old version would have no token: a paused process could send it after a later publication of the
    same bytes, which have the same ETag. ``is_pending``: whether the upload was there, asked before the look.
    """
    if name is Stands.MARKER:
        return ObjectAct.CLEAR
    if is_pending:
        if name is Stands.OLD:
            return ObjectAct.COMPLETE
        # While it is there, a paused process could still put it in the place of a later version.
        return ObjectAct.USE_UP if name is Stands.NOTHING else ObjectAct.CONFLICT
    # Whatever else is at the name came after the removal.
    return ObjectAct.LOST if name is Stands.OLD else ObjectAct.DONE


def decide_undo_object(name: Stands, *, has_old: bool, removes: bool, has_copy: bool) -> ObjectAct:
    """Take a step back, after its uploads were aborted. ``has_old``: a version was at the name before.

    ``removes``: the step takes the old version away. ``has_copy``: the old version was put aside. DONE: nothing of the
    step is at the name.
    """
    if not has_old:
        return {Stands.NEW: ObjectAct.MARK, Stands.MARKER: ObjectAct.CLEAR}.get(name, ObjectAct.DONE)
    if name in (Stands.OLD, Stands.OTHER):
        return ObjectAct.DONE
    if name is Stands.NOTHING and not removes:
        # A stranger took the step's version away. Only a person knows whether the old one shall come back.
        return ObjectAct.CONFLICT
    return ObjectAct.PUT_BACK if has_copy else ObjectAct.CONFLICT


_UNDO_ACTS_MAX: Final = 8
"""A new object is taken back by two acts; each stranger or lost answer on the way costs one more."""

_MARK: Final = ".mark"
_OLD: Final = ".old"


def make_mark(path: str) -> bytes:
    """The bytes of a mark; no two are alike."""
    return f"gobblin-assets: nothing is at {path} any more ({uuid.uuid4().hex})\n".encode()


@dataclass(frozen=True, slots=True)
class ObjectUndo:
    """The step's own values. ``id`` and ``staged``: of its version."""

    files: ObjectFiles
    staging: str
    target: str
    number: str
    upload: UploadId
    id: str
    staged: FileIdentity
    captured: CapturedStaging

    def run(self, old: FileIdentity | None, *, removes: bool) -> UndoOutcome:
        """``old``: the version that stood at the name before. Goes on from wherever a crash stopped another owner."""
        files = self.files
        files.abort_upload(self.target, self.upload)
        for path, upload in list_undone(files, self.staging, self.number, self.captured.fence):
            files.abort_upload(path, upload)
        lost: OutcomeUnknownError | None = None
        for number in range(_UNDO_ACTS_MAX):
            found = files.find_object(self.target)
            copy = None if old is None else files.find_object(slot_of(self.staging, self.number))
            name = self._judge(found, old, removes=removes)
            act = decide_undo_object(name, has_old=old is not None, removes=removes, has_copy=copy is not None)
            if act is ObjectAct.DONE:
                return UndoOutcome.UNDONE if number else UndoOutcome.NEVER_HAPPENED
            if act.is_answer:
                return UndoOutcome.STRANGER
            try:
                self._carry_out(act, found, copy)
                lost = None
            except OutcomeUnknownError as error:
                # What is at the name says what happened.
                lost = error
        if lost is not None:
            raise RetryableError(f"taking back failed: {lost.message}", path=self.target) from lost
        return UndoOutcome.STRANGER

    def _judge(self, entry: ObjectEntry | None, old: FileIdentity | None, *, removes: bool) -> Stands:
        if entry is None:
            return Stands.NOTHING
        if is_version(entry, self.id, self.staged):
            return Stands.MARKER if removes else Stands.NEW
        found = (entry.metadata or {}).get(ID_KEY)
        if found == f"{self.id}{_MARK}":
            return Stands.MARKER
        is_old = old is not None and (found == f"{self.id}{_OLD}" or entry.etag == old.tag)
        return Stands.OLD if is_old else Stands.OTHER

    def _carry_out(self, act: ObjectAct, found: ObjectEntry | None, copy: ObjectEntry | None) -> None:
        condition: Condition = Absent() if found is None else HasEtag(found.etag)
        if act is ObjectAct.CLEAR and found is not None:
            self.files.remove_object(self.target, found.etag)
        elif act is ObjectAct.MARK:
            upload = self._begin({ID_KEY: f"{self.id}{_MARK}"})
            part = self._write(upload, 1, make_mark(self.target))
            self.files.complete_upload(self.target, upload, [part], condition)
        elif copy is not None:
            upload = self._begin({**(copy.metadata or {}), ID_KEY: f"{self.id}{_OLD}"}, copy.headers)
            self.files.complete_upload(self.target, upload, self._write_again(upload, copy), condition)

    def _begin(self, metadata: dict[str, str], headers: Mapping[str, str] | None = None) -> UploadId:
        upload = self.files.begin_upload(self.target, metadata, headers)
        begun = self.target, upload
        with aborted_on_error(self.files, [begun]):
            written = write_undo(self.files, self.staging, self.number, self.captured.fence, begun)
        try:
            self.captured.require_held()
        except FencedError:
            # Whoever took over may have looked before this upload was written down, and may have cleaned up since.
            self.files.abort_upload(self.target, upload)
            note = self.files.find_object(written)
            if note is not None:
                self.files.remove_object(written, note.etag)
            raise
        return upload

    def _write(self, upload: UploadId, number: int, content: bytes) -> UploadPart:
        return self.files.write_part(self.target, upload, number, content, google_crc32c.value(content))

    def _write_again(self, upload: UploadId, copy: ObjectEntry) -> list[UploadPart]:
        """A copy inside the store could not ask what is at its target, so the bytes come here once more."""
        parts, offset = [], 0
        for number, size in enumerate(plan_parts(copy.size_bytes, self.files.part_bytes_min), start=1):
            content = self.files.read_range(copy.path, copy.etag, offset, size) if size else b""
            parts.append(self._write(upload, number, content))
            offset += size
        return parts


ACTS_MAX: Final = 4
"""A removal is a completion and the removal of a mark; a stranger on the way costs one more."""


@dataclass(frozen=True, slots=True)
class ObjectStep(UploadStep):
    """The common part of the kinds at given names."""

    @property
    def replaced(self) -> FileIdentity | None:
        """The version that was planned to be at the name."""
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
    """The publication of an object at a name that is free."""

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
    """The publication of an object in the place of another one, whose ETag was planned."""

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
    """The removal of an object of planned ETag from its name. The staged version is the mark that takes its place."""

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
