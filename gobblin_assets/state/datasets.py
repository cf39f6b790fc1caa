"""Dataset states between runs, and the history of runs, as ports."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from gobblin_assets.errors import GobblinError
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
from gobblin_assets.model.watermark import PositionLostError, Watermark


@dataclass(frozen=True, slots=True)
class AskedRun:
    """The request of a command, for whoever reports its run. ``by``: the command; ``mode``: as it was given.

    ``partitions``: the least and the greatest key, and how many, where all datasets were asked for the same ones.
    ``is_stream``: it goes on for weeks, or comes again every few seconds, so that it is no run in Dagster.
    """

    by: str
    mode: str | None
    datasets: tuple[DatasetUrn, ...]
    partitions: tuple[str, str, int] | None
    is_stream: bool


def asked_to_json(asked: AskedRun) -> dict[str, object]:
    """The column ``asked`` of a run."""
    return asdict(asked)


def asked_from_json(data: Mapping[str, Any]) -> AskedRun:
    """The same, back."""
    keys = data["partitions"]
    return AskedRun(
        by=data["by"],
        mode=data["mode"],
        datasets=tuple(DatasetUrn(each) for each in data["datasets"]),
        partitions=None if keys is None else (keys[0], keys[1], keys[2]),
        is_stream=data["is_stream"],
    )


@dataclass(frozen=True, slots=True)
class NewRun:
    """A run of a job, as it is recorded before it does anything. ``owner`` names its process.

    ``asked`` None: the run itself reports to Dagster, or nobody does.
    """

    run_id: RunId
    job: JobName
    owner: str
    dagster_run_id: str | None = None
    asked: AskedRun | None = None


@dataclass(frozen=True, slots=True)
class RunDatasetRecord:
    """The record of how one dataset partition left a run. ``figures`` and ``checks`` are plain JSON values.

    ``checks``: of a partition without a publication.
    """

    dataset_id: DatasetId
    partition: str
    outcome: DatasetOutcome
    sequence_id: SequenceId | None = None
    error: str | None = None
    figures: Mapping[str, object] = field(default_factory=dict)
    checks: Sequence[Mapping[str, object]] = ()


@dataclass(frozen=True, slots=True)
class LapsedRun:
    """A run of Dagster's, or of a command, that began, never reported its end, and holds no live lease.

    ``dagster_run_id``: of a command whose run in Dagster has not begun, the id that it will have.

    ``lease_ran_out``: a lease of the run ran out, so its process is dead, or as good as dead, even if another process
    has taken the dataset over. Otherwise the run may be waiting for a busy dataset. ``is_command``: of a command or
    an executor, and not of Dagster's.
    """

    run_id: RunId
    dagster_run_id: str
    owner: str
    lease_ran_out: bool
    job: JobName
    is_command: bool


class DatasetStore(Protocol):
    """Previous states by URN, also those of datasets that the last run did not touch."""

    def register(self, job: JobName, urns: Sequence[DatasetUrn]) -> Mapping[DatasetUrn, DatasetId]:
        """Make the missing rows; existing rows stay."""
        ...

    def load(self, job: JobName, urns: Sequence[DatasetUrn]) -> Mapping[DatasetUrn, DatasetState]:
        """The states of the datasets among these that were ever registered."""
        ...

    def settle_columns(self, dataset_id: DatasetId, columns: Mapping[str, str]) -> Mapping[str, str]:
        """The dataset's source columns; these, if it has none yet. By one statement.

        For columns that are inferred: writers that infer at once would otherwise write files of different ones.
        """
        ...

    def load_intervals(self, dataset_id: DatasetId, partition: str | None) -> Mapping[str, Sequence[Interval]]:
        """The ledger's active intervals by the names of keys, ascending; neighbours are joined.

        ``partition``: only intervals that sequences of this asset partition published. Keys of the same name in several
        partitions are merged.
        """
        ...

    def note_lost(self, dataset_id: DatasetId, key: str, at: Watermark, reason: str) -> None:
        """Write beside the key's position that its history was lost, unless the position has moved from ``at``.

        It stands in the position's ``history`` as ``lost``, also if that was written before. No lease is needed: the
        next move of the position takes it away, and only a person has that done.
        """
        ...

    def list_urns(self, job: JobName | None = None) -> Sequence[tuple[JobName, DatasetUrn]]: ...


def keep_loss(store: DatasetStore, dataset_id: DatasetId, error: GobblinError) -> None:
    """``note_lost`` for a PositionLostError, as far as the log is in reach: it stands also if the source forgets it."""
    if isinstance(error, PositionLostError):
        with suppress(GobblinError):
            store.note_lost(dataset_id, error.key, error.at, error.reason)


class RunStore(Protocol):
    """Runs of jobs, and how each dataset partition left them, as history."""

    def begin(self, run: NewRun) -> None:
        """Record the run as RUNNING, by the log's clock. An existing run stays as it is."""
        ...

    def record_dataset(self, run_id: RunId, *records: RunDatasetRecord) -> None:
        """Write or replace the outcomes of different dataset partitions, all of them or none.

        Raises:
            ConflictError: the log does not have the run or the sequence, because the log is older than they are.

        """
        ...

    def end(self, run_id: RunId, state: WorkingState, *, error: str | None, figures: Mapping[str, object]) -> None: ...

    def forget(self, job: JobName, *, older_than_s: float, limit: int) -> int:
        """Drop runs without sequences that ended this long ago, or began then and died; returns how many."""
        ...

    def list_working(self, job: JobName | None, dagster_run_ids: Collection[str]) -> Collection[str]:
        """Those of these Dagster runs, of one job or of all, that are RUNNING in the log: begun, and not ended."""
        ...

    def list_lapsed(self, job: JobName | None, *, limit: int) -> Sequence[LapsedRun]:
        """Runs of Dagster's, of one job or of all, without a live lease, and no live workers of sinks; oldest first.

        They are RUNNING, or a taker of their leases ended them.
        """
        ...
