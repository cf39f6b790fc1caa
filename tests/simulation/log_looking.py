"""Reading the simulated log, as ``commit.postgres.looking`` does: sequences, segments, publications."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence

from gobblin_assets.commit.machine import SequenceState
from gobblin_assets.commit.sequence import Publication, SequenceRecord
from gobblin_assets.commit.store import StoredSegment
from gobblin_assets.model.state import DatasetId, SequenceId
from gobblin_assets.model.urn import JobName, Role
from gobblin_assets.model.watermark import Watermark
from tests.simulation.database import Guard, SimDatabase
from tests.simulation.log_guards import get_sequence, unexpected_state
from tests.simulation.rows import SegmentRow, SequenceRow

_RECOVERABLE = (SequenceState.PREPARED, SequenceState.ABANDONING)


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
            json.loads(db.sequences[segment.sequence_id].details)["root_uri"],
        )
        for segment in sorted(segments, key=lambda s: (s.attempt_id, s.number))
    ]


def is_open_and_held(db: SimDatabase, sequence_id: SequenceId, fence: int) -> bool:
    row = db.sequences.get(sequence_id)
    return row is not None and row.state in _RECOVERABLE and db.leases[row.dataset_id].fence == fence


def find_unfinished(db: SimDatabase, dataset_ids: Sequence[DatasetId]) -> list[SequenceRecord]:
    shown = {SequenceState.BUILDING, *_RECOVERABLE}
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
        if row.state in _RECOVERABLE
        and (_is_due(db, row) or not db.holds(Guard.RECOVERABLE_WAITS_FOR_BACK_OFF))
        and (not _is_held(db, row) or not db.holds(Guard.RECOVERABLE_LEAVES_HELD_ALONE))
        and (jobs is None or db.datasets[row.dataset_id].job in jobs)
    ]


def _waits_since(db: SimDatabase, row: SequenceRow) -> tuple[bool, float]:
    """What was never tried comes first."""
    ended = [at for at in (row.next_try_at, db.leases[row.dataset_id].expires_at) if at is not None]
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
    )


def _count_active_rows(db: SimDatabase, of: SequenceRow) -> int:
    """Of the partition that the sequence published."""
    return sum(
        segment.row_count
        for segment in db.segments.values()
        if (segment.dataset_id, segment.partition) == (of.dataset_id, of.partition)
        and segment.role is Role.DATA
        and segment.sealed
        and segment.retired_by is None
        and db.sequences[segment.sequence_id].state is SequenceState.DONE
    )


def list_unannounced(db: SimDatabase, job: JobName, limit: int) -> list[Publication]:
    rows = [
        row
        for row in db.sequences.values()
        if row.state is SequenceState.DONE
        and row.announced_at is None
        and row.done_at is not None
        and db.datasets[row.dataset_id].job == job
    ]
    rows.sort(key=lambda row: row.done_at or 0.0)
    return [load_publication(db, row.sequence_id) for row in rows[:limit]]


def list_latest(db: SimDatabase, job: JobName) -> list[SequenceId]:
    latest: dict[tuple[str, str], SequenceRow] = {}
    for row in db.sequences.values():
        dataset = db.datasets[row.dataset_id]
        if row.state is SequenceState.DONE and dataset.job == job:
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
    )


def _oldest_first(db: SimDatabase, rows: list[SequenceRow]) -> list[SequenceRecord]:
    return [record_of(db, row) for row in sorted(rows, key=lambda row: row.created_at)]


def _is_due(db: SimDatabase, row: SequenceRow) -> bool:
    return row.next_try_at is None or row.next_try_at <= db.now_s


def _is_held(db: SimDatabase, row: SequenceRow) -> bool:
    expires_at = db.leases[row.dataset_id].expires_at
    return expires_at is not None and expires_at > db.now_s


def _shown(watermark: Watermark | None) -> str | None:
    return None if watermark is None else str(watermark)
