"""Looking at the simulated log, as ``commit.postgres.reading`` does: sequences, segments, publications."""

import json
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import TypeVar

from gobblin_assets.commit.folding import make_no_op_move
from gobblin_assets.commit.segment import Segment
from gobblin_assets.commit.sequence import (
    COMPACTION,
    SLOTS_KEEP_DETAIL,
    AttemptRecord,
    KeyMove,
    KnownSequence,
    Publication,
    PublishedInterval,
    SealedAttempt,
    SealedSequence,
    SealOrder,
    SequenceRecord,
)
from gobblin_assets.commit.store import LaneView, LogView, StoredSegment
from gobblin_assets.model.interval import Interval
from gobblin_assets.model.sequence_state import RECOVERABLE_STATES, SequenceState
from gobblin_assets.model.state import DatasetId, LaneId, SequenceId
from gobblin_assets.model.urn import JobName, Role
from gobblin_assets.model.watermark import Watermark
from tests.simulation.database import Guard, SimDatabase
from tests.simulation.destination_store import find_binding
from tests.simulation.log_guards import get_sequence, is_live, unexpected_state
from tests.simulation.rows import AttemptRow, SegmentRow, SequenceRow

R = TypeVar("R", AttemptRow, SegmentRow)


class SimCommitLogReader:
    """``CommitLogReader`` over a ``SimDatabase``: each look is at one moment, that of the call."""

    def __init__(self, db: SimDatabase) -> None:
        self._db = db

    def get(self, sequence_id: SequenceId) -> SequenceRecord:
        return _record_of(self._db, get_sequence(self._db, sequence_id))

    def read_segments(self, sequence_id: SequenceId) -> Iterator[StoredSegment]:
        mine = (s for s in self._db.segments.values() if s.sequence_id == sequence_id and s.sealed)
        return iter(_stored(self._db, mine))

    def load_sealed(self, *sequence_ids: SequenceId) -> Sequence[SealedSequence]:
        return [_load_sealed(self._db, sequence_id) for sequence_id in sequence_ids]

    def is_open_and_held(self, sequence_id: SequenceId, *, fence: int) -> bool:
        row = self._db.sequences.get(sequence_id)
        return row is not None and row.state in RECOVERABLE_STATES and self._db.leases[row.lane_id].fence == fence

    def list_attempts(self, sequence_id: SequenceId) -> Sequence[AttemptRecord]:
        found = [attempt for attempt in self._db.attempts.values() if attempt.sequence_id == sequence_id]
        return [attempt_of(self._db, attempt) for attempt in sorted(found, key=lambda a: a.started_at)]

    def find_unfinished(self, *dataset_ids: DatasetId) -> Sequence[SequenceRecord]:
        shown = {SequenceState.BUILDING, *RECOVERABLE_STATES}
        if self._db.holds(Guard.FIND_UNFINISHED_RETURNS_BLOCKED):
            shown.add(SequenceState.BLOCKED)
        rows = [row for row in self._db.sequences.values() if row.dataset_id in dataset_ids and row.state in shown]
        return _oldest_first(self._db, rows)

    def find_known(self, sequence_ids: Sequence[SequenceId]) -> Mapping[SequenceId, KnownSequence]:
        db = self._db
        rows = [db.sequences[sequence_id] for sequence_id in sequence_ids if sequence_id in db.sequences]
        past = [db.past_sequences[sequence_id] for sequence_id in sequence_ids if sequence_id in db.past_sequences]
        known = {row.sequence_id: KnownSequence(row.state, row.digest is not None) for row in rows}
        return known | {row.sequence_id: KnownSequence(row.state, is_sealed=True) for row in past}

    def look_at(self, job: JobName, dataset_ids: Sequence[DatasetId], sequence_ids: Sequence[SequenceId]) -> LogView:
        lanes = [
            LaneView(row.dataset_id, row.number, row.version, self._db.leases[row.lane_id].fence)
            for row in self._db.lanes.values()
            if row.dataset_id in dataset_ids
        ]
        return LogView(self.find_known(sequence_ids), lanes, find_binding(self._db, job))

    def list_lane_ids(self, dataset_id: DatasetId) -> Sequence[LaneId]:
        lanes = [row for row in self._db.lanes.values() if row.dataset_id == dataset_id]
        return [row.lane_id for row in sorted(lanes, key=lambda row: row.number)]

    def find_newest_segment(self, dataset_id: DatasetId) -> StoredSegment | None:
        db = self._db
        found = [
            segment
            for segment in db.segments.values()
            if segment.dataset_id == dataset_id and segment.sealed and segment.retired_by is None and segment.file_count
            if db.sequences[segment.sequence_id].state is SequenceState.DONE
        ]
        found.sort(key=lambda s: (-(db.sequences[s.sequence_id].result_version or 0), s.segment_id))
        return next(iter(_stored(db, found[:1])), None)

    def list_recoverable(self, *, jobs: Sequence[JobName] | None, limit: int) -> Sequence[SequenceRecord]:
        found = _find_recoverable(self._db, jobs)
        rows = sorted(found, key=lambda row: (*_waits_since(self._db, row), row.created_at))
        return [_record_of(self._db, row) for row in rows[:limit]]

    def count_recoverable(self, *, jobs: Sequence[JobName] | None) -> Mapping[JobName, int]:
        return dict(Counter(self._db.datasets[row.dataset_id].job for row in _find_recoverable(self._db, jobs)))

    def list_open(self, job: JobName | None, *, limit: int) -> Sequence[SequenceRecord]:
        rows = [
            row
            for row in self._db.sequences.values()
            if row.state.is_open and (job is None or self._db.datasets[row.dataset_id].job == job)
        ]
        return _oldest_first(self._db, rows)[:limit]

    def list_no_op_moves(self, dataset_id: DatasetId, partition: str) -> Sequence[KeyMove]:
        db = self._db
        place = (dataset_id, partition)
        sequences = {s.sequence_id for s in db.sequences.values() if (s.dataset_id, s.partition) == place}
        entries = [entry for entry in db.ledger.values() if entry.is_active and entry.sequence_id in sequences]
        keys = {entry.key_id: db.keys[entry.key_id] for entry in entries}
        moves = []
        for key in sorted(keys.values(), key=lambda key: (key.name, key.partition)):
            mine = [entry for entry in entries if entry.key_id == key.key_id]
            intervals = [
                PublishedInterval(Interval(entry.low, entry.high), entry.reread_from)
                for entry in mine
                if entry.high is not None
            ]
            is_generation = any(entry.is_generation for entry in mine)
            moves.append(
                make_no_op_move(key.name, key.partition, key.watermark, intervals, is_generation=is_generation)
            )
        return moves

    def load_publications(self, *sequence_ids: SequenceId) -> Sequence[Publication]:
        return [_load_publication(self._db, sequence_id) for sequence_id in sequence_ids]

    def list_unannounced(self, *, job: JobName, limit: int) -> Sequence[Publication]:
        rows = [
            row
            for row in self._db.sequences.values()
            if row.state is SequenceState.DONE
            and row.announced_at is None
            and row.folded_at is None
            and row.done_at is not None
            and self._db.datasets[row.dataset_id].job == job
        ]
        rows.sort(key=lambda row: row.done_at or 0.0)
        return [_load_publication(self._db, row.sequence_id) for row in rows[:limit]]

    def list_latest(self, job: JobName) -> Sequence[SequenceId]:
        latest: dict[tuple[str, str], SequenceRow] = {}
        for row in self._db.sequences.values():
            dataset = self._db.datasets[row.dataset_id]
            if row.state is SequenceState.DONE and dataset.job == job and COMPACTION not in json.loads(row.details):
                before = latest.get((dataset.urn, row.partition))
                if before is None or (before.result_version or 0) < (row.result_version or 0):
                    latest[dataset.urn, row.partition] = row
        return [latest[key].sequence_id for key in sorted(latest)]

    def list_removable(self, *lane_ids: LaneId, grace_s: float, limit: int) -> Sequence[StoredSegment]:
        db = self._db
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
        return _stored(db, first_of_each(oldest, limit, lambda segment: segment.dataset_id))


def where(db: SimDatabase, sequence_id: SequenceId) -> tuple[str, tuple[str, str] | None]:
    """The root that the sequence is at now, and the roots from which and to which it moved."""
    details = json.loads(db.sequences[sequence_id].details)
    moved = details.get("moved")
    return details["root_uri"], None if moved is None else (moved[0], moved[1])


def _stored(db: SimDatabase, segments: Iterable[SegmentRow]) -> list[StoredSegment]:
    return [
        StoredSegment(
            segment.segment_id,
            segment.dataset_id,
            segment.payload,
            segment.digest,
            *where(db, segment.sequence_id),
        )
        for segment in sorted(segments, key=_order)
    ]


def _order(segment: SegmentRow) -> tuple[bool, uuid.UUID, int, uuid.UUID]:
    """Segments of folds, which have no attempts, come last."""
    attempt_id = segment.attempt_id
    return attempt_id is None, attempt_id or uuid.UUID(int=0), segment.number, segment.segment_id


def _find_recoverable(db: SimDatabase, jobs: Sequence[JobName] | None) -> list[SequenceRow]:
    return [
        row
        for row in db.sequences.values()
        if row.state in RECOVERABLE_STATES
        and (_is_due(db, row) or not db.holds(Guard.RECOVERABLE_WAITS_FOR_BACK_OFF))
        and (not _is_held(db, row) or not db.holds(Guard.RECOVERABLE_LEAVES_HELD_ALONE))
        and (jobs is None or db.datasets[row.dataset_id].job in jobs)
    ]


def _waits_since(db: SimDatabase, row: SequenceRow) -> tuple[bool, float]:
    """Sequences that were never tried come first."""
    ended = [at for at in (row.next_try_at, db.leases[row.lane_id].expires_at) if at is not None]
    return (True, max(ended)) if ended else (False, 0.0)


def _load_publication(db: SimDatabase, sequence_id: SequenceId) -> Publication:
    row = get_sequence(db, sequence_id)
    if row.state is not SequenceState.DONE or row.result_version is None:
        raise unexpected_state(sequence_id, row.state, "be shown as published")
    dataset = db.datasets[row.dataset_id]
    roles: Counter[str] = Counter()
    for segment in db.segments.values():
        if segment.sequence_id == sequence_id and segment.sealed:
            roles[segment.role.value] += segment.row_count
    moves = [
        (db.keys[move.key_id].name, move)
        for move in db.moves.values()
        if move.sequence_id == sequence_id and move.touches_key
    ]
    return Publication(
        sequence_id=sequence_id,
        dataset_id=row.dataset_id,
        job=dataset.job,
        urn=dataset.urn,
        partition=row.partition,
        run_id=row.run_id,
        mode=row.mode,
        replaces=row.replaces,
        complete=bool(row.complete),
        version=row.result_version,
        row_count=row.row_count,
        file_count=row.file_count,
        file_bytes=row.file_bytes,
        rows_by_role=dict(roles),
        watermarks={name: (_shown(move.old), _shown(move.new)) for name, move in moves},
        details=json.loads(row.details),
        rows_total=_count_active_rows(db, row),
        lane_version=(row.base_version or 0) + 1,
        lane_number=db.lanes[row.lane_id].number,
    )


def _count_active_rows(db: SimDatabase, of: SequenceRow) -> int:
    """In the partition that the sequence published."""
    return sum(
        segment.row_count
        for segment in db.segments.values()
        if (segment.dataset_id, segment.partition) == (of.dataset_id, of.partition)
        and segment.role is Role.DATA
        and segment.sealed
        and segment.retired_by is None
        and db.sequences[segment.sequence_id].state is SequenceState.DONE
    )


def _record_of(db: SimDatabase, row: SequenceRow) -> SequenceRecord:
    dataset = db.datasets[row.dataset_id]
    details = json.loads(row.details)
    return SequenceRecord(
        sequence_id=row.sequence_id,
        dataset_id=row.dataset_id,
        job=dataset.job,
        urn=dataset.urn,
        run_id=row.run_id,
        partition=row.partition,
        mode=row.mode,
        replaces=row.replaces,
        fence=row.fence,
        state=row.state,
        root_uri=details["root_uri"],
        base_version=row.base_version,
        digest=row.digest,
        failed_tries=row.failed_tries,
        last_error=row.last_error,
        details=details,
        lane_id=row.lane_id,
        lane_number=db.lanes[row.lane_id].number,
    )


def _oldest_first(db: SimDatabase, rows: list[SequenceRow]) -> list[SequenceRecord]:
    return [_record_of(db, row) for row in sorted(rows, key=lambda row: row.created_at)]


def _is_due(db: SimDatabase, row: SequenceRow) -> bool:
    return row.next_try_at is None or row.next_try_at <= db.now_s


def _is_held(db: SimDatabase, row: SequenceRow) -> bool:
    own, whole = db.leases[row.lane_id], db.leases[row.dataset_id]
    return is_live(db, own) or (whole.is_whole and is_live(db, whole))


def _shown(watermark: Watermark | None) -> str | None:
    return None if watermark is None else str(watermark)


def first_of_each(rows: Iterable[R], limit: int, lane_of: Callable[[R], LaneId]) -> list[R]:
    """Up to ``limit`` rows of each lane."""
    taken: Counter[LaneId] = Counter()
    first = []
    for row in rows:
        if taken[lane_of(row)] < limit:
            taken[lane_of(row)] += 1
            first.append(row)
    return first


def attempt_of(db: SimDatabase, attempt: AttemptRow) -> AttemptRecord:
    return AttemptRecord(
        attempt_id=attempt.attempt_id,
        sequence_id=attempt.sequence_id,
        lane_id=attempt.lane_id,
        staging_path=attempt.staging_path,
        sequence_state=db.sequences[attempt.sequence_id].state,
        cleanup_fences=attempt.cleanup_fences,
        interruption=attempt.interruption,
        is_at_given_names=slots_keep_s(db, attempt) is not None,
    )


def slots_keep_s(db: SimDatabase, attempt: AttemptRow) -> float | None:
    found = json.loads(db.sequences[attempt.sequence_id].details).get(SLOTS_KEEP_DETAIL)
    return None if found is None else float(found)


def _load_sealed(db: SimDatabase, sequence_id: SequenceId) -> SealedSequence:
    row = get_sequence(db, sequence_id)
    if row.digest is None or row.base_version is None:
        raise unexpected_state(sequence_id, row.state, "be read as sealed")
    dataset = db.datasets[row.dataset_id]
    attempts = _attempts_of(db, sequence_id)
    moves = [
        KeyMove(db.keys[move.key_id].name, db.keys[move.key_id].partition, move.old, move.new, move.intervals)
        for move in db.moves.values()
        if move.sequence_id == sequence_id
    ]
    return SealedSequence(
        job=dataset.job,
        urn=dataset.urn,
        mode=row.mode,
        replaces=row.replaces,
        attempts=attempts,
        destination=db.destinations[dataset.job].identity if dataset.job in db.destinations else None,
        lane_number=db.lanes[row.lane_id].number,
        order=SealOrder(
            sequence_id=sequence_id,
            dataset_id=row.dataset_id,
            partition=row.partition,
            fence=row.fence,
            base_version=row.base_version,
            winners=tuple(attempt.attempt_id for attempt in attempts),
            digest=row.digest,
            segment_count=row.segment_count,
            row_count=row.row_count,
            moves=tuple(sorted(moves, key=lambda move: (move.key, move.partition))),
            complete=bool(row.complete),
            details=json.loads(row.details),
            lane=row.lane_id if db.lanes[row.lane_id].number else None,
        ),
    )


def _attempts_of(db: SimDatabase, sequence_id: SequenceId) -> tuple[SealedAttempt, ...]:
    sealed = [
        (db.attempts[s.attempt_id], s)
        for s in db.segments.values()
        if s.sequence_id == sequence_id and s.sealed and s.attempt_id is not None
    ]
    sealed.sort(key=lambda pair: (pair[0].multi_work_unit, pair[0].attempt_id, pair[1].number))
    attempts = []
    for _attempt_id, group in groupby(sealed, key=lambda pair: pair[0].attempt_id):
        found = list(group)
        attempt, _first = found[0]
        attempts.append(
            SealedAttempt(
                attempt_id=attempt.attempt_id,
                multi_work_unit=attempt.multi_work_unit,
                try_number=attempt.try_number,
                staging_path=attempt.staging_path,
                segments=tuple(segment_of(segment) for _attempt, segment in found),
                segment_ids=tuple(segment.segment_id for _attempt, segment in found),
            )
        )
    return tuple(attempts)


def segment_of(segment: SegmentRow) -> Segment:
    return Segment(
        role=segment.role,
        partition=segment.partition,
        payload=segment.payload,
        digest=segment.digest,
        step_count=segment.step_count,
        file_count=segment.file_count,
        row_count=segment.row_count,
        file_bytes=segment.file_bytes,
        file_schema=None if segment.file_schema is None else json.loads(segment.file_schema),
        version=segment.version,
    )
