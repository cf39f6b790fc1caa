"""From the first row of a sequence to its seal: begin, attempts, T1 and T2."""

from sqlalchemy import Connection, text

from gobblin_assets.commit.machine import SequenceEvent, SequenceState
from gobblin_assets.commit.postgres.guards import (
    hold_fence,
    hold_fence_of,
    lock_for,
    lock_sequence,
    require_one,
    share_building,
    unexpected_state,
)
from gobblin_assets.commit.segment import combine_digests
from gobblin_assets.commit.sequence import NewAttempt, NewSequence, SealOrder, StagedAttempt
from gobblin_assets.db.json_column import to_jsonb
from gobblin_assets.errors import ConflictError, CorruptionError
from gobblin_assets.model.state import AttemptId, SequenceId
from gobblin_assets.model.watermark import Watermark
from gobblin_assets.model.work_unit import WorkUnit

_BEGIN = text("""
    INSERT INTO gobblin.commit_sequence
           (sequence_id, dataset_id, run_id, partition, mode, replaces, fence, state, details)
    VALUES (:sequence_id, :dataset_id, :run_id, :partition, :mode, :replaces, :fence, 'BUILDING',
            CAST(:details AS jsonb))
        ON CONFLICT (sequence_id) DO NOTHING
""")

_CONTINUE = text("""
    UPDATE gobblin.commit_sequence SET fence = :fence WHERE sequence_id = :sequence_id AND state = 'BUILDING'
""")

_PLAN_WORK_UNIT = text("""
    INSERT INTO gobblin.work_unit
           (work_unit_id, sequence_id, multi_work_unit, key_name, number, low, expected_high, reread_from,
            estimated_row_count, state)
    VALUES (:work_unit_id, :sequence_id, :multi_work_unit, :key_name, :number, CAST(:low AS jsonb),
            CAST(:expected_high AS jsonb), CAST(:reread_from AS jsonb), :estimated_row_count, :state)
        ON CONFLICT (work_unit_id) DO NOTHING
""")

_REGISTER_ATTEMPT = text("""
    INSERT INTO gobblin.attempt
           (attempt_id, sequence_id, dataset_id, fence, multi_work_unit, try_number, state, staging_path,
            spark_session_id, spark_user, spark_tag)
    VALUES (:attempt_id, :sequence_id, :dataset_id, :fence, :multi_work_unit, :try_number, 'RUNNING',
            :staging_path, :spark_session_id, :spark_user, :spark_tag)
        ON CONFLICT (attempt_id) DO NOTHING
""")

_FAIL_ATTEMPT = text("""
    UPDATE gobblin.attempt
       SET state = :state, error = :error, ended_at = clock_timestamp()
     WHERE attempt_id = :attempt_id AND state = 'RUNNING'
""")

_FAIL_WORK_UNITS = text("""
    UPDATE gobblin.work_unit w
       SET state = :state
      FROM gobblin.attempt a
     WHERE a.attempt_id = :attempt_id AND a.state <> 'STAGED' AND w.sequence_id = a.sequence_id
       AND w.multi_work_unit = a.multi_work_unit
""")

_STAGE_ATTEMPT = text("""
    UPDATE gobblin.attempt
       SET state = 'STAGED', row_count = :row_count, file_count = :file_count, file_bytes = :file_bytes,
           ended_at = clock_timestamp()
     WHERE attempt_id = :attempt_id AND sequence_id = :sequence_id AND state = 'RUNNING'
 RETURNING multi_work_unit, dataset_id
""")

_ATTEMPT_STATE = text("SELECT state FROM gobblin.attempt WHERE attempt_id = :attempt_id FOR UPDATE")

_ADD_SEGMENT = text("""
    INSERT INTO gobblin.segment
           (segment_id, sequence_id, attempt_id, dataset_id, number, role, partition, payload,
            digest, step_count, file_count, row_count, file_bytes, file_schema)
    VALUES (:segment_id, :sequence_id, :attempt_id, :dataset_id, :number, :role, :partition, :payload,
            :digest, :step_count, :file_count, :row_count, :file_bytes, CAST(:file_schema AS jsonb))
""")

_STAGE_WORK_UNIT = text("""
    UPDATE gobblin.work_unit SET state = 'SUCCESSFUL', actual_high = CAST(:actual_high AS jsonb)
     WHERE work_unit_id = :work_unit_id
""")

_SEAL_SEGMENTS = text("""
    UPDATE gobblin.segment s
       SET sealed = true
      FROM gobblin.attempt a
     WHERE s.attempt_id = a.attempt_id AND s.sequence_id = :sequence_id AND a.sequence_id = :sequence_id
       AND a.state = 'STAGED' AND a.attempt_id = ANY (CAST(:winners AS uuid[]))
 RETURNING s.digest, s.step_count, s.file_count, s.row_count, s.file_bytes
""")

_STAGED_WINNERS = text("""
    SELECT count(*) FROM gobblin.attempt
     WHERE sequence_id = :sequence_id AND state = 'STAGED' AND attempt_id = ANY (CAST(:winners AS uuid[]))
""")

_SEAL = text("""
    UPDATE gobblin.commit_sequence s
       SET state = 'PREPARED', base_version = :base_version, digest = :digest, complete = :complete,
           segment_count = :segment_count, step_count = :step_count, file_count = :file_count,
           row_count = :row_count, file_bytes = :file_bytes, prepared_at = clock_timestamp(),
           details = s.details || CAST(:details AS jsonb)
      FROM gobblin.dataset d, gobblin.lease l
     WHERE s.sequence_id = :sequence_id AND s.state = 'BUILDING' AND s.fence = :fence
       AND d.dataset_id = s.dataset_id AND d.version = :base_version
       AND l.dataset_id = s.dataset_id AND l.fence = :fence
""")

_VERSION = text("SELECT version FROM gobblin.dataset WHERE dataset_id = :dataset_id")

_MAKE_KEYS = text("""
    INSERT INTO gobblin.watermark_key (dataset_id, name, partition)
    SELECT :dataset_id, name, partition
      FROM unnest(CAST(:names AS text[]), CAST(:partitions AS text[])) AS wanted (name, partition)
        ON CONFLICT (dataset_id, name, partition) DO NOTHING
""")

_PLAN_MOVES = text("""
    INSERT INTO gobblin.planned_move (sequence_id, key_id, old_watermark, old_bytes, new_watermark, new_bytes)
    SELECT :sequence_id, k.key_id, CAST(m.old AS jsonb), m.old_bytes, CAST(m.new AS jsonb), m.new_bytes
      FROM unnest(CAST(:names AS text[]), CAST(:partitions AS text[]), CAST(:olds AS text[]),
                  CAST(:olds_bytes AS bytea[]), CAST(:news AS text[]), CAST(:news_bytes AS bytea[]))
           AS m (name, partition, old, old_bytes, new, new_bytes)
      JOIN gobblin.watermark_key k ON k.dataset_id = :dataset_id AND k.name = m.name AND k.partition = m.partition
""")

_PLAN_INTERVALS = text("""
    INSERT INTO gobblin.planned_interval
           (sequence_id, key_id, low, low_bytes, high, high_bytes, reread_from)
    SELECT :sequence_id, k.key_id, CAST(i.low AS jsonb), i.low_bytes, CAST(i.high AS jsonb), i.high_bytes,
           CAST(i.reread_from AS jsonb)
      FROM unnest(CAST(:names AS text[]), CAST(:partitions AS text[]), CAST(:lows AS text[]),
                  CAST(:lows_bytes AS bytea[]), CAST(:highs AS text[]), CAST(:highs_bytes AS bytea[]),
                  CAST(:rereads_from AS text[]))
           AS i (name, partition, low, low_bytes, high, high_bytes, reread_from)
      JOIN gobblin.watermark_key k ON k.dataset_id = :dataset_id AND k.name = i.name AND k.partition = i.partition
""")

_ABORT = text("""
    UPDATE gobblin.commit_sequence
       SET state = 'ABORTED', aborted_at = clock_timestamp(), last_error = coalesce(:error, last_error)
     WHERE sequence_id = :sequence_id AND state = 'BUILDING'
""")


def begin(connection: Connection, sequence: NewSequence) -> None:
    hold_fence(connection, sequence.dataset_id, sequence.fence)
    arguments = {
        "sequence_id": sequence.sequence_id,
        "dataset_id": sequence.dataset_id,
        "run_id": sequence.run_id,
        "partition": sequence.partition,
        "mode": sequence.mode.value,
        "replaces": sequence.replaces,
        "fence": sequence.fence,
        "details": to_jsonb({"root_uri": sequence.root_uri}),
    }
    connection.execute(_BEGIN, arguments)
    rows = [_work_unit_row(sequence.sequence_id, number, unit) for number, unit in sequence.work_units]
    if rows:
        connection.execute(_PLAN_WORK_UNIT, rows)


def continue_building(connection: Connection, sequence_id: SequenceId, fence: int) -> None:
    hold_fence_of(connection, sequence_id, fence)
    state = SequenceState(lock_sequence(connection, sequence_id).state)
    if state is not SequenceState.BUILDING:
        raise unexpected_state(sequence_id, state, "be built on")
    changed = connection.execute(_CONTINUE, {"sequence_id": sequence_id, "fence": fence}).rowcount
    require_one(changed, "taking a sequence over", sequence_id)


def register_attempt(connection: Connection, attempt: NewAttempt) -> None:
    share_building(connection, attempt.sequence_id, attempt.fence)
    arguments = {
        "attempt_id": attempt.attempt_id,
        "sequence_id": attempt.sequence_id,
        "dataset_id": attempt.dataset_id,
        "fence": attempt.fence,
        "multi_work_unit": attempt.multi_work_unit,
        "try_number": attempt.try_number,
        "staging_path": attempt.staging_path,
        "spark_session_id": attempt.spark_session_id,
        "spark_user": attempt.spark_user,
        "spark_tag": attempt.spark_tag,
    }
    connection.execute(_REGISTER_ATTEMPT, arguments)


def fail_attempt(connection: Connection, attempt_id: AttemptId, error: str, *, cancelled: bool) -> None:
    state = "CANCELLED" if cancelled else "FAILED"
    connection.execute(_FAIL_ATTEMPT, {"attempt_id": attempt_id, "state": state, "error": error})
    connection.execute(_FAIL_WORK_UNITS, {"attempt_id": attempt_id, "state": state})


def stage(connection: Connection, staged: StagedAttempt) -> None:
    share_building(connection, staged.sequence_id, staged.fence)
    state = connection.execute(_ATTEMPT_STATE, {"attempt_id": staged.attempt_id}).scalar_one()
    if state == "STAGED":
        return
    if state != "RUNNING":
        raise ConflictError(f"attempt {staged.attempt_id} is {state} and can't be staged")
    arguments = {
        "attempt_id": staged.attempt_id,
        "sequence_id": staged.sequence_id,
        "row_count": sum(segment.row_count for segment in staged.segments),
        "file_count": sum(segment.file_count for segment in staged.segments),
        "file_bytes": sum(segment.file_bytes for segment in staged.segments),
    }
    row = connection.execute(_STAGE_ATTEMPT, arguments).one()
    _add_segments(connection, staged, row.dataset_id)
    highs = [{"work_unit_id": unit, "actual_high": _watermark_json(high)} for unit, high in staged.actual_highs.items()]
    if highs:
        connection.execute(_STAGE_WORK_UNIT, highs)


def _add_segments(connection: Connection, staged: StagedAttempt, dataset_id: int) -> None:
    """One statement each, because no time limit of a server ends a COPY that waits for its client's data.

    Nor is a limit on idling armed between the messages of a pipeline. A process paused there would hold the
    sequence, which the next owner wants to abort, for as long as it sleeps.
    """
    for number, (segment_id, segment) in enumerate(zip(staged.segment_ids, staged.segments, strict=True)):
        connection.execute(
            _ADD_SEGMENT,
            {
                "segment_id": segment_id,
                "sequence_id": staged.sequence_id,
                "attempt_id": staged.attempt_id,
                "dataset_id": dataset_id,
                "number": number,
                "role": segment.role.value,
                "partition": segment.partition,
                "payload": segment.payload,
                "digest": segment.digest,
                "step_count": segment.step_count,
                "file_count": segment.file_count,
                "row_count": segment.row_count,
                "file_bytes": segment.file_bytes,
                "file_schema": None if segment.file_schema is None else to_jsonb(segment.file_schema),
            },
        )


def seal(connection: Connection, order: SealOrder) -> None:
    hold_fence(connection, order.dataset_id, order.fence)
    row = lock_sequence(connection, order.sequence_id)
    state = SequenceState(row.state)
    if state is SequenceState.PREPARED and row.digest == order.digest:
        return
    if state is not SequenceState.BUILDING:
        raise unexpected_state(order.sequence_id, state, "be sealed")
    version = connection.execute(_VERSION, {"dataset_id": order.dataset_id}).scalar_one()
    if version != order.base_version:
        raise ConflictError(
            f"the dataset is at version {version}, but this run was planned on {order.base_version}",
            hint="Another run published meanwhile; the next run plans again from there.",
            dataset_id=order.dataset_id,
        )
    totals = _seal_segments(connection, order)
    if order.moves:
        _plan_moves(connection, order)
    arguments = {
        "sequence_id": order.sequence_id,
        "base_version": order.base_version,
        "digest": order.digest,
        "complete": order.complete,
        "fence": order.fence,
        "details": to_jsonb(order.details),
        **totals,
    }
    require_one(connection.execute(_SEAL, arguments).rowcount, "the seal", order.sequence_id)


def _seal_segments(connection: Connection, order: SealOrder) -> dict[str, int]:
    arguments = {"sequence_id": order.sequence_id, "winners": list(order.winners)}
    staged = connection.execute(_STAGED_WINNERS, arguments).scalar_one()
    if staged != len(order.winners):
        raise ConflictError(f"{staged} of {len(order.winners)} winning attempts are staged")
    segments = connection.execute(_SEAL_SEGMENTS, arguments).all()
    row_count = sum(segment.row_count for segment in segments)
    found = (len(segments), row_count, combine_digests(segment.digest for segment in segments))
    if found != (order.segment_count, order.row_count, order.digest):
        raise CorruptionError("the staged segments are not the ones that this run wrote")
    return {
        "segment_count": len(segments),
        "step_count": sum(segment.step_count for segment in segments),
        "file_count": sum(segment.file_count for segment in segments),
        "row_count": row_count,
        "file_bytes": sum(segment.file_bytes for segment in segments),
    }


def _plan_moves(connection: Connection, order: SealOrder) -> None:
    moves = order.moves
    keys = {
        "sequence_id": order.sequence_id,
        "dataset_id": order.dataset_id,
        "names": [move.key for move in moves],
        "partitions": [move.partition for move in moves],
    }
    connection.execute(_MAKE_KEYS, keys)
    positions = {
        "olds": [_watermark_json(move.old) for move in moves],
        "olds_bytes": [_watermark_bytes(move.old) for move in moves],
        "news": [_watermark_json(move.new) for move in moves],
        "news_bytes": [_watermark_bytes(move.new) for move in moves],
    }
    _require_all(connection.execute(_PLAN_MOVES, {**keys, **positions}).rowcount, len(moves), order)
    planned = [(move, each) for move in moves for each in move.intervals]
    if not planned:
        return
    intervals = {
        **keys,
        "names": [move.key for move, _each in planned],
        "partitions": [move.partition for move, _each in planned],
        "lows": [_watermark_json(each.interval.low) for _move, each in planned],
        "lows_bytes": [each.interval.low_bytes() for _move, each in planned],
        "highs": [_watermark_json(each.interval.high) for _move, each in planned],
        "highs_bytes": [each.interval.high_bytes() for _move, each in planned],
        "rereads_from": [_watermark_json(each.reread_from) for _move, each in planned],
    }
    _require_all(connection.execute(_PLAN_INTERVALS, intervals).rowcount, len(planned), order)


def _require_all(done: int, wanted: int, order: SealOrder) -> None:
    if done != wanted:
        raise ConflictError(f"{done} of {wanted} watermark moves could be planned", sequence_id=str(order.sequence_id))


def abort(connection: Connection, sequence_id: SequenceId, fence: int, error: str | None) -> None:
    _row, state = lock_for(connection, sequence_id, fence, SequenceEvent.ABORT)
    if state is SequenceState.ABORTED:
        return
    changed = connection.execute(_ABORT, {"sequence_id": sequence_id, "error": error}).rowcount
    require_one(changed, "the abort", sequence_id)


def _work_unit_row(sequence_id: SequenceId, multi_work_unit: int | None, unit: WorkUnit) -> dict[str, object]:
    interval = unit.interval
    return {
        "work_unit_id": unit.id,
        "sequence_id": sequence_id,
        "multi_work_unit": multi_work_unit,
        "key_name": unit.key,
        "number": unit.number,
        "low": _watermark_json(None if interval is None else interval.low),
        "expected_high": _watermark_json(None if interval is None else interval.high),
        "reread_from": _watermark_json(unit.reread_from),
        "estimated_row_count": unit.estimated_row_count,
        "state": "SKIPPED" if unit.skipped else "PENDING",
    }


def _watermark_bytes(watermark: Watermark | None) -> bytes | None:
    return None if watermark is None else watermark.encode()


def _watermark_json(watermark: Watermark | None) -> str | None:
    return None if watermark is None else to_jsonb(watermark.to_json())
