"""Binding a job to its destination when it is run, and moving it to another one when a person says so."""

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from gobblin_assets.commit.destination import (
    Binding,
    DestinationAwayError,
    DestinationStore,
    Move,
    Verdict,
    decide,
    elsewhere,
    find_nested,
    make_identity,
    nested,
    read_identity,
    unfinished,
)
from gobblin_assets.commit.markers import is_any_visible, list_markers, put_markers, sync_markers
from gobblin_assets.commit.operations import LogOperations
from gobblin_assets.commit.published.published_port import PublishedFiles, PublishedSegment
from gobblin_assets.commit.step_world import OpenFileSystem
from gobblin_assets.commit.store import CommitLogReader
from gobblin_assets.errors import RejectedError, RetryableError
from gobblin_assets.failpoints import Failpoint, reach
from gobblin_assets.fs.file_system import FileSystem
from gobblin_assets.model.path_names import job_directory, moved_path
from gobblin_assets.model.state import DatasetId, DatasetState
from gobblin_assets.model.urn import JobName, Role
from gobblin_assets.state.datasets import DatasetStore
from gobblin_assets.state.leases import Lease

FAULTS_NAMED_MAX: Final = 5


@dataclass(frozen=True, slots=True)
class Place:
    """The place where a job is about to be run: ``fs`` and ``root`` are the destination that its file names."""

    destinations: DestinationStore
    commits: CommitLogReader
    datasets: DatasetStore
    open_file_system: OpenFileSystem
    fs: FileSystem
    root: str
    job: JobName

    def look(self) -> Binding | str | None:
        """The identity, if the destination is bound; else the binding that ``settle`` completes, None for a first run.

        Changes nothing.

        Raises:
            RejectedError: the log has the job at another root, or the destination lies inside another job's data.
            DestinationAwayError: the job's publications are not there.

        """
        binding = self.destinations.find(self.job)
        identity = read_identity(self.fs, self.root)
        verdict = decide(
            binding,
            is_bound_root=binding is not None and self._is_here(binding),
            identity=identity,
            is_visible=self._is_visible,
        )
        if binding is not None and verdict is Verdict.ELSEWHERE:
            raise elsewhere(self.job, binding.root_uri, self.fs.to_uri(self.root))
        if binding is not None and verdict is Verdict.AWAY:
            raise DestinationAwayError(self.job, self.root, expected=binding.identity, found=identity)
        if verdict is Verdict.READY:
            return identity
        if verdict is Verdict.BIND:
            require_apart_from_others(self.destinations, self.open_file_system, self.job, self.root)
        return binding

    def settle(self, binding: Binding | None, new_id: Callable[[], uuid.UUID]) -> str:
        """Give the root a durable identity, and bind the job to it. The root must exist."""
        identity = make_identity(self.fs, self.root, new_id())
        reach(Failpoint.DESTINATION_MARKED)
        here = self.fs.to_uri(self.root)
        if binding is None:
            current = self.destinations.bind(self.job, root_uri=here, identity=identity)
        else:
            current = self.destinations.identify(self.job, old=binding.identity, root_uri=here, identity=identity)
        if not self._is_here(current):
            raise elsewhere(self.job, current.root_uri, here)
        if current.identity != identity:
            raise RetryableError(
                f"the destination of {self.job} was bound by another run meanwhile",
                hint="Run again.",
                bound=current.identity,
                found=identity,
            )
        return identity

    def _is_here(self, binding: Binding) -> bool:
        return normal_uri(self.open_file_system, binding.root_uri) == self.fs.to_uri(self.root)

    def _is_visible(self) -> bool:
        """Whether a file that an earlier release published is there; True if nothing was published."""
        published = [state for state in states_of(self.datasets, self.job) if state.version]
        return not published or any(is_any_visible(self.commits, self.fs, self.root, state) for state in published)


def normal_uri(open_file_system: OpenFileSystem, uri: str) -> str:
    """A destination as the log has it, however a person wrote it."""
    fs, root = open_file_system(uri)
    return fs.to_uri(root)


def require_bound_root(
    destinations: DestinationStore, open_file_system: OpenFileSystem, job: JobName, destination: str
) -> None:
    """RejectedError if the log has the job at another root than its file."""
    binding, here = destinations.find(job), normal_uri(open_file_system, destination)
    if binding is not None and normal_uri(open_file_system, binding.root_uri) != here:
        raise elsewhere(job, binding.root_uri, here)


def states_of(datasets: DatasetStore, job: JobName) -> list[DatasetState]:
    """The states of all datasets that the job ever had."""
    return list(datasets.load(job, [urn for _job, urn in datasets.list_urns(job)]).values())


def require_apart_from_others(
    destinations: DestinationStore, open_file_system: OpenFileSystem, job: JobName, root: str
) -> None:
    """RejectedError for a destination inside another job's data, or around it."""
    others = {
        other.job: (job_directory(other_root, other.job), other_root)
        for other in destinations.list_all()
        if other.job != job
        for _fs, other_root in [open_file_system(other.root_uri)]
    }
    found = find_nested(job_directory(root, job), root, others)
    if found is not None:
        raise nested(job, root, found)


@dataclass(frozen=True, slots=True)
class Moved:
    """The files that were found at the new root, and the binding."""

    job: JobName
    old_uri: str
    new_uri: str
    identity: str
    file_count: int
    file_bytes: int


@dataclass(frozen=True, slots=True)
class Relocation:
    """Binds jobs whose files a person has copied or moved to the new root. Copies and removes nothing."""

    operations: LogOperations
    destinations: DestinationStore
    datasets: DatasetStore
    published: PublishedFiles

    def move(self, job: JobName, new_uri: str, *, files_are_lost: bool = False) -> Moved:
        """Check that all published files are at the new root, and bind the job to it, in one transaction.

        All datasets are held meanwhile. ``files_are_lost``: files are not checked; the log keeps its lists of files,
        readers find the files missing, and a refresh brings each partition back. A move to the same root gives it an
        identity.

        Raises:
            RejectedError: the log has no such job, or files are missing at the new root.
            ConflictError: another process works on a dataset, or a publication is open.

        """
        binding = self.destinations.find(job)
        if binding is None:
            raise RejectedError(
                f"the log has no destination of a job {job!r}",
                field="job",
                hint="`gobblin-assets destination list` shows the destinations of the log.",
            )
        open_file_system = self.operations.open_file_system
        (old_fs, old_root), (fs, root) = open_file_system(binding.root_uri), open_file_system(new_uri)
        require_apart_from_others(self.destinations, open_file_system, job, root)
        with ExitStack() as stack:
            states = states_of(self.datasets, job)
            self._refuse_copies(states)
            leases = {
                state.dataset_id: stack.enter_context(self.operations.hold(state.dataset_id, state.urn))[1]
                for state in states
            }
            if leases and self.operations.store.find_unfinished(*leases):
                raise unfinished(job)
            old_uris = [
                uri
                for uri in self.destinations.list_roots(job)
                if normal_uri(open_file_system, uri) == old_fs.to_uri(old_root)
            ]
            here = [segment for state in states for segment in self._list_active(state, old_uris)]
            moved = (old_root, root)
            if files_are_lost:
                fs.make_destination(root)
                self._remember(fs, root, states, leases)
            else:
                _require_files(fs, here, moved, fs.to_uri(root))
                self._require_markers(old_fs, fs, states, moved)
            identity = make_identity(fs, root, self.operations.clock.new_id())
            move = Move(job, old_uris, old_root, fs.to_uri(root), root, identity)
            fences = {dataset_id: lease.fence for dataset_id, lease in leases.items()}
            self.destinations.move(move, expected=binding, fences=fences)
        return Moved(
            *(job, old_fs.to_uri(old_root), fs.to_uri(root), identity),
            file_count=sum(segment.file_count for segment in here),
            file_bytes=sum(segment.file_bytes for segment in here),
        )

    def _refuse_copies(self, states: Sequence[DatasetState]) -> None:
        for state in states:
            found = self.published.find(state.job, state.urn, role=Role.DATA)
            if any(segment.has_given_names for segment in (found.segments if found else ())):
                raise RejectedError(
                    f"the job {state.job} copies files, whose destination can't be moved",
                    field="job",
                    hint="Give the job a new name and the new destination: its first run copies only what is missing.",
                )

    def _list_active(self, state: DatasetState, uris: Sequence[str]) -> Iterator[PublishedSegment]:
        for role in Role:
            found = self.published.find(state.job, state.urn, role=role)
            yield from (segment for segment in (found.segments if found else ()) if segment.root_uri in uris)

    def _require_markers(
        self, old_fs: FileSystem, fs: FileSystem, states: Sequence[DatasetState], moved: tuple[str, str]
    ) -> None:
        """Require that hidden files were copied too: without the markers a restored log would not be noticed."""
        for state in states:
            if not state.version or list_markers(fs, moved[1], state.job, state.urn):
                continue
            if list_markers(old_fs, moved[0], state.job, state.urn):
                raise RejectedError(
                    f"{moved[1]} has no markers of {state.urn}, and {moved[0]} has some",
                    field="destination",
                    hint="Copy the hidden directories as well; `cp -a` of the whole folder does so.",
                )

    def _remember(
        self, fs: FileSystem, root: str, states: Sequence[DatasetState], leases: Mapping[DatasetId, Lease]
    ) -> None:
        """Put a marker of each dataset's newest publication, so that the new root is recognised."""
        for state in states:
            views = [self.published.find(state.job, state.urn, role=role) for role in Role]
            newest = max((s for view in views if view for s in view.segments), key=lambda s: s.version, default=None)
            if newest is None:
                continue
            sealed = self.operations.store.load_sealed(newest.sequence_id)
            put_markers(fs, root, ((each, leases[state.dataset_id].fence) for each in sealed))
            sync_markers(fs, root, sealed)


def _require_files(fs: FileSystem, segments: Sequence[PublishedSegment], moved: tuple[str, str], new_uri: str) -> None:
    faults: list[str] = []
    for segment in segments:
        for file in segment.files():
            path = moved_path(file.path, moved)
            found = fs.find_identity(path)
            if found is None:
                faults.append(f"{path} is not there")
            elif found.size_bytes != file.identity.size_bytes:
                faults.append(f"{path} has {found.size_bytes} bytes, and {file.identity.size_bytes} were published")
    if faults:
        raise RejectedError(
            f"{len(faults)} published files are not at {new_uri} as they were published: "
            f"{'; '.join(faults[:FAULTS_NAMED_MAX])}",
            field="destination",
            hint="Nothing was changed. Copy the missing files, then repeat the command.",
        )
