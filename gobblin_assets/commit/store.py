"""The commit step store: every transaction of the protocol, as a port in roles.

A caller asks for the role that it needs: to look at the log, to build sequences, to seal them, to bring them to their
end, to clean storage, or to fold the log. ``CommitStepStore`` has all of them.

Each method is one transaction, unless its docstring says otherwise. A method that takes several sequences succeeds for
all of them or for none: the error is that of one sequence, and nothing has changed. A repetition with the same
arguments is harmless and gives a true answer: the adapter repeats a method by itself after a lost acknowledgement. A
refused transition raises FencedError (the fence was replaced) or ConflictError (the log contradicts the arguments);
neither has changed anything.
"""

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from gobblin_assets.commit.destination import Binding
from gobblin_assets.commit.folding import FoldBounds
from gobblin_assets.commit.segment import list_published
from gobblin_assets.commit.sequence import (
    AttemptRecord,
    KeyMove,
    KnownSequence,
    LeftoverRequest,
    NewAttempt,
    NewSequence,
    Publication,
    SealedSequence,
    SealOrder,
    SequenceRecord,
    StagedAttempt,
)
from gobblin_assets.model.files import FileIdentity
from gobblin_assets.model.path_names import moved_path
from gobblin_assets.model.state import AttemptId, DatasetId, LaneId, SequenceId
from gobblin_assets.model.urn import JobName


@dataclass(frozen=True, slots=True)
class StoredSegment:
    """A segment as it is executed or removed. ``moved``: the old and new root, if its files moved after publication."""

    segment_id: uuid.UUID
    dataset_id: DatasetId
    payload: bytes
    digest: bytes
    root_uri: str
    moved: tuple[str, str] | None = None

    def files(self) -> Iterator[tuple[str, FileIdentity, int]]:
        """(path, identity, rows) of its files, where they are now. CorruptionError if it is not the sealed segment.

        A file that was copied to another root has another inode and time, so only its length is known.
        """
        for path, identity, row_count in list_published(self.payload, self.digest):
            known = identity if self.moved is None else FileIdentity(identity.size_bytes)
            yield moved_path(path, self.moved), known, row_count


@dataclass(frozen=True, slots=True)
class LaneView:
    """A lane at the moment of a ``LogView``."""

    dataset_id: DatasetId
    number: int
    version: int
    fence: int


@dataclass(frozen=True, slots=True)
class LogView:
    """The log's state of a job's datasets, with all their lanes, at one moment, for comparison with storage."""

    known: Mapping[SequenceId, KnownSequence]
    lanes: Sequence[LaneView]
    binding: Binding | None


class CommitLogReader(Protocol):
    """The role that looks at sequences, segments and publications, and changes nothing."""

    def get(self, sequence_id: SequenceId) -> SequenceRecord:
        """RejectedError if there is no such sequence."""
        ...

    def read_segments(self, sequence_id: SequenceId) -> Iterator[StoredSegment]:
        """The segments in the sealed digest, in a fixed order, a few at a time (several transactions)."""
        ...

    def load_sealed(self, *sequence_ids: SequenceId) -> Sequence[SealedSequence]:
        """The sealed sequences, segments included. ConflictError for a sequence that was never sealed."""
        ...

    def is_open_and_held(self, sequence_id: SequenceId, *, fence: int) -> bool:
        """Whether the sequence is open and ``fence`` is still its lane's; LOST and CONFLICT count only then."""
        ...

    def list_attempts(self, sequence_id: SequenceId) -> Sequence[AttemptRecord]:
        """All attempts of a sequence, whatever their state."""
        ...

    def find_unfinished(self, *dataset_ids: DatasetId) -> Sequence[SequenceRecord]:
        """BUILDING, PREPARED, BLOCKED and ABANDONING sequences of all lanes of these datasets, oldest first."""
        ...

    def find_known(self, sequence_ids: Sequence[SequenceId]) -> Mapping[SequenceId, KnownSequence]:
        """The sequences among these that the log has, or had before they were folded or forgotten."""
        ...

    def look_at(self, job: JobName, dataset_ids: Sequence[DatasetId], sequence_ids: Sequence[SequenceId]) -> LogView:
        """The sequences among these that the log has, the lanes of these datasets, and the job's destination."""
        ...

    def list_lane_ids(self, dataset_id: DatasetId) -> Sequence[LaneId]:
        """The lanes of a dataset, lane 0 first."""
        ...

    def find_newest_segment(self, dataset_id: DatasetId) -> StoredSegment | None:
        """The newest published segment that has files and was not replaced since."""
        ...

    def list_recoverable(self, *, jobs: Sequence[JobName] | None, limit: int) -> Sequence[SequenceRecord]:
        """PREPARED and ABANDONING sequences that are due and whose lease is free.

        Sequences that were never tried come first, oldest first; then those that waited longest since they were due
        again, or since the lease of a dead owner ran out.
        """
        ...

    def count_recoverable(self, *, jobs: Sequence[JobName] | None) -> Mapping[JobName, int]:
        """How many ``list_recoverable`` would list without a limit, by job; a job without any is left out."""
        ...

    def list_open(self, job: JobName | None, *, limit: int) -> Sequence[SequenceRecord]:
        """PREPARED, BLOCKED and ABANDONING sequences, oldest first."""
        ...

    def list_no_op_moves(self, dataset_id: DatasetId, partition: str) -> Sequence[KeyMove]:
        """The moves of a sequence that replaces a whole partition and leaves ledger and watermarks as they are."""
        ...

    def load_publications(self, *sequence_ids: SequenceId) -> Sequence[Publication]:
        """The summaries of DONE sequences."""
        ...

    def list_unannounced(self, *, job: JobName, limit: int) -> Sequence[Publication]:
        """DONE sequences that were not reported, without those of commands, which ``ReportStore`` has."""
        ...

    def list_latest(self, job: JobName) -> Sequence[SequenceId]:
        """The last sequence to be DONE of each partition of the job's datasets, without compactions."""
        ...

    def list_removable(self, *lane_ids: LaneId, grace_s: float, limit: int) -> Sequence[StoredSegment]:
        """Segments that a DONE sequence retired more than ``grace_s`` ago; of each dataset the ``limit`` oldest.

        They are lane 0's to remove, whichever lane published them.
        """
        ...


class SequenceBuilder(Protocol):
    """The role that begins sequences, and stages their attempts while they are BUILDING."""

    def begin(self, *sequences: NewSequence) -> None:
        """Write the BUILDING rows with their WorkUnits, under the leases' fences.

        ConflictError for a run that the log does not have.
        """
        ...

    def continue_building(self, sequence_id: SequenceId, *, fence: int) -> None:
        """A BUILDING sequence of an earlier owner becomes ours, to be staged and sealed under ``fence``.

        Only for publications that are known to be on storage: a run that reads a source begins its own sequence.
        """
        ...

    def register_attempt(self, *attempts: NewAttempt) -> None:
        """Write the RUNNING rows. Each is written before the attempt's first byte, so that no staging is unknown."""
        ...

    def fail_attempt(self, *attempt_ids: AttemptId, error: str, cancelled: bool) -> None:
        """RUNNING becomes FAILED or CANCELLED.

        So does an attempt that another process ended without its report (``abort``, ``mark_for_cleanup``). A STAGED
        attempt stays: its acknowledgement was lost.
        """
        ...

    def stage(self, *staged: StagedAttempt) -> None:
        """T1: attempts are STAGED and their segments are stored, while their sequences are BUILDING and ours."""
        ...


class SequenceSealer(SequenceBuilder, Protocol):
    """The role of whoever decides: builds sequences, and seals them."""

    def seal(self, *orders: SealOrder) -> None:
        """T2, the decision: BUILDING becomes PREPARED under fence, version, winners, counts and digests.

        At most one for each lane. ConflictError also if a key is another lane's, or is not where its move starts.
        """
        ...


class SequenceFinisher(CommitLogReader, Protocol):
    """The role that brings sequences to their end, DONE or ABORTED, and reads what it needs for that."""

    def claim(self, sequence_id: SequenceId, *, fence: int) -> Sequence[AttemptRecord]:
        """Record, before its directories are captured, that ``fence`` executes a PREPARED sequence; its attempts."""
        ...

    def finish(self, sequence_id: SequenceId, *, fence: int) -> int:
        """T3: PREPARED becomes DONE, watermarks and version move; returns the dataset's new version."""
        ...

    def finish_all(self, fences: Mapping[SequenceId, int]) -> Mapping[SequenceId, int]:
        """T3 of several, at most one for each lane, each under its fence; returns the datasets' new versions."""
        ...

    def record_failure(
        self, sequence_id: SequenceId, *, fence: int, error: str, tries_max: int, retry_in_s: float, block: bool
    ) -> SequenceRecord:
        """Count a failed try; BLOCKED after ``tries_max`` of them, or at once when ``block``."""
        ...

    def defer(self, sequence_id: SequenceId, *, fence: int, error: str, retry_in_s: float) -> None:
        """Put off a due PREPARED or ABANDONING sequence without counting a try; any other stays as it is."""
        ...

    def resume(self, sequence_id: SequenceId, *, fence: int) -> None:
        """BLOCKED becomes PREPARED, and its tries are counted from zero."""
        ...

    def begin_abandon(self, sequence_id: SequenceId, *, fence: int, reason: str) -> None:
        """PREPARED or BLOCKED becomes ABANDONING, and its attempts are marked with ``fence`` for capture."""
        ...

    def end_abandon(self, sequence_id: SequenceId, *, fence: int, unlogged: Sequence[str] = ()) -> None:
        """ABANDONING becomes ABORTED. ``unlogged``: names for the dataset's facts (``commit.repair``)."""
        ...

    def abort(self, sequence_id: SequenceId, *, fence: int, error: str | None) -> None:
        """BUILDING becomes ABORTED, its RUNNING attempts CANCELLED. ConflictError if it is no longer BUILDING."""
        ...

    def mark_announced(self, *sequence_ids: SequenceId) -> None: ...


class CommitLogCleaner(CommitLogReader, Protocol):
    """The role that marks files that may be removed from storage, and files that were removed."""

    def mark_for_cleanup(self, fences: Mapping[LaneId, int], *, limit: int) -> Sequence[AttemptRecord]:
        """Mark, each with our fence of its lane, attempts whose sequence is over, and return them.

        Attempts of BUILDING or open sequences are never returned; RUNNING attempts of other sequences become CANCELLED.
        ``limit``: attempts of each lane, the oldest first. What may be used again is left for its time, unless its
        partition was published since.
        """
        ...

    def mark_for_reuse(self, request: LeftoverRequest) -> Sequence[AttemptRecord]:
        """Mark failed attempts with the request's fence, for a capture, and return them, the newest first."""
        ...

    def mark_cleaned(self, fences: Mapping[AttemptId, int]) -> None:
        """Record that no files of these were found, under the fences with which they were marked.

        Attempts that a newer owner has marked since, and those that may still be written to, are checked again later.
        """
        ...

    def mark_removed(self, segment_ids: Sequence[uuid.UUID]) -> None: ...


class SequenceFolder(CommitLogCleaner, Protocol):
    """The role that makes the log shorter: it folds publications into one, and forgets what is old."""

    def find_foldable(self, *lane_ids: LaneId, bounds: FoldBounds) -> Sequence[LaneId]:
        """The lanes among these whose dataset published enough since their last fold, or that were folded long ago."""
        ...

    def fold(self, lane_id: LaneId, *, fence: int, bounds: FoldBounds, limit: int) -> int:
        """Fold the lane's oldest publications of each partition, at most ``limit``; returns how many, 0 at the end."""
        ...

    def forget(self, lane_id: LaneId, *, fence: int, bounds: FoldBounds, limit: int) -> int:
        """Drop sequences that are older than the history and have nothing on storage; returns how many.

        The newest publication of a partition stays: it tells that the partition was read.
        """
        ...

    def mark_folded(self, lane_id: LaneId, *, fence: int, bounds: FoldBounds) -> None:
        """Record that everything of the lane that can be folded now is folded."""
        ...


class CommitStepStore(SequenceSealer, SequenceFinisher, SequenceFolder, Protocol):
    """The whole store, all roles over one log: of ``commit.postgres``, and fakes that pass the same contract suite."""
