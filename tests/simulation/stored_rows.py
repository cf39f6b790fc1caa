"""The simulated world of rows in an object store: files are uploads of the product's own ``UploadedFiles``.

The run, ``RowFiles``, the steps and the operations of the log are the product's own. Each request is a call that can
fail. The checker reads the store's objects where it reads the disk's files elsewhere.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self
from unittest import mock

from gobblin_assets.commit import cleanup
from gobblin_assets.commit.destination import IDENTITY_NAME
from gobblin_assets.commit.step_world import StepWorld
from gobblin_assets.commit.steps import CommitStep, UndoOutcome
from gobblin_assets.destinations.files.upload_step import PublishObject
from gobblin_assets.fs.object_work import ObjectWorkFiles
from gobblin_assets.fs.objects import Ability, UploadId
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.files import DataFile
from gobblin_assets.rows import attempt_files
from gobblin_assets.rows.attempt_files import UploadedFiles
from gobblin_assets.run.destination import Destination
from gobblin_assets.run.job_kind import WorkOrder
from tests.simulation.file_system import SimDisk
from tests.simulation.history import Checker
from tests.simulation.mutant import Mutant
from tests.simulation.process import Fault, Process, Watched
from tests.simulation.scenarios import Scenario, open_sequence
from tests.simulation.world import FREE, Runner, SimRows, World
from tests.support.kinds import OBJECTS
from tests.support.object_store import MemoryObjects, ObjectStore

STORE_ROOT: Final = "/bucket/lake"

# Names that are drawn by lot; ids of the world's clocks are not.
_RANDOM: Final = re.compile(r"[0-9a-f]{12}4[0-9a-f]{3}[89ab][0-9a-f]{15}")


@dataclass
class StoredRowsWorld(World):
    """``store``: the destination. ``honours``: what it does not ignore."""

    store: ObjectStore = field(default_factory=ObjectStore)
    honours: frozenset[Ability] = frozenset(Ability)
    destination: str = OBJECTS

    def copy(self) -> Self:
        return replace(super().copy(), store=self.store.copy())

    def fingerprint(self) -> object:
        objects = sorted((_hide(path), _hide(each.content.decode())) for path, each in self.store.objects.items())
        pending = sorted(
            (each.path, _hide(str(each.metadata)), len(each.parts)) for each in self.store.uploads.values()
        )
        return super().fingerprint(), tuple(objects), tuple(pending)

    def open_process(self, **options: Any) -> "RowUploader":
        self.process_count += 1
        return RowUploader(self, Process(f"process {self.process_count}", **options), self.process_count)


class RowUploader(Runner):
    """A process of the world that publishes rows to the store."""

    root = STORE_ROOT

    def _watch_files(self, files: object) -> Any:
        del files
        assert isinstance(self.world, StoredRowsWorld)
        # A proxy of all that the port has.
        watched: Any = Watched(self.process, "store", MemoryObjects(self.world.store, self.world.honours), FREE)
        return ObjectWorkFiles(watched)

    def _destination(self) -> Destination:
        return self._open_destination(f"mem:/{STORE_ROOT}", STORE_ROOT)

    def _rows(self) -> SimRows:
        return _StoredRows(self)

    @property
    def objects(self) -> Any:
        return self._fs.objects


class _StoredRows(SimRows):
    def write(self, order: WorkOrder, path: str, rows: Sequence[list[Any]]) -> tuple[DataFile, CommitStep | None]:
        assert isinstance(self._runner, RowUploader)
        assert order.names is not None
        made = UploadedFiles(self._runner.objects, order.directory, order.names).create("", path.rpartition("/")[2])
        content = json.dumps(rows).encode()
        made.stream.write(content)
        finished = made.finish(len(rows), len(content))
        return finished.file, finished.step


@dataclass
class StoredRowsChecker(Checker):
    """A power cut takes nothing from a store."""

    def contents_of(self, world: World, disk: SimDisk) -> Mapping[str, bytes]:
        del disk
        assert isinstance(world, StoredRowsWorld)
        objects = world.store.objects.items()
        return {path: each.content for path, each in objects if not path.endswith(IDENTITY_NAME)}

    def check_files_at_rest(self, world: World) -> None:
        super().check_files_at_rest(world)
        assert isinstance(world, StoredRowsWorld)
        # An upload that was begun and never written down has no bytes.
        filled = [each for each in world.store.uploads.values() if each.parts]
        assert not filled, f"uploads are left: {filled}"


def _hide(text: str) -> str:
    return _RANDOM.sub("*", text)


def _with_new_rows() -> StoredRowsWorld:
    world = StoredRowsWorld()
    world.add_rows()
    report = world.open_process().run()
    assert report is not None
    assert not report.failed, [each.error for each in report.datasets]
    world.add_rows()
    return world


def _half_published() -> StoredRowsWorld:
    """A process died before its second completion; its lease has run out."""
    world = _with_new_rows()
    trial = world.copy().open_process()
    trial.run()
    calls = trial.process.calls
    sealed = max(number for number, call in enumerate(calls) if call == "log.seal")
    found = [number for number, call in enumerate(calls) if call == "store.complete_upload" and number > sealed]
    world.open_process(faults={found[1]: Fault.KILLED_BEFORE}).run()
    world.expire_leases()
    return world


STORED_ROWS_SCENARIOS: Final = (
    Scenario("append to a store", _with_new_rows, lambda runner: runner.run(), StoredRowsChecker),
    Scenario("refresh in a store", _with_new_rows, lambda runner: runner.run(Mode.REFRESH), StoredRowsChecker),
    Scenario("recover rows in a store", _half_published, lambda runner: runner.recover(), StoredRowsChecker),
    Scenario(
        "abandon rows in a store",
        _half_published,
        lambda runner: runner.abandon(open_sequence(runner.world)),
        StoredRowsChecker,
    ),
)


def _nothing_is_aborted() -> AbstractContextManager[Any]:
    """Only rehearsals abort."""
    abort = MemoryObjects.abort_upload

    def mutant(self: MemoryObjects, path: str, upload: UploadId) -> bool:
        return abort(self, path, upload) if "/rehearsal-" in path else True

    return mock.patch.object(MemoryObjects, "abort_upload", mutant)


def _nothing_is_written_down() -> AbstractContextManager[Any]:
    return mock.patch.object(attempt_files, "write_uploads", return_value=None)


def _nothing_is_taken_back() -> AbstractContextManager[Any]:
    """An abandonment aborts the uploads, and leaves what was published."""

    def mutant(self: PublishObject, world: StepWorld, _captured: object) -> UndoOutcome:
        world.objects.abort_upload(self.target, self.upload)
        return UndoOutcome.NEVER_HAPPENED

    return mock.patch.object(PublishObject, "undo", mutant)


@contextmanager
def _cleanup_removes_what_was_published() -> Iterator[None]:
    discard = cleanup.discard_attempt

    def mutant(files: Any, staging: str, *more: Any) -> bool:
        notes = [each for each in files.list_objects(staging) if "/uploads-" in each.path]
        for note in notes:
            for path, _upload in json.loads(files.read_range(note.path, note.etag, 0, note.size_bytes)):
                found = files.find_object(path)
                if found is not None:
                    files.remove_object(path, found.etag)
        return discard(files, staging, *more)

    with mock.patch.object(cleanup, "discard_attempt", mutant):
        yield


IN_THE_WORLD_OF_STORED_ROWS: Final = (
    Mutant("of rows, no upload is aborted", _nothing_is_aborted),
    Mutant("of rows, no upload is written down", _nothing_is_written_down),
    Mutant("an abandonment leaves published rows", _nothing_is_taken_back),
    Mutant("cleanup removes published rows", _cleanup_removes_what_was_published),
)
