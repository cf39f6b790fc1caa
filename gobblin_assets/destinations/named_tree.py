"""A directory tree as a destination: files are published at the names that the source gives them.

The work directory ``<root>/.gobblin`` holds all that is not the tree's own: the identity of the destination, markers,
staging, slots, and the claim. It is the root that the log knows. Other jobs' trees must lie apart, because two
publications would move each other's files. A job claims its tree by a file there, which names the job.
"""

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from gobblin_assets.commit.named_directory_steps import EnsureDirectory, PlaceDirectory
from gobblin_assets.commit.named_steps import PlaceFile, RemoveFile, ReplaceFile
from gobblin_assets.commit.step_world import OpenFileSystem
from gobblin_assets.commit.steps import CommitStep
from gobblin_assets.destinations.claims import (
    claim_path,
    read_claim,
    refuse_rows,
    refuse_tree,
    work_root_of,
    write_claim,
)
from gobblin_assets.destinations.named_outputs import (
    DirectoryAtName,
    FileAtName,
    FileToRemove,
    NamedOutput,
    ParentDirectory,
    published_place,
)
from gobblin_assets.destinations.posix import PosixDestination
from gobblin_assets.errors import CorruptionError, GobblinError, RejectedError
from gobblin_assets.fs.named_files import NamedFiles, require_named_files
from gobblin_assets.fs.port import FileSystem
from gobblin_assets.fs.tree import EntryKind
from gobblin_assets.model.files import FileIdentity
from gobblin_assets.model.path_names import list_upwards
from gobblin_assets.model.state import AttemptId
from gobblin_assets.model.urn import DatasetUrn, JobName, Role
from gobblin_assets.run.destination import Target
from gobblin_assets.run.job_kind import Output, OutputNames
from gobblin_assets.run.stores import Stores
from gobblin_assets.state.leases import Lease


@dataclass(slots=True)
class NamedTree:
    """``Destination`` of a tree at ``root`` of ``fs``. ``places``: each dataset's directory below the root.

    ``keep_s``: for slots. ``reuse_s``: for what failed attempts wrote; 0: nothing of it is used again.
    """

    job: JobName
    tree_uri: str
    fs: FileSystem
    root: str
    stores: Stores
    open_file_system: OpenFileSystem
    new_id: Callable[[], uuid.UUID]
    keep_s: float
    places: Mapping[DatasetUrn, str]
    reuse_s: float = 0.0
    _work: PosixDestination = field(init=False)
    _exchanges: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._work = PosixDestination(
            self.job,
            work_root_of(self.tree_uri),
            self.fs,
            work_root_of(self.root),
            self.stores,
            self.open_file_system,
            self.new_id,
            is_work=True,
        )

    @property
    def root_uri(self) -> str:
        return self._work.root_uri

    @property
    def slots_keep_s(self) -> float | None:
        return self.keep_s

    @property
    def reuse_keep_s(self) -> float | None:
        return self.reuse_s or None

    def bind(self) -> None:
        files = require_named_files(self.fs)
        self._refuse_claimed(files)
        self._work.bind()
        self._claim(files)
        self._exchanges = files.can_exchange(work_root_of(self.root))

    def _refuse_claimed(self, files: NamedFiles) -> None:
        """Look at this root and above it. What lies below is found by the listing of the tree."""
        for place in (self.root, *(str(path) for path in PurePosixPath(self.root).parents)):
            holder = _find_claim(files, place)
            if holder is not None and (place != self.root or holder != self.job):
                raise refuse_tree(self.root, place, holder)
            if place != self.root or "" not in self.places.values():
                # A dataset that is the whole tree may be a copy of such a place; its listing looks at that.
                refuse_rows(files, self.root, place)

    def _claim(self, files: NamedFiles) -> None:
        write_claim(files, self.root, self.job)
        self._refuse_claimed(files)

    def require(self) -> None:
        self._work.require()

    def check_logs(self, leases: Mapping[DatasetUrn, Lease]) -> Mapping[DatasetUrn, GobblinError]:
        return self._work.check_logs(leases)

    def refuse_strangers(self, urn: DatasetUrn) -> None:
        """No link may redirect what is published, on the way from the root to the dataset's directory, and no other
        job may publish below a directory on this way.
        """
        self._work.refuse_strangers(urn)
        files = require_named_files(self.fs)
        for place in reversed(list_upwards([self.place_of(urn)], self.root)[:-1]):
            entry = files.find_entry(place)
            if entry is not None and entry.kind is not EntryKind.DIRECTORY:
                raise RejectedError(
                    f"{place} is a {entry.kind.value}, and a directory of {urn} is to be there",
                    field="destination",
                    hint="Move it away, or choose another destination.",
                    path=place,
                )
            holder = _find_claim(files, place)
            if holder is not None:
                raise refuse_tree(self.place_of(urn), place, holder)
            if place != self.place_of(urn):
                refuse_rows(files, self.place_of(urn), place)

    def place_of(self, urn: DatasetUrn) -> str:
        """The dataset's directory."""
        return "/".join(filter(None, (self.root, self.places[urn])))

    def uri_of(self, urn: DatasetUrn, role: Role) -> str:
        del role
        return self.fs.to_uri(self.place_of(urn))

    def stage(self, attempt_id: AttemptId) -> str:
        return self._work.stage(attempt_id)

    def names_for(self, target: Target) -> OutputNames | None:
        """The source gives the names."""
        del target
        return None

    def make_durable(self, staged: Mapping[str, Sequence[Output]]) -> None:
        """The worker made each attempt's tree durable while it wrote; the names of the attempts are left."""
        self.fs.sync_directories(list_upwards(staged, work_root_of(self.root)))

    def steps_for(self, outputs: Sequence[Output], target: Target) -> Sequence[CommitStep]:
        root = self.place_of(target.urn)
        return [self._step_of(each, output.path, root) for output in outputs for each in _details_of(output)]

    def _step_of(self, output: NamedOutput, staging: str, root: str) -> CommitStep:
        target, number = published_place(root, output.path), str(output.number)
        match output:
            case FileAtName() if output.replaces is None:
                return PlaceFile(staging, target, number, output.writer, output.identity, output.is_metadata)
            case FileAtName(replaces=FileIdentity() as old):
                return ReplaceFile(
                    *(staging, target, number, output.writer, output.identity),
                    old=old,
                    exchanges=self._exchanges,
                    is_metadata=output.is_metadata,
                )
            case DirectoryAtName():
                return PlaceDirectory(staging, target, number, output.writer, output.inode, output.files)
            case ParentDirectory():
                return EnsureDirectory(staging, target, number)
            case FileToRemove():
                return RemoveFile(staging, target, number, output.identity)
            case _:
                raise CorruptionError(f"{output} is no output for a given name")

    def prune(self, urn: DatasetUrn) -> None:
        self._work.prune(urn)


def _details_of(output: Output) -> Sequence[NamedOutput]:
    found: Sequence[NamedOutput] = output.details
    return found


def _find_claim(files: NamedFiles, place: str) -> str | None:
    """The job that claims the tree at ``place``."""
    return None if files.find_entry(claim_path(place)) is None else read_claim(files, place)
