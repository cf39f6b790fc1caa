"""The simulated world of copies to an object store: a tree on a disk, and a store in memory that all processes share.

``CopyKind``, ``CopyWorker``, ``ObjectStaging``, ``NamedObjects``, ``ObjectTargets``, the engine and the operations of
the log are the product's own. Each request is a call that can fail. A file of the source has one of two contents in
turn, so that each second version has the bytes, and the ETag, of the one before the last: what only compares ETags is
then deceived.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self

from gobblin_assets.destinations.claims import work_root_of
from gobblin_assets.destinations.fixed_names.given_names import NamedObjects
from gobblin_assets.errors import RetryableError
from gobblin_assets.fs.file_system import FileSystem
from gobblin_assets.fs.object_work import ObjectWorkFiles
from gobblin_assets.fs.objects import Ability
from gobblin_assets.fs.tree import Tree, TreeEntry
from gobblin_assets.jobs.copy.copy_kind import CopyKind
from gobblin_assets.jobs.copy.copy_plan import CopyPlan
from gobblin_assets.jobs.copy.copy_spec import CopyDatasetSpec
from gobblin_assets.jobs.copy.copyable import PlannedFile
from gobblin_assets.jobs.copy.running import KnownFiles, find_published_by
from gobblin_assets.jobs.copy.targets import FindPublished, ObjectTargets
from gobblin_assets.jobs.copy.uploading import ObjectStaging, OpenedFile
from gobblin_assets.jobs.copy.worker import CopyWorker
from gobblin_assets.model.files import FileIdentity
from gobblin_assets.model.urn import JobName
from gobblin_assets.run.destination import Destination, DestinationRequest
from gobblin_assets.run.job_kind import JobKind
from tests.simulation.copy_world import DATASET, KEEP_S, URN, Copier, CopyWorld, SimTrees
from tests.simulation.process import Process, Watched
from tests.simulation.world import FREE, JOB
from tests.support.object_store import MemoryObjects, ObjectStore

BUCKET_ROOT: Final = "/bucket/mirror"
BUCKET_WORK: Final = work_root_of(BUCKET_ROOT)
BUCKET_PLACE: Final = f"{BUCKET_ROOT}/{URN}"

_RANDOM: Final = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True)
class Strangers:
    """What others did to published names. ``last``: by path the number of their last act there, and the ETag of what
    they put there; None: they removed what was there. ``destroyed``: versions, by path and ETag, that they took away.
    """

    last: Mapping[str, tuple[int, str | None]] = field(default_factory=dict)
    destroyed: frozenset[tuple[str, str]] = frozenset()


@dataclass
class ObjectWorld(CopyWorld):
    """``store``: the destination. ``honours``: what it does not ignore."""

    store: ObjectStore = field(default_factory=ObjectStore)
    honours: frozenset[Ability] = frozenset(Ability)
    strangers: Strangers = field(default_factory=Strangers)

    def copy(self) -> Self:
        return replace(super().copy(), store=self.store.copy())

    def write_as_a_stranger(self, name: str) -> None:
        """An object that no other has the bytes of, whatever is there."""
        path = f"{BUCKET_PLACE}/{name}"
        content = f"a stranger's {self.store.changes}".encode()
        etag = etag_of_one_part(content)
        self._disturb(path, etag)
        self.store.put(path, content, etag=etag)

    def remove_as_a_stranger(self, name: str) -> None:
        path = f"{BUCKET_PLACE}/{name}"
        if path in self.store.objects:
            self._disturb(path, None)
            self.store.remove(path)

    def _disturb(self, path: str, etag: str | None) -> None:
        found, before = self.store.objects.get(path), self.strangers
        lost = frozenset() if found is None else frozenset({(path, found.etag)})
        self.strangers = Strangers({**before.last, path: (self.store.changes, etag)}, before.destroyed | lost)

    def fingerprint(self) -> object:
        """Without names and marks that are drawn by lot."""
        objects = sorted((_RANDOM.sub("*", path), _kind_of(each.content)) for path, each in self.store.objects.items())
        uploads = sorted(
            (each.path, tuple(each.metadata.items()), len(each.parts)) for each in self.store.uploads.values()
        )
        return super().fingerprint(), tuple(objects), tuple(uploads)

    def content_of(self, path: str, number: int) -> bytes:
        del number
        return f"{path} {'odd' if len(self._versions_of(path)) % 2 else 'even':4}".encode()

    def _versions_of(self, path: str) -> list[bytes]:
        return [content for (name, _time), contents in self.versions.items() for content in contents if name == path]

    def open_process(self, **options: Any) -> "Uploader":
        self.process_count += 1
        return Uploader(self, Process(f"process {self.process_count}", **options), self.process_count)


class Uploader(Copier):
    """A process of the world that copies to the store."""

    root = BUCKET_WORK

    @property
    def _objects(self) -> Any:
        assert isinstance(self._fs, ObjectWorkFiles)
        return self._fs.objects

    def _watch_files(self, files: object) -> Any:
        del files
        assert isinstance(self.world, ObjectWorld)
        # A proxy of all that the port has.
        watched: Any = Watched(self.process, "store", MemoryObjects(self.world.store, self.world.honours), FREE)
        return ObjectWorkFiles(watched)

    def _destination(self) -> Destination:
        return NamedObjects(
            DestinationRequest(
                *(JobName(JOB), f"mem:/{BUCKET_ROOT}", self._fs, BUCKET_ROOT),
                *(self._stores, self._open_file_system, self._clock.new_id),
            ),
            keep_s=KEEP_S,
            places={URN: str(URN)},
        )

    def _kind(self) -> JobKind:
        published, name = self._stores.published, JobName(JOB)
        return CopyKind(
            datasets={URN: DATASET},
            trees=_ObjectTrees(self),
            files=None,
            root=BUCKET_ROOT,
            is_ours=find_published_by(KnownFiles(published, name)),
            make_worker=lambda: CopyWorker(
                ObjectStaging(self._objects, lambda _urn: BUCKET_PLACE, self._open_planned, requests=1),
                self._clock,
                self.lines.append,
            ),
            new_id=self._clock.new_id,
            now=self._clock.now,
        )

    def find_known(self, _root: str) -> FindPublished:
        return KnownFiles(self._stores.published, JobName(JOB)).find(URN).find

    def _open_planned(self, _plan: CopyPlan) -> Any:
        return self._open_file

    def _open_file(self, path: str, planned: PlannedFile) -> OpenedFile:
        return _SimFile(self, path, planned.identity)

    def read_source(self, path: str, identity: FileIdentity) -> bytes:
        def read() -> bytes:
            if self._disk.find_identity(path) != identity:
                raise RetryableError("the source has changed")
            return self._disk.read(path)

        content: bytes = self.process.call("transfer.read", read)
        return content

    def list_trees(self) -> SimTrees:
        return SimTrees(self.process, self._disk)

    @property
    def objects(self) -> Any:
        return self._objects


@dataclass(frozen=True)
class _SimFile:
    uploader: Uploader
    path: str
    identity: FileIdentity

    def read_at(self, offset: int, size_bytes: int) -> bytes:
        return self.uploader.read_source(self.path, self.identity)[offset : offset + size_bytes]

    def close(self) -> None:
        """Nothing is open."""


@dataclass(frozen=True)
class _ObjectTrees:
    uploader: Uploader

    def open_source(self, spec: CopyDatasetSpec) -> tuple[Tree, str]:
        return self.uploader.list_trees().open_source(spec)

    def require_inside(self, spec: CopyDatasetSpec, place: str) -> None:
        self.uploader.list_trees().require_inside(spec, place)

    def find_source_entry(self, place: str) -> TreeEntry | None:
        return self.uploader.list_trees().find_source_entry(place)

    def find_source_directory(self, place: str) -> TreeEntry | None:
        return self.uploader.list_trees().find_source_directory(place)

    def open_destination(self) -> Tree:
        return ObjectTargets(self.uploader.objects, self.uploader.find_known)

    def open_destination_files(self) -> FileSystem:
        return ObjectWorkFiles(self.uploader.objects)


def etag_of_one_part(content: bytes) -> str:
    """As an upload of one part has it."""
    return f"{hashlib.md5(hashlib.md5(content).digest()).hexdigest()}-1"


def _kind_of(content: bytes) -> bytes:
    return _RANDOM.sub("*", content.decode()).encode()
