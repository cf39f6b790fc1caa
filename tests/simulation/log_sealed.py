"""Reading the decisions of seals, like ``commit.postgres.sealed``."""

import json
from collections.abc import Sequence
from itertools import groupby

from gobblin_assets.commit.segment import Segment
from gobblin_assets.commit.sequence import KeyMove, KnownSequence, SealedAttempt, SealedSequence, SealOrder
from gobblin_assets.model.state import SequenceId
from tests.simulation.database import SimDatabase
from tests.simulation.log_guards import get_sequence, unexpected_state
from tests.simulation.rows import SegmentRow


def load_sealed(db: SimDatabase, sequence_id: SequenceId) -> SealedSequence:
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


def find_known(db: SimDatabase, sequence_ids: Sequence[SequenceId]) -> dict[SequenceId, KnownSequence]:
    rows = [db.sequences[sequence_id] for sequence_id in sequence_ids if sequence_id in db.sequences]
    past = [db.past_sequences[sequence_id] for sequence_id in sequence_ids if sequence_id in db.past_sequences]
    known = {row.sequence_id: KnownSequence(row.state, row.digest is not None) for row in rows}
    return known | {row.sequence_id: KnownSequence(row.state, is_sealed=True) for row in past}


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
