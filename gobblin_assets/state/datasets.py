"""Dataset states between runs, and the history of runs, as ports."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from gobblin_assets.model.interval import Interval
from gobblin_assets.model.state import (
    DatasetId,
    DatasetOutcome,
    DatasetState,
    RunId,
    SequenceId,
    WorkingState,
)
from gobblin_assets.model.urn import DatasetUrn, JobName


@dataclass(frozen=True, slots=True)
class NewRun:
    """A run of a job, as it is recorded before it does anything. ``owner`` names its process."""

    run_id: RunId
    job: JobName
    owner: str
    dagster_run_id: str | None = None


@dataclass(frozen=True, slots=True)
class RunDatasetRecord:
    """How one dataset partition left a run. ``figures`` are plain JSON values."""

    dataset_id: DatasetId
    partition: str
    outcome: DatasetOutcome
    sequence_id: SequenceId | None = None
    error: str | None = None
    figures: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LapsedRun:
    """A run of Dagster's that began, never said that it ended, and holds no live lease.

    ``lease_ran_out``: it held one to the last, so its process is dead, or as good as dead; also where somebody has
    taken over what it held. Else it may be waiting for a busy dataset.
    """

    run_id: RunId
    dagster_run_id: str
    owner: str
    lease_ran_out: bool


class DatasetStore(Protocol):
    """Previous states by URN, whatever the last run touched."""

    def register(self, job: JobName, urns: Sequence[DatasetUrn]) -> Mapping[DatasetUrn, DatasetId]:
        """Make the rows that are missing; being there already is fine."""
        ...

    def load(self, job: JobName, urns: Sequence[DatasetUrn]) -> Mapping[DatasetUrn, DatasetState]:
        """The states of those that were ever registered."""
        ...

    def load_intervals(self, dataset_id: DatasetId, partition: str | None) -> Mapping[str, Sequence[Interval]]:
        """What the ledger's active intervals cover, by the names of keys, ascending; neighbours are one.

        ``partition``: only what sequences of this asset partition published. Of keys that partitions bound, those
        of one name are not told apart.
        """
        ...

    def list_urns(self, job: JobName | None = None) -> Sequence[tuple[JobName, DatasetUrn]]: ...


class RunStore(Protocol):
    """Runs of jobs, and how each dataset partition left them, as history."""

    def begin(self, run: NewRun) -> None:
        """RUNNING from now on, by the log's clock. One that is there already is left as it is."""
        ...

    def record_dataset(self, run_id: RunId, *records: RunDatasetRecord) -> None:
        """Write or replace the outcomes of dataset partitions, each of another one, all of them or none.

        Raises:
            ConflictError: the log does not have the run, or the sequence: it is older than what is recorded.

        """
        ...

    def end(self, run_id: RunId, state: WorkingState, *, error: str | None, figures: Mapping[str, object]) -> None: ...

    def forget(self, job: JobName, *, older_than_s: float, limit: int) -> int:
        """Drop runs that ended, or began and died, so long ago and whose sequences are gone; returns how many."""
        ...

    def list_working(self, job: JobName, dagster_run_ids: Collection[str]) -> Collection[str]:
        """Those runs of Dagster's that are RUNNING here: begun, and not ended."""
        ...

    def list_lapsed(self, job: JobName | None, *, limit: int) -> Sequence[LapsedRun]:
        """Runs of Dagster's without a live lease that are RUNNING, or that a taker of leases ended; oldest first.

        Of one job, or of all.
        """
        ...
