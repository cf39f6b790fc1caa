"""The rows of the simulated database, one frozen dataclass for each table of ``gobblin_assets.db.tables``.

Times are seconds of the database's own clock and end in ``_at``. JSON columns hold sorted JSON text, so that two
equal values are one text. Rows are replaced, never changed, so that copies of a database share them.
"""

import datetime as dt
import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from gobblin_assets.commit.sequence import PublishedInterval
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.sequence_state import SequenceState
from gobblin_assets.model.state import (
    AttemptId,
    DatasetId,
    DatasetOutcome,
    KeyId,
    LaneId,
    RunId,
    SequenceId,
    WorkingState,
)
from gobblin_assets.model.urn import DatasetUrn, JobName, Role
from gobblin_assets.model.watermark import Watermark
from gobblin_assets.state.sinks import SinkBackOff


@dataclass(frozen=True, slots=True)
class DatasetRow:
    dataset_id: DatasetId
    job: JobName
    urn: DatasetUrn
    version: int = 0
    source_columns: str | None = None
    published_columns: str | None = None
    source_facts: str | None = None
    lane_count: int = 1


@dataclass(frozen=True, slots=True)
class LaneRow:
    lane_id: LaneId
    dataset_id: DatasetId
    number: int
    version: int = 0
    folded_version: int = 0
    tidied_at: float = 0.0


@dataclass(frozen=True, slots=True)
class LeaseRow:
    lane_id: LaneId
    fence: int = 0
    owner: str | None = None
    run_id: RunId | None = None
    dagster_run_id: str | None = None
    expires_at: float | None = None
    is_whole: bool = False


@dataclass(frozen=True, slots=True)
class KeyRow:
    """``watermark`` replaces the two columns of Postgres: the JSON, and the bytes that are compared."""

    key_id: KeyId
    dataset_id: DatasetId
    name: str
    partition: str
    lane_id: LaneId
    watermark: Watermark | None = None
    sequence_id: SequenceId | None = None


@dataclass(frozen=True, slots=True)
class RunRow:
    run_id: RunId
    job: JobName
    state: WorkingState
    owner: str
    dagster_run_id: str | None
    started_at: float
    ended_at: float | None = None
    error: str | None = None
    figures: str | None = None


@dataclass(frozen=True, slots=True)
class RunDatasetRow:
    run_id: RunId
    dataset_id: DatasetId
    partition: str
    outcome: DatasetOutcome
    sequence_id: SequenceId | None
    error: str | None
    figures: str
    ended_at: float


@dataclass(frozen=True, slots=True)
class SequenceRow:
    sequence_id: SequenceId
    dataset_id: DatasetId
    lane_id: LaneId
    run_id: RunId
    partition: str
    mode: Mode
    replaces: bool
    fence: int
    details: str
    created_at: float
    state: SequenceState = SequenceState.BUILDING
    base_version: int | None = None
    result_version: int | None = None
    digest: bytes | None = None
    complete: bool | None = None
    segment_count: int = 0
    file_count: int = 0
    row_count: int = 0
    file_bytes: int = 0
    failed_tries: int = 0
    last_error: str | None = None
    next_try_at: float | None = None
    done_at: float | None = None
    aborted_at: float | None = None
    announced_at: float | None = None
    publication_count: int = 1
    folded_at: float | None = None


@dataclass(frozen=True, slots=True)
class PastSequenceRow:
    """``state`` is DONE or ABORTED."""

    sequence_id: SequenceId
    dataset_id: DatasetId
    lane_id: LaneId
    state: SequenceState


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """``state`` is RUNNING, STAGED, FAILED or CANCELLED."""

    attempt_id: AttemptId
    sequence_id: SequenceId
    dataset_id: DatasetId
    lane_id: LaneId
    fence: int
    multi_work_unit: int
    try_number: int
    staging_path: str
    tag: str | None
    interruption: Mapping[str, object] | None
    started_at: float
    state: str = "RUNNING"
    error: str | None = None
    ended_at: float | None = None
    cleanup_fences: tuple[int, ...] = ()
    cleaned_at: float | None = None


@dataclass(frozen=True, slots=True)
class WorkUnitRow:
    work_unit_id: uuid.UUID
    sequence_id: SequenceId
    multi_work_unit: int | None
    key_name: str
    number: int
    low: Watermark | None
    expected_high: Watermark | None
    state: WorkingState
    actual_high: Watermark | None = None


@dataclass(frozen=True, slots=True)
class SegmentRow:
    segment_id: uuid.UUID
    sequence_id: SequenceId
    attempt_id: AttemptId | None
    dataset_id: DatasetId
    number: int
    role: Role
    partition: str
    payload: bytes
    digest: bytes
    step_count: int
    file_count: int
    row_count: int
    file_bytes: int
    file_schema: str | None
    version: int | None = None
    sealed: bool = False
    retired_by: SequenceId | None = None
    retired_at: float | None = None
    removed_at: float | None = None


@dataclass(frozen=True, slots=True)
class MoveRow:
    """A planned move with its planned intervals. Without intervals: a snapshot's generation."""

    sequence_id: SequenceId
    key_id: KeyId
    old: Watermark | None
    new: Watermark | None
    intervals: tuple[PublishedInterval, ...]

    @property
    def touches_key(self) -> bool:
        return self.new is not None or not self.intervals


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """``high`` None: a generation. ``retired_by`` None: active."""

    ledger_id: int
    key_id: KeyId
    sequence_id: SequenceId
    low: Watermark | None
    high: Watermark | None
    reread_from: Watermark | None
    retired_by: SequenceId | None = None

    @property
    def is_active(self) -> bool:
        return self.retired_by is None

    @property
    def is_generation(self) -> bool:
        return self.high is None


@dataclass(frozen=True, slots=True)
class RateShareRow:
    holder: uuid.UUID
    definition: str
    expires_at: float


@dataclass(frozen=True, slots=True)
class CountedWorkerRow:
    run_id: RunId
    job: JobName
    owner: str
    configuration: str
    expires_at: float
    is_drained: bool = False
    looked_at: dt.datetime | None = None
    lags: tuple[tuple[DatasetId, int], ...] = ()
    rests: tuple[SinkBackOff, ...] = ()


@dataclass(frozen=True, slots=True)
class DestinationRow:
    job: JobName
    root_uri: str
    identity: str | None
