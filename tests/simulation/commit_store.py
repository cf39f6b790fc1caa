"""``SimCommitStepStore(db)``: the port ``CommitStepStore`` over a ``SimDatabase``.

Each method is one atomic transaction on the shared tables: it happens completely, or raises and has changed nothing. It
raises the families that the Postgres adapter raises, and a repeated call finds its own work done in the same way.
Faults are not made here: the world that simulates them wraps the port.
"""

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from gobblin_assets.commit.folding import FoldBounds
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
from gobblin_assets.commit.store import LogView, StoredSegment
from gobblin_assets.model.sequence_state import SequenceState
from gobblin_assets.model.state import AttemptId, DatasetId, LaneId, SequenceId
from gobblin_assets.model.urn import JobName
from tests.simulation import log_building, log_cleaning, log_finishing, log_folding, log_queries, log_sealed
from tests.simulation.database import SimDatabase


class SimCommitStepStore:
    def __init__(self, db: SimDatabase) -> None:
        self._db = db

    def begin(self, *sequences: NewSequence) -> None:
        with self._db.transaction() as db:
            for sequence in sequences:
                log_building.begin(db, sequence)

    def continue_building(self, sequence_id: SequenceId, *, fence: int) -> None:
        with self._db.transaction() as db:
            log_building.continue_building(db, sequence_id, fence)

    def register_attempt(self, *attempts: NewAttempt) -> None:
        with self._db.transaction() as db:
            for attempt in attempts:
                log_building.register_attempt(db, attempt)

    def fail_attempt(self, *attempt_ids: AttemptId, error: str, cancelled: bool) -> None:
        with self._db.transaction() as db:
            for attempt_id in attempt_ids:
                log_building.fail_attempt(db, attempt_id, error, cancelled=cancelled)

    def stage(self, *staged: StagedAttempt) -> None:
        with self._db.transaction() as db:
            for each in staged:
                log_building.stage(db, each)

    def seal(self, *orders: SealOrder) -> None:
        with self._db.transaction() as db:
            for order in orders:
                log_building.seal(db, order)

    def abort(self, sequence_id: SequenceId, *, fence: int, error: str | None) -> None:
        with self._db.transaction() as db:
            log_building.abort(db, sequence_id, fence, error)

    def get(self, sequence_id: SequenceId) -> SequenceRecord:
        return log_queries.get(self._db, sequence_id)

    def read_segments(self, sequence_id: SequenceId) -> Iterator[StoredSegment]:
        """All segments of one moment, that of the call."""
        return iter(log_queries.read_segments(self._db, sequence_id))

    def load_sealed(self, *sequence_ids: SequenceId) -> Sequence[SealedSequence]:
        return [log_sealed.load_sealed(self._db, sequence_id) for sequence_id in sequence_ids]

    def is_open_and_held(self, sequence_id: SequenceId, *, fence: int) -> bool:
        return log_queries.is_open_and_held(self._db, sequence_id, fence)

    def finish(self, sequence_id: SequenceId, *, fence: int) -> int:
        return self.finish_all({sequence_id: fence})[sequence_id]

    def finish_all(self, fences: Mapping[SequenceId, int]) -> Mapping[SequenceId, int]:
        with self._db.transaction() as db:
            return {sequence_id: log_finishing.finish(db, sequence_id, fence) for sequence_id, fence in fences.items()}

    def record_failure(
        self, sequence_id: SequenceId, *, fence: int, error: str, tries_max: int, retry_in_s: float, block: bool
    ) -> SequenceRecord:
        with self._db.transaction() as db:
            log_finishing.record_failure(
                db, sequence_id, fence, error=error, tries_max=tries_max, retry_in_s=retry_in_s, block=block
            )
        return self.get(sequence_id)

    def defer(self, sequence_id: SequenceId, *, fence: int, error: str, retry_in_s: float) -> None:
        with self._db.transaction() as db:
            log_finishing.defer(db, sequence_id, fence, error=error, retry_in_s=retry_in_s)

    def resume(self, sequence_id: SequenceId, *, fence: int) -> None:
        with self._db.transaction() as db:
            log_finishing.resume(db, sequence_id, fence)

    def begin_abandon(self, sequence_id: SequenceId, *, fence: int, reason: str) -> None:
        with self._db.transaction() as db:
            log_finishing.begin_abandon(db, sequence_id, fence, reason)

    def claim(self, sequence_id: SequenceId, *, fence: int) -> Sequence[AttemptRecord]:
        with self._db.transaction() as db:
            log_finishing.claim(db, sequence_id, fence)
            return log_cleaning.list_attempts(db, sequence_id)

    def list_attempts(self, sequence_id: SequenceId) -> Sequence[AttemptRecord]:
        return log_cleaning.list_attempts(self._db, sequence_id)

    def end_abandon(self, sequence_id: SequenceId, *, fence: int, unlogged: Sequence[str] = ()) -> None:
        assert not unlogged, "no person repairs a simulated publication"
        with self._db.transaction() as db:
            log_finishing.end_abandon(db, sequence_id, fence)

    def find_unfinished(self, *dataset_ids: DatasetId) -> Sequence[SequenceRecord]:
        return log_queries.find_unfinished(self._db, dataset_ids)

    def find_known(self, sequence_ids: Sequence[SequenceId]) -> Mapping[SequenceId, KnownSequence]:
        return log_sealed.find_known(self._db, sequence_ids)

    def look_at(self, job: JobName, dataset_ids: Sequence[DatasetId], sequence_ids: Sequence[SequenceId]) -> LogView:
        return log_queries.look_at(self._db, job, dataset_ids, sequence_ids)

    def list_lane_ids(self, dataset_id: DatasetId) -> Sequence[LaneId]:
        return log_queries.list_lane_ids(self._db, dataset_id)

    def find_newest_segment(self, dataset_id: DatasetId) -> StoredSegment | None:
        return log_queries.find_newest_segment(self._db, dataset_id)

    def list_recoverable(self, *, jobs: Sequence[JobName] | None, limit: int) -> Sequence[SequenceRecord]:
        return log_queries.list_recoverable(self._db, jobs, limit)

    def count_recoverable(self, *, jobs: Sequence[JobName] | None) -> Mapping[JobName, int]:
        return log_queries.count_recoverable(self._db, jobs)

    def list_open(self, job: JobName | None, *, limit: int) -> Sequence[SequenceRecord]:
        return log_queries.list_open(self._db, job, limit)

    def list_standing_moves(self, dataset_id: DatasetId, partition: str) -> Sequence[KeyMove]:
        return log_queries.list_standing_moves(self._db, dataset_id, partition)

    def load_publications(self, *sequence_ids: SequenceId) -> Sequence[Publication]:
        return [log_queries.load_publication(self._db, sequence_id) for sequence_id in sequence_ids]

    def list_unannounced(self, *, job: JobName, limit: int) -> Sequence[Publication]:
        return log_queries.list_unannounced(self._db, job, limit)

    def list_latest(self, job: JobName) -> Sequence[SequenceId]:
        return log_queries.list_latest(self._db, job)

    def mark_announced(self, *sequence_ids: SequenceId) -> None:
        with self._db.transaction() as db:
            for sequence_id in sequence_ids:
                row = db.sequences.get(sequence_id)
                if row is not None and row.state is SequenceState.DONE and row.announced_at is None:
                    db.sequences.put(sequence_id, replace(row, announced_at=db.now_s))

    def mark_for_cleanup(self, fences: Mapping[LaneId, int], *, limit: int) -> Sequence[AttemptRecord]:
        with self._db.transaction() as db:
            return log_cleaning.mark_for_cleanup(db, fences, limit)

    def mark_for_reuse(self, request: LeftoverRequest) -> Sequence[AttemptRecord]:
        with self._db.transaction() as db:
            return log_cleaning.mark_for_reuse(db, request)

    def mark_cleaned(self, fences: Mapping[AttemptId, int]) -> None:
        with self._db.transaction() as db:
            log_cleaning.mark_cleaned(db, fences)

    def list_removable(self, *lane_ids: LaneId, grace_s: float, limit: int) -> Sequence[StoredSegment]:
        found = log_cleaning.list_removable(self._db, lane_ids, grace_s, limit)
        return log_queries.stored(self._db, found)

    def mark_removed(self, segment_ids: Sequence[uuid.UUID]) -> None:
        with self._db.transaction() as db:
            log_cleaning.mark_removed(db, segment_ids)

    def find_foldable(self, *lane_ids: LaneId, bounds: FoldBounds) -> Sequence[LaneId]:
        return log_folding.find_due(self._db, lane_ids, bounds)

    def fold(self, lane_id: LaneId, *, fence: int, bounds: FoldBounds, limit: int) -> int:
        with self._db.transaction() as db:
            return log_folding.fold(db, lane_id, fence, bounds, limit)

    def forget(self, lane_id: LaneId, *, fence: int, bounds: FoldBounds, limit: int) -> int:
        with self._db.transaction() as db:
            return log_folding.forget(db, lane_id, fence, bounds, limit)

    def mark_folded(self, lane_id: LaneId, *, fence: int, bounds: FoldBounds) -> None:
        with self._db.transaction() as db:
            log_folding.mark_folded(db, lane_id, fence, bounds)
