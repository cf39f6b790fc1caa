"""A destination below a root of a file system: where attempts are staged, and the small files of the protocol lie.

What is published there, and by which steps, the kinds below say: directories on a disk, single files in a store, rows
that are loaded elsewhere.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gobblin_assets.commit.attempts import staging_directory, staging_root
from gobblin_assets.commit.destination import require_identity
from gobblin_assets.commit.markers import check_logs, prune_markers
from gobblin_assets.commit.relocation import Place
from gobblin_assets.destinations.claims import refuse_trees
from gobblin_assets.errors import GobblinError
from gobblin_assets.fs.file_system import FileSystem
from gobblin_assets.model.path_names import encode_segment, list_upwards, path_of
from gobblin_assets.model.state import AttemptId
from gobblin_assets.model.urn import DatasetUrn, JobName, Role
from gobblin_assets.run.destination import DestinationRequest
from gobblin_assets.state.leases import Lease


@dataclass(slots=True)
class RootedDestination:
    """The part of a ``Destination`` that lies below the root of its request.

    ``is_work``: the root is the work directory of a tree that a job copies to, and no destination of rows.
    """

    request: DestinationRequest
    is_work: bool = False
    _identity: str | None = field(default=None, init=False)

    @property
    def root_uri(self) -> str:
        return self.request.root_uri

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
    def slots_keep_s(self) -> float | None:
        return None

    @property
    def reuse_keep_s(self) -> float | None:
        return None

    @property
    def loads_rows(self) -> bool:
        return False

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


def refuse_links(destination: RootedDestination, urn: DatasetUrn) -> None:
    """RejectedError if a symbolic link redirects a directory of the dataset."""
    for role in Role:
        place = path_of(destination.root, destination.job, urn, role)
        above = list_upwards([place], job_directory(destination.root, destination.job))
        # From the job's directory down; each lookup refuses a link, and a missing directory has nothing below it.
        all(destination.fs.is_directory(each) for each in reversed(above[:-1]))
