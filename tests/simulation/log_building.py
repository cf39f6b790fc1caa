"""From the first row of a sequence to its seal, like ``building`` and ``sealing`` of ``commit.postgres``."""

import json
from collections.abc import Mapping
from dataclasses import replace

from gobblin_assets.commit.segment import combine_digests
from gobblin_assets.commit.sequence import KeyMove, NewAttempt, NewSequence, SealOrder, StagedAttempt
from gobblin_assets.errors import ConflictError, CorruptionError
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.sequence_state import SequenceState
from gobblin_assets.model.state import AttemptId, DatasetId, KeyId, SequenceId, WorkingState
from gobblin_assets.model.work_unit import WorkUnit
from tests.simulation.database import ConstraintError, Guard, SimDatabase, json_text
from tests.simulation.log_guards import (
    contradiction,
    encoded,
    get_sequence,
    require_building,
    require_fence,
    unexpected_state,
)
from tests.simulation.rows import AttemptRow, KeyRow, MoveRow, SegmentRow, SequenceRow, WorkUnitRow


class SimSequenceBuilder:
    """``SequenceBuilder`` over a ``SimDatabase``."""

    def __init__(self, db: SimDatabase) -> None:
        self._db = db

    def begin(self, *sequences: NewSequence) -> None:
        with self._db.transaction() as db:
            for sequence in sequences:
                _begin(db, sequence)

    def continue_building(self, sequence_id: SequenceId, *, fence: int) -> None:
        with self._db.transaction() as db:
            row = get_sequence(db, sequence_id)
            require_fence(db, row.lane_id, fence, Guard.CONTINUE_CHECKS_FENCE)
            if row.state is not SequenceState.BUILDING and db.holds(Guard.CONTINUE_CHECKS_BUILDING):
                raise unexpected_state(sequence_id, row.state, "be built on")
            db.sequences.put(sequence_id, replace(row, fence=fence))

    def register_attempt(self, *attempts: NewAttempt) -> None:
        with self._db.transaction() as db:
            for attempt in attempts:
                _register_attempt(db, attempt)

    def fail_attempt(self, *attempt_ids: AttemptId, error: str, cancelled: bool) -> None:
        with self._db.transaction() as db:
            for attempt_id in attempt_ids:
                _fail_attempt(db, attempt_id, error, cancelled=cancelled)

    def stage(self, *staged: StagedAttempt) -> None:
        with self._db.transaction() as db:
            for each in staged:
                _stage(db, each)


class SimSequenceSealer(SimSequenceBuilder):
    """``SequenceSealer`` over a ``SimDatabase``."""

    def seal(self, *orders: SealOrder) -> None:
        with self._db.transaction() as db:
            for order in orders:
                _seal(db, order)


def _begin(db: SimDatabase, new: NewSequence) -> None:
    require_fence(db, new.lane_id, new.fence, Guard.BEGIN_CHECKS_FENCE)
    if new.mode is Mode.AUTO:
        raise ConstraintError(f"the mode of {new.sequence_id} is undecided")
    if new.run_id not in db.runs or new.dataset_id not in db.datasets:
        raise ConflictError(f"the run or dataset of {new.sequence_id} is not in the log")
    if new.sequence_id not in db.sequences:
        row = SequenceRow(
            sequence_id=new.sequence_id,
            dataset_id=new.dataset_id,
            lane_id=new.lane_id,
            run_id=new.run_id,
            partition=new.partition,
            mode=new.mode,
            replaces=new.replaces,
            fence=new.fence,
            details=json_text(new.details()),
            created_at=db.now_s,
        )
        db.sequences.put(new.sequence_id, row)
    for multi_work_unit, unit in new.work_units:
        if unit.id not in db.work_units:
            db.work_units.put(unit.id, _work_unit_row(new.sequence_id, multi_work_unit, unit))


def _register_attempt(db: SimDatabase, new: NewAttempt) -> None:
    guard = Guard.REGISTER_CHECKS_SEQUENCE
    require_building(db, new.sequence_id, new.fence, state_guard=guard, fence_guard=guard)
    if new.attempt_id in db.attempts:
        return
    if any(attempt.staging_path == new.staging_path for attempt in db.attempts.values()):
        raise ConstraintError(f"{new.staging_path} belongs to another attempt")
    row = AttemptRow(
        attempt_id=new.attempt_id,
        sequence_id=new.sequence_id,
        dataset_id=new.dataset_id,
        lane_id=new.lane_id,
        fence=new.fence,
        multi_work_unit=new.multi_work_unit,
        try_number=new.try_number,
        staging_path=new.staging_path,
        tag=new.tag,
        interruption=new.interruption,
        started_at=db.now_s,
    )
    db.attempts.put(new.attempt_id, row)


def _fail_attempt(db: SimDatabase, attempt_id: AttemptId, error: str, *, cancelled: bool) -> None:
    attempt = db.attempts.get(attempt_id)
    if attempt is None or attempt.state == "STAGED":
        return
    state = WorkingState.CANCELLED if cancelled else WorkingState.FAILED
    if attempt.state == "RUNNING" or (attempt.state == "CANCELLED" and attempt.ended_at is None):
        db.attempts.put(attempt_id, replace(attempt, state=state.value, error=error, ended_at=db.now_s))
    for unit in list(db.work_units.values()):
        if unit.sequence_id == attempt.sequence_id and unit.multi_work_unit == attempt.multi_work_unit:
            db.work_units.put(unit.work_unit_id, replace(unit, state=state))


def _stage(db: SimDatabase, staged: StagedAttempt) -> None:
    require_building(
        db,
        staged.sequence_id,
        staged.fence,
        state_guard=Guard.STAGE_CHECKS_BUILDING,
        fence_guard=Guard.STAGE_CHECKS_FENCE,
    )
    attempt = db.attempts.get(staged.attempt_id)
    if attempt is None or attempt.sequence_id != staged.sequence_id:
        raise ConstraintError(f"attempt {staged.attempt_id} was never registered")
    if attempt.state == "STAGED" and db.holds(Guard.STAGE_KNOWS_ITS_OWN):
        return
    if attempt.state in ("FAILED", "CANCELLED") and db.holds(Guard.STAGE_CHECKS_RUNNING):
        raise ConflictError(f"attempt {staged.attempt_id} is {attempt.state} and can't be staged")
    if db.holds(Guard.ONE_WINNER_PER_WORK_UNIT) and any(_same_work(attempt, other) for other in db.attempts.values()):
        raise ConflictError(f"another attempt at the work of {staged.attempt_id} is staged already")
    db.attempts.put(attempt.attempt_id, replace(attempt, state="STAGED", ended_at=db.now_s))
    _add_segments(db, staged, attempt.dataset_id)
    for unit_id, high in staged.actual_highs.items():
        unit = db.work_units.get(unit_id)
        if unit is not None:
            db.work_units.put(unit_id, replace(unit, state=WorkingState.SUCCESSFUL, actual_high=high))


def _same_work(mine: AttemptRow, other: AttemptRow) -> bool:
    return (
        other.state == "STAGED"
        and other.attempt_id != mine.attempt_id
        and (other.sequence_id, other.multi_work_unit) == (mine.sequence_id, mine.multi_work_unit)
    )


def _add_segments(db: SimDatabase, staged: StagedAttempt, dataset_id: DatasetId) -> None:
    for number, (segment_id, segment) in enumerate(zip(staged.segment_ids, staged.segments, strict=True)):
        if segment_id in db.segments:
            raise ConstraintError(f"segment {segment_id} is stored already")
        row = SegmentRow(
            segment_id=segment_id,
            sequence_id=staged.sequence_id,
            attempt_id=staged.attempt_id,
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
        )
        db.segments.put(segment_id, row)


def _seal(db: SimDatabase, order: SealOrder) -> None:
    require_fence(db, order.lane_id, order.fence, Guard.SEAL_CHECKS_FENCE)
    row = get_sequence(db, order.sequence_id)
    own_work = row.state is SequenceState.PREPARED and row.digest == order.digest
    if own_work and db.holds(Guard.SEAL_KNOWS_ITS_OWN):
        return
    if row.state is not SequenceState.BUILDING and db.holds(Guard.SEAL_CHECKS_BUILDING):
        raise unexpected_state(order.sequence_id, row.state, "be sealed")
    version = db.lanes[order.lane_id].version
    if version != order.base_version and db.holds(Guard.SEAL_CHECKS_VERSION):
        raise ConflictError(f"the dataset is at version {version}, but this run was planned on {order.base_version}")
    segments = _seal_segments(db, order)
    keys = _make_keys(db, order)
    for move in order.moves:
        _plan_move(db, order, keys[move.key, move.partition], move)
    _require_closed_elsewhere(db, row)
    if row.fence != order.fence and db.holds(Guard.SEAL_CHECKS_SEQUENCE_FENCE):
        raise contradiction("the seal", order.sequence_id)
    if db.holds(Guard.ONE_OPEN_SEQUENCE) and any(
        other.lane_id == row.lane_id and other.state.is_open and other.sequence_id != row.sequence_id
        for other in db.sequences.values()
    ):
        raise ConflictError("another sequence of this lane is still open", sequence_id=str(order.sequence_id))
    sealed = replace(
        row,
        state=SequenceState.PREPARED,
        base_version=order.base_version,
        digest=order.digest,
        complete=order.complete,
        details=json_text(_merged(row.details, order.details)),
        segment_count=len(segments),
        file_count=sum(segment.file_count for segment in segments),
        row_count=sum(segment.row_count for segment in segments),
        file_bytes=sum(segment.file_bytes for segment in segments),
    )
    db.sequences.put(order.sequence_id, sealed)


def _seal_segments(db: SimDatabase, order: SealOrder) -> list[SegmentRow]:
    winners = set(order.winners)
    staged = sum(
        attempt.state == "STAGED" and attempt.sequence_id == order.sequence_id and attempt.attempt_id in winners
        for attempt in db.attempts.values()
    )
    checks_winners = db.holds(Guard.SEAL_CHECKS_WINNERS)
    if staged != len(order.winners) and checks_winners:
        raise ConflictError(f"{staged} of {len(order.winners)} winning attempts are staged")
    segments = [
        segment
        for segment in db.segments.values()
        if segment.sequence_id == order.sequence_id
        and segment.attempt_id in winners
        and (db.attempts[segment.attempt_id].state == "STAGED" or not checks_winners)
    ]
    row_count = sum(segment.row_count for segment in segments)
    found = (len(segments), row_count, combine_digests(segment.digest for segment in segments))
    expected = (order.segment_count, order.row_count, order.digest)
    if found != expected and db.holds(Guard.SEAL_CHECKS_DIGEST):
        raise CorruptionError("the staged segments are not those that this run wrote")
    for segment in segments:
        db.segments.put(segment.segment_id, replace(segment, sealed=True))
    return segments


def _make_keys(db: SimDatabase, order: SealOrder) -> Mapping[tuple[str, str], KeyId]:
    keys = {(key.name, key.partition): key.key_id for key in db.keys.values() if key.dataset_id == order.dataset_id}
    for move in order.moves:
        if (move.key, move.partition) not in keys:
            key_id = keys[move.key, move.partition] = KeyId(len(db.keys) + 1)
            db.keys.put(key_id, KeyRow(key_id, order.dataset_id, move.key, move.partition, order.lane_id))
    return keys


def _plan_move(db: SimDatabase, order: SealOrder, key_id: KeyId, move: KeyMove) -> None:
    sequence_id, key = order.sequence_id, db.keys[key_id]
    if (sequence_id, key_id) in db.moves:
        raise ConflictError(f"two moves of the key {move.key!r}", sequence_id=str(sequence_id))
    planned = MoveRow(sequence_id, key_id, move.old, move.new, move.intervals)
    holds_all = order.lane_id == order.dataset_id and db.leases[order.lane_id].is_whole
    if key.lane_id != order.lane_id and not holds_all and db.holds(Guard.SEAL_CHECKS_LANE):
        raise ConflictError(f"the key {move.key!r} belongs to another lane", sequence_id=str(sequence_id))
    moved = planned.touches_key and encoded(key.watermark) != encoded(move.old)
    if moved and db.holds(Guard.SEAL_COMPARES_WATERMARKS):
        raise ConflictError(
            f"the watermark of {move.key!r} is not where this sequence started from", sequence_id=str(sequence_id)
        )
    db.moves.put((sequence_id, key_id), planned)


def _require_closed_elsewhere(db: SimDatabase, row: SequenceRow) -> None:
    for other in db.sequences.values():
        if other.dataset_id != row.dataset_id or other.lane_id == row.lane_id or not other.state.is_open:
            continue
        own, theirs = (
            {move.key_id for move in db.moves.values() if move.sequence_id == each.sequence_id} for each in (row, other)
        )
        if own & theirs or ((row.replaces or other.replaces) and row.partition == other.partition):
            raise ConflictError(f"sequence {other.sequence_id} of another lane is open")


def _merged(stored: str, added: Mapping[str, object]) -> dict[str, object]:
    return {**json.loads(stored), **added}


def _work_unit_row(sequence_id: SequenceId, multi_work_unit: int | None, unit: WorkUnit) -> WorkUnitRow:
    return WorkUnitRow(
        work_unit_id=unit.id,
        sequence_id=sequence_id,
        multi_work_unit=multi_work_unit,
        key_name=unit.key,
        number=unit.number,
        low=None if unit.interval is None else unit.interval.low,
        expected_high=None if unit.interval is None else unit.interval.high,
        state=WorkingState.SKIPPED if unit.skipped else WorkingState.PENDING,
    )
