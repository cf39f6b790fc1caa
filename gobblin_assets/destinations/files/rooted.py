"""Destinations of files below a root: where attempts are staged, and the small files of the protocol lie.

Directories are those of a file system that can rename them: always new names, each published by one rename.

Row files are published one by one, at names that are always new: as objects of a store, or on HDFS. The writer of a
file makes the step that publishes it (``rows.new_files``). A store has no rename, so a file is an upload to the name
that it will have, and is invisible until the step completes it. HDFS renames files; there only our own streams
sync what they wrote, so that Spark's writer can't make the files. Names are those of directories on a disk.

Destinations elsewhere, of copies and of rows that are loaded, have their staging and their small files there as well.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gobblin_assets.commit.attempts import final_name, staging_directory, staging_root
from gobblin_assets.commit.destination import require_identity
from gobblin_assets.commit.markers import check_logs, prune_markers
from gobblin_assets.commit.relocation import Place
from gobblin_assets.commit.steps import CommitStep
from gobblin_assets.destinations.claims import refuse_trees
from gobblin_assets.destinations.files.rename_steps import RenameDirectory
from gobblin_assets.errors import GobblinError
from gobblin_assets.fs.file_system import FileSystem
from gobblin_assets.fs.objects import HoldsObjects
from gobblin_assets.model.path_names import encode_segment, job_directory, list_upwards, path_of
from gobblin_assets.model.state import AttemptId
from gobblin_assets.model.urn import DatasetUrn, JobName, Role
from gobblin_assets.run.destination import DestinationRequest, Target
from gobblin_assets.run.job_kind import Output, OutputNames
from gobblin_assets.state.leases import Lease


@dataclass(slots=True)
class RequestedDestination:
    """The part of a ``Destination`` of files that its request says."""

    request: DestinationRequest

    @property
    def fs(self) -> FileSystem:
        return self.request.fs

    @property
    def root(self) -> str:
        return self.request.root

    @property
    def job(self) -> JobName:
        return self.request.job

    @property
    def loads_rows(self) -> bool:
        return False


@dataclass(slots=True)
class RootedDestination(RequestedDestination):
    """The part of a ``Destination`` that lies below the root of its request.

    ``is_work``: the root is the work directory of a tree that a job copies to, and no destination of rows.
    """

    is_work: bool = False
    _identity: str | None = field(default=None, init=False)

    @property
    def root_uri(self) -> str:
        return self.request.root_uri

    @property
    def slots_keep_s(self) -> float | None:
        return None

    @property
    def reuse_keep_s(self) -> float | None:
        return None

    def bind(self) -> None:
        request, stores = self.request, self.request.stores
        place = Place(
            stores.destinations,
            stores.commits,
            stores.datasets,
            request.open_file_system,
            request.fs,
            request.root,
            request.job,
        )
        found = place.look()
        if isinstance(found, str):
            self._prove()
            self._identity = found
            return
        self._refuse_trees()
        self._prove()
        self._identity = place.settle(found, request.new_id)
        # Whoever claimed a tree meanwhile looks for this identity after that.
        self._refuse_trees()

    def _refuse_trees(self) -> None:
        """Once it is bound, a job that copies finds the identity of the root."""
        if not self.is_work:
            refuse_trees(self.fs, self.root, job_directory(self.root, self.job))

    def _prove(self) -> None:
        directory = job_directory(self.root, self.job)
        for place in (directory, staging_root(directory)):
            # Every lookup refuses a symbolic link: only the destination itself may be reached by one.
            self.fs.is_directory(place)
        self.fs.probe(staging_root(directory), directory)
        self.fs.make_destination(self.root)

    def require(self) -> None:
        require_identity(self.fs, self.root, self._identity)

    def check_logs(self, leases: Mapping[DatasetUrn, Lease]) -> Mapping[DatasetUrn, GobblinError]:
        return check_logs(self.request.stores.commits, self.fs, self.root, self.job, leases)

    def refuse_replacement(self, urn: DatasetUrn, partition: str) -> None:
        """Earlier files are retired, whatever they are."""

    def uri_of(self, urn: DatasetUrn, role: Role) -> str:
        return self.fs.to_uri(path_of(self.root, self.job, urn, role))

    def stage(self, attempt_id: AttemptId) -> str:
        return staging_directory(job_directory(self.root, self.job), attempt_id)

    def prune(self, urn: DatasetUrn) -> None:
        prune_markers(self.request.stores.commits, self.fs, self.root, self.job, urn)


def target_directory(role_path: str, partition: str, partition_path: str, name: str) -> str:
    """``<role>/<asset partition>/<output partition>/<sequence>-<n>``, without the parts that do not apply."""
    parts = [role_path]
    if partition:
        parts += encode_segment(partition)
    if partition_path:
        parts.append(partition_path)
    return "/".join((*parts, name))


def refuse_links(destination: RootedDestination, urn: DatasetUrn) -> None:
    """RejectedError if a symbolic link redirects a directory of the dataset."""
    for role in Role:
        place = path_of(destination.root, destination.job, urn, role)
        above = list_upwards([place], job_directory(destination.root, destination.job))
        # From the job's directory down; each lookup refuses a link, and a missing directory has nothing below it.
        all(destination.fs.is_directory(each) for each in reversed(above[:-1]))


class Directories(RootedDestination):
    """``Destination`` of directories, such as those of a POSIX file system."""

    __slots__ = ()

    def refuse_strangers(self, urn: DatasetUrn) -> None:
        refuse_links(self, urn)

    def names_for(self, target: Target) -> OutputNames | None:
        """Files are renamed once they are written."""
        del target
        return None

    def make_durable(self, staged: Mapping[str, Sequence[Output]]) -> None:
        written = [output for outputs in staged.values() for output in outputs]
        for place, outputs in staged.items():
            if outputs:
                self.fs.apply_modes(place)
        self.fs.make_durable(f"{each.path}/{file.name}" for each in written for file in each.files)
        self.fs.sync_directories(list_upwards((*staged, *(each.path for each in written)), self.root))

    def steps_for(self, outputs: Sequence[Output], target: Target) -> Sequence[CommitStep]:
        name = final_name(target.sequence_id, target.number)
        return [
            RenameDirectory(
                source=each.path,
                target=target_directory(
                    path_of(self.root, self.job, target.urn, each.role), target.partition, each.partition_path, name
                ),
                files=each.files,
            )
            for each in outputs
            if each.files
        ]


@dataclass(frozen=True, slots=True)
class FinalNames:
    """``OutputNames`` of one task."""

    root: str
    job: JobName
    target: Target
    foresees_etags: bool

    def directory_of(self, role: Role, partition_path: str) -> str:
        target = self.target
        role_path = path_of(self.root, self.job, target.urn, role)
        name = final_name(target.sequence_id, target.number)
        return target_directory(role_path, target.partition, partition_path, name)


class RowFiles(RootedDestination):
    """``Destination`` of rows in single files. The small files of the protocol are where a disk has them."""

    __slots__ = ()

    def refuse_strangers(self, urn: DatasetUrn) -> None:
        """There are no links."""

    def names_for(self, target: Target) -> OutputNames:
        foresees_etags = isinstance(self.fs, HoldsObjects) and self.fs.foresees_etags
        return FinalNames(self.root, self.job, target, foresees_etags)

    def make_durable(self, staged: Mapping[str, Sequence[Output]]) -> None:
        """Parts of an upload are durable when the store has answered, files on HDFS when they were closed."""

    def steps_for(self, outputs: Sequence[Output], target: Target) -> Sequence[CommitStep]:
        """Whoever wrote the files made them."""
        del target
        return [step for output in outputs for step in output.details]
