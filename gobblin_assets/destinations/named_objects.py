"""A prefix of an object store as a destination of copies: objects are published at the names that the source gives.

The prefix ``<root>/.gobblin`` holds all that is not the tree's own, as in ``named_tree``: the identity of the
destination, markers, attempts, the copies of replaced objects, and the claim.
"""

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from gobblin_assets.commit.object_steps import PlaceObject, RemoveObject, ReplaceObject
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
from gobblin_assets.destinations.object_outputs import NamedObject, ObjectAtName
from gobblin_assets.destinations.posix import PosixDestination
from gobblin_assets.errors import GobblinError
from gobblin_assets.fs.port import FileSystem
from gobblin_assets.model.path_names import list_upwards
from gobblin_assets.model.state import AttemptId
from gobblin_assets.model.urn import DatasetUrn, JobName, Role
from gobblin_assets.run.destination import Target
from gobblin_assets.run.job_kind import Output, OutputNames
from gobblin_assets.run.stores import Stores
from gobblin_assets.state.leases import Lease


@dataclass(slots=True)
class NamedObjects:
    """``Destination`` of the objects below ``root`` of ``fs``. ``places``: each dataset's place below the root."""

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
        """The uploads of a failed attempt are aborted: a store asks money for them."""
        return None

    def bind(self) -> None:
        """The store is rehearsed before anything else is written: RejectedError if it ignores a condition."""
        self._refuse_claimed()
        self._work.bind()
        write_claim(self.fs, self.root, self.job)
        self._refuse_claimed()

    def _refuse_claimed(self) -> None:
        """Look at this root and above it, down from the bucket."""
        path = PurePosixPath(self.root)
        for place in (self.root, *(str(each) for each in path.parents if len(each.parts) > 1)):
            holder = self._find_claim(place)
            if holder is not None and (place != self.root or holder != self.job):
                raise refuse_tree(self.root, place, holder)
            if place != self.root or "" not in self.places.values():
                # A dataset that is the whole tree may be a copy of such a place; its listing looks at that.
                refuse_rows(self.fs, self.root, place)

    def _find_claim(self, place: str) -> str | None:
        return None if self.fs.find_identity(claim_path(place)) is None else read_claim(self.fs, place)

    def require(self) -> None:
        self._work.require()

    def check_logs(self, leases: Mapping[DatasetUrn, Lease]) -> Mapping[DatasetUrn, GobblinError]:
        return self._work.check_logs(leases)

    def refuse_strangers(self, urn: DatasetUrn) -> None:
        """No other job may publish below a prefix on the way from the root to the dataset's place."""
        for place in list_upwards([self.place_of(urn)], self.root)[:-1]:
            holder = self._find_claim(place)
            if holder is not None:
                raise refuse_tree(self.place_of(urn), place, holder)
            if place != self.place_of(urn):
                refuse_rows(self.fs, self.place_of(urn), place)

    def place_of(self, urn: DatasetUrn) -> str:
        """The prefix of the dataset's objects."""
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
        """A part is durable once the store has answered."""

    def steps_for(self, outputs: Sequence[Output], target: Target) -> Sequence[CommitStep]:
        root = self.place_of(target.urn)
        return [_step_of(each, output.path, root) for output in outputs for each in _details_of(output)]

    def prune(self, urn: DatasetUrn) -> None:
        self._work.prune(urn)


def _details_of(output: Output) -> Sequence[NamedObject]:
    found: Sequence[NamedObject] = output.details
    return found


def _step_of(output: NamedObject, staging: str, root: str) -> CommitStep:
    staged = output.staged
    common = (staging, f"{root}/{output.path}", str(staged.number), staged.upload, staged.parts)
    if not isinstance(output, ObjectAtName):
        return RemoveObject(*common, old=output.identity)
    if output.replaces is None:
        return PlaceObject(*common, identity=output.identity, is_metadata=output.is_metadata)
    return ReplaceObject(*common, identity=output.identity, old=output.replaces, is_metadata=output.is_metadata)
