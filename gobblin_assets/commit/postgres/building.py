"""Building, from the first row of a sequence to its staged attempts: begin, attempts and T1.

Each method is one transaction, so it succeeds for all of its arguments or for none. All values go as arrays in one
statement. A pipeline would not do: the limit on idling does not act between its messages. Nor would a COPY: no time
limit of the server ends a COPY that waits for its client's data. A process paused there would hold the locks that the
next owner needs for as long as it sleeps.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, Final

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import IntegrityError

from gobblin_assets.commit.batches import in_weight
from gobblin_assets.commit.postgres.arguments import in_columns, segment_columns, watermark_to_jsonb
from gobblin_assets.commit.postgres.guards import (
    hold_fences,
    hold_fences_of,
    lock_sequences,
    require_one,
    share_building,
    unexpected_state,
)
from gobblin_assets.commit.sequence import NewAttempt, NewSequence, StagedAttempt
from gobblin_assets.db.statement_texts import to_jsonb
from gobblin_assets.db.transactions import transact
from gobblin_assets.errors import ConflictError, CorruptionError
from gobblin_assets.failpoints import Failpoint
from gobblin_assets.model.sequence_state import INITIAL_STATE, SequenceState
from gobblin_assets.model.state import AttemptId, DatasetId, SequenceId, WorkingState
from gobblin_assets.model.work_unit import WorkUnit

# Of segments in one statement: the client writes an array's bytes as text.
_PAYLOAD_BYTES_MAX: Final = 1 << 20

# A row that exists was written by an earlier try of the same transaction, whose acknowledgement was lost.
_BEGIN = text(f"""
    INSERT INTO gobblin.commit_sequence
           (sequence_id, dataset_id, lane_id, run_id, partition, mode, replaces, fence, state, details)
    SELECT sequence_id, dataset_id, lane_id, run_id, partition, mode, replaces, fence, '{INITIAL_STATE}',
           CAST(details AS jsonb)
      FROM unnest(CAST(:sequence_id AS uuid[]), CAST(:dataset_id AS bigint[]), CAST(:lane_id AS bigint[]),
                  CAST(:run_id AS uuid[]), CAST(:partition AS text[]), CAST(:mode AS text[]),
                  CAST(:replaces AS boolean[]), CAST(:fence AS bigint[]), CAST(:details AS text[]))
           AS given (sequence_id, dataset_id, lane_id, run_id, partition, mode, replaces, fence, details)
        ON CONFLICT (sequence_id) DO NOTHING
""")

_CONTINUE = text(f"""
    UPDATE gobblin.commit_sequence SET fence = :fence WHERE sequence_id = :sequence_id AND state = '{INITIAL_STATE}'
""")

_PLAN_WORK_UNITS = text("""
    INSERT INTO gobblin.work_unit
           (work_unit_id, sequence_id, multi_work_unit, key_name, number, low, expected_high, reread_from,
            estimated_row_count, state)
    SELECT work_unit_id, sequence_id, multi_work_unit, key_name, number, CAST(low AS jsonb),
           CAST(expected_high AS jsonb), CAST(reread_from AS jsonb), estimated_row_count, state
      FROM unnest(CAST(:work_unit_id AS uuid[]), CAST(:sequence_id AS uuid[]), CAST(:multi_work_unit AS integer[]),
                  CAST(:key_name AS text[]), CAST(:number AS integer[]), CAST(:low AS text[]),
                  CAST(:expected_high AS text[]), CAST(:reread_from AS text[]),
                  CAST(:estimated_row_count AS bigint[]), CAST(:state AS text[]))
           AS given (work_unit_id, sequence_id, multi_work_unit, key_name, number, low, expected_high, reread_from,
                     estimated_row_count, state)
        ON CONFLICT (work_unit_id) DO NOTHING
""")

_REGISTER_ATTEMPTS = text("""
    INSERT INTO gobblin.attempt
           (attempt_id, sequence_id, dataset_id, lane_id, fence, multi_work_unit, try_number, state, staging_path,
            tag, interruption)
    SELECT attempt_id, sequence_id, dataset_id, lane_id, fence, multi_work_unit, try_number, 'RUNNING', staging_path,
           tag, CAST(interruption AS jsonb)
      FROM unnest(CAST(:attempt_id AS uuid[]), CAST(:sequence_id AS uuid[]), CAST(:dataset_id AS bigint[]),
                  CAST(:lane_id AS bigint[]), CAST(:fence AS bigint[]), CAST(:multi_work_unit AS integer[]),
                  CAST(:try_number AS integer[]), CAST(:staging_path AS text[]), CAST(:tag AS text[]),
                  CAST(:interruption AS text[]))
           AS given (attempt_id, sequence_id, dataset_id, lane_id, fence, multi_work_unit, try_number, staging_path,
                     tag, interruption)
        ON CONFLICT (attempt_id) DO NOTHING
""")

# Without a fence and without a lock of the sequence: only the attempt's own writer could stage it, and this writer
# reports the failure. An attempt whose owner was taken for dead has no end yet: its writer may still report it.
_FAIL_ATTEMPTS = text("""
    UPDATE gobblin.attempt
       SET state = :state, error = :error, ended_at = clock_timestamp()
     WHERE attempt_id = ANY (CAST(:attempt_ids AS uuid[]))
       AND (state = 'RUNNING' OR state = 'CANCELLED' AND ended_at IS NULL)
""")

_FAIL_WORK_UNITS = text("""
    UPDATE gobblin.work_unit w
       SET state = :state
      FROM gobblin.attempt a
     WHERE a.attempt_id = ANY (CAST(:attempt_ids AS uuid[])) AND a.state <> 'STAGED' AND w.sequence_id = a.sequence_id
       AND w.multi_work_unit = a.multi_work_unit
""")

# Locked after the sequence's row, as an abort does, and in the order in which an abort ends the attempts.
_ATTEMPT_STATES = text("""
    SELECT attempt_id, state FROM gobblin.attempt
     WHERE attempt_id = ANY (CAST(:attempt_ids AS uuid[])) ORDER BY attempt_id FOR UPDATE
""")

_STAGE_ATTEMPTS = text("""
    UPDATE gobblin.attempt a
       SET state = 'STAGED', row_count = given.row_count, file_count = given.file_count,
           file_bytes = given.file_bytes, ended_at = clock_timestamp()
      FROM unnest(CAST(:attempt_id AS uuid[]), CAST(:sequence_id AS uuid[]), CAST(:row_count AS bigint[]),
                  CAST(:file_count AS bigint[]), CAST(:file_bytes AS bigint[]))
           AS given (attempt_id, sequence_id, row_count, file_count, file_bytes)
     WHERE a.attempt_id = given.attempt_id AND a.sequence_id = given.sequence_id AND a.state = 'RUNNING'
 RETURNING a.attempt_id, a.dataset_id
""")

_ADD_SEGMENTS = text("""
    INSERT INTO gobblin.segment
           (segment_id, sequence_id, attempt_id, dataset_id, number, role, partition, payload,
            digest, step_count, file_count, row_count, file_bytes, file_schema, version)
    SELECT segment_id, sequence_id, attempt_id, dataset_id, number, role, partition, payload,
           digest, step_count, file_count, row_count, file_bytes, CAST(file_schema AS jsonb), version
      FROM unnest(CAST(:segment_id AS uuid[]), CAST(:sequence_id AS uuid[]), CAST(:attempt_id AS uuid[]),
                  CAST(:dataset_id AS bigint[]), CAST(:number AS integer[]), CAST(:role AS text[]),
                  CAST(:partition AS text[]), CAST(:payload AS bytea[]), CAST(:digest AS bytea[]),
                  CAST(:step_count AS bigint[]), CAST(:file_count AS bigint[]), CAST(:row_count AS bigint[]),
                  CAST(:file_bytes AS bigint[]), CAST(:file_schema AS text[]), CAST(:version AS bigint[]))
           AS given (segment_id, sequence_id, attempt_id, dataset_id, number, role, partition, payload,
                     digest, step_count, file_count, row_count, file_bytes, file_schema, version)
""")

_STAGE_WORK_UNITS = text(f"""
    UPDATE gobblin.work_unit w
       SET state = '{WorkingState.SUCCESSFUL}', actual_high = CAST(given.actual_high AS jsonb)
      FROM unnest(CAST(:work_unit_id AS uuid[]), CAST(:actual_high AS text[])) AS given (work_unit_id, actual_high)
     WHERE w.work_unit_id = given.work_unit_id
""")


class PostgresSequenceBuilder:
    """``SequenceBuilder`` over one engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def begin(self, *sequences: NewSequence) -> None:
        try:
            transact(
                self._engine,
                "begin sequence",
                lambda c: _begin(c, sequences),
                committed=Failpoint.SEQUENCE_BEGUN,
            )
        except IntegrityError as error:
            raise ConflictError(
                f"the log does not know run {sequences[0].run_id}: it is older than the run",
                hint="Postgres failed over to a standby that lagged, or was restored. Nothing was read; the next run "
                "finds what is missing.",
                run_id=str(sequences[0].run_id),
            ) from error

    def continue_building(self, sequence_id: SequenceId, *, fence: int) -> None:
        transact(self._engine, "continue building", lambda c: _continue_building(c, sequence_id, fence))

    def register_attempt(self, *attempts: NewAttempt) -> None:
        transact(
            self._engine,
            "register attempt",
            lambda c: _register_attempts(c, attempts),
            committed=Failpoint.ATTEMPT_REGISTERED,
        )

    def fail_attempt(self, *attempt_ids: AttemptId, error: str, cancelled: bool) -> None:
        asked = {"attempt_ids": list(attempt_ids), "state": "CANCELLED" if cancelled else "FAILED"}

        def body(connection: Connection) -> None:
            connection.execute(_FAIL_ATTEMPTS, {**asked, "error": error})
            connection.execute(_FAIL_WORK_UNITS, asked)

        transact(self._engine, "fail attempt", body)

    def stage(self, *staged: StagedAttempt) -> None:
        try:
            transact(self._engine, "stage attempt", lambda c: _stage(c, staged), committed=Failpoint.STAGE_COMMITTED)
        except IntegrityError as error:
            # The partial unique index: one winner for each MultiWorkUnit of a sequence.
            raise ConflictError(
                "another attempt at the same work is staged already",
                attempt_id=", ".join(str(each.attempt_id) for each in staged),
                sequence_id=", ".join(str(each.sequence_id) for each in staged),
            ) from error


def _begin(connection: Connection, sequences: Sequence[NewSequence]) -> None:
    hold_fences(connection, [(each.lane_id, each.fence) for each in sequences])
    rows = [
        {
            "sequence_id": each.sequence_id,
            "dataset_id": each.dataset_id,
            "lane_id": each.lane_id,
            "run_id": each.run_id,
            "partition": each.partition,
            "mode": each.mode.value,
            "replaces": each.replaces,
            "fence": each.fence,
            "details": to_jsonb(each.details()),
        }
        for each in sequences
    ]
    connection.execute(_BEGIN, in_columns(rows))
    units = [_work_unit_row(each.sequence_id, number, unit) for each in sequences for number, unit in each.work_units]
    if units:
        connection.execute(_PLAN_WORK_UNITS, in_columns(units))


def _continue_building(connection: Connection, sequence_id: SequenceId, fence: int) -> None:
    hold_fences_of(connection, {sequence_id: fence})
    state = SequenceState(lock_sequences(connection, [sequence_id])[sequence_id].state)
    if state is not SequenceState.BUILDING:
        raise unexpected_state(sequence_id, state, "be built on")
    changed = connection.execute(_CONTINUE, {"sequence_id": sequence_id, "fence": fence}).rowcount
    require_one(changed, "taking a sequence over", sequence_id)


def _register_attempts(connection: Connection, attempts: Sequence[NewAttempt]) -> None:
    share_building(connection, [(each.sequence_id, each.fence) for each in attempts])
    rows = [
        {
            "attempt_id": each.attempt_id,
            "sequence_id": each.sequence_id,
            "dataset_id": each.dataset_id,
            "lane_id": each.lane_id,
            "fence": each.fence,
            "multi_work_unit": each.multi_work_unit,
            "try_number": each.try_number,
            "staging_path": each.staging_path,
            "tag": each.tag,
            "interruption": None if each.interruption is None else to_jsonb(each.interruption),
        }
        for each in attempts
    ]
    connection.execute(_REGISTER_ATTEMPTS, in_columns(rows))


def _stage(connection: Connection, all_staged: Sequence[StagedAttempt]) -> None:
    share_building(connection, [(each.sequence_id, each.fence) for each in all_staged])
    ids = {"attempt_ids": [each.attempt_id for each in all_staged]}
    states = {row.attempt_id: row.state for row in connection.execute(_ATTEMPT_STATES, ids)}
    left = []
    for each in all_staged:
        state = states.get(each.attempt_id, "unknown")
        if state == "RUNNING":
            left.append(each)
        elif state != "STAGED":
            raise ConflictError(f"attempt {each.attempt_id} is {state} and can't be staged")
    if left:
        _stage_running(connection, left)


def _stage_running(connection: Connection, all_staged: Sequence[StagedAttempt]) -> None:
    rows = [
        {
            "attempt_id": each.attempt_id,
            "sequence_id": each.sequence_id,
            "row_count": sum(segment.row_count for segment in each.segments),
            "file_count": sum(segment.file_count for segment in each.segments),
            "file_bytes": sum(segment.file_bytes for segment in each.segments),
        }
        for each in all_staged
    ]
    found = connection.execute(_STAGE_ATTEMPTS, in_columns(rows)).all()
    datasets = {AttemptId(row.attempt_id): DatasetId(row.dataset_id) for row in found}
    for each in all_staged:
        if each.attempt_id not in datasets:
            raise CorruptionError(f"attempt {each.attempt_id} does not belong to sequence {each.sequence_id}")
    rows_to_add = chain.from_iterable(_segment_rows(each, datasets[each.attempt_id]) for each in all_staged)
    for some in in_weight(rows_to_add, lambda row: len(row["payload"]), _PAYLOAD_BYTES_MAX):
        connection.execute(_ADD_SEGMENTS, in_columns(some))
    highs = [
        {"work_unit_id": unit, "actual_high": watermark_to_jsonb(high)}
        for each in all_staged
        for unit, high in each.actual_highs.items()
    ]
    if highs:
        connection.execute(_STAGE_WORK_UNITS, in_columns(highs))


def _segment_rows(staged: StagedAttempt, dataset_id: DatasetId) -> Iterator[dict[str, Any]]:
    for number, (segment_id, segment) in enumerate(zip(staged.segment_ids, staged.segments, strict=True)):
        yield {
            "segment_id": segment_id,
            "sequence_id": staged.sequence_id,
            "attempt_id": staged.attempt_id,
            "dataset_id": dataset_id,
            "number": number,
            **segment_columns(segment),
        }


def _work_unit_row(sequence_id: SequenceId, multi_work_unit: int | None, unit: WorkUnit) -> dict[str, Any]:
    interval = unit.interval
    return {
        "work_unit_id": unit.id,
        "sequence_id": sequence_id,
        "multi_work_unit": multi_work_unit,
        "key_name": unit.key,
        "number": unit.number,
        "low": watermark_to_jsonb(None if interval is None else interval.low),
        "expected_high": watermark_to_jsonb(None if interval is None else interval.high),
        "reread_from": watermark_to_jsonb(unit.reread_from),
        "estimated_row_count": unit.estimated_row_count,
        "state": (WorkingState.SKIPPED if unit.skipped else WorkingState.PENDING).value,
    }
