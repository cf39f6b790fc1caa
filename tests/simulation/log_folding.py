"""Folding and forgetting, like ``commit.postgres.folding`` and ``commit.postgres.forgetting``."""

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from gobblin_assets.commit.folding import (
    FILES_JOINED_MAX,
    TIDY_S,
    Fold,
    FoldBounds,
    FoldMember,
    FoldSegment,
    bound_fold,
    join_intervals,
    join_segments,
    list_named_sequences,
    plan_folds,
    shorten_details,
)
from gobblin_assets.commit.segment import combine_digests
from gobblin_assets.commit.sequence import SLOTS_KEEP_DETAIL, PublishedInterval
from gobblin_assets.errors import CorruptionError
from gobblin_assets.model.interval import Interval
from gobblin_assets.model.sequence_state import SequenceState
from gobblin_assets.model.state import DatasetId, KeyId, SequenceId
from tests.simulation.database import Guard, SimDatabase, json_text
from tests.simulation.log_guards import require_fence
from tests.simulation.log_sealed import segment_of
from tests.simulation.rows import LedgerRow, PastSequenceRow, SegmentRow, SequenceRow


def find_due(db: SimDatabase, dataset_ids: Sequence[DatasetId], bounds: FoldBounds) -> list[DatasetId]:
    return sorted(
        row.dataset_id
        for row in db.datasets.values()
        if row.dataset_id in dataset_ids
        and (row.version - row.folded_version >= bounds.keep + bounds.count_min or row.tidied_at <= db.now_s - TIDY_S)
    )


def mark_folded(db: SimDatabase, dataset_id: DatasetId, fence: int, bounds: FoldBounds) -> None:
    require_fence(db, dataset_id, fence, Guard.FOLD_CHECKS_FENCE)
    row = db.datasets[dataset_id]
    folded_version = max(row.folded_version, row.version - bounds.keep)
    db.datasets.put(dataset_id, replace(row, folded_version=folded_version, tidied_at=db.now_s))


def fold(db: SimDatabase, dataset_id: DatasetId, fence: int, bounds: FoldBounds, limit: int) -> int:
    require_fence(db, dataset_id, fence, Guard.FOLD_CHECKS_FENCE)
    mine = [row for row in db.sequences.values() if row.dataset_id == dataset_id]
    if any(row.state.is_open for row in mine) and db.holds(Guard.FOLD_WAITS_FOR_OPEN):
        return 0
    newest = db.datasets[dataset_id].version - bounds.keep
    done = [row for row in mine if row.state is SequenceState.DONE and _is_active(db, row)]
    due = [
        row
        for row in done
        if row.folded_at is None
        and SLOTS_KEEP_DETAIL not in json.loads(row.details)
        and (row.announced_at is not None or not db.holds(Guard.FOLD_WAITS_FOR_EVENTS))
        and (row.result_version or 0) <= newest
        and (row.done_at or 0.0) <= db.now_s - bounds.age_s
        and (_is_clean(db, row) or not db.holds(Guard.FOLD_WAITS_FOR_CLEANUP))
    ]
    due.sort(key=lambda row: (row.partition, row.result_version or 0))
    members = bound_fold([_member_of(db, row) for row in due[:limit]])
    if members:
        earlier = [_member_of(db, row) for row in done if row.folded_at is not None]
        for each in plan_folds(members, earlier):
            _carry_out(db, each)
    return len(members)


def forget(db: SimDatabase, dataset_id: DatasetId, fence: int, bounds: FoldBounds, limit: int) -> int:
    require_fence(db, dataset_id, fence, Guard.FOLD_CHECKS_FENCE)
    old_at = db.now_s - bounds.history_s
    newest = db.datasets[dataset_id].version - bounds.keep_remembered
    mine = [row for row in db.sequences.values() if row.dataset_id == dataset_id and _is_clean(db, row)]
    retired = [
        row
        for row in mine
        if row.state is SequenceState.DONE
        and row.announced_at is not None
        and (row.result_version or 0) <= newest
        and (row.done_at or 0.0) <= old_at
        and not _has_active_entry(db, row)
        and all(_is_forgettable(db, row, segment, old_at) for segment in _sealed(db, row.sequence_id))
        and all(segment.retired_by != row.sequence_id for segment in db.segments.values())
        and all(entry.retired_by != row.sequence_id for entry in db.ledger.values())
    ]
    retired.sort(key=lambda row: row.result_version or 0)
    retired = retired[:limit]
    aborted = [
        row
        for row in mine
        if row.state is SequenceState.ABORTED and row.aborted_at is not None and row.aborted_at <= old_at
    ]
    aborted.sort(key=lambda row: (row.aborted_at or 0.0, row.sequence_id))
    aborted = aborted[: limit - len(retired)]
    payloads = [(s.payload, s.digest) for row in retired for s in _sealed(db, row.sequence_id)]
    for named in list_named_sequences(payloads):
        if named in db.past_sequences:
            db.past_sequences.drop(named)
    for row in aborted:
        if row.digest is not None:
            db.past_sequences.put(row.sequence_id, PastSequenceRow(row.sequence_id, dataset_id, row.state))
    for row in (*retired, *aborted):
        _drop(db, row.sequence_id)
    return len(retired) + len(aborted)


def _carry_out(db: SimDatabase, planned: Fold) -> None:
    survivor = db.sequences[planned.survivor]
    rows = [db.sequences[member] for member in planned.all]
    before = [segment for member in planned.all for segment in _sealed(db, member)]
    joined = _join_segments(db, planned, before)
    if _totals(joined) != _totals(before):
        raise CorruptionError("a fold would have other files than its publications")
    for segment in [s for s in db.segments.values() if s.sequence_id in planned.all]:
        db.segments.drop(segment.segment_id)
    for segment in joined:
        db.segments.put(segment.segment_id, segment)
    _join_entries(db, planned)
    _point_to(db, planned)
    _drop_plans(db, planned.all)
    for other in planned.others:
        db.past_sequences.put(other, PastSequenceRow(other, survivor.dataset_id, SequenceState.DONE))
        db.sequences.drop(other)
    summed = replace(
        survivor,
        publication_count=sum(row.publication_count for row in rows),
        complete=all(row.complete for row in rows),
        segment_count=len(joined),
        file_count=sum(row.file_count for row in rows),
        row_count=sum(row.row_count for row in rows),
        file_bytes=sum(row.file_bytes for row in rows),
        digest=combine_digests(segment.digest for segment in joined),
        details=json_text(shorten_details(json.loads(survivor.details))),
        folded_at=db.now_s,
    )
    db.sequences.put(survivor.sequence_id, summed)


def _join_segments(db: SimDatabase, planned: Fold, before: Iterable[SegmentRow]) -> list[SegmentRow]:
    small, full = [], []
    for row in before:
        version = row.version or db.sequences[row.sequence_id].result_version or 0
        taken = replace(row, sequence_id=planned.survivor, attempt_id=None, version=version)
        (small if row.file_count < FILES_JOINED_MAX else full).append(taken)
    parts = [FoldSegment(row.segment_id, row.version or 0, segment_of(row)) for row in small]
    made = [
        SegmentRow(
            segment_id=segment_id,
            sequence_id=planned.survivor,
            attempt_id=None,
            dataset_id=db.sequences[planned.survivor].dataset_id,
            number=number,
            role=segment.role,
            partition=segment.partition,
            payload=segment.payload,
            digest=segment.digest,
            step_count=segment.step_count,
            file_count=segment.file_count,
            row_count=segment.row_count,
            file_bytes=segment.file_bytes,
            file_schema=None if segment.file_schema is None else json_text(segment.file_schema),
            version=segment.version,
            sealed=True,
        )
        for number, (segment_id, segment) in enumerate(join_segments(planned.survivor, parts))
    ]
    return [*full, *made]


def _join_entries(db: SimDatabase, planned: Fold) -> None:
    by_key: dict[KeyId, list[LedgerRow]] = defaultdict(list)
    for entry in list(db.ledger.values()):
        if entry.sequence_id in planned.all:
            taken = replace(entry, sequence_id=planned.survivor)
            db.ledger.put(entry.ledger_id, taken)
            if not entry.is_generation:
                by_key[entry.key_id].append(taken)
    for key_id, entries in by_key.items():
        published = [
            PublishedInterval(Interval(entry.low, entry.high), entry.reread_from)
            for entry in entries
            if entry.high is not None
        ]
        joined = join_intervals(published)
        if len(joined) == len(entries):
            continue
        for entry in entries:
            db.ledger.drop(entry.ledger_id)
        for each in joined:
            ledger_id = max(db.ledger, default=0) + 1
            low, high = each.interval.low, each.interval.high
            db.ledger.put(ledger_id, LedgerRow(ledger_id, key_id, planned.survivor, low, high, each.reread_from))


def _point_to(db: SimDatabase, planned: Fold) -> None:
    gone, survivor = set(planned.others), planned.survivor
    for key, run_dataset in list(db.run_datasets.items()):
        if run_dataset.sequence_id in gone:
            db.run_datasets.put(key, replace(run_dataset, sequence_id=survivor))
    for segment in list(db.segments.values()):
        if segment.retired_by in gone:
            db.segments.put(segment.segment_id, replace(segment, retired_by=survivor))
    for entry in list(db.ledger.values()):
        if entry.retired_by in gone:
            db.ledger.put(entry.ledger_id, replace(entry, retired_by=survivor))
    for key_row in list(db.keys.values()):
        if key_row.sequence_id in gone:
            db.keys.put(key_row.key_id, replace(key_row, sequence_id=survivor))


def _drop(db: SimDatabase, sequence_id: SequenceId) -> None:
    for key, run_dataset in list(db.run_datasets.items()):
        if run_dataset.sequence_id == sequence_id:
            db.run_datasets.put(key, replace(run_dataset, sequence_id=None))
    _drop_plans(db, (sequence_id,))
    for segment in [s for s in db.segments.values() if s.sequence_id == sequence_id]:
        db.segments.drop(segment.segment_id)
    for entry in [e for e in db.ledger.values() if e.sequence_id == sequence_id]:
        db.ledger.drop(entry.ledger_id)
    db.sequences.drop(sequence_id)


def _drop_plans(db: SimDatabase, sequence_ids: Sequence[SequenceId]) -> None:
    for move_key in [key for key, move in db.moves.items() if move.sequence_id in sequence_ids]:
        db.moves.drop(move_key)
    for unit_id in [unit_id for unit_id, unit in db.work_units.items() if unit.sequence_id in sequence_ids]:
        db.work_units.drop(unit_id)
    for attempt_id in [attempt_id for attempt_id, a in db.attempts.items() if a.sequence_id in sequence_ids]:
        db.attempts.drop(attempt_id)


def _sealed(db: SimDatabase, sequence_id: SequenceId) -> list[SegmentRow]:
    return [segment for segment in db.segments.values() if segment.sequence_id == sequence_id and segment.sealed]


def _is_active(db: SimDatabase, row: SequenceRow) -> bool:
    segments = [s for s in db.segments.values() if s.sequence_id == row.sequence_id]
    entries = [entry for entry in db.ledger.values() if entry.sequence_id == row.sequence_id]
    active = all(s.retired_by is None for s in segments) and all(entry.is_active for entry in entries)
    return active or not db.holds(Guard.FOLD_LEAVES_RETIRED_ALONE)


def _has_active_entry(db: SimDatabase, row: SequenceRow) -> bool:
    return any(entry.is_active for entry in db.ledger.values() if entry.sequence_id == row.sequence_id)


def _is_clean(db: SimDatabase, row: SequenceRow) -> bool:
    return all(a.cleaned_at is not None for a in db.attempts.values() if a.sequence_id == row.sequence_id)


def _is_forgettable(db: SimDatabase, row: SequenceRow, segment: SegmentRow, old_at: float) -> bool:
    """Whether its files are removed, and another segment has the columns of its role."""
    if segment.removed_at is None and db.holds(Guard.FORGET_WAITS_FOR_REMOVAL):
        return False
    if segment.removed_at is not None and segment.removed_at > old_at:
        return False
    return segment.file_schema is None or any(
        other.sealed
        and other.file_schema is not None
        and (other.dataset_id, other.role) == (segment.dataset_id, segment.role)
        and (db.sequences[other.sequence_id].result_version or 0) > (row.result_version or 0)
        for other in db.segments.values()
    )


def _totals(segments: Iterable[SegmentRow]) -> tuple[int, int, int]:
    found = list(segments)
    return sum(s.file_count for s in found), sum(s.row_count for s in found), sum(s.file_bytes for s in found)


def _member_of(db: SimDatabase, row: SequenceRow) -> FoldMember:
    entries = sum(entry.sequence_id == row.sequence_id for entry in db.ledger.values())
    details = json.loads(row.details)
    moved = None if details.get("moved") is None else json.dumps(details["moved"])
    return FoldMember(row.sequence_id, row.partition, details["root_uri"], row.result_version or 0, entries, moved)
