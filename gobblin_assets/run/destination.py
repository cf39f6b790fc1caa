"""The port of a destination: where a job stages its outputs, and the steps that publish them there.

Directories of a POSIX file system are one (``destinations.posix``). Steps know how to undo themselves, and staging is
captured and removed by ``commit``, through what the steps' world opens.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from gobblin_assets.commit.steps import CommitStep
from gobblin_assets.errors import GobblinError
from gobblin_assets.model.state import AttemptId, SequenceId
from gobblin_assets.model.urn import DatasetUrn, Role
from gobblin_assets.run.job_kind import Output
from gobblin_assets.state.leases import Lease


@dataclass(frozen=True, slots=True)
class Target:
    """What outputs become part of: a partition of a dataset, as the log stores its name, by a task of a sequence."""

    urn: DatasetUrn
    partition: str
    sequence_id: SequenceId
    number: int


class Destination(Protocol):
    """Of one run of one job. All but ``bind`` is for after it."""

    @property
    def root_uri(self) -> str:
        """As sequences keep it, so that whoever recovers them opens the same place."""
        ...

    def bind(self) -> None:
        """Find out that this is the place which the log has of the job, and that it can be published to.

        Nothing is written before that is known, not even by a probe.

        Raises:
            DestinationAwayError: what the log has of the job is not there, as where nothing is mounted.
            RejectedError: the job is bound elsewhere, or what is published here could not be proven.

        """
        ...

    def require(self) -> None:
        """Raise if another place stands here now."""
        ...

    def check_logs(self, leases: Mapping[DatasetUrn, Lease]) -> Mapping[DatasetUrn, GobblinError]:
        """Of which leased datasets the log is older than what storage remembers, and what to say."""
        ...

    def refuse_strangers(self, urn: DatasetUrn) -> None:
        """RejectedError where somebody else chose where the dataset's files are written, as by a symbolic link."""
        ...

    def uri_of(self, urn: DatasetUrn, role: Role) -> str:
        """Where people find the dataset."""
        ...

    def stage(self, attempt_id: AttemptId) -> str:
        """Where an attempt writes: a directory that no other attempt ever gets, and that is not there yet."""
        ...

    def make_durable(self, staged: Mapping[str, Sequence[Output]]) -> None:
        """Outputs by the place that ``stage`` gave: when this returns, a power cut can take nothing of them away."""
        ...

    def steps_for(self, outputs: Sequence[Output], target: Target) -> Sequence[CommitStep]:
        """The steps that publish outputs of one role; those without files need none."""
        ...

    def prune(self, urn: DatasetUrn) -> None:
        """Forget what storage remembers of publications that are gone."""
        ...
