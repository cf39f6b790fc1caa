"""Reading the simulated log, as ``commit.postgres.queries`` does: sequences, segments, publications."""

import json
import uuid
from collections import Counter
from collections.abc import Iterable, Sequence

from gobblin_assets.commit.folding import stand
from gobblin_assets.commit.sequence import COMPACTION, KeyMove, Publication, PublishedInterval, SequenceRecord
from gobblin_assets.commit.store import LaneView, LogView, StoredSegment
from gobblin_assets.model.interval import Interval
from gobblin_assets.model.sequence_state import RECOVERABLE_STATES, SequenceState
from gobblin_assets.model.state import DatasetId, LaneId, SequenceId
from gobblin_assets.model.urn import JobName, Role
from gobblin_assets.model.watermark import Watermark
from tests.simulation.database import Guard, SimDatabase
from tests.simulation.destination_store import find_binding
from tests.simulation.log_guards import get_sequence, is_live, unexpected_state
from tests.simulation.log_sealed import find_known
from tests.simulation.rows import SegmentRow, SequenceRow


def get(db: SimDatabase, sequence_id: SequenceId) -> SequenceRecord:
    return record_of(db, get_sequence(db, sequence_id))


def read_segments(db: SimDatabase, sequence_id: SequenceId) -> list[StoredSegment]:
    return stored(db, (s for s in db.segments.values() if s.sequence_id == sequence_id and s.sealed))


def stored(db: SimDatabase, segments: Iterable[SegmentRow]) -> list[StoredSegment]:
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


def where(db: SimDatabase, sequence_id: SequenceId) -> tuple[str, tuple[str, str] | None]:
    """The root that the sequence is at now, and the roots from which and to which it moved."""
    details = json.loads(db.sequences[sequence_id].details)
    moved = details.get("moved")
    return details["root_uri"], None if moved is None else (moved[0], moved[1])


def find_newest_segment(db: SimDatabase, dataset_id: DatasetId) -> StoredSegment | None:
    found = [
        segment
        for segment in db.segments.values()
        if segment.dataset_id == dataset_id and segment.sealed and segment.retired_by is None and segment.file_count
        if db.sequences[segment.sequence_id].state is SequenceState.DONE
    ]
    found.sort(key=lambda s: (-(db.sequences[s.sequence_id].result_version or 0), s.segment_id))
    return next(iter(stored(db, found[:1])), None)


def look_at(
    db: SimDatabase, job: JobName, dataset_ids: Sequence[DatasetId], sequence_ids: Sequence[SequenceId]
) -> LogView:
    lanes = [
        LaneView(row.dataset_id, row.number, row.version, db.leases[row.lane_id].fence)
        for row in db.lanes.values()
        if row.dataset_id in dataset_ids
    ]
    return LogView(find_known(db, sequence_ids), lanes, find_binding(db, job))


def list_lane_ids(db: SimDatabase, dataset_id: DatasetId) -> list[LaneId]:
    lanes = [row for row in db.lanes.values() if row.dataset_id == dataset_id]
    return [row.lane_id for row in sorted(lanes, key=lambda row: row.number)]


def _order(segment: SegmentRow) -> tuple[bool, uuid.UUID, int, uuid.UUID]:
    """Segments of folds, which have no attempts, come last."""
    attempt_id = segment.attempt_id
    return attempt_id is None, attempt_id or uuid.UUID(int=0), segment.number, segment.segment_id


def is_open_and_held(db: SimDatabase, sequence_id: SequenceId, fence: int) -> bool:
    row = db.sequences.get(sequence_id)
    return row is not None and row.state in RECOVERABLE_STATES and db.leases[row.lane_id].fence == fence


def find_unfinished(db: SimDatabase, dataset_ids: Sequence[DatasetId]) -> list[SequenceRecord]:
    shown = {SequenceState.BUILDING, *RECOVERABLE_STATES}
    if db.holds(Guard.FIND_UNFINISHED_RETURNS_BLOCKED):
        shown.add(SequenceState.BLOCKED)
    rows = [row for row in db.sequences.values() if row.dataset_id in dataset_ids and row.state in shown]
    return _oldest_first(db, rows)


def list_recoverable(db: SimDatabase, jobs: Sequence[JobName] | None, limit: int) -> list[SequenceRecord]:
    rows = sorted(_find_recoverable(db, jobs), key=lambda row: (*_waits_since(db, row), row.created_at))
    return [record_of(db, row) for row in rows[:limit]]


def count_recoverable(db: SimDatabase, jobs: Sequence[JobName] | None) -> dict[JobName, int]:
    return dict(Counter(db.datasets[row.dataset_id].job for row in _find_recoverable(db, jobs)))


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


def list_open(db: SimDatabase, job: JobName | None, limit: int) -> list[SequenceRecord]:
    rows = [
        row
        for row in db.sequences.values()
        if row.state.is_open and (job is None or db.datasets[row.dataset_id].job == job)
    ]
    return _oldest_first(db, rows)[:limit]


def load_publication(db: SimDatabase, sequence_id: SequenceId) -> Publication:
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


def list_standing_moves(db: SimDatabase, dataset_id: DatasetId, partition: str) -> list[KeyMove]:
    sequences = {s.sequence_id for s in db.sequences.values() if (s.dataset_id, s.partition) == (dataset_id, partition)}
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
        moves.append(stand(key.name, key.partition, key.watermark, intervals, is_generation=is_generation))
    return moves


def list_unannounced(db: SimDatabase, job: JobName, limit: int) -> list[Publication]:
    rows = [
        row
        for row in db.sequences.values()
        if row.state is SequenceState.DONE
        and row.announced_at is None
        and row.folded_at is None
        and row.done_at is not None
        and db.datasets[row.dataset_id].job == job
    ]
    rows.sort(key=lambda row: row.done_at or 0.0)
    return [load_publication(db, row.sequence_id) for row in rows[:limit]]


def list_latest(db: SimDatabase, job: JobName) -> list[SequenceId]:
    latest: dict[tuple[str, str], SequenceRow] = {}
    for row in db.sequences.values():
        dataset = db.datasets[row.dataset_id]
        if row.state is SequenceState.DONE and dataset.job == job and COMPACTION not in json.loads(row.details):
            before = latest.get((dataset.urn, row.partition))
            if before is None or (before.result_version or 0) < (row.result_version or 0):
                latest[dataset.urn, row.partition] = row
    return [latest[key].sequence_id for key in sorted(latest)]


def record_of(db: SimDatabase, row: SequenceRow) -> SequenceRecord:
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
    return [record_of(db, row) for row in sorted(rows, key=lambda row: row.created_at)]


def _is_due(db: SimDatabase, row: SequenceRow) -> bool:
    return row.next_try_at is None or row.next_try_at <= db.now_s


def _is_held(db: SimDatabase, row: SequenceRow) -> bool:
    own, whole = db.leases[row.lane_id], db.leases[row.dataset_id]
    return is_live(db, own) or (whole.is_whole and is_live(db, whole))


def _shown(watermark: Watermark | None) -> str | None:
    return None if watermark is None else str(watermark)
