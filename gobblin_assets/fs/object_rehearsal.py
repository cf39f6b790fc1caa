"""Finds what a store enforces, by trying it with scratch keys: stores that speak S3 ignore what they don't know."""

import datetime as dt
import hashlib
import re
import uuid
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import google_crc32c

from gobblin_assets.errors import GobblinError, RejectedError, RetryableError
from gobblin_assets.fs.objects import (
    SPOILED,
    UNSUPPORTED,
    Ability,
    Absent,
    Condition,
    HasEtag,
    ObjectEntry,
    ObjectFiles,
    RemoveOutcome,
    UploadId,
    UploadPart,
    WriteOutcome,
    expected_etag,
)

_ONE: Final = b"one"
_OTHER: Final = b"another"
_NAME: Final = re.compile(r"rehearsal-[0-9a-f]{32}")

LEFT_AFTER_S: Final = 3_600.0
"""A rehearsal takes seconds, so that older scratch keys belong to none that lives. One that slept is refused then."""

_WRONG_ETAG: Final = hashlib.md5(b"nothing that was written", usedforsecurity=False).hexdigest()


def rehearse(files: ObjectFiles, directory: str, asked: Collection[Ability]) -> frozenset[Ability]:
    """Up to some forty requests. What a rehearsal leaves that fails half-way lies below ``rehearsal-…`` of its own.

    A later one removes it after ``LEFT_AFTER_S``, by the clock of the store.
    """
    scratch = _Scratch(files, f"{directory}/rehearsal-{uuid.uuid4().hex}")
    try:
        found = scratch.find(asked)
        _remove_left(files, directory, scratch)
    finally:
        scratch.remove_all()
    return found


def _remove_left(files: ObjectFiles, directory: str, scratch: "_Scratch") -> None:
    """What can't be listed or removed stays: no rehearsal needs it gone."""
    now = scratch.began_at
    if now is None:
        return
    first = f"{directory}/rehearsal-"
    with suppress(GobblinError):
        for entry in files.list_objects(directory, after=first):
            if not entry.path.startswith(first):
                break
            if _is_left(directory, entry.path, entry.modified_at, now):
                files.remove_object(entry.path, entry.etag)
    with suppress(GobblinError):
        for pending in files.list_uploads(directory):
            if _is_left(directory, pending.path, pending.begun_at, now):
                files.abort_upload(pending.path, pending.upload)


def _is_left(directory: str, path: str, since: dt.datetime, now: dt.datetime) -> bool:
    name = path[len(directory) + 1 :].partition("/")[0]
    return _NAME.fullmatch(name) is not None and (now - since).total_seconds() > LEFT_AFTER_S


@dataclass(slots=True)
class _Scratch:
    """The scratch keys of one rehearsal. ``began_at``: by the clock of the store."""

    files: ObjectFiles
    place: str
    paths: set[str] = field(default_factory=set)
    uploads: list[tuple[str, UploadId]] = field(default_factory=list)
    completed: tuple[ObjectEntry, UploadPart] | None = None
    began_at: dt.datetime | None = None

    def find(self, asked: Collection[Ability]) -> frozenset[Ability]:
        """All the others begin with an object that is made once."""
        if not self._enforces(self._puts_once):
            return frozenset()
        ways: Mapping[Ability, Callable[[], bool]] = {
            Ability.PUT_IF_ABSENT: lambda: True,
            Ability.COMPLETE_IF_ABSENT: lambda: self._keeps(self._complete()[0], Absent()),
            Ability.COMPLETE_IF_MATCH: self._replaces_its_version,
            Ability.REMOVE_IF_MATCH: self._removes_its_version,
            Ability.COPY_IF_MATCH: self._copies_its_version,
            Ability.CHECKS_CRC32C: self._checks_bytes,
            Ability.FORESEEN_ETAGS: self._foresees_etags,
        }
        return frozenset(each for each in ways if each in asked and self._enforces(ways[each]))

    def _enforces(self, is_enforced: Callable[[], bool]) -> bool:
        try:
            return is_enforced()
        except RejectedError as error:
            if error.fields.get(UNSUPPORTED):
                return False
            raise

    def _puts_once(self) -> bool:
        one = self._make("put")
        self.began_at = one.modified_at
        again = self.files.put_if_absent(one.path, _OTHER)
        return again is WriteOutcome.CONDITION_FAILED and self._is(one)

    def _replaces_its_version(self) -> bool:
        """Its version, and no other one: a store may refuse all conditions."""
        one = self._make("match")
        if not self._keeps(one, HasEtag(_WRONG_ETAG)):
            return False
        upload, part = self._upload(one.path)
        if self.files.complete_upload(one.path, upload, [part], HasEtag(one.etag)) is not WriteOutcome.WRITTEN:
            return False
        found = self.files.find_object(one.path)
        return found is not None and found.size_bytes == len(_OTHER)

    def _removes_its_version(self) -> bool:
        one = self._make("removed")
        kept = self.files.remove_object(one.path, _WRONG_ETAG) is RemoveOutcome.CONDITION_FAILED and self._is(one)
        return kept and self.files.remove_object(one.path, one.etag) is RemoveOutcome.REMOVED

    def _copies_its_version(self) -> bool:
        one, target = self._make("copied"), self._at("copy")
        if self.files.copy_object(one.path, target, _WRONG_ETAG) is not WriteOutcome.SOURCE_MISSING:
            return False
        if self.files.find_object(target) is not None:
            return False
        return self.files.copy_object(one.path, target, one.etag) is WriteOutcome.WRITTEN

    def _keeps(self, one: ObjectEntry, condition: Condition) -> bool:
        """Whether a completion whose condition fails leaves the object as it is."""
        upload, part = self._upload(one.path)
        outcome = self.files.complete_upload(one.path, upload, [part], condition)
        return outcome is WriteOutcome.CONDITION_FAILED and self._is(one)

    def _checks_bytes(self) -> bool:
        path = self._at("checked")
        upload = self._begin(path)
        try:
            self.files.write_part(path, upload, 1, _ONE, google_crc32c.value(_OTHER))
        except RetryableError as error:
            if error.fields.get(SPOILED):
                return True
            raise
        return False

    def _foresees_etags(self) -> bool:
        """ETags may look like digests of the bytes, and be none."""
        one, part = self._complete()
        return one.etag == expected_etag([part])

    def _complete(self) -> tuple[ObjectEntry, UploadPart]:
        """An object that was an upload, and its only part; made once."""
        if self.completed is None:
            path = self._at("absent")
            upload, part = self._upload(path)
            self.files.complete_upload(path, upload, [part], Absent())
            self.completed = self._require(path), part
        return self.completed

    def _make(self, name: str) -> ObjectEntry:
        path = self._at(name)
        self.files.put_if_absent(path, _ONE)
        return self._require(path)

    def _require(self, path: str) -> ObjectEntry:
        found = self.files.find_object(path)
        if found is None:
            raise RetryableError(f"{self.files.to_uri(path)} was written, and is not there", path=path)
        return found

    def _is(self, one: ObjectEntry) -> bool:
        found = self.files.find_object(one.path)
        return found is not None and (found.etag, found.size_bytes) == (one.etag, one.size_bytes)

    def _upload(self, path: str) -> tuple[UploadId, UploadPart]:
        upload = self._begin(path)
        return upload, self.files.write_part(path, upload, 1, _OTHER, google_crc32c.value(_OTHER))

    def _begin(self, path: str) -> UploadId:
        upload = self.files.begin_upload(path, {})
        self.uploads.append((path, upload))
        return upload

    def _at(self, name: str) -> str:
        path = f"{self.place}/{name}"
        self.paths.add(path)
        return path

    def remove_all(self) -> None:
        """What can't be removed stays, and harms nobody: its name is this rehearsal's own."""
        with suppress(GobblinError):
            for path, upload in self.uploads:
                self.files.abort_upload(path, upload)
            for path in self.paths:
                found = self.files.find_object(path)
                if found is not None:
                    self.files.remove_object(path, found.etag)
