"""Folding and forgetting, like ``commit.postgres.folding`` and ``commit.postgres.forgetting``."""

import json
import uuid
from collections import Counter, defaultdict
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
from gobblin_assets.commit.named_folding import (
    NamedMember,
    NamedPart,
    NamedRun,
    bound_named_fold,
    choose_runs,
    fold_names,
)
from gobblin_assets.commit.postgres.fold_members import UNREPORTED_S
from gobblin_assets.commit.segment import Segment, combine_digests
from gobblin_assets.commit.sequence import SLOTS_KEEP_DETAIL, PublishedInterval
from gobblin_assets.errors import CorruptionError
from gobblin_assets.model.interval import Interval
from gobblin_assets.model.sequence_state import SequenceState
from gobblin_assets.model.state import DatasetId, KeyId, LaneId, SequenceId
from tests.simulation.database import Guard, SimDatabase, json_text
from tests.simulation.log_cleaning import SimCommitLogCleaner
from tests.simulation.log_guards import require_fence
from tests.simulation.log_reading import segment_of
from tests.simulation.rows import LedgerRow, PastSequenceRow, SegmentRow, SequenceRow


class SimSequenceFolder(SimCommitLogCleaner):
    """``SequenceFolder`` over a ``SimDatabase``."""

    def find_foldable(self, *lane_ids: LaneId, bounds: FoldBounds) -> Sequence[LaneId]:
        db = self._db
        return sorted(
            row.lane_id
            for row in db.lanes.values()
            if row.lane_id in lane_ids
            and (
                db.datasets[row.dataset_id].version - row.folded_version >= bounds.keep + bounds.count_min
                or row.tidied_at <= db.now_s - TIDY_S
            )
        )

    def fold(self, lane_id: LaneId, *, fence: int, bounds: FoldBounds, limit: int) -> int:
        with self._db.transaction() as db:
            return _fold(db, lane_id, fence, bounds, limit)

    def forget(self, lane_id: LaneId, *, fence: int, bounds: FoldBounds, limit: int) -> int:
        with self._db.transaction() as db:
            return _forget(db, lane_id, fence, bounds, limit)

    def mark_folded(self, lane_id: LaneId, *, fence: int, bounds: FoldBounds) -> None:
        with self._db.transaction() as db:
            require_fence(db, lane_id, fence, Guard.FOLD_CHECKS_FENCE)
            row = db.lanes[lane_id]
            folded_version = max(row.folded_version, db.datasets[row.dataset_id].version - bounds.keep)
            db.lanes.put(lane_id, replace(row, folded_version=folded_version, tidied_at=db.now_s))


def _fold(db: SimDatabase, lane_id: LaneId, fence: int, bounds: FoldBounds, limit: int) -> int:
    require_fence(db, lane_id, fence, Guard.FOLD_CHECKS_FENCE)
    dataset_id = db.lanes[lane_id].dataset_id
    mine = [row for row in db.sequences.values() if row.lane_id == lane_id]
    if any(row.state.is_open for row in mine) and db.holds(Guard.FOLD_WAITS_FOR_OPEN):
        return 0
    newest = db.datasets[dataset_id].version - bounds.keep
    done = [row for row in mine if row.state is SequenceState.DONE and _is_active(db, row)]

    def is_due(row: SequenceRow) -> bool:
        return (
            (_is_told(db, row) or not db.holds(Guard.FOLD_WAITS_FOR_EVENTS))
            and (row.result_version or 0) <= newest
            and (row.done_at or 0.0) <= db.now_s - bounds.age_s
            and (_is_clean(db, row) or not db.holds(Guard.FOLD_WAITS_FOR_CLEANUP))
        )

    due = [row for row in done if row.folded_at is None and not _is_named(row) and is_due(row)]
    due.sort(key=lambda row: (row.partition, row.result_version or 0))
    if members := bound_fold([_member_of(db, row) for row in due[:limit]]):
        earlier = [_member_of(db, row) for row in done if row.folded_at is not None and not _is_named(row)]
        for each in plan_folds(members, earlier):
            _carry_out(db, each)
        return len(members)
    unfolded = [row for row in mine if row.state is SequenceState.DONE and row.folded_at is None and _is_named(row)]
    unfolded.sort(key=lambda row: row.result_version or 0)
    named = bound_named_fold(
        NamedMember(_member_of(db, row), _count_steps(db, row), is_due(row) and _is_active(db, row))
        for row in unfolded[:limit]
    )
    if named:
        earlier = [_member_of(db, row) for row in done if row.folded_at is not None and _is_named(row)]
        _carry_out_named(db, dataset_id, named, plan_folds([each.member for each in named], earlier))
    return len(named)


def _is_told(db: SimDatabase, row: SequenceRow) -> bool:
    return row.announced_at is not None or (row.done_at or 0.0) <= db.now_s - UNREPORTED_S


def _forget(db: SimDatabase, lane_id: LaneId, fence: int, bounds: FoldBounds, limit: int) -> int:
    require_fence(db, lane_id, fence, Guard.FOLD_CHECKS_FENCE)
    old_at = db.now_s - bounds.history_s
    dataset_id = db.lanes[lane_id].dataset_id
    newest = db.lanes[lane_id].version - bounds.keep_remembered
    mine = [row for row in db.sequences.values() if row.lane_id == lane_id and _is_clean(db, row)]
    retired = [
        row
        for row in mine
        if row.state is SequenceState.DONE
        and _is_told(db, row)
        and (row.base_version or 0) < newest
        and (row.done_at or 0.0) <= old_at
        and not _has_active_entry(db, row)
        and (_is_compaction(row) or _has_later(db, row))
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
        if named in db.past_sequences and db.past_sequences[named].lane_id == lane_id:
            db.past_sequences.drop(named)
    for row in aborted:
        if row.digest is not None:
            db.past_sequences.put(row.sequence_id, PastSequenceRow(row.sequence_id, dataset_id, lane_id, row.state))
    for row in (*retired, *aborted):
        _drop(db, row.sequence_id)
    return len(retired) + len(aborted)


def _carry_out(db: SimDatabase, planned: Fold) -> None:
    before = [segment for member in planned.all for segment in _sealed(db, member)]
    joined = _join_segments(db, planned, before)
    if _totals(joined) != _totals(before):
        raise CorruptionError("a fold would have other files than its publications")
    for segment in [s for s in db.segments.values() if s.sequence_id in planned.all]:
        db.segments.drop(segment.segment_id)
    for segment in joined:
        db.segments.put(segment.segment_id, segment)
    _join_the_rest(db, planned)


def _carry_out_named(
    db: SimDatabase, dataset_id: DatasetId, named: Sequence[NamedMember], folds: Sequence[Fold]
) -> None:
    version = named[-1].member.version
    survivors = {member: each.survivor for each in folds for member in each.all}
    of_runs = [
        segment
        for segment in db.segments.values()
        if segment.dataset_id == dataset_id
        and db.sequences[segment.sequence_id].folded_at is not None
        and _is_named(db.sequences[segment.sequence_id])
    ]
    steps: Counter[int] = Counter()
    for segment in of_runs:
        steps[segment.version or 0] += segment.step_count
    runs = [NamedRun(of_run, count) for of_run, count in steps.items()]
    chosen = choose_runs(sum(each.step_count for each in named), runs)
    versions = {run.version for run in chosen}
    new = [segment for each in named for segment in _sealed(db, each.member.sequence_id)]
    old = [segment for segment in of_runs if segment.version in versions]
    new.sort(key=lambda s: (-(db.sequences[s.sequence_id].result_version or 0), s.segment_id))
    old.sort(key=lambda s: (-(s.version or 0), s.segment_id))
    parts = [
        NamedPart(s.sequence_id, survivors.get(s.sequence_id, s.sequence_id), s.partition, s.payload, s.digest)
        for s in (*new, *old)
    ]
    joined = list(fold_names(parts, version=version, keeps_removed=len(chosen) < len(runs)))
    for segment in [s for s in db.segments.values() if s.sequence_id in survivors and not s.sealed]:
        db.segments.drop(segment.segment_id)
    for segment in (*new, *old):
        db.segments.drop(segment.segment_id)
    for number, (segment_id, owner, made) in enumerate(joined):
        db.segments.put(segment_id, _row_of(segment_id, owner, dataset_id, number, made))
    for segment in [s for s in db.segments.values() if s.sequence_id in survivors]:
        db.segments.put(segment.segment_id, replace(segment, sequence_id=survivors[segment.sequence_id]))
    for each in folds:
        _join_the_rest(db, each)
    for owner in {part.owner for part in parts}:
        _seal_again(db, db.sequences[owner])


def _seal_again(db: SimDatabase, row: SequenceRow) -> None:
    digests = [segment.digest for segment in _sealed(db, row.sequence_id)]
    db.sequences.put(row.sequence_id, replace(row, segment_count=len(digests), digest=combine_digests(digests)))


def _join_the_rest(db: SimDatabase, planned: Fold) -> None:
    """All but the segments, which are joined already."""
    survivor = db.sequences[planned.survivor]
    rows = [db.sequences[member] for member in planned.all]
    _join_entries(db, planned)
    _point_to(db, planned)
    _drop_plans(db, planned.all)
    for other in planned.others:
        past = PastSequenceRow(other, survivor.dataset_id, survivor.lane_id, SequenceState.DONE)
        db.past_sequences.put(other, past)
        db.sequences.drop(other)
    summed = replace(
        survivor,
        publication_count=sum(row.publication_count for row in rows),
        details=json_text(shorten_details(json.loads(survivor.details))),
        folded_at=db.now_s,
    )
    if not _is_named(survivor):
        summed = replace(
            summed,
            complete=all(row.complete for row in rows),
            file_count=sum(row.file_count for row in rows),
            row_count=sum(row.row_count for row in rows),
            file_bytes=sum(row.file_bytes for row in rows),
        )
    _seal_again(db, summed)


def _join_segments(db: SimDatabase, planned: Fold, before: Iterable[SegmentRow]) -> list[SegmentRow]:
    small, full = [], []
    for row in before:
        version = row.version or db.sequences[row.sequence_id].result_version or 0
        taken = replace(row, sequence_id=planned.survivor, attempt_id=None, version=version)
        (small if row.file_count < FILES_JOINED_MAX else full).append(taken)
    parts = [FoldSegment(row.segment_id, row.version or 0, segment_of(row)) for row in small]
    dataset_id = db.sequences[planned.survivor].dataset_id
    made = [
        _row_of(segment_id, planned.survivor, dataset_id, number, segment)
        for number, (segment_id, segment) in enumerate(join_segments(planned.survivor, parts))
    ]
    return [*full, *made]


def _row_of(
    segment_id: uuid.UUID, sequence_id: SequenceId, dataset_id: DatasetId, number: int, segment: Segment
) -> SegmentRow:
    return SegmentRow(
        segment_id=segment_id,
        sequence_id=sequence_id,
        attempt_id=None,
        dataset_id=dataset_id,
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


def _count_steps(db: SimDatabase, row: SequenceRow) -> int:
    return sum(segment.step_count for segment in _sealed(db, row.sequence_id))


def _is_named(row: SequenceRow) -> bool:
    return SLOTS_KEEP_DETAIL in json.loads(row.details)


def _has_active_entry(db: SimDatabase, row: SequenceRow) -> bool:
    return any(entry.is_active for entry in db.ledger.values() if entry.sequence_id == row.sequence_id)


def _is_clean(db: SimDatabase, row: SequenceRow) -> bool:
    return all(a.cleaned_at is not None for a in db.attempts.values() if a.sequence_id == row.sequence_id)


def _is_compaction(row: SequenceRow) -> bool:
    return "compaction" in json.loads(row.details)


def _has_later(db: SimDatabase, row: SequenceRow) -> bool:
    """Whether its partition was published again."""
    return any(
        (other.dataset_id, other.partition, other.state) == (row.dataset_id, row.partition, SequenceState.DONE)
        and (other.result_version or 0) > (row.result_version or 0)
        and not _is_compaction(other)
        for other in db.sequences.values()
    )


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
