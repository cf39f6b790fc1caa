"""The ends of sequences in the simulated log, like ``commit.postgres.finishing``."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gobblin_assets.commit.repair import UNLOGGED_FACT
from gobblin_assets.commit.sequence import AttemptRecord, PublishedInterval, SequenceRecord
from gobblin_assets.errors import ConflictError
from gobblin_assets.model.interval import Interval
from gobblin_assets.model.sequence_state import SequenceEvent, SequenceState
from gobblin_assets.model.state import KeyId, SequenceId, WorkingState
from tests.simulation.database import Guard, SimDatabase
from tests.simulation.log_guards import encoded, get_sequence, require_event, require_fence
from tests.simulation.log_reading import SimCommitLogReader
from tests.simulation.rows import LedgerRow, MoveRow, SequenceRow


class SimSequenceFinisher(SimCommitLogReader):
    """``SequenceFinisher`` over a ``SimDatabase``."""

    def claim(self, sequence_id: SequenceId, *, fence: int) -> Sequence[AttemptRecord]:
        with self._db.transaction() as db:
            require_event(db, sequence_id, fence, SequenceEvent.FINISH, fence_guard=Guard.CLAIM_CHECKS_FENCE)
            if db.holds(Guard.CLAIM_MARKS_FOR_CAPTURE):
                _mark_for_capture(db, sequence_id, fence)
        return self.list_attempts(sequence_id)

    def finish(self, sequence_id: SequenceId, *, fence: int) -> int:
        return self.finish_all({sequence_id: fence})[sequence_id]

    def finish_all(self, fences: Mapping[SequenceId, int]) -> Mapping[SequenceId, int]:
        with self._db.transaction() as db:
            return {sequence_id: _finish(db, sequence_id, fence) for sequence_id, fence in fences.items()}

    def record_failure(
        self, sequence_id: SequenceId, *, fence: int, error: str, tries_max: int, retry_in_s: float, block: bool
    ) -> SequenceRecord:
        with self._db.transaction() as db:
            row = require_event(db, sequence_id, fence, SequenceEvent.BLOCK, fence_guard=Guard.FAILURE_CHECKS_FENCE)
            if row.state is not SequenceState.BLOCKED:
                failed_tries = row.failed_tries + 1
                given_up = failed_tries >= tries_max and db.holds(Guard.FAILURE_BLOCKS_AFTER_TRIES_MAX)
                counted = replace(
                    row,
                    state=SequenceState.BLOCKED if block or given_up else row.state,
                    failed_tries=failed_tries,
                    last_error=error,
                    next_try_at=db.now_s + retry_in_s,
                )
                db.sequences.put(sequence_id, counted)
        return self.get(sequence_id)

    def defer(self, sequence_id: SequenceId, *, fence: int, error: str, retry_in_s: float) -> None:
        with self._db.transaction() as db:
            row = get_sequence(db, sequence_id)
            require_fence(db, row.lane_id, fence, Guard.DEFERRAL_CHECKS_FENCE)
            if row.state not in (SequenceState.PREPARED, SequenceState.ABANDONING):
                return
            if row.next_try_at is not None and row.next_try_at > db.now_s:
                return
            last_error = error if row.state is SequenceState.PREPARED else row.last_error
            db.sequences.put(sequence_id, replace(row, next_try_at=db.now_s + retry_in_s, last_error=last_error))

    def resume(self, sequence_id: SequenceId, *, fence: int) -> None:
        with self._db.transaction() as db:
            row = require_event(db, sequence_id, fence, SequenceEvent.RESUME, fence_guard=Guard.RESUME_CHECKS_FENCE)
            if row.state is SequenceState.PREPARED:
                return
            db.sequences.put(sequence_id, replace(row, state=SequenceState.PREPARED, failed_tries=0, next_try_at=None))

    def begin_abandon(self, sequence_id: SequenceId, *, fence: int, reason: str) -> None:
        with self._db.transaction() as db:
            row = require_event(db, sequence_id, fence, SequenceEvent.ABANDON, fence_guard=Guard.ABANDON_CHECKS_FENCE)
            if row.state is not SequenceState.ABANDONING:
                given_up = replace(row, state=SequenceState.ABANDONING, last_error=reason, next_try_at=None)
                db.sequences.put(sequence_id, given_up)
            if db.holds(Guard.ABANDON_MARKS_FOR_CAPTURE):
                _mark_for_capture(db, sequence_id, fence)

    def end_abandon(self, sequence_id: SequenceId, *, fence: int, unlogged: Sequence[str] = ()) -> None:
        with self._db.transaction() as db:
            row = require_event(db, sequence_id, fence, SequenceEvent.GIVE_UP, fence_guard=Guard.ABANDON_CHECKS_FENCE)
            if row.state is SequenceState.ABORTED:
                return
            for segment in list(db.segments.values()):
                if segment.sequence_id == sequence_id and segment.sealed:
                    db.segments.put(segment.segment_id, replace(segment, sealed=False))
            db.sequences.put(sequence_id, replace(row, state=SequenceState.ABORTED, aborted_at=db.now_s))
            if unlogged:
                dataset = db.datasets[row.dataset_id]
                facts = json.loads(dataset.source_facts or "{}")
                known = facts.setdefault(UNLOGGED_FACT, {})
                known[row.partition] = [*known.get(row.partition, []), *sorted(unlogged)]
                db.datasets.put(row.dataset_id, replace(dataset, source_facts=json.dumps(facts)))

    def abort(self, sequence_id: SequenceId, *, fence: int, error: str | None) -> None:
        with self._db.transaction() as db:
            row = require_event(
                db,
                sequence_id,
                fence,
                SequenceEvent.ABORT,
                fence_guard=Guard.ABORT_CHECKS_FENCE,
                state_guard=Guard.ABORT_CHECKS_BUILDING,
            )
            if row.state is SequenceState.ABORTED:
                return
            said = row.last_error if error is None else error
            db.sequences.put(
                sequence_id, replace(row, state=SequenceState.ABORTED, last_error=said, aborted_at=db.now_s)
            )
            for attempt in list(db.attempts.values()):
                if attempt.sequence_id == sequence_id and attempt.state == "RUNNING":
                    db.attempts.put(
                        attempt.attempt_id, replace(attempt, state="CANCELLED", error=attempt.error or error)
                    )

    def mark_announced(self, *sequence_ids: SequenceId) -> None:
        with self._db.transaction() as db:
            for sequence_id in sequence_ids:
                row = db.sequences.get(sequence_id)
                if row is not None and row.state is SequenceState.DONE and row.announced_at is None:
                    db.sequences.put(sequence_id, replace(row, announced_at=db.now_s))


def _finish(db: SimDatabase, sequence_id: SequenceId, fence: int) -> int:
    row = require_event(
        db,
        sequence_id,
        fence,
        SequenceEvent.FINISH,
        fence_guard=Guard.FINISH_CHECKS_FENCE,
        state_guard=Guard.FINISH_CHECKS_PREPARED,
    )
    if row.state is SequenceState.DONE and db.holds(Guard.FINISH_KNOWS_ITS_OWN):
        return row.result_version or 0
    version = _move_version(db, row)
    if row.replaces and db.holds(Guard.FINISH_RETIRES_OLD_GENERATION):
        _retire(db, row)
    moves = [move for move in db.moves.values() if move.sequence_id == sequence_id]
    _move_watermarks(db, moves)
    for move in moves:
        _write_ledger(db, move)
    _commit_work_units(db, sequence_id)
    done = replace(row, state=SequenceState.DONE, result_version=version, done_at=db.now_s, last_error=None)
    db.sequences.put(sequence_id, done)
    return version


def _move_version(db: SimDatabase, row: SequenceRow) -> int:
    dataset, lane = db.datasets[row.dataset_id], db.lanes[row.lane_id]
    if lane.version != row.base_version and db.holds(Guard.FINISH_COMPARES_VERSION):
        raise ConflictError(f"the lane is not at version {row.base_version} any more", sequence_id=str(row.sequence_id))
    details = json.loads(row.details)
    has_lanes = any(each.dataset_id == row.dataset_id and each.number for each in db.lanes.values())
    columns, facts = (_joined, _joined_facts) if has_lanes else (_columns, _facts)
    moved = replace(
        dataset,
        version=dataset.version + 1,
        source_columns=columns(details, "source_columns", dataset.source_columns),
        published_columns=columns(details, "columns", dataset.published_columns),
        source_facts=facts(details, row.partition, dataset.source_facts),
    )
    db.lanes.put(row.lane_id, replace(lane, version=lane.version + 1))
    db.datasets.put(row.dataset_id, moved)
    return moved.version


def _facts(details: dict[str, Any], partition: str, present: str | None) -> str | None:
    if "partition_facts" not in details:
        return json.dumps(details["source_facts"]) if "source_facts" in details else present
    facts = {} if present is None else json.loads(present)
    for name, value in details["partition_facts"].items():
        others = {key: each for key, each in facts.get(name, {}).items() if key != partition}
        facts[name] = others if value is None else {**others, partition: value}
    return json.dumps(facts)


def _columns(details: dict[str, Any], name: str, present: str | None) -> str | None:
    return json.dumps(details[name]) if details.get(name, []) != [] else present


def _joined(details: dict[str, Any], name: str, present: str | None) -> str | None:
    """The columns that all lanes said: each name at its first place, with its last type."""
    types = dict([*json.loads(present or "[]"), *details.get(name, [])])
    return json.dumps(list(types.items())) if types else present


def _joined_facts(details: dict[str, Any], _partition: str, present: str | None) -> str | None:
    if not {"source_columns", "columns", "source_facts"} & details.keys():
        return present
    return json.dumps({**json.loads(present or "{}"), **details.get("source_facts", {})})


def _retire(db: SimDatabase, row: SequenceRow) -> None:
    for segment in list(db.segments.values()):
        if (
            (segment.dataset_id, segment.partition) == (row.dataset_id, row.partition)
            and segment.sealed
            and segment.retired_by is None
            and segment.sequence_id != row.sequence_id
        ):
            retired = replace(segment, retired_by=row.sequence_id, retired_at=db.now_s)
            db.segments.put(segment.segment_id, retired)
    for entry in list(db.ledger.values()):
        before = db.sequences[entry.sequence_id]
        if entry.is_active and (before.dataset_id, before.partition) == (row.dataset_id, row.partition):
            db.ledger.put(entry.ledger_id, replace(entry, retired_by=row.sequence_id))


def _move_watermarks(db: SimDatabase, moves: list[MoveRow]) -> None:
    for move in moves:
        if not move.touches_key:
            continue
        key = db.keys[move.key_id]
        if encoded(key.watermark) != encoded(move.old) and db.holds(Guard.FINISH_COMPARES_WATERMARKS):
            raise ConflictError(
                "a watermark is not where this sequence started from", sequence_id=str(move.sequence_id)
            )
        new = key.watermark if move.new is None else move.new
        db.keys.put(key.key_id, replace(key, watermark=new, sequence_id=move.sequence_id))


def _write_ledger(db: SimDatabase, move: MoveRow) -> None:
    if not move.intervals:
        _add_entry(db, move, None)
    for each in move.intervals:
        if not each.interval.is_empty:
            _add_entry(db, move, each)


def _add_entry(db: SimDatabase, move: MoveRow, mine: PublishedInterval | None) -> None:
    interval = None if mine is None else mine.interval
    if _is_taken(db, move.key_id, interval):
        raise ConflictError(
            "the ledger already holds a part of what this sequence would publish",
            sequence_id=str(move.sequence_id),
        )
    low, high = (None, None) if interval is None else (interval.low, interval.high)
    ledger_id = max(db.ledger, default=0) + 1
    reread_from = None if mine is None else mine.reread_from
    db.ledger.put(ledger_id, LedgerRow(ledger_id, move.key_id, move.sequence_id, low, high, reread_from))


def _is_taken(db: SimDatabase, key_id: KeyId, mine: Interval | None) -> bool:
    active = [entry for entry in db.ledger.values() if entry.key_id == key_id and entry.is_active]
    if mine is None:
        guarded = db.holds(Guard.LEDGER_REFUSES_SECOND_GENERATION)
        return guarded and any(entry.is_generation for entry in active)
    return db.holds(Guard.LEDGER_REFUSES_OVERLAP) and any(
        entry.high is not None and mine.overlaps(Interval(entry.low, entry.high)) for entry in active
    )


def _commit_work_units(db: SimDatabase, sequence_id: SequenceId) -> None:
    published = {
        db.attempts[segment.attempt_id].multi_work_unit
        for segment in db.segments.values()
        if segment.sealed and segment.sequence_id == sequence_id and segment.attempt_id is not None
    }
    for unit in list(db.work_units.values()):
        if (
            unit.sequence_id == sequence_id
            and unit.state is WorkingState.SUCCESSFUL
            and unit.multi_work_unit in published
        ):
            db.work_units.put(unit.work_unit_id, replace(unit, state=WorkingState.COMMITTED))


def _mark_for_capture(db: SimDatabase, sequence_id: SequenceId, fence: int) -> None:
    for attempt in list(db.attempts.values()):
        if attempt.sequence_id == sequence_id and fence not in attempt.cleanup_fences:
            marked = replace(attempt, cleanup_fences=(*attempt.cleanup_fences, fence))
            db.attempts.put(attempt.attempt_id, marked)
