"""The simulated world of copies: two trees on one disk, and processes that copy one to the other.

``CopyKind``, ``CopyWorker``, ``FileStaging``, ``NamedTree``, the engine and the operations of the log are the product's
own. Only the transfer and the listing of trees are written for the simulated disk, since those of the product read real
files. The source keeps whole seconds of the world's clock, which a process that sleeps moves: all versions of one
second have one time.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

import google_crc32c

from gobblin_assets.destinations.claims import work_root_of
from gobblin_assets.destinations.fixed_names.given_names import NamedTree
from gobblin_assets.errors import ErrorFamily, RejectedError
from gobblin_assets.fs.file_system import FileSystem
from gobblin_assets.fs.tree import Descend, EntryKind, Tree, TreeEntry, sort_key
from gobblin_assets.jobs.copy.copy_kind import CopyKind
from gobblin_assets.jobs.copy.copy_spec import CopyDatasetSpec, CopySpec
from gobblin_assets.jobs.copy.copy_trees import CopyTrees
from gobblin_assets.jobs.copy.copyable import CopyableDataset, CopyItem, FileSet, PlannedFile
from gobblin_assets.jobs.copy.difference import Deletes
from gobblin_assets.jobs.copy.file_staging import FileStaging
from gobblin_assets.jobs.copy.parsing import CopyDataset
from gobblin_assets.jobs.copy.running import KnownFiles, find_published_by
from gobblin_assets.jobs.copy.transfer.bins import Bin
from gobblin_assets.jobs.copy.transfer.journal import (
    JOURNAL_NAME,
    FinishedFile,
    encode_header,
    encode_line,
    work_guid_of,
)
from gobblin_assets.jobs.copy.transfer.transfer_port import CopyFailure, FileResult, TransferOrder
from gobblin_assets.jobs.copy.worker import CopyWorker
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.files import FileIdentity
from gobblin_assets.model.urn import DatasetUrn, JobName
from gobblin_assets.run.destination import Destination, DestinationRequest
from gobblin_assets.run.job_kind import JobKind
from gobblin_assets.run.run_values import RunReport
from gobblin_assets.spec.job_options import LeaseSpec, RetrySpec
from tests.simulation.file_system import SimDisk, SimFileSystem
from tests.simulation.process import Process, WatchedFileSystem
from tests.simulation.world import FREE, JOB, LEASE_S, ROOT, Runner, World
from tests.simulation.world_clock import SECONDS_AT_FIRST, WorldClock

SOURCE: Final = "/source"
WORK_ROOT: Final = work_root_of(ROOT)
URN: Final = DatasetUrn("photos")
PLACE: Final = f"{ROOT}/{URN}"
CLOSED: Final = 0o555
KEEP_S: Final = 86_400.0
"""How long replaced and removed files stay in their slots."""

REUSE_S: Final = 43_200.0
"""How long the files of failed attempts are kept."""

JOB_OF_COPIES: Final = CopySpec(
    job=JOB,
    source=SOURCE,
    destination=ROOT,
    parallelism=1,
    retry=RetrySpec(task_tries_max=2, back_off_s=0.0),
    lease=LeaseSpec(ttl_s=LEASE_S, wait_s=0.0),
    trash_keep_s=KEEP_S,
    reuse_keep_s=REUSE_S,
)
DATASET: Final = CopyDataset(
    CopyDatasetSpec(urn=URN, path=URN, to=URN, deletes=Deletes.OURS), CopyableDataset(URN, URN, URN, (FileSet(""),))
)


@dataclass(frozen=True)
class ForeignAct:
    """What a stranger left at a published name. ``identity`` None: nothing. ``before``: the log's version then."""

    identity: FileIdentity | None
    before: FileIdentity | None


@dataclass(frozen=True)
class ForeignFiles:
    """What others did at published names. ``last``: by path, what they did last. ``put``: all that they ever put there.

    ``destroyed``: the versions that they took away, by path.
    """

    last: Mapping[str, ForeignAct] = field(default_factory=dict)
    put: frozenset[tuple[str, FileIdentity]] = frozenset()
    destroyed: frozenset[tuple[str, FileIdentity]] = frozenset()


@dataclass
class CopyWorld(World):
    """``versions``: the contents that the source and strangers have ever had, by name and time.

    ``closed``: the modes of directories of the destination that let nobody write.
    """

    versions: Mapping[tuple[str, int], tuple[bytes, ...]] = field(default_factory=dict)
    closed: Mapping[str, int] = field(default_factory=dict)
    foreign: ForeignFiles = field(default_factory=ForeignFiles)

    def write_source(self, *paths: str) -> None:
        """A new version of each file, of the length that the last one had."""
        mtime_ns = int(SECONDS_AT_FIRST + self.db.now_s) * 1_000_000_000
        for path in paths:
            content = self.content_of(path, self.version_count + 1)
            self.disk.write_file(f"{SOURCE}/{URN}/{path}", content, mtime_ns=mtime_ns)
            self._note_version(path, mtime_ns, content)
        self._settle_source()

    def close_directory(self) -> None:
        """The dataset's, while nobody publishes there."""
        self.disk.mkdir(PLACE)
        self._sync_below(ROOT, f"{PLACE}/none")
        self.disk.change_mode(PLACE, CLOSED)
        self.disk.sync_directory(PLACE)
        self.closed = {PLACE: CLOSED}

    @property
    def version_count(self) -> int:
        return sum(map(len, self.versions.values()))

    def content_of(self, path: str, number: int) -> bytes:
        return f"{path} {number:03}".encode()

    def _note_version(self, path: str, mtime_ns: int, content: bytes) -> None:
        before = self.versions.get((path, mtime_ns), ())
        self.versions = {**self.versions, (path, mtime_ns): (*before, content)}

    def remove_source(self, *paths: str) -> None:
        for path in paths:
            self.disk.remove(f"{SOURCE}/{URN}/{path}")
        self._settle_source()

    def change_source(self) -> None:
        """Each file gets another version, comes back, or goes."""
        names = {"added", "changed", "removed", "new/one", "metadata/one", "_SUCCESS"}
        there = {path.removeprefix(f"{SOURCE}/{URN}/") for path in self.disk.files() if path.startswith(SOURCE)}
        self.write_source("changed", "new/one", "metadata/one", "_SUCCESS", *sorted(names - there))
        self.remove_source(*sorted(there & {"added", "removed"}))

    def write_as_a_stranger(self, name: str, before: FileIdentity | None) -> None:
        """Another file, in the place of whatever is there. ``before``: the log's version."""
        # Long ago, and like no other's.
        path, mtime_ns = f"{PLACE}/{name}", self.version_count + 1
        content = f"a stranger's {mtime_ns}".encode()
        self._take_away(path)
        self.disk.write_file(path, content, mtime_ns=mtime_ns)
        self._note_version(name, mtime_ns, content)
        found = self.disk.find_identity(path)
        assert found is not None
        self.foreign = replace(
            self.foreign,
            last={**self.foreign.last, path: ForeignAct(found, before)},
            put=self.foreign.put | {(path, found)},
        )
        self._sync_below(ROOT, path)

    def remove_as_a_stranger(self, name: str, before: FileIdentity | None) -> None:
        path = f"{PLACE}/{name}"
        if self._take_away(path):
            self.foreign = replace(self.foreign, last={**self.foreign.last, path: ForeignAct(None, before)})
            self._sync_below(ROOT, path)

    def _take_away(self, path: str) -> bool:
        found = self.disk.find_identity(path)
        if found is not None:
            self.foreign = replace(self.foreign, destroyed=self.foreign.destroyed | {(path, found)})
            self.disk.remove(path)
        return found is not None

    def _settle_source(self) -> None:
        """The source is another machine's: no power cut takes anything from it."""
        for path in (f"{SOURCE}/{URN}/none", *self.disk.files()):
            if path.startswith(f"{SOURCE}/"):
                self._sync_below(SOURCE, path)

    def _sync_below(self, root: str, path: str) -> None:
        """The file, if it is there, and the names on the way to it, also those of directories that a run just moved."""
        directory = path.rpartition("/")[0]
        while len(directory) >= len(root):
            self.disk.sync_directory(directory)
            self.disk.sync_name(directory)
            directory = directory.rpartition("/")[0]
        if self.disk.exists(path):
            self.disk.sync_file(path)

    def open_process(self, **options: Any) -> "Copier":
        self.process_count += 1
        return Copier(self, Process(f"process {self.process_count}", **options), self.process_count)


class Copier(Runner):
    """A process of the world that copies."""

    root = WORK_ROOT

    def __init__(self, world: World, process: Process, number: int) -> None:
        super().__init__(world, process, number)
        self._clock = WorldClock(world, number)

    def run(  # type: ignore[override]  # one dataset
        self, mode: Mode = Mode.APPEND, urns: tuple[DatasetUrn, ...] = (URN,), *, confirm_deletes: bool = False
    ) -> RunReport | None:
        return super().run(mode, urns, confirm_deletes=confirm_deletes)

    def _job(self) -> CopySpec:
        return JOB_OF_COPIES

    def _destination(self) -> Destination:
        return NamedTree(
            DestinationRequest(
                JobName(JOB), ROOT, self._fs, ROOT, self._stores, self._open_file_system, self._clock.new_id
            ),
            keep_s=KEEP_S,
            places={URN: str(URN)},
            reuse_s=REUSE_S,
        )

    def _kind(self) -> JobKind:
        transfer = SimTransfer(self.process, self._disk)
        staging = FileStaging(self._fs, transfer, workers=1, rereads=False, journals=True)
        worker = CopyWorker(staging, self._clock, self.lines.append)
        trees = SimTrees(self.process, self._disk)
        is_ours = find_published_by(KnownFiles(self._stores.published, JobName(JOB)))
        clock = self._clock
        return CopyKind({URN: DATASET}, trees, self._fs, ROOT, is_ours, lambda: worker, clock.new_id, now=clock.now)

    def _watch_files(self, files: SimFileSystem) -> Any:
        return _WatchedTreeFiles(self.process, "fs", files, FREE)


class _WatchedTreeFiles(WatchedFileSystem):
    """The syncs at the end of ``durable_tree`` are a call of their own."""

    @contextmanager
    def durable_tree(self, directory: str, *, file_count: int) -> Iterator[None]:
        def sync() -> None:
            with self._port.durable_tree(directory, file_count=file_count):  # type: ignore[attr-defined]  # a file system
                pass

        self.__getattr__("is_directory")(directory)
        yield
        self.watching.call("fs.durable_tree", sync)


@dataclass(frozen=True)
class SimTrees(CopyTrees):
    """A listing is one call, which can fail."""

    process: Process
    disk: SimDisk

    def open_source(self, spec: CopyDatasetSpec) -> tuple[Tree, str]:
        del spec
        return _SimTree(self, "source.plan"), SOURCE

    def require_inside(self, spec: CopyDatasetSpec, place: str) -> None:
        """This world has no links."""

    def find_source_entry(self, place: str) -> TreeEntry | None:
        return SimFileSystem(self.disk).find_entry(place)

    def find_source_directory(self, place: str) -> TreeEntry | None:
        return SimFileSystem(self.disk).find_entry(place)

    def open_destination(self) -> Tree:
        return _SimTree(self, "destination.list")

    def open_destination_files(self) -> FileSystem:
        return SimFileSystem(self.disk)


@dataclass(frozen=True)
class _SimTree:
    trees: SimTrees
    label: str
    mtime_precision_ns: int = 1

    def list_tree(self, root: str, descend: Descend | None = None) -> Iterator[TreeEntry]:
        disk = self.trees.disk

        def list_all() -> list[TreeEntry]:
            if not disk.is_directory(root):
                raise RejectedError("is no directory", field="source")
            return list(_list_below(disk, root, ""))

        found: list[TreeEntry] = self.trees.process.call(self.label, list_all)
        assert descend is None, "nothing is filtered in this world"
        yield from sorted(found, key=lambda each: sort_key(each).encode())


def _list_below(disk: SimDisk, root: str, path: str) -> Iterator[TreeEntry]:
    for name in disk.list_names(f"{root}/{path}".rstrip("/")):
        below = f"{path}/{name}".lstrip("/")
        found = SimFileSystem(disk).find_entry(f"{root}/{below}")
        assert found is not None
        yield replace(found, path=below)
        if found.kind is EntryKind.DIRECTORY:
            yield from _list_below(disk, root, below)


@dataclass(frozen=True)
class SimTransfer:
    """The ``Transfer`` port: each file is read by one call and written by another, and no parent is ever made.

    It is then written to the journal by a third; or it is taken from an earlier attempt by one, and written there.
    """

    process: Process
    disk: SimDisk

    def cancel(self, tag: str) -> None:
        """Nothing runs beside the process."""

    def describe_interruption(self, tag: str, items: Sequence[CopyItem]) -> None:
        """The same."""

    def copy(self, order: TransferOrder) -> Iterator[tuple[FileResult, ...]]:
        for found in order.bins:
            for item in found.items:
                yield tuple(self._copy_item(order, found, item))

    def _copy_item(self, order: TransferOrder, found: Bin, item: CopyItem) -> Iterator[FileResult]:
        staged = f"{found.writer}/{item.number}"
        if not item.is_directory:
            yield self._copy_file(order, item, item.files[0], staged)
            return
        for place in ("", *(f"/{place}" for place, _desired in item.directories)):
            self.process.call("transfer.mkdir", lambda place=place: self._make(f"{order.attempt}/{staged}{place}"))
        for file in item.files:
            yield self._copy_file(order, item, file, f"{staged}/{file.path[len(item.path) + 1 :]}")
        inode = self.disk.find(f"{order.attempt}/{staged}")
        if inode is None:
            failure = CopyFailure(ErrorFamily.RETRYABLE, "the directory is gone")
            yield FileResult(item.number, item.path, staged, is_directory=True, failure=failure)
        else:
            yield FileResult(item.number, item.path, staged, is_directory=True, identity=FileIdentity(0, inode))

    def _make(self, path: str) -> None:
        if self.disk.is_directory(path.rpartition("/")[0]):
            self.disk.mkdir(path)

    def _copy_file(self, order: TransferOrder, item: CopyItem, file: PlannedFile, staged: str) -> FileResult:
        source, target = f"{order.source_root}/{file.origin}", f"{order.attempt}/{staged}"

        def read() -> bytes | None:
            is_planned = self.disk.find_identity(source) == file.identity
            return self.disk.read(source) if is_planned else None

        def write(content: bytes) -> FileIdentity | None:
            if not self.disk.is_directory(target.rpartition("/")[0]):
                return None
            self.disk.write_file(target, content, mtime_ns=file.desired.mtime_ns)
            return self.disk.find_identity(target)

        guid = work_guid_of(order.source_root, file.origin, file.identity, file.changed_ns, file.desired)
        assert guid is not None
        finished = order.finished.get(guid)
        if finished is not None and self.process.call("transfer.take", lambda: self._take(finished, target)):
            self._note(order, file, staged, finished.checksum)
            identity = FileIdentity(finished.size_bytes, finished.inode, finished.mtime_ns)
            return FileResult(item.number, file.path, staged, identity=identity)
        content = self.process.call("transfer.read", read)
        identity = None if content is None else self.process.call("transfer.write", lambda: write(content))
        if identity is None:
            why = "the source has changed" if content is None else "the writer's directory is gone"
            failure = CopyFailure(ErrorFamily.RETRYABLE, why)
            return FileResult(item.number, file.path, staged, failure=failure)
        self._note(order, file, staged, google_crc32c.value(content))
        return FileResult(item.number, file.path, staged, identity=identity)

    def _take(self, finished: FinishedFile, target: str) -> bool:
        identity = FileIdentity(finished.size_bytes, finished.inode, finished.mtime_ns)
        if (
            self.disk.find_identity(finished.path) != identity
            or google_crc32c.value(self.disk.read(finished.path)) != finished.checksum
            or not self.disk.is_directory(target.rpartition("/")[0])
        ):
            return False
        self.disk.rename(finished.path, target)
        return True

    def _note(self, order: TransferOrder, file: PlannedFile, staged: str, checksum: int) -> None:
        """The whole journal is one content that is written again: of a line, a power cut leaves nothing or garbage."""
        writer, _, place = staged.partition("/")
        path, journal = f"{order.attempt}/{staged}", f"{order.attempt}/{writer}/{JOURNAL_NAME}"

        def add() -> None:
            identity = self.disk.find_identity(path)
            if identity is None or identity.inode is None or identity.mtime_ns is None:
                return
            line = encode_line(file, place, (identity.size_bytes, identity.inode, identity.mtime_ns, checksum))
            assert line is not None
            before = self.disk.read(journal) if self.disk.exists(journal) else encode_header(order.source_root)
            self.disk.write_file(journal, before + line)

        self.process.call("transfer.journal", add)
