"""Files that may be removed, by the rules of ``commit.postgres.cleaning``."""

import json
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from gobblin_assets.commit.postgres.cleaning import FAILED_GRACE_S, FENCES_KEPT_MAX, LEFT_OPEN, SILENT_GRACE_S
from gobblin_assets.commit.sequence import SLOTS_KEEP_DETAIL, AttemptRecord
from gobblin_assets.model.sequence_state import SequenceState
from gobblin_assets.model.state import AttemptId, DatasetId, SequenceId
from tests.simulation.database import Guard, SimDatabase
from tests.simulation.log_guards import require_fence
from tests.simulation.rows import AttemptRow, SegmentRow

R = TypeVar("R", AttemptRow, SegmentRow)

_OVER = (SequenceState.DONE, SequenceState.ABORTED)


def list_attempts(db: SimDatabase, sequence_id: SequenceId) -> list[AttemptRecord]:
    found = [attempt for attempt in db.attempts.values() if attempt.sequence_id == sequence_id]
    return [_record_of(db, attempt) for attempt in sorted(found, key=lambda a: a.started_at)]


def mark_for_cleanup(db: SimDatabase, owners: Mapping[DatasetId, int], limit: int) -> list[AttemptRecord]:
    for dataset_id, fence in owners.items():
        require_fence(db, dataset_id, fence, Guard.CLEANUP_CHECKS_FENCE)
    found = [
        attempt
        for attempt in db.attempts.values()
        if attempt.dataset_id in owners
        and attempt.cleaned_at is None
        and (db.sequences[attempt.sequence_id].state in _OVER or not db.holds(Guard.CLEANUP_LEAVES_UNFINISHED_ALONE))
        and not _keeps_slots(db, attempt)
    ]
    marked = []
    for attempt in _first_of_each(sorted(found, key=lambda a: a.started_at), limit):
        fence, fences = owners[attempt.dataset_id], attempt.cleanup_fences
        if fence not in fences:
            kept = len(fences) + 1 if _slots_keep_s(db, attempt) is not None else FENCES_KEPT_MAX
            fences = (*fences, fence)[-kept:]
        row = replace(attempt, cleanup_fences=fences)
        if attempt.state == "RUNNING":
            row = replace(row, state="CANCELLED", error=attempt.error or LEFT_OPEN)
        db.attempts.put(row.attempt_id, row)
        marked.append(_record_of(db, row))
    return marked


def _slots_keep_s(db: SimDatabase, attempt: AttemptRow) -> float | None:
    found = json.loads(db.sequences[attempt.sequence_id].details).get(SLOTS_KEEP_DETAIL)
    return None if found is None else float(found)


def _keeps_slots(db: SimDatabase, attempt: AttemptRow) -> bool:
    """Whether replaced files still wait in their slots."""
    sequence, keep_s = db.sequences[attempt.sequence_id], _slots_keep_s(db, attempt)
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


def list_removable(db: SimDatabase, dataset_ids: Sequence[DatasetId], grace_s: float, limit: int) -> list[SegmentRow]:
    found = [
        segment
        for segment in db.segments.values()
        if segment.dataset_id in dataset_ids
        and segment.retired_by is not None
        and segment.retired_at is not None
        and segment.removed_at is None
        and db.sequences[segment.retired_by].state is SequenceState.DONE
        and (segment.retired_at <= db.now_s - grace_s or not db.holds(Guard.REMOVABLE_WAITS_FOR_GRACE))
    ]
    return _first_of_each(sorted(found, key=lambda segment: (segment.retired_at, segment.segment_id)), limit)


def _first_of_each(rows: Iterable[R], limit: int) -> list[R]:
    """Up to ``limit`` rows of each dataset."""
    taken: Counter[DatasetId] = Counter()
    first = []
    for row in rows:
        if taken[row.dataset_id] < limit:
            taken[row.dataset_id] += 1
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
        dataset_id=attempt.dataset_id,
        staging_path=attempt.staging_path,
        sequence_state=db.sequences[attempt.sequence_id].state,
        cleanup_fences=attempt.cleanup_fences,
        interruption=attempt.interruption,
        is_at_given_names=_slots_keep_s(db, attempt) is not None,
    )
