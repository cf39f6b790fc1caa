"""Commit sequences as values: what is begun, staged, sealed, found open, and finished."""

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from gobblin_assets.commit.segment import Segment
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.interval import Interval
from gobblin_assets.model.sequence_state import SequenceState
from gobblin_assets.model.state import AttemptId, DatasetId, LaneId, RunId, SequenceId
from gobblin_assets.model.urn import DatasetUrn, JobName
from gobblin_assets.model.watermark import Watermark
from gobblin_assets.model.work_unit import WorkUnit

COMPACTION: Final = "compaction"
"""Key in a sequence's details: its rows were published before."""

LEASE_TTL_DETAIL: Final = "lease_ttl_s"
"""Key in a sequence's details: how long the leases of its run last, in seconds."""

SLOTS_KEEP_DETAIL: Final = "slots_keep_s"
"""Key in a sequence's details: it publishes at given names, and keeps replaced files so long after DONE, in seconds."""

REUSE_KEEP_DETAIL: Final = "reuse_keep_s"
"""Key in a sequence's details: if it is aborted, its attempts are kept so long for later attempts, in seconds."""


@dataclass(frozen=True, slots=True)
class NewSequence:
    """A sequence that a run begins for one dataset partition. ``root_uri``: the destination; its steps stay below it.

    ``lease_ttl_s``: how long the run's leases last, for processes that complete the sequence without the job file.
    ``slots_keep_s`` None: it publishes names that are always new. ``reuse_keep_s`` None: nothing of a failed attempt is
    ever used again. ``lane`` None: lane 0.
    """

    sequence_id: SequenceId
    dataset_id: DatasetId
    run_id: RunId
    partition: str
    mode: Mode
    replaces: bool
    fence: int
    root_uri: str
    work_units: tuple[tuple[int | None, WorkUnit], ...] = ()
    lease_ttl_s: float | None = None
    slots_keep_s: float | None = None
    reuse_keep_s: float | None = None
    lane: LaneId | None = None

    @property
    def lane_id(self) -> LaneId:
        return self.dataset_id if self.lane is None else self.lane

    def details(self) -> dict[str, object]:
        """The details in the log; a seal adds others."""
        known = {
            LEASE_TTL_DETAIL: self.lease_ttl_s,
            SLOTS_KEEP_DETAIL: self.slots_keep_s,
            REUSE_KEEP_DETAIL: self.reuse_keep_s,
        }
        return {"root_uri": self.root_uri, **{name: value for name, value in known.items() if value is not None}}


@dataclass(frozen=True, slots=True)
class NewAttempt:
    """One try at one MultiWorkUnit of a sequence, recorded before it writes its first byte.

    ``tag`` names its work; attempts that work together share a tag. ``interruption``: JSON with which the job kind ends
    that work after the process died, without secrets; None: the work ends with the process. ``lane`` None: lane 0.
    """

    attempt_id: AttemptId
    sequence_id: SequenceId
    dataset_id: DatasetId
    fence: int
    multi_work_unit: int
    try_number: int
    staging_path: str
    tag: str | None = None
    interruption: Mapping[str, object] | None = None
    lane: LaneId | None = None

    @property
    def lane_id(self) -> LaneId:
        return self.dataset_id if self.lane is None else self.lane


@dataclass(frozen=True, slots=True)
class StagedAttempt:
    """A finished write: its segments, and the highs that its WorkUnits reached."""

    attempt_id: AttemptId
    sequence_id: SequenceId
    fence: int
    segments: tuple[Segment, ...]
    segment_ids: tuple[uuid.UUID, ...]
    actual_highs: Mapping[uuid.UUID, Watermark | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PublishedInterval:
    """A key's interval for the ledger, and the position from which rows were read again to find late rows."""

    interval: Interval
    reread_from: Watermark | None = None


@dataclass(frozen=True, slots=True)
class KeyMove:
    """The change of one key by the finish: compare its watermark with ``old``, set ``new``, and record ``intervals``.

    ``new`` None: the watermark stays where it is. No ``intervals``: a snapshot, which has a generation and no position.
    An empty interval is not recorded, and only moves the watermark. ``partition`` is the asset partition of the key, or
    "" for the key of a log, whose positions all partitions of the dataset share.
    """

    key: str
    partition: str
    old: Watermark | None
    new: Watermark | None
    intervals: tuple[PublishedInterval, ...] = ()


@dataclass(frozen=True, slots=True)
class SealOrder:
    """Everything that the decision fixes. ``base_version`` is the lane's. ``lane`` None: lane 0."""

    sequence_id: SequenceId
    dataset_id: DatasetId
    partition: str
    fence: int
    base_version: int
    winners: tuple[AttemptId, ...]
    digest: bytes
    segment_count: int
    row_count: int
    moves: tuple[KeyMove, ...]
    complete: bool
    details: Mapping[str, object] = field(default_factory=dict)
    lane: LaneId | None = None

    @property
    def lane_id(self) -> LaneId:
        return self.dataset_id if self.lane is None else self.lane

    @property
    def planned_rows(self) -> int:
        """The number of rows that the seal writes (moves, intervals) and the finish writes (watermarks, ledger)."""
        return sum(1 + len(move.intervals) for move in self.moves)


@dataclass(frozen=True, slots=True)
class SealedAttempt:
    """A winning attempt as it was sealed, with its staged segments."""

    attempt_id: AttemptId
    multi_work_unit: int
    try_number: int
    staging_path: str
    segments: tuple[Segment, ...]
    segment_ids: tuple[uuid.UUID, ...]


@dataclass(frozen=True, slots=True)
class SealedSequence:
    """Everything that a seal decided: enough to seal the sequence again in a log that forgot it.

    ``attempts`` are the winners that have segments; ``order.winners`` names these. ``destination`` is the identity of
    the job's destination, if the log has one. ``lane_number``: of its lane in the dataset.
    """

    job: JobName
    urn: DatasetUrn
    mode: Mode
    replaces: bool
    order: SealOrder
    attempts: tuple[SealedAttempt, ...]
    destination: str | None = None
    lane_number: int = 0

    def segments(self) -> Iterator[Segment]:
        """The segments of all its attempts, in order."""
        return (segment for attempt in self.attempts for segment in attempt.segments)

    @property
    def version(self) -> int:
        """The lane's version after the finish."""
        return self.order.base_version + 1

    @property
    def is_at_given_names(self) -> bool:
        """Whether its steps publish at names that other publications use too."""
        return SLOTS_KEEP_DETAIL in self.order.details

    @property
    def root_uri(self) -> str:
        """The destination as the log has it; a marker does not hold it."""
        return str(self.order.details["root_uri"])


@dataclass(frozen=True, slots=True)
class KnownSequence:
    """The log's entry for a sequence that storage names. ``is_sealed``: it was PREPARED at some time."""

    state: SequenceState
    is_sealed: bool


@dataclass(frozen=True, slots=True)
class SequenceRecord:
    """A sequence as the log has it."""

    sequence_id: SequenceId
    dataset_id: DatasetId
    job: JobName
    urn: DatasetUrn
    run_id: RunId
    partition: str
    mode: Mode
    replaces: bool
    fence: int
    state: SequenceState
    root_uri: str
    base_version: int | None
    digest: bytes | None
    failed_tries: int
    last_error: str | None
    details: Mapping[str, object]
    lane_id: LaneId
    lane_number: int

    @property
    def label(self) -> str:
        """How lines and errors name its dataset's partition."""
        return f"{self.urn} [{self.partition}]" if self.partition else str(self.urn)

    @property
    def is_at_given_names(self) -> bool:
        """As in ``SealedSequence``."""
        return SLOTS_KEEP_DETAIL in self.details

    @property
    def lease_ttl_s(self) -> float | None:
        """As in ``NewSequence``; None where an older release began it."""
        found = self.details.get(LEASE_TTL_DETAIL)
        return float(found) if isinstance(found, int | float) else None


@dataclass(frozen=True, slots=True)
class LeftoverRequest:
    """A request for failed attempts at a partition that ``sequence_id``, which ``fence`` builds, may use again.

    They are those of sequences that were aborted before they were sealed, at most ``keep_s`` ago; and those of the
    sequence itself that have ended. ``limit``: so many, the newest.
    """

    sequence_id: SequenceId
    dataset_id: DatasetId
    partition: str
    fence: int
    keep_s: float
    limit: int


@dataclass(frozen=True, slots=True)
class AttemptRecord:
    """An attempt that may have left files on storage. ``interruption`` as in ``NewAttempt``.

    ``cleanup_fences``: the fences under which its directory may have been captured. ``is_at_given_names``: as in
    ``SealedSequence``.
    """

    attempt_id: AttemptId
    sequence_id: SequenceId
    lane_id: LaneId
    staging_path: str
    sequence_state: SequenceState
    cleanup_fences: tuple[int, ...]
    interruption: Mapping[str, object] | None
    is_at_given_names: bool = False


@dataclass(frozen=True, slots=True)
class Publication:
    """A finished sequence, with the values for its events and summaries.

    ``watermarks`` maps each moved key to its position (before, after) as text. ``rows_total``: all data rows that its
    partition has now. ``recovered``: another run than the one that sealed the sequence finished it.
    ``version`` is the dataset's, ``lane_version`` that of its lane, both after the finish.
    """

    sequence_id: SequenceId
    dataset_id: DatasetId
    job: JobName
    urn: DatasetUrn
    partition: str
    run_id: RunId
    mode: Mode
    replaces: bool
    complete: bool
    version: int
    row_count: int
    file_count: int
    file_bytes: int
    rows_by_role: Mapping[str, int]
    watermarks: Mapping[str, tuple[str | None, str | None]]
    details: Mapping[str, object]
    rows_total: int = 0
    recovered: bool = False
    lane_version: int = 0
    lane_number: int = 0
