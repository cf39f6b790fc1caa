"""Small named changes that break the protocol at names of an object store; its simulated world must notice them."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest import mock

from gobblin_assets.commit import abandonment
from gobblin_assets.commit.steps import StepVerdict
from gobblin_assets.destinations.fixed_names import object_steps
from gobblin_assets.destinations.fixed_names.object_steps import (
    ObjectAct,
    ObjectStep,
    ObjectUndo,
    RemoveObject,
    Stands,
    decide_undo_object,
)
from gobblin_assets.fs.objects import Absent, HasEtag, WriteOutcome
from tests.simulation.mutant import Mutant
from tests.support.object_store import MemoryObjects

_JUDGE = ObjectStep.judge
_COMPLETE = MemoryObjects.complete_upload
_COPY = MemoryObjects.copy_object
_DECIDE_UNDO = decide_undo_object


@contextmanager
def _removed_by_etag() -> Iterator[None]:
    """DELETE of the old version by its ETag, after it was put aside."""

    def verify(self: RemoveObject, world: Any) -> StepVerdict:
        found = self.judge(world.objects.find_object(self.target))
        return {Stands.NOTHING: StepVerdict.DONE, Stands.OLD: StepVerdict.DO}.get(found, StepVerdict.CONFLICT)

    def execute(self: RemoveObject, world: Any) -> None:
        world.objects.copy_object(self.target, self.slot, self.old.tag)
        world.objects.remove_object(self.target, self.old.tag)

    with mock.patch.object(RemoveObject, "verify", verify), mock.patch.object(RemoveObject, "execute", execute):
        yield


def _known_by_etag() -> AbstractContextManager[Any]:
    def mutant(self: Any, entry: Any) -> Stands:
        new = next((identity.tag for _path, identity, _rows in self.published()), None)
        return Stands.NEW if entry is not None and entry.etag == new else _JUDGE(self, entry)

    return mock.patch.object(ObjectStep, "judge", mutant)


def _nothing_is_aborted() -> AbstractContextManager[Any]:
    """An abandoner looks at the name at once."""
    return mock.patch.object(MemoryObjects, "abort_upload", return_value=True)


def _the_log_is_not_asked() -> AbstractContextManager[Any]:
    return mock.patch.object(abandonment.Abandonment, "_require_held", return_value=None)


def _nothing_is_put_aside() -> AbstractContextManager[Any]:
    def mutant(self: ObjectStep, files: Any, old: Any) -> None:
        self.complete(files, HasEtag(old.tag))

    return mock.patch.object(ObjectStep, "replace_old", mutant)


def _undone_by_etag() -> AbstractContextManager[Any]:
    """A new object is removed by its ETag, without a mark."""
    carry_out = ObjectUndo._carry_out

    def mutant(self: ObjectUndo, act: ObjectAct, found: Any, copy: Any) -> None:
        carry_out(self, ObjectAct.CLEAR if act is ObjectAct.MARK else act, found, copy)

    return mock.patch.object(ObjectUndo, "_carry_out", mutant)


@contextmanager
def _uploaded_again() -> Iterator[None]:
    """An upload that is gone is made again from what stands aside, or from nothing."""

    def mutant(self: MemoryObjects, path: str, upload: Any, parts: Any, condition: Any) -> Any:
        if not self.has_upload(path, upload) and isinstance(condition, Absent):
            self.put_if_absent(path, b"made again")
        return _COMPLETE(self, path, upload, parts, condition)

    with mock.patch.object(MemoryObjects, "complete_upload", mutant):
        yield


def _phases_are_mixed() -> AbstractContextManager[Any]:
    return mock.patch.object(RemoveObject, "phase", 0)


def _completed_over_anything() -> AbstractContextManager[Any]:
    """Whatever is at the name by then gives way."""

    def mutant(self: ObjectStep, files: Any, condition: Any) -> None:
        found = files.find_object(self.target)
        complete(self, files, condition if found is None else HasEtag(found.etag))

    complete = ObjectStep.complete
    return mock.patch.object(ObjectStep, "complete", mutant)


def _taken_back_over_anything() -> AbstractContextManager[Any]:
    """An abandonment looks only for a copy of the old version."""

    def mutant(name: Stands, *, has_old: bool, removes: bool, has_copy: bool) -> ObjectAct:
        if has_copy and name is Stands.OTHER:
            return ObjectAct.PUT_BACK
        return _DECIDE_UNDO(name, has_old=has_old, removes=removes, has_copy=has_copy)

    return mock.patch.object(object_steps, "decide_undo_object", mutant)


def _anything_counts_as_old() -> AbstractContextManager[Any]:
    """What is at the name is taken for the version that was planned there."""

    def mutant(self: Any, entry: Any) -> Stands:
        found = _JUDGE(self, entry)
        return Stands.OLD if found is Stands.OTHER and self.replaced is not None else found

    @contextmanager
    def change() -> Iterator[None]:
        def replace_old(self: ObjectStep, files: Any, old: Any) -> None:
            found = files.find_object(self.target)
            etag = old.tag if found is None else found.etag
            if files.copy_object(self.target, self.slot, etag) is WriteOutcome.WRITTEN:
                self.complete(files, HasEtag(etag))

        with mock.patch.object(ObjectStep, "judge", mutant), mock.patch.object(ObjectStep, "replace_old", replace_old):
            yield

    return change()


IN_THE_OBJECT_WORLD = (
    Mutant("an object is removed by its ETag", _removed_by_etag),
    Mutant("an object is known by its ETag", _known_by_etag),
    Mutant("an abandonment aborts no upload", _nothing_is_aborted),
    Mutant("an abandonment does not ask the log", _the_log_is_not_asked),
    Mutant("an abandonment removes by an ETag", _undone_by_etag),
    Mutant("no old object is put aside", _nothing_is_put_aside),
    Mutant("an upload that is gone is made again", _uploaded_again),
    Mutant("removals of objects come first", _phases_are_mixed),
)

IN_OBJECT_HISTORIES = (
    Mutant("an upload is completed over anything", _completed_over_anything),
    Mutant("an abandonment puts the old object over anything", _taken_back_over_anything),
    Mutant("any object counts as the old one", _anything_counts_as_old),
)
"""Strangers notice these, who are in the random histories only."""
