"""Takes a step of ``object_steps`` back, for an abandonment.

The uploads are aborted first: the staged one, and those of earlier abandoners. From then on nobody else can change the
name. What is then found there is taken back by one more upload, a mark over a new object, or the old version again. It
is begun, then written down in the attempt, and then the log is asked whether the sequence is still ours. So whoever
takes over later finds the upload written down, and whoever has lost the sequence before does not complete it.
"""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import google_crc32c

from gobblin_assets.commit.object_attempts import ID_KEY, aborted_on_error, list_undone, plan_parts, slot_of, write_undo
from gobblin_assets.commit.steps import CapturedStaging, UndoOutcome
from gobblin_assets.destinations.files.upload_step import is_version
from gobblin_assets.destinations.fixed_names.object_decisions import ObjectAct, Stands, decide_undo_object
from gobblin_assets.errors import FencedError, OutcomeUnknownError, RetryableError
from gobblin_assets.fs.objects import (
    Absent,
    Condition,
    HasEtag,
    ObjectEntry,
    ObjectFiles,
    UploadId,
    UploadPart,
)
from gobblin_assets.model.files import FileIdentity

ACTS_MAX: Final = 8
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
        for number in range(ACTS_MAX):
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
                # What stands at the name says what happened.
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
        """A copy inside the store could not ask what stands at its target, so the bytes come here once more."""
        parts, offset = [], 0
        for number, size in enumerate(plan_parts(copy.size_bytes, self.files.part_bytes_min), start=1):
            content = self.files.read_range(copy.path, copy.etag, offset, size) if size else b""
            parts.append(self._write(upload, number, content))
            offset += size
        return parts
