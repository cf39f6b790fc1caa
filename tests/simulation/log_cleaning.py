"""Marks of files that may be removed, by the rules of ``commit.postgres.cleaning``."""

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace

from gobblin_assets.commit.postgres.cleaning import FAILED_GRACE_S, FENCES_KEPT_MAX, LEFT_OPEN, SILENT_GRACE_S
from gobblin_assets.commit.sequence import REUSE_KEEP_DETAIL, AttemptRecord, LeftoverRequest
from gobblin_assets.model.sequence_state import SequenceState
from gobblin_assets.model.state import AttemptId, LaneId
from tests.simulation.database import Guard, SimDatabase
from tests.simulation.log_guards import require_fence
from tests.simulation.log_reading import SimCommitLogReader, attempt_of, first_of_each, slots_keep_s
from tests.simulation.rows import AttemptRow, SequenceRow

_OVER = (SequenceState.DONE, SequenceState.ABORTED)


class SimCommitLogCleaner(SimCommitLogReader):
    """``CommitLogCleaner`` over a ``SimDatabase``."""

    def mark_for_cleanup(self, fences: Mapping[LaneId, int], *, limit: int) -> Sequence[AttemptRecord]:
        with self._db.transaction() as db:
            for lane_id, fence in fences.items():
                require_fence(db, lane_id, fence, Guard.CLEANUP_CHECKS_FENCE)
            found = [
                attempt
                for attempt in db.attempts.values()
                if attempt.lane_id in fences
                and attempt.cleaned_at is None
                and (
                    db.sequences[attempt.sequence_id].state in _OVER
                    or not db.holds(Guard.CLEANUP_LEAVES_UNFINISHED_ALONE)
                )
                and not _keeps_slots(db, attempt)
                and not _waits_for_reuse(db, attempt)
            ]
            oldest = sorted(found, key=lambda a: a.started_at)
            first = first_of_each(oldest, limit, lambda attempt: attempt.lane_id)
            return [_mark(db, attempt, fences[attempt.lane_id]) for attempt in first]

    def mark_for_reuse(self, request: LeftoverRequest) -> Sequence[AttemptRecord]:
        with self._db.transaction() as db:
            require_fence(db, request.dataset_id, request.fence, Guard.CLEANUP_CHECKS_FENCE)
            found = []
            for attempt in db.attempts.values():
                sequence = db.sequences[attempt.sequence_id]
                is_at_partition = (sequence.dataset_id, sequence.partition) == (request.dataset_id, request.partition)
                is_own = sequence.sequence_id == request.sequence_id and _reuse_keep_s(sequence) is not None
                has_ended = attempt.state in ("FAILED", "CANCELLED")
                may_be_used = _is_reusable(db, sequence, request.keep_s) or (is_own and has_ended)
                if is_at_partition and attempt.cleaned_at is None and may_be_used:
                    found.append(attempt)
            newest = sorted(found, key=lambda a: (a.started_at, a.attempt_id), reverse=True)[: request.limit]
            return [_mark(db, attempt, request.fence) for attempt in newest]

    def mark_cleaned(self, fences: Mapping[AttemptId, int]) -> None:
        with self._db.transaction() as db:
            for attempt_id, fence in fences.items():
                attempt = db.attempts.get(attempt_id)
                if attempt is None or any(fence < other for other in attempt.cleanup_fences):
                    continue
                if _is_over(db, attempt) or not db.holds(Guard.CLEANED_WAITS_FOR_WRITERS):
                    db.attempts.put(attempt_id, replace(attempt, cleaned_at=db.now_s))

    def mark_removed(self, segment_ids: Sequence[uuid.UUID]) -> None:
        with self._db.transaction() as db:
            for segment_id in segment_ids:
                segment = db.segments.get(segment_id)
                if segment is not None:
                    db.segments.put(segment_id, replace(segment, removed_at=db.now_s))


def _mark(db: SimDatabase, attempt: AttemptRow, fence: int) -> AttemptRecord:
    fences = attempt.cleanup_fences
    if fence not in fences:
        kept = len(fences) + 1 if slots_keep_s(db, attempt) is not None else FENCES_KEPT_MAX
        fences = (*fences, fence)[-kept:]
    row = replace(attempt, cleanup_fences=fences)
    if attempt.state == "RUNNING":
        row = replace(row, state="CANCELLED", error=attempt.error or LEFT_OPEN)
    db.attempts.put(row.attempt_id, row)
    return attempt_of(db, row)


def _is_reusable(db: SimDatabase, sequence: SequenceRow, keep_s: float | None) -> bool:
    return (
        sequence.state is SequenceState.ABORTED
        and sequence.base_version is None
        and _reuse_keep_s(sequence) is not None
        and keep_s is not None
        and sequence.aborted_at is not None
        and sequence.aborted_at > db.now_s - keep_s
    )


def _waits_for_reuse(db: SimDatabase, attempt: AttemptRow) -> bool:
    sequence = db.sequences[attempt.sequence_id]
    return _is_reusable(db, sequence, _reuse_keep_s(sequence)) and not any(
        later.state is SequenceState.DONE and (later.done_at or 0.0) >= (sequence.aborted_at or 0.0)
        for later in db.sequences.values()
        if (later.dataset_id, later.partition) == (sequence.dataset_id, sequence.partition)
    )


def _reuse_keep_s(sequence: SequenceRow) -> float | None:
    found = json.loads(sequence.details).get(REUSE_KEEP_DETAIL)
    return None if found is None else float(found)


def _keeps_slots(db: SimDatabase, attempt: AttemptRow) -> bool:
    """Whether replaced files still wait in their slots."""
    sequence, keep_s = db.sequences[attempt.sequence_id], slots_keep_s(db, attempt)
    if attempt.state != "STAGED":
        return False
    return keep_s is not None and sequence.done_at is not None and sequence.done_at > db.now_s - keep_s


def _is_over(db: SimDatabase, attempt: AttemptRow) -> bool:
    if attempt.state == "STAGED":
        return True
    ended = attempt.ended_at is not None and attempt.ended_at < db.now_s - FAILED_GRACE_S
    return (attempt.state != "RUNNING" and ended) or attempt.started_at < db.now_s - SILENT_GRACE_S
