"""Steps that publish an object of a store by completing an upload, and the one whose name is new with each sequence.

The staged version of an object is an upload that was begun and has all of its parts. Its completion makes it the object
at the name, in one moment and under a condition that the store checks. Then the upload is used up, so that a paused
process that completes it later has no effect.

An object is the step's own if it has the id in its metadata, the length, and the ETag, if that is known: another tool
may rewrite an object and keep its metadata. An ETag alone proves nothing: the same bytes have the same ETag in each
publication.
"""

import json
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from gobblin_assets.commit.object_attempts import ID_KEY
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
from gobblin_assets.errors import OutcomeUnknownError
from gobblin_assets.fs.object_work import identity_of
from gobblin_assets.fs.objects import Absent, Condition, ObjectEntry, ObjectFiles, UploadId, UploadPart
from gobblin_assets.model.files import FileIdentity

_REMOVALS_MAX: Final = 4
"""An object is taken back by one removal; each lost answer costs one more."""

_PUBLISH_OBJECT: Final = "publish_object"


@dataclass(frozen=True, slots=True)
class UploadStep(CommitStep):
    """The common part of the kinds that complete an upload.

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
    @abstractmethod
    def staged(self) -> FileIdentity:
        """What the upload becomes."""
        ...

    @abstractmethod
    def look(self, files: ObjectFiles) -> StepVerdict:
        """``verify`` by what is at the name now: DO, DONE or CONFLICT."""
        ...

    def is_ours(self, entry: ObjectEntry) -> bool:
        """Whether the object is what the upload became. ``entry`` has its metadata."""
        return is_version(entry, self.id, self.staged)

    def verify(self, world: StepWorld) -> StepVerdict:
        if not world.was_free(self.target) and (verdict := self.look(world.objects)) is not StepVerdict.DO:
            return verdict
        if world.may_be_used_up(self.upload) and not world.objects.has_upload(self.target, self.upload):
            # Asked for the upload first: it could have become the object since.
            verdict = self.look(world.objects)
            return StepVerdict.LOST if verdict is StepVerdict.DO else verdict
        return StepVerdict.DO

    def execute(self, world: StepWorld) -> None:
        world.note_try(self.upload)
        self.complete(world.objects, Absent())

    def complete(self, files: ObjectFiles, condition: Condition) -> None:
        """Whatever the store answers, or does not answer, what is at the name is looked at afterwards."""
        files.complete_upload(self.target, self.upload, self.parts, condition)

    def uploads(self) -> Iterable[UploadId]:
        return (self.upload,)

    def find_fault(self, world: StepWorld, verdict: StepVerdict) -> StepFault:
        if verdict is StepVerdict.LOST:
            return StepFault(self.target, "is neither staged nor published: its upload is gone")
        if world.objects.find_object(self.target) is None:
            return StepFault(self.target, "is missing: something else removed it")
        hint = "Move that away and resume. Or abandon: the next run reads the rows again."
        return StepFault(self.target, "is not what was staged: something else put it there", hint)


@dataclass(frozen=True, slots=True)
class PublishObject(UploadStep):
    """A publication of an object of ``row_count`` rows at a name that is new with each sequence: nobody else uses it.

    So no later version can ever stand there, and what was published is taken back by a removal alone: readers of the
    directory never find a mark among the files of rows.
    """

    identity: FileIdentity
    row_count: int

    @property
    def kind(self) -> str:
        return _PUBLISH_OBJECT

    @property
    def staged(self) -> FileIdentity:
        return self.identity

    def expects(self) -> Iterable[str]:
        return (self.target,)

    def published(self) -> Iterable[PublishedStepFile]:
        return ((self.target, self.identity, self.row_count),)

    def look(self, files: ObjectFiles) -> StepVerdict:
        found = files.find_object(self.target)
        if found is None:
            return StepVerdict.DO
        return StepVerdict.DONE if self.is_ours(found) else StepVerdict.CONFLICT

    def undo(self, world: StepWorld, captured: CapturedStaging) -> UndoOutcome:
        files = world.objects
        files.abort_upload(self.target, self.upload)
        for number in range(_REMOVALS_MAX):
            found = files.find_object(self.target)
            if found is None or not self.is_ours(found):
                return UndoOutcome.UNDONE if number else UndoOutcome.NEVER_HAPPENED
            captured.require_held()
            # Without an answer, what is there then says what happened.
            with suppress(OutcomeUnknownError):
                files.remove_object(self.target, found.etag)
        return UndoOutcome.STRANGER


def object_id(staging: str, number: str) -> str:
    """The id of an attempt's object, from the attempt's own name, which no other attempt has."""
    return f"{staging.rpartition('/')[2]}-{number}"


def is_version(entry: ObjectEntry, id_: str, staged: FileIdentity) -> bool:
    """Whether the object is what the upload of this id became. ``entry`` has its metadata."""
    return (entry.metadata or {}).get(ID_KEY) == id_ and identity_of(entry).matches(staged)


class _PublishCodec:
    """Of ``publish_object``."""

    def to_columns(self, steps: Sequence[PublishObject], first: int) -> Sequence[Sequence[object]]:
        return columns_of_uploads(steps, first, [write_upload(step, None, is_metadata=False) for step in steps])

    def from_rows(self, rows: Iterable[StepRow]) -> Iterator[CommitStep]:
        for _, _, staging, number, target_dir, target, size, _inode, _mtime, tag, row_count, payload in rows:
            upload, parts, _old, _is_metadata = json.loads(payload)
            yield PublishObject(
                staging,
                f"{target_dir}/{target}",
                number,
                UploadId(upload),
                read_parts(parts),
                identity=FileIdentity(size, tag=tag),
                row_count=row_count,
            )


def columns_of_uploads(steps: Sequence[UploadStep], first: int, payloads: Sequence[str]) -> Sequence[Sequence[object]]:
    """A row for each step: what is published, and the upload as ``write_upload`` writes it."""
    targets = [step.target.rpartition("/") for step in steps]
    published = [next(iter(step.published()), None) for step in steps]
    identities = [None if each is None else each[1] for each in published]
    return [
        range(first, first + len(steps)),
        [step.staging for step in steps],
        [step.number for step in steps],
        [directory for directory, _, _ in targets],
        [name for _, _, name in targets],
        [None if identity is None else identity.size_bytes for identity in identities],
        [None] * len(steps),
        [None if identity is None else identity.mtime_ns for identity in identities],
        [None if identity is None else identity.tag for identity in identities],
        [None if each is None else each[2] for each in published],
        payloads,
    ]


def write_upload(step: UploadStep, old: str | None, *, is_metadata: bool) -> str:
    """A JSON list: the upload, its parts, what was at the name before or nothing, and whether this is metadata."""
    parts = [[part.size_bytes, part.etag, part.crc32c] for part in step.parts]
    return json.dumps([step.upload, parts, old, int(is_metadata)], separators=(",", ":"))


def read_parts(parts: Iterable[Sequence[Any]]) -> tuple[UploadPart, ...]:
    """The parts of an upload, as ``write_upload`` wrote them."""
    return tuple(UploadPart(number, *part) for number, part in enumerate(parts, start=1))


PUBLISH_OBJECT: Final = StepKind(_PUBLISH_OBJECT, _PublishCodec())
"""At a name that is new with each sequence."""
