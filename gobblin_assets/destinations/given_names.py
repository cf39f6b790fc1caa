"""What destinations of copies have in common: names that the source gives, and a work directory beside them.

The work directory ``<root>/.gobblin`` holds all that is not the tree's own: the identity of the destination, markers,
attempts, and the claim (``tree_claim``). It is the root that the log knows.
"""

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from gobblin_assets.commit.step_world import OpenFileSystem
from gobblin_assets.destinations.claims import sync_claim, work_root_of
from gobblin_assets.destinations.posix import PosixDestination
from gobblin_assets.destinations.tree_claim import TreeClaim
from gobblin_assets.errors import GobblinError
from gobblin_assets.fs.port import FileSystem
from gobblin_assets.model.state import AttemptId
from gobblin_assets.model.urn import DatasetUrn, JobName, Role
from gobblin_assets.run.destination import Target
from gobblin_assets.run.output_names import OutputNames
from gobblin_assets.run.stores import Stores
from gobblin_assets.state.leases import Lease


@dataclass(slots=True)
class GivenNames:
    """``places``: each dataset's place below ``root`` of ``fs``. ``keep_s``: for what is replaced or removed."""

    job: JobName
    tree_uri: str
    fs: FileSystem
    root: str
    stores: Stores
    open_file_system: OpenFileSystem
    new_id: Callable[[], uuid.UUID]
    keep_s: float
    places: Mapping[DatasetUrn, str]
    _work: PosixDestination = field(init=False)

    def __post_init__(self) -> None:
        self._work = PosixDestination(
            self.job,
            work_root_of(self.tree_uri),
            self._open_work(),
            work_root_of(self.root),
            self.stores,
            self.open_file_system,
            self.new_id,
            is_work=True,
        )

    def _open_work(self) -> FileSystem:
        """The file system of the work directory."""
        return self.fs

    def bind(self) -> None:
        """Nothing is written where another job's tree is found, nor where the store ignores a condition."""
        claim = TreeClaim(self.fs, self.root, self.job, "" in self.places.values(), self.new_id)
        is_claimed = claim.look()
        self._work.bind()
        if is_claimed:
            sync_claim(self.fs, self.root)
        else:
            claim.take()

    @property
    def root_uri(self) -> str:
        return self._work.root_uri

    @property
    def slots_keep_s(self) -> float | None:
        return self.keep_s

    def require(self) -> None:
        self._work.require()

    def check_logs(self, leases: Mapping[DatasetUrn, Lease]) -> Mapping[DatasetUrn, GobblinError]:
        return self._work.check_logs(leases)

    def place_of(self, urn: DatasetUrn) -> str:
        """The dataset's directory, or prefix."""
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

    def prune(self, urn: DatasetUrn) -> None:
        self._work.prune(urn)
