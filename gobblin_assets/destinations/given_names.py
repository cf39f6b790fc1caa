"""The common part of destinations of copies: names that the source gives, and a work directory beside them.

The work directory ``<root>/.gobblin`` holds all that is not the tree's own: the identity of the destination, markers,
attempts, and the claim (``tree_claim``). It is the root that the log knows.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from gobblin_assets.destinations.claims import sync_claim, work_root_of
from gobblin_assets.destinations.rooted import RootedDestination
from gobblin_assets.destinations.tree_claim import TreeClaim
from gobblin_assets.errors import GobblinError
from gobblin_assets.fs.file_system import FileSystem
from gobblin_assets.model.state import AttemptId
from gobblin_assets.model.urn import DatasetUrn, Role
from gobblin_assets.run.destination import DestinationRequest, Target
from gobblin_assets.run.job_kind import OutputNames
from gobblin_assets.state.leases import Lease


@dataclass(slots=True)
class GivenNames:
    """The common part of both kinds. ``request``: its root is the tree's.

    ``places``: each dataset's place below the root. ``keep_s``: for what is replaced or removed.
    """

    request: DestinationRequest
    keep_s: float
    places: Mapping[DatasetUrn, str]
    _work: RootedDestination = field(init=False)

    def __post_init__(self) -> None:
        request = self.request
        work = replace(
            request, root_uri=work_root_of(request.root_uri), fs=self._open_work(), root=work_root_of(request.root)
        )
        self._work = RootedDestination(work, is_work=True)

    @property
    def fs(self) -> FileSystem:
        return self.request.fs

    @property
    def root(self) -> str:
        return self.request.root

    @property
    def loads_rows(self) -> bool:
        return False

    def refuse_replacement(self, urn: DatasetUrn, partition: str) -> None:
        """What stands at a name is replaced by what is new there."""

    def _open_work(self) -> FileSystem:
        """The file system of the work directory."""
        return self.fs

    def bind(self) -> None:
        """Nothing is written where another job's tree is found, nor where the store ignores a condition."""
        claim = TreeClaim(self.fs, self.root, self.request.job, "" in self.places.values(), self.request.new_id)
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
