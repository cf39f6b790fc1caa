"""Small named changes that break the protocol at names of an object store; its simulated world must notice them."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest import mock

from gobblin_assets.commit import abandonment
from gobblin_assets.commit.object_decisions import ObjectAct, Stands
from gobblin_assets.commit.object_steps import ObjectStep, RemoveObject
from gobblin_assets.commit.object_undo import ObjectUndo
from gobblin_assets.commit.steps import StepVerdict
from gobblin_assets.fs.objects import Absent, HasEtag
from tests.simulation.mutant import Mutant
from tests.support.object_store import MemoryObjects

_JUDGE = ObjectStep.judge
_COMPLETE = MemoryObjects.complete_upload
_COPY = MemoryObjects.copy_object


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
