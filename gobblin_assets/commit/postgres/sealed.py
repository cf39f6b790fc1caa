"""Reads sealed sequences, for their markers on storage."""

import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Row, text

from gobblin_assets.commit.postgres.guards import unexpected_state, unknown_sequence
from gobblin_assets.commit.segment import Segment
from gobblin_assets.commit.sequence import (
    KeyMove,
    KnownSequence,
    PublishedInterval,
    SealedAttempt,
    SealedSequence,
    SealOrder,
)
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.interval import Interval
from gobblin_assets.model.sequence_state import SequenceState
from gobblin_assets.model.state import AttemptId, DatasetId, LaneId, SequenceId
from gobblin_assets.model.urn import DatasetUrn, JobName, Role
from gobblin_assets.model.watermark import Watermark, parse_watermark

_SEALED = text("""
    SELECT s.sequence_id, s.dataset_id, d.job, d.urn, s.partition, s.mode, s.replaces, s.fence, s.state,
           s.base_version, s.digest, s.segment_count, s.row_count, s.complete, s.details, b.identity, s.lane_id,
           n.number AS lane_number
      FROM gobblin.commit_sequence s JOIN gobblin.dataset d USING (dataset_id)
      JOIN gobblin.lane n USING (lane_id)
      LEFT JOIN gobblin.destination b ON b.job = d.job
     WHERE s.sequence_id = ANY (CAST(:sequence_ids AS uuid[]))
""")

_MOVES = text("""
    SELECT m.sequence_id, m.key_id, k.name, k.partition, m.old_watermark, m.new_watermark
      FROM gobblin.planned_move m JOIN gobblin.watermark_key k USING (key_id)
     WHERE m.sequence_id = ANY (CAST(:sequence_ids AS uuid[]))
     ORDER BY k.name, k.partition
""")

_INTERVALS = text("""
    SELECT sequence_id, key_id, low, high, reread_from FROM gobblin.planned_interval
     WHERE sequence_id = ANY (CAST(:sequence_ids AS uuid[]))
     ORDER BY key_id, low_bytes
""")

_SEGMENTS = text("""
    SELECT g.sequence_id, a.attempt_id, a.multi_work_unit, a.try_number, a.staging_path, g.segment_id, g.role,
           g.partition, g.payload, g.digest, g.step_count, g.file_count, g.row_count, g.file_bytes, g.file_schema,
           g.version
      FROM gobblin.segment g JOIN gobblin.attempt a USING (attempt_id)
     WHERE g.sequence_id = ANY (CAST(:sequence_ids AS uuid[])) AND g.sealed
     ORDER BY a.multi_work_unit, a.attempt_id, g.number
""")

# Of sequences whose rows are gone, only sealed ones are kept.
_KNOWN = text("""
    SELECT sequence_id, state, digest IS NOT NULL AS is_sealed FROM gobblin.commit_sequence
     WHERE sequence_id = ANY (CAST(:sequence_ids AS uuid[]))
     UNION ALL
    SELECT sequence_id, state, true FROM gobblin.past_sequence
     WHERE sequence_id = ANY (CAST(:sequence_ids AS uuid[]))
""")


def load_sealed(connection: Connection, sequence_ids: Sequence[SequenceId]) -> list[SealedSequence]:
    ids = {"sequence_ids": list(sequence_ids)}
    rows = {row.sequence_id: row for row in connection.execute(_SEALED, ids)}
    for sequence_id in sequence_ids:
        if sequence_id not in rows:
            raise unknown_sequence(sequence_id)
        if rows[sequence_id].digest is None:
            raise unexpected_state(sequence_id, rows[sequence_id].state, "be read as sealed")
    segments: dict[uuid.UUID, list[Row[Any]]] = defaultdict(list)
    for row in connection.execute(_SEGMENTS, ids):
        segments[row.sequence_id].append(row)
    moves = _load_moves(connection, ids)
    return [_sealed_of(each, rows[each], _attempts_of(segments[each]), tuple(moves[each])) for each in sequence_ids]


def _sealed_of(
    sequence_id: SequenceId, row: Row[Any], attempts: tuple[SealedAttempt, ...], moves: tuple[KeyMove, ...]
) -> SealedSequence:
    return SealedSequence(
        job=JobName(row.job),
        urn=DatasetUrn(row.urn),
        mode=Mode(row.mode),
        replaces=row.replaces,
        attempts=attempts,
        destination=row.identity,
        lane_number=row.lane_number,
        order=SealOrder(
            sequence_id=sequence_id,
            dataset_id=DatasetId(row.dataset_id),
            partition=row.partition,
            fence=row.fence,
            base_version=row.base_version,
            winners=tuple(attempt.attempt_id for attempt in attempts),
            digest=bytes(row.digest),
            segment_count=row.segment_count,
            row_count=row.row_count,
            moves=moves,
            complete=row.complete,
            details=row.details,
            lane=LaneId(row.lane_id) if row.lane_number else None,
        ),
    )


def _load_moves(connection: Connection, ids: Mapping[str, object]) -> dict[uuid.UUID, list[KeyMove]]:
    intervals: dict[tuple[uuid.UUID, int], list[PublishedInterval]] = defaultdict(list)
    for row in connection.execute(_INTERVALS, ids):
        interval = Interval(_watermark(row.low), parse_watermark(row.high))
        intervals[row.sequence_id, row.key_id].append(PublishedInterval(interval, _watermark(row.reread_from)))
    moves: dict[uuid.UUID, list[KeyMove]] = defaultdict(list)
    for row in connection.execute(_MOVES, ids):
        moves[row.sequence_id].append(
            KeyMove(
                key=row.name,
                partition=row.partition,
                old=_watermark(row.old_watermark),
                new=_watermark(row.new_watermark),
                intervals=tuple(intervals[row.sequence_id, row.key_id]),
            )
        )
    return moves


def find_known(connection: Connection, sequence_ids: Sequence[SequenceId]) -> dict[SequenceId, KnownSequence]:
    rows = connection.execute(_KNOWN, {"sequence_ids": list(sequence_ids)})
    return {SequenceId(row.sequence_id): KnownSequence(SequenceState(row.state), row.is_sealed) for row in rows}


def _attempts_of(rows: Sequence[Row[Any]]) -> tuple[SealedAttempt, ...]:
    grouped: dict[AttemptId, list[Row[Any]]] = defaultdict(list)
    for row in rows:
        grouped[AttemptId(row.attempt_id)].append(row)
    return tuple(
        SealedAttempt(
            attempt_id=attempt_id,
            multi_work_unit=found[0].multi_work_unit,
            try_number=found[0].try_number,
            staging_path=found[0].staging_path,
            segments=tuple(segment_of(row) for row in found),
            segment_ids=tuple(row.segment_id for row in found),
        )
        for attempt_id, found in grouped.items()
    )


def segment_of(row: Row[Any]) -> Segment:
    return Segment(
        role=Role(row.role),
        partition=row.partition,
        payload=bytes(row.payload),
        digest=bytes(row.digest),
        step_count=row.step_count,
        file_count=row.file_count,
        row_count=row.row_count,
        file_bytes=row.file_bytes,
        file_schema=row.file_schema,
        version=row.version,
    )


def _watermark(stored: Mapping[str, object] | None) -> Watermark | None:
    return None if stored is None else parse_watermark(stored)
