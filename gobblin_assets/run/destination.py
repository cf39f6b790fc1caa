"""The port of a destination: where a job stages its outputs, and the steps that publish them there.

Directories of a file system are one (``files.rooted``). Steps know how to undo themselves, and staging is captured
and removed by ``commit``, through what the steps' world opens.
"""

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from gobblin_assets.commit.step_world import OpenFileSystem
from gobblin_assets.commit.steps import StepBatch
from gobblin_assets.errors import GobblinError
from gobblin_assets.fs.file_system import FileSystem
from gobblin_assets.model.state import AttemptId, SequenceId
from gobblin_assets.model.urn import DatasetUrn, JobName, Role
from gobblin_assets.run.job_kind import Output, OutputNames
from gobblin_assets.run.stores import Stores
from gobblin_assets.state.leases import Lease


@dataclass(frozen=True, slots=True)
class DestinationRequest:
    """The destination of a run of ``job``: ``root_uri`` as its owner wrote it, which is ``root`` of ``fs``."""

    job: JobName
    root_uri: str
    fs: FileSystem
    root: str
    stores: Stores
    open_file_system: OpenFileSystem
    new_id: Callable[[], uuid.UUID]


@dataclass(frozen=True, slots=True)
class Target:
    """The place of outputs: a partition of a dataset, as the log stores its name, and a task of a sequence.

    ``lane_number`` and ``version``: the lane, and its version that the sequence makes; None: that is decided later.
    ``replaces``: the outputs take the place of all that was published there.
    """

    urn: DatasetUrn
    partition: str
    sequence_id: SequenceId
    number: int
    lane_number: int = 0
    version: int | None = None
    replaces: bool = False


class Destination(Protocol):
    """The destination of one run of one job. Call ``bind`` before any other method."""

    @property
    def root_uri(self) -> str:
        """The root as sequences keep it, so that a recovery opens the same place."""
        ...

    @property
    def slots_keep_s(self) -> float | None:
        """How long replaced files stay after DONE, in seconds, where names are given; None: names are always new."""
        ...

    @property
    def reuse_keep_s(self) -> float | None:
        """How long what failed attempts wrote is kept for later ones, in seconds; None: it is never used again."""
        ...

    @property
    def loads_rows(self) -> bool:
        """Whether rows of data are loaded by one step for each sequence, made when its version is known.

        ``steps_for`` gives no step for such rows while the target has no version.
        """
        ...

    def bind(self) -> None:
        """Check that this is the job's destination in the log, and that publications to it can be proven.

        Nothing is written before the first check, not even by a probe.

        Raises:
            DestinationAwayError: the job's publications are not there, for example because nothing is mounted.
            RejectedError: the job is bound to another destination, or publications to this one can't be proven.

        """
        ...

    def require(self) -> None:
        """Raise if another destination is here now."""
        ...

    def check_logs(self, leases: Mapping[DatasetUrn, Lease]) -> Mapping[DatasetUrn, GobblinError]:
        """The errors of the leased datasets whose log is older than their storage."""
        ...

    def refuse_strangers(self, urn: DatasetUrn) -> None:
        """RejectedError if somebody else redirected the dataset's files, for example by a symbolic link."""
        ...

    def refuse_replacement(self, urn: DatasetUrn, partition: str) -> None:
        """RejectedError if what was published of the partition can't be replaced."""
        ...

    def uri_of(self, urn: DatasetUrn, role: Role) -> str:
        """The URI at which people find the dataset."""
        ...

    def stage(self, attempt_id: AttemptId) -> str:
        """The directory for an attempt's writes: no other attempt ever gets it, and it does not exist yet."""
        ...

    def names_for(self, target: Target) -> OutputNames | None:
        """Where the target's outputs will stand, if that must be known before they are written."""
        ...

    def make_durable(self, staged: Mapping[str, Sequence[Output]]) -> None:
        """Make outputs durable, given by the place from ``stage``: afterwards they survive a power cut."""
        ...

    def steps_for(self, outputs: Sequence[Output], target: Target) -> Iterable[StepBatch]:
        """The steps that publish outputs of one role; outputs without files need no step.

        They may be made while they are taken, and are then taken once.
        """
        ...

    def prune(self, urn: DatasetUrn) -> None:
        """Remove storage's records of publications that are gone."""
        ...
