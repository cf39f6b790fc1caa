"""Steps at names of an object store: done once, known by their id, taken back, and never over a stranger's object."""

import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import google_crc32c
import pytest

from gobblin_assets.commit.name_changes import has_given_names, list_changes
from gobblin_assets.commit.object_attempts import (
    ID_KEY,
    MTIME_KEY,
    slot_of,
    write_undo,
    write_uploads,
)
from gobblin_assets.commit.segment import decode_segment, encode_segments, list_published
from gobblin_assets.commit.step_calls import execute_steps, verify_steps
from gobblin_assets.commit.step_world import StepPorts, StepWorld
from gobblin_assets.commit.steps import CapturedStaging, StepVerdict, UndoOutcome
from gobblin_assets.destinations.files.upload_step import PublishObject, UploadStep, object_id
from gobblin_assets.destinations.fixed_names.object_steps import PlaceObject, RemoveObject, ReplaceObject, make_mark
from gobblin_assets.errors import FencedError, OutcomeUnknownError, RejectedError, RetryableError
from gobblin_assets.fs.object_work import ObjectWorkFiles
from gobblin_assets.fs.objects import HasEtag, ObjectEntry, ObjectFiles, UploadId, UploadPart, expected_etag
from gobblin_assets.fs.posix_named import PosixNamedFiles
from gobblin_assets.model.files import FileIdentity
from gobblin_assets.model.state import SequenceId
from gobblin_assets.model.urn import Role
from tests.support.object_store import MemoryObjects, ObjectStore
from tests.support.s3_servers import S3Server
from tests.support.shares import rotating

FENCE = 7
OLD, NEW = b"the old version", b"the new version"


@dataclass(frozen=True)
class Place:
    """One name in a store, and an attempt's directory beside it."""

    files: ObjectFiles
    bucket: str
    name: str = "file"

    @property
    def target(self) -> str:
        return f"{self.bucket}/tree/{self.name}"

    @property
    def staging(self) -> str:
        return f"{self.bucket}/tree/.gobblin/.staging/{uuid.UUID(int=5).hex}"

    def stage(self, number: int, content: bytes) -> tuple[UploadId, tuple[UploadPart, ...]]:
        metadata = {ID_KEY: object_id(self.staging, str(number)), MTIME_KEY: "17"}
        upload = self.files.begin_upload(self.target, metadata)
        write_uploads(self.files, self.staging, f"{self.name}-{number}", [(self.target, upload)])
        return upload, (self.files.write_part(self.target, upload, 1, content, google_crc32c.value(content)),)

    def put(self, content: bytes) -> ObjectEntry:
        """As somebody else does, whatever is there."""
        occupant = self.files.find_object(self.target)
        if occupant is not None:
            self.files.remove_object(self.target, occupant.etag)
        self.files.put_if_absent(self.target, content)
        return self.get()

    def get(self) -> ObjectEntry:
        found = self.files.find_object(self.target)
        assert found is not None
        return found

    def read(self) -> bytes | None:
        if self.files.find_object(self.target) is None:
            return None
        with self.files.open_input(self.target) as stream:
            return stream.read()

    def world(self) -> StepWorld:
        return StepWorld(ObjectWorkFiles(self.files), StepPorts())

    def verify(self, step: UploadStep) -> StepVerdict:
        return verify_steps([step], self.world())[0]

    def execute(self, step: UploadStep) -> None:
        execute_steps([step], self.world())

    def undo(self, step: UploadStep, fence: int = FENCE, require: Callable[[], None] = lambda: None) -> UndoOutcome:
        captured = CapturedStaging(SequenceId(uuid.UUID(int=1)), fence, {}, require)
        return step.undo(self.world(), captured)

    # The kinds of steps.

    def place_object(self) -> PlaceObject:
        upload, parts = self.stage(1, NEW)
        identity = FileIdentity(len(NEW), None, 17, expected_etag(parts))
        return PlaceObject(self.staging, self.target, "1", upload, parts, identity)

    def replace_object(self, old: ObjectEntry | None = None) -> ReplaceObject:
        old = old or self.put(OLD)
        upload, parts = self.stage(2, NEW)
        identity = FileIdentity(len(NEW), None, 17, expected_etag(parts))
        planned = FileIdentity(len(OLD), None, None, old.etag)
        return ReplaceObject(self.staging, self.target, "2", upload, parts, identity, planned)

    def publish_object(self) -> PublishObject:
        upload, parts = self.stage(4, NEW)
        identity = FileIdentity(len(NEW), tag=expected_etag(parts))
        return PublishObject(self.staging, self.target, "4", upload, parts, identity, row_count=5)

    def remove_object(self, old: ObjectEntry | None = None) -> RemoveObject:
        old = old or self.put(OLD)
        upload, parts = self.stage(3, make_mark(self.target))
        return RemoveObject(self.staging, self.target, "3", upload, parts, FileIdentity(len(OLD), None, None, old.etag))


def open_memory(_request: pytest.FixtureRequest) -> Place:
    return Place(MemoryObjects(ObjectStore()), "/bucket")


def open_silent(_request: pytest.FixtureRequest) -> Place:
    return Place(MemoryObjects(ObjectStore(answers_used_up=False)), "/bucket")


def open_versitygw(request: pytest.FixtureRequest) -> Place:
    server: S3Server = request.getfixturevalue("versitygw")
    return Place(server.open(), f"/{server.make_bucket()}")


@pytest.fixture(params=[open_memory, open_silent, rotating(open_versitygw)], ids=lambda opened: opened.__name__)
def place(request: pytest.FixtureRequest) -> Place:
    opened: Place = request.param(request)
    return opened


KINDS: list[Callable[[Place], UploadStep]] = [
    Place.place_object,
    Place.publish_object,
    Place.replace_object,
    Place.remove_object,
]
each_kind = pytest.mark.parametrize("make", KINDS, ids=lambda make: make.__name__)


def before(step: UploadStep) -> bytes | None:
    return OLD if isinstance(step, ReplaceObject | RemoveObject) else None


def after(step: UploadStep) -> bytes | None:
    return None if isinstance(step, RemoveObject) else NEW


# --- executing


@each_kind
def test_a_step_is_done_once(place: Place, make: Callable[[Place], UploadStep]) -> None:
    step = make(place)
    assert place.verify(step) is StepVerdict.DO
    assert place.read() == before(step)
    place.execute(step)
    assert place.verify(step) is StepVerdict.DONE
    assert place.read() == after(step)
    place.execute(step)
    assert place.read() == after(step)
    assert not place.files.has_upload(step.target, step.upload)


def test_what_is_published_keeps_its_metadata_and_has_the_expected_etag(place: Place) -> None:
    step = place.place_object()
    place.execute(step)
    found = place.get()
    assert (found.metadata or {})[MTIME_KEY] == "17"
    assert (found.etag, found.size_bytes) == (step.identity.tag, step.identity.size_bytes)


@each_kind
def test_the_old_version_is_put_aside(place: Place, make: Callable[[Place], UploadStep]) -> None:
    step = make(place)
    place.execute(step)
    copy = place.files.find_object(slot_of(step.staging, step.number))
    assert (copy is None) == (before(step) is None)
    if copy is not None:
        assert place.files.read_range(copy.path, copy.etag, 0, copy.size_bytes) == OLD


@each_kind
def test_a_process_that_wakes_up_late_changes_no_later_version(
    place: Place, make: Callable[[Place], UploadStep]
) -> None:
    """The later version has the bytes that the step was planned to find."""
    step = make(place)
    place.execute(step)
    later = place.put(OLD)
    place.execute(step)
    assert place.get().etag == later.etag
    assert place.read() == OLD


@each_kind
def test_a_stranger_is_never_replaced(place: Place, make: Callable[[Place], UploadStep]) -> None:
    step = make(place)
    place.put(b"a stranger's")
    assert place.verify(step) is StepVerdict.CONFLICT
    place.execute(step)
    assert place.read() == b"a stranger's"
    assert "something else put it there" in step.find_fault(place.world(), StepVerdict.CONFLICT).found


@each_kind
def test_a_step_without_its_upload_is_lost(place: Place, make: Callable[[Place], UploadStep]) -> None:
    step, world = make(place), place.world()
    place.files.abort_upload(step.target, step.upload)
    execute_steps([step], world)
    assert verify_steps([step], world) == [StepVerdict.LOST]
    assert place.read() == before(step)
    assert "its upload is gone" in step.find_fault(world, StepVerdict.LOST).found


def test_an_object_of_the_same_bytes_is_not_the_step_s_own(place: Place) -> None:
    step = place.place_object()
    place.put(NEW)
    assert place.verify(step) is StepVerdict.CONFLICT


def test_a_removal_that_a_stranger_did_uses_its_upload_up(place: Place) -> None:
    step = place.remove_object()
    place.files.remove_object(step.target, step.old.tag or "")
    assert place.verify(step) is StepVerdict.DO
    place.execute(step)
    assert place.verify(step) is StepVerdict.DONE
    assert not place.files.has_upload(step.target, step.upload)


def test_a_removal_goes_on_from_its_mark(place: Place) -> None:
    step = place.remove_object()
    place.files.complete_upload(step.target, step.upload, step.parts, HasEtag(step.old.tag or ""))
    assert place.verify(step) is StepVerdict.DO
    place.execute(step)
    assert place.read() is None
    assert place.verify(step) is StepVerdict.DONE


# --- taking back


@each_kind
@pytest.mark.parametrize("happened", [False, True], ids=["never happened", "happened"])
def test_what_happened_is_taken_back_and_can_t_happen_again(
    place: Place, make: Callable[[Place], UploadStep], *, happened: bool
) -> None:
    step = make(place)
    if happened:
        place.execute(step)
    assert place.undo(step) is (UndoOutcome.UNDONE if happened else UndoOutcome.NEVER_HAPPENED)
    assert place.read() == before(step)
    assert place.undo(step, FENCE + 1) is UndoOutcome.NEVER_HAPPENED
    place.execute(step)
    assert place.read() == before(step)


@each_kind
def test_a_stranger_is_not_taken_back(place: Place, make: Callable[[Place], UploadStep]) -> None:
    step = make(place)
    place.execute(step)
    place.put(b"a stranger's")
    assert place.undo(step) in (UndoOutcome.NEVER_HAPPENED, UndoOutcome.STRANGER)
    assert place.read() == b"a stranger's"


def test_a_removal_is_taken_back_from_its_mark(place: Place) -> None:
    step = place.remove_object()
    place.files.copy_object(step.target, step.slot, step.old.tag or "")
    place.files.complete_upload(step.target, step.upload, step.parts, HasEtag(step.old.tag or ""))
    assert place.undo(step) is UndoOutcome.UNDONE
    assert place.read() == OLD


@each_kind
def test_an_abandoner_that_lost_the_sequence_completes_nothing(
    place: Place, make: Callable[[Place], UploadStep]
) -> None:
    step = make(place)
    place.execute(step)

    def refuse() -> None:
        raise FencedError("taken over")

    with pytest.raises(FencedError):
        place.undo(step, require=refuse)
    assert place.read() == after(step)


def test_uploads_of_earlier_abandoners_are_aborted_and_those_of_later_ones_are_not(place: Place) -> None:
    step = place.place_object()
    place.execute(step)
    begun = {}
    for fence in (FENCE - 1, FENCE + 1):
        begun[fence] = place.files.begin_upload(step.target, {})
        write_undo(place.files, step.staging, step.number, fence, (step.target, begun[fence]))
    assert place.undo(step) is UndoOutcome.UNDONE
    assert not place.files.has_upload(step.target, begun[FENCE - 1])
    assert place.files.has_upload(step.target, begun[FENCE + 1])


def test_a_store_that_confirms_no_act_is_no_stranger() -> None:
    """What was taken back nobody knows: the abandonment goes on at its next try."""

    @dataclass(frozen=True)
    class Silent(MemoryObjects):
        def complete_upload(self, *_arguments: Any) -> Any:
            raise OutcomeUnknownError("no answer")

    store = ObjectStore()
    place = Place(MemoryObjects(store), "/bucket")
    step = place.replace_object()
    place.execute(step)
    with pytest.raises(RetryableError, match="no answer"):
        Place(Silent(store), "/bucket").undo(step)
    assert place.undo(step) is UndoOutcome.UNDONE
    assert place.read() == OLD


def test_a_lost_answer_stops_no_other_step() -> None:
    store = ObjectStore()

    @dataclass(frozen=True)
    class Forgetful(MemoryObjects):
        """Without an answer, and without an effect, where the name ends with 0."""

        def complete_upload(self, path: str, *arguments: Any) -> Any:
            if path.endswith("0"):
                raise OutcomeUnknownError("no answer")
            return MemoryObjects.complete_upload(self, path, *arguments)

    files = MemoryObjects(store)
    steps = [Place(files, "/bucket", f"f{number}").place_object() for number in range(40)]
    with pytest.raises(OutcomeUnknownError):
        execute_steps(steps, StepWorld(ObjectWorkFiles(Forgetful(store), 5), StepPorts()))
    verdicts = verify_steps(steps, StepWorld(ObjectWorkFiles(files, 5), StepPorts()))
    assert [number for number, each in enumerate(verdicts) if each is StepVerdict.DO] == [0, 10, 20, 30]
    assert set(verdicts) == {StepVerdict.DO, StepVerdict.DONE}


# --- the log


def test_segments_give_the_steps_back() -> None:
    place = Place(MemoryObjects(ObjectStore()), "/bucket")
    made = [place.place_object(), place.replace_object(), place.remove_object()]
    segments = encode_segments(made, role=Role.DATA, partition="")
    assert len(segments) == 3
    assert [step for each in segments for step in decode_segment(each.payload, each.digest)] == made
    changes = [change for each in segments for change in list_changes(each.payload, each.digest)]
    assert changes == [
        (place.target, made[0].identity, None),
        (place.target, made[1].identity, None),
        (place.target, None, None),
    ]


def test_a_segment_gives_the_rows_of_files_back_also_where_no_etag_was_known() -> None:
    place = Place(MemoryObjects(ObjectStore()), "/bucket")
    known = place.publish_object()
    parts = (UploadPart(1, 1 << 24, "an etag of an encrypting store", 7), UploadPart(2, 3, "another"))
    unknown = replace(known, number="5", parts=parts, identity=FileIdentity((1 << 24) + 3), row_count=0)
    (segment,) = encode_segments([known, unknown], role=Role.DATA, partition="p", file_schema={"type": "struct"})
    assert decode_segment(segment.payload, segment.digest) == [known, unknown]
    found = [(place.target, known.identity, 5), (place.target, unknown.identity, 0)]
    assert list(list_published(segment.payload, segment.digest)) == found
    assert (segment.file_count, segment.row_count, segment.file_bytes) == (2, 5, len(NEW) + (1 << 24) + 3)
    assert not has_given_names(segment.payload, segment.digest)


def test_a_file_system_of_files_takes_no_objects() -> None:
    with pytest.raises(RejectedError, match="objects can't be published"):
        _ = StepWorld(PosixNamedFiles(None), StepPorts()).objects
