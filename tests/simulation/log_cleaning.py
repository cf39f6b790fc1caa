"""Files that may be removed, by the rules of ``commit.postgres.cleaning``."""

import json
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from gobblin_assets.commit.postgres.cleaning import FAILED_GRACE_S, FENCES_KEPT_MAX, LEFT_OPEN, SILENT_GRACE_S
from gobblin_assets.commit.sequence import REUSE_KEEP_DETAIL, SLOTS_KEEP_DETAIL, AttemptRecord, LeftoverRequest
from gobblin_assets.model.sequence_state import SequenceState
from gobblin_assets.model.state import AttemptId, LaneId, SequenceId
from tests.simulation.database import Guard, SimDatabase
from tests.simulation.log_guards import require_fence
from tests.simulation.rows import AttemptRow, SegmentRow, SequenceRow

R = TypeVar("R", AttemptRow, SegmentRow)

_OVER = (SequenceState.DONE, SequenceState.ABORTED)


def list_attempts(db: SimDatabase, sequence_id: SequenceId) -> list[AttemptRecord]:
    found = [attempt for attempt in db.attempts.values() if attempt.sequence_id == sequence_id]
    return [_record_of(db, attempt) for attempt in sorted(found, key=lambda a: a.started_at)]


def mark_for_cleanup(db: SimDatabase, owners: Mapping[LaneId, int], limit: int) -> list[AttemptRecord]:
    for lane_id, fence in owners.items():
        require_fence(db, lane_id, fence, Guard.CLEANUP_CHECKS_FENCE)
    found = [
        attempt
        for attempt in db.attempts.values()
        if attempt.lane_id in owners
        and attempt.cleaned_at is None
        and (db.sequences[attempt.sequence_id].state in _OVER or not db.holds(Guard.CLEANUP_LEAVES_UNFINISHED_ALONE))
        and not _keeps_slots(db, attempt)
        and not _waits_for_reuse(db, attempt)
    ]
    oldest = sorted(found, key=lambda a: a.started_at)
    first = _first_of_each(oldest, limit, lambda attempt: attempt.lane_id)
    return [_mark(db, attempt, owners[attempt.lane_id]) for attempt in first]


def _mark(db: SimDatabase, attempt: AttemptRow, fence: int) -> AttemptRecord:
    fences = attempt.cleanup_fences
    if fence not in fences:
        kept = len(fences) + 1 if _slots_keep_s(db, attempt) is not None else FENCES_KEPT_MAX
        fences = (*fences, fence)[-kept:]
    row = replace(attempt, cleanup_fences=fences)
    if attempt.state == "RUNNING":
        row = replace(row, state="CANCELLED", error=attempt.error or LEFT_OPEN)
    db.attempts.put(row.attempt_id, row)
    return _record_of(db, row)


def mark_for_reuse(db: SimDatabase, request: LeftoverRequest) -> list[AttemptRecord]:
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


def _slots_keep_s(db: SimDatabase, attempt: AttemptRow) -> float | None:
    found = json.loads(db.sequences[attempt.sequence_id].details).get(SLOTS_KEEP_DETAIL)
    return None if found is None else float(found)


def _keeps_slots(db: SimDatabase, attempt: AttemptRow) -> bool:
    """Whether replaced files still wait in their slots."""
    sequence, keep_s = db.sequences[attempt.sequence_id], _slots_keep_s(db, attempt)
    if attempt.state != "STAGED":
        return False
    return keep_s is not None and sequence.done_at is not None and sequence.done_at > db.now_s - keep_s


def mark_cleaned(db: SimDatabase, fences: Mapping[AttemptId, int]) -> None:
    for attempt_id, fence in fences.items():
        attempt = db.attempts.get(attempt_id)
        if attempt is None or any(fence < other for other in attempt.cleanup_fences):
            continue
        if _is_over(db, attempt) or not db.holds(Guard.CLEANED_WAITS_FOR_WRITERS):
            db.attempts.put(attempt_id, replace(attempt, cleaned_at=db.now_s))


def _is_over(db: SimDatabase, attempt: AttemptRow) -> bool:
    if attempt.state == "STAGED":
        return True
    ended = attempt.ended_at is not None and attempt.ended_at < db.now_s - FAILED_GRACE_S
    return (attempt.state != "RUNNING" and ended) or attempt.started_at < db.now_s - SILENT_GRACE_S


def list_removable(db: SimDatabase, lane_ids: Sequence[LaneId], grace_s: float, limit: int) -> list[SegmentRow]:
    found = [
        segment
        for segment in db.segments.values()
        if segment.dataset_id in lane_ids
        and segment.retired_by is not None
        and segment.retired_at is not None
        and segment.removed_at is None
        and db.sequences[segment.retired_by].state is SequenceState.DONE
        and (segment.retired_at <= db.now_s - grace_s or not db.holds(Guard.REMOVABLE_WAITS_FOR_GRACE))
    ]
    oldest = sorted(found, key=lambda segment: (segment.retired_at, segment.segment_id))
    return _first_of_each(oldest, limit, lambda segment: segment.dataset_id)


def _first_of_each(rows: Iterable[R], limit: int, lane_of: Callable[[R], LaneId]) -> list[R]:
    """Up to ``limit`` rows of each lane."""
    taken: Counter[LaneId] = Counter()
    first = []
    for row in rows:
        if taken[lane_of(row)] < limit:
            taken[lane_of(row)] += 1
            first.append(row)
    return first


def mark_removed(db: SimDatabase, segment_ids: Sequence[uuid.UUID]) -> None:
    for segment_id in segment_ids:
        segment = db.segments.get(segment_id)
        if segment is not None:
            db.segments.put(segment_id, replace(segment, removed_at=db.now_s))


def _record_of(db: SimDatabase, attempt: AttemptRow) -> AttemptRecord:
    return AttemptRecord(
        attempt_id=attempt.attempt_id,
        sequence_id=attempt.sequence_id,
        lane_id=attempt.lane_id,
        staging_path=attempt.staging_path,
        sequence_state=db.sequences[attempt.sequence_id].state,
        cleanup_fences=attempt.cleanup_fences,
        interruption=attempt.interruption,
        is_at_given_names=_slots_keep_s(db, attempt) is not None,
    )
