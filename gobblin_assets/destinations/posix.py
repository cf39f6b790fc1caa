"""Directories of a POSIX file system as a destination: always new names, each published by one rename."""

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from gobblin_assets.commit.attempts import final_name, staging_directory, staging_root
from gobblin_assets.commit.destination import require_identity
from gobblin_assets.commit.markers import check_logs, prune_markers
from gobblin_assets.commit.relocation import Place
from gobblin_assets.commit.rename_steps import RenameDirectory
from gobblin_assets.commit.step_world import OpenFileSystem
from gobblin_assets.commit.steps import CommitStep
from gobblin_assets.destinations.claims import refuse_trees
from gobblin_assets.errors import GobblinError
from gobblin_assets.fs.port import FileSystem
from gobblin_assets.model.path_names import encode_segment, list_upwards, path_of
from gobblin_assets.model.state import AttemptId
from gobblin_assets.model.urn import DatasetUrn, JobName, Role
from gobblin_assets.run.destination import Target
from gobblin_assets.run.job_kind import Output
from gobblin_assets.run.output_names import OutputNames
from gobblin_assets.run.stores import Stores
from gobblin_assets.state.leases import Lease


@dataclass(slots=True)
class PosixDestination:
    """``Destination`` below ``root`` of ``fs``. ``root_uri`` is the root as the job's owner wrote it.

    ``is_work``: the root is the work directory of a tree that a job copies to, and no destination of rows.
    """

    job: JobName
    root_uri: str
    fs: FileSystem
    root: str
    stores: Stores
    open_file_system: OpenFileSystem
    new_id: Callable[[], uuid.UUID]
    is_work: bool = False
    _identity: str | None = field(default=None, init=False)

    @property
    def slots_keep_s(self) -> float | None:
        return None

    @property
    def reuse_keep_s(self) -> float | None:
        return None

    def bind(self) -> None:
        stores = self.stores
        place = Place(
            stores.destinations,
            stores.commits,
            stores.datasets,
            self.open_file_system,
            self.fs,
            self.root,
            self.job,
        )
        found = place.look()
        if isinstance(found, str):
            self._prove()
            self._identity = found
            return
        self._refuse_trees()
        self._prove()
        self._identity = place.settle(found, self.new_id)
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
        return check_logs(self.stores.commits, self.fs, self.root, self.job, leases)

    def refuse_strangers(self, urn: DatasetUrn) -> None:
        for role in Role:
            place = path_of(self.root, self.job, urn, role)
            above = list_upwards([place], job_directory(self.root, self.job))
            # From the job's directory down; each lookup refuses a link, and a missing directory has nothing below it.
            all(self.fs.is_directory(each) for each in reversed(above[:-1]))

    def uri_of(self, urn: DatasetUrn, role: Role) -> str:
        return self.fs.to_uri(path_of(self.root, self.job, urn, role))

    def stage(self, attempt_id: AttemptId) -> str:
        return staging_directory(job_directory(self.root, self.job), attempt_id)

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

    def prune(self, urn: DatasetUrn) -> None:
        prune_markers(self.stores.commits, self.fs, self.root, self.job, urn)


def job_directory(root: str, job: JobName) -> str:
    """The directory of all datasets of a job, and of its staging."""
    return "/".join((root, *encode_segment(job)))


def target_directory(role_path: str, partition: str, partition_path: str, name: str) -> str:
    """``<role>/<asset partition>/<output partition>/<sequence>-<n>``, without the parts that do not apply."""
    parts = [role_path]
    if partition:
        parts += encode_segment(partition)
    if partition_path:
        parts.append(partition_path)
    return "/".join((*parts, name))
