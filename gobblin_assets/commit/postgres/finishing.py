"""The ends of sequences: T3; failing, blocking, resuming and abandoning of sealed sequences; aborting of unsealed ones.

After the locks of ``guards``, T3 works in this order. First the version: a sequence that was planned on another version
of its lane is refused. The dataset's own row is locked before, so that its versions follow each other. Then replaced
generations retire, since the ledger refuses two active intervals that overlap. Then watermarks and ledger. The state
comes last, since DONE marks the earlier sequences whose entries retire.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from sqlalchemy import Connection, Row, text
from sqlalchemy.exc import IntegrityError

from gobblin_assets.commit.postgres.guards import hold_fences_of, lock_for, lock_for_all, require_each, require_one
from gobblin_assets.commit.postgres.reading import TOUCHES_KEY, PostgresCommitLogReader, attempts_of
from gobblin_assets.commit.repair import UNLOGGED_FACT
from gobblin_assets.commit.sequence import AttemptRecord, SequenceRecord
from gobblin_assets.db.statement_texts import IS_RECOVERABLE, result, starts
from gobblin_assets.db.transactions import transact
from gobblin_assets.errors import ConflictError
from gobblin_assets.failpoints import Failpoint
from gobblin_assets.model.sequence_state import SequenceEvent, SequenceState
from gobblin_assets.model.state import SequenceId, WorkingState

# In one order, and before their lanes: sequences of several lanes of a dataset are finished by different processes.
_LOCK_DATASETS = text("""
    SELECT d.dataset_id FROM gobblin.dataset d
     WHERE d.dataset_id IN (SELECT s.dataset_id FROM gobblin.commit_sequence s
                             WHERE s.sequence_id = ANY (CAST(:sequence_ids AS uuid[])))
     ORDER BY d.dataset_id
       FOR NO KEY UPDATE
""")

# Compare-and-set: two sequences that were planned on one version of a lane can't both be finished. The versions that a
# dataset gets are those of all its lanes, one after the other.
_MOVE_VERSIONS = text("""
    WITH moved AS (
        UPDATE gobblin.lane n SET version = n.version + 1
          FROM gobblin.commit_sequence s
         WHERE s.sequence_id = ANY (CAST(:sequence_ids AS uuid[])) AND n.lane_id = s.lane_id
           AND n.version = s.base_version
     RETURNING s.sequence_id, s.dataset_id
    ),
    counted AS (SELECT dataset_id, count(*) AS added FROM moved GROUP BY dataset_id),
    raised AS (
        UPDATE gobblin.dataset d SET version = d.version + counted.added
          FROM counted
         WHERE d.dataset_id = counted.dataset_id
     RETURNING d.dataset_id, d.version - counted.added AS base
    )
    SELECT moved.sequence_id,
           raised.base + row_number() OVER (PARTITION BY moved.dataset_id ORDER BY moved.sequence_id) AS version
      FROM moved JOIN raised USING (dataset_id)
""")

_HAS_LANES: Final = "EXISTS (SELECT FROM gobblin.lane n WHERE n.dataset_id = d.dataset_id AND n.number > 0)"

# The schemas that the next run compares with move together with the version they belong to. Facts of the partition
# alone stand beside those of others under the same name; null takes its own away.
_MOVE_SCHEMAS = text(f"""
    UPDATE gobblin.dataset d
       SET source_columns = coalesce(nullif(s.details -> 'source_columns', '[]'), d.source_columns),
           published_columns = coalesce(nullif(s.details -> 'columns', '[]'), d.published_columns),
           source_facts = CASE WHEN s.details -> 'partition_facts' IS NULL
               THEN coalesce(s.details -> 'source_facts', d.source_facts)
               ELSE coalesce(d.source_facts, CAST('{{}}' AS jsonb)) || (
                   SELECT coalesce(jsonb_object_agg(given.key, CASE jsonb_typeof(given.value)
                              WHEN 'null' THEN coalesce(d.source_facts -> given.key, '{{}}') - s.partition
                              ELSE coalesce(d.source_facts -> given.key, '{{}}')
                                   || jsonb_build_object(s.partition, given.value)
                          END), '{{}}')
                     FROM jsonb_each(s.details -> 'partition_facts') AS given)
               END
      FROM gobblin.commit_sequence s
     WHERE s.sequence_id = ANY (CAST(:sequence_ids AS uuid[])) AND d.dataset_id = s.dataset_id AND NOT {_HAS_LANES}
       AND s.details ?| ARRAY['source_columns', 'columns', 'source_facts', 'partition_facts']
""")

_REMEMBER_UNLOGGED: Final = text("""
    UPDATE gobblin.dataset d
       SET source_facts = coalesce(d.source_facts, '{}') || jsonb_build_object(
               CAST(:fact AS text),
               coalesce(d.source_facts -> :fact, '{}') || jsonb_build_object(
                   s.partition,
                   coalesce(d.source_facts -> :fact -> s.partition, '[]') || CAST(:names AS jsonb)
               ))
      FROM gobblin.commit_sequence s
     WHERE s.sequence_id = :sequence_id AND d.dataset_id = s.dataset_id
""")

_JOINED_COLUMNS: Final = """
    coalesce((
        SELECT jsonb_agg(pair ORDER BY place)
          FROM (SELECT DISTINCT ON (pair ->> 0) pair, min(place) OVER (PARTITION BY pair ->> 0) AS place
                  FROM (SELECT pair, place, 0 AS age
                          FROM jsonb_array_elements(coalesce(d.{column}, '[]')) WITH ORDINALITY AS old (pair, place)
                         UNION ALL
                        SELECT pair, 1000000 + place, 1
                          FROM gobblin.commit_sequence s,
                               jsonb_array_elements(coalesce(s.details -> '{detail}', '[]'))
                               WITH ORDINALITY AS new (pair, place)
                         WHERE s.sequence_id = ANY (CAST(:sequence_ids AS uuid[])) AND s.dataset_id = d.dataset_id
                       ) AS every
                 ORDER BY pair ->> 0, age DESC
               ) AS joined
    ), d.{column})
"""

# Where a dataset has several lanes, each adds to what the others said: columns and facts by their names.
_JOIN_SCHEMAS = text(f"""
    UPDATE gobblin.dataset d
       SET source_columns = {_JOINED_COLUMNS.format(column="source_columns", detail="source_columns")},
           published_columns = {_JOINED_COLUMNS.format(column="published_columns", detail="columns")},
           source_facts = coalesce(d.source_facts, '{{}}') || coalesce((
               SELECT jsonb_object_agg(fact.key, fact.value)
                 FROM gobblin.commit_sequence s, jsonb_each(s.details -> 'source_facts') AS fact
                WHERE s.sequence_id = ANY (CAST(:sequence_ids AS uuid[])) AND s.dataset_id = d.dataset_id), '{{}}')
     WHERE {_HAS_LANES}
       AND d.dataset_id IN (SELECT s.dataset_id FROM gobblin.commit_sequence s
                             WHERE s.sequence_id = ANY (CAST(:sequence_ids AS uuid[]))
                               AND s.details ?| ARRAY['source_columns', 'columns', 'source_facts'])
""")

# Everything that earlier sequences published in the partition. The sequence's own segments are sealed, and stay.
_RETIRE_SEGMENTS = text("""
    UPDATE gobblin.segment g
       SET retired_by = s.sequence_id, retired_at = clock_timestamp()
      FROM gobblin.commit_sequence s
     WHERE s.sequence_id = ANY (CAST(:sequence_ids AS uuid[])) AND g.dataset_id = s.dataset_id
       AND g.partition = s.partition AND g.sealed AND g.retired_by IS NULL AND g.sequence_id <> s.sequence_id
""")

# By the sequence's partition: a log's keys are those of all partitions.
_RETIRE_LEDGER = text("""
    UPDATE gobblin.ledger l
       SET active = false, retired_by = s.sequence_id
      FROM gobblin.commit_sequence s, gobblin.commit_sequence before
     WHERE s.sequence_id = ANY (CAST(:sequence_ids AS uuid[])) AND before.dataset_id = s.dataset_id
       AND before.partition = s.partition AND before.state = 'DONE' AND l.sequence_id = before.sequence_id AND l.active
""")

# The number of watermarks that _MOVE_WATERMARKS must move: it does not find those that are not where this sequence
# started from.
_COUNT_MOVES = text(f"""
    SELECT m.sequence_id, count(*) AS planned FROM gobblin.planned_move m
     WHERE m.sequence_id = ANY (CAST(:sequence_ids AS uuid[])) AND {TOUCHES_KEY}
     GROUP BY m.sequence_id
""")

# Compare-and-set by the bytes that positions are compared by; NULL is a key's first position.
_MOVE_WATERMARKS = text(f"""
    UPDATE gobblin.watermark_key k
       SET watermark = coalesce(m.new_watermark, k.watermark),
           watermark_bytes = coalesce(m.new_bytes, k.watermark_bytes),
           sequence_id = m.sequence_id, moved_at = clock_timestamp()
      FROM gobblin.planned_move m
     WHERE m.sequence_id = ANY (CAST(:sequence_ids AS uuid[])) AND k.key_id = m.key_id AND {TOUCHES_KEY}
       AND k.watermark_bytes IS NOT DISTINCT FROM m.old_bytes
 RETURNING m.sequence_id
""")

# An interval without positions holds nothing and would only make the ledger longer; the sequence's own row
# records the empty run.
_WRITE_LEDGER = text("""
    INSERT INTO gobblin.ledger
           (key_id, sequence_id, is_generation, low, high, low_bytes, high_bytes, reread_from)
    SELECT m.key_id, m.sequence_id, i.key_id IS NULL, i.low, i.high, i.low_bytes, i.high_bytes, i.reread_from
      FROM gobblin.planned_move m LEFT JOIN gobblin.planned_interval i USING (sequence_id, key_id)
     WHERE m.sequence_id = ANY (CAST(:sequence_ids AS uuid[]))
       AND (i.key_id IS NULL OR i.low_bytes <> i.high_bytes)
""")

_COMMIT_WORK_UNITS = text(f"""
    UPDATE gobblin.work_unit w
       SET state = '{WorkingState.COMMITTED}'
     WHERE w.sequence_id = ANY (CAST(:sequence_ids AS uuid[])) AND w.state = '{WorkingState.SUCCESSFUL}'
       AND EXISTS (
           SELECT FROM gobblin.attempt a JOIN gobblin.segment s USING (attempt_id)
            WHERE a.sequence_id = w.sequence_id AND a.multi_work_unit = w.multi_work_unit AND a.state = 'STAGED'
              AND s.sealed
       )
""")

_DONE = text(f"""
    UPDATE gobblin.commit_sequence s
       SET state = {result(SequenceEvent.FINISH)}, result_version = given.version, done_at = clock_timestamp(),
           last_error = NULL
      FROM unnest(CAST(:sequence_id AS uuid[]), CAST(:version AS bigint[])) AS given (sequence_id, version)
     WHERE s.sequence_id = given.sequence_id AND s.state {starts(SequenceEvent.FINISH)}
 RETURNING s.sequence_id
""")

_RECORD_FAILURE = text(f"""
    UPDATE gobblin.commit_sequence
       SET failed_tries = failed_tries + 1, last_error = :error,
           next_try_at = clock_timestamp() + make_interval(secs => :retry_in_s),
           state = CASE WHEN :block OR failed_tries + 1 >= :tries_max THEN {result(SequenceEvent.BLOCK)} ELSE state END
     WHERE sequence_id = :sequence_id AND state {starts(SequenceEvent.BLOCK)}
""")

# The reason of an abandonment stays as a person wrote it; a counted failure has set its own time.
_DEFER = text(f"""
    UPDATE gobblin.commit_sequence
       SET next_try_at = clock_timestamp() + make_interval(secs => :retry_in_s),
           last_error = CASE state WHEN 'PREPARED' THEN :error ELSE last_error END
     WHERE sequence_id = :sequence_id AND state {IS_RECOVERABLE}
       AND (next_try_at IS NULL OR next_try_at <= clock_timestamp())
""")

_RESUME = text(f"""
    UPDATE gobblin.commit_sequence
       SET state = {result(SequenceEvent.RESUME)}, failed_tries = 0, next_try_at = NULL
     WHERE sequence_id = :sequence_id AND state {starts(SequenceEvent.RESUME)}
""")

_ABANDON = text(f"""
    UPDATE gobblin.commit_sequence
       SET state = {result(SequenceEvent.ABANDON)}, last_error = :reason, next_try_at = NULL
     WHERE sequence_id = :sequence_id AND state {starts(SequenceEvent.ABANDON)}
""")

# Before anything is captured: a capture is found by the fence in its name, also after its owner has died.
_MARK_FOR_CAPTURE = text("""
    UPDATE gobblin.attempt
       SET cleanup_fences = cleanup_fences || CAST(:fence AS bigint)
     WHERE sequence_id = :sequence_id AND NOT cleanup_fences @> ARRAY[CAST(:fence AS bigint)]
""")

_GIVE_UP = text(f"""
    UPDATE gobblin.commit_sequence
       SET state = {result(SequenceEvent.GIVE_UP)}, aborted_at = clock_timestamp()
     WHERE sequence_id = :sequence_id AND state {starts(SequenceEvent.GIVE_UP)}
""")

# Undone segments are not published: readers and retirements ask for sealed segments only.
_UNSEAL_SEGMENTS = text("UPDATE gobblin.segment SET sealed = false WHERE sequence_id = :sequence_id")

_ABORT = text(f"""
    UPDATE gobblin.commit_sequence
       SET state = {result(SequenceEvent.ABORT)}, aborted_at = clock_timestamp(),
           last_error = coalesce(:error, last_error)
     WHERE sequence_id = :sequence_id AND state {starts(SequenceEvent.ABORT)}
""")

# In the order in which T1 locks them. Their end stays NULL, since no writer reported it: cleanup looks longer for them.
_END_ATTEMPTS = text("""
    UPDATE gobblin.attempt
       SET state = 'CANCELLED', error = coalesce(error, :error)
     WHERE attempt_id IN (
           SELECT attempt_id FROM gobblin.attempt
            WHERE sequence_id = :sequence_id AND state = 'RUNNING' ORDER BY attempt_id FOR UPDATE
       )
""")

_MARK_ANNOUNCED = text("""
    UPDATE gobblin.commit_sequence SET announced_at = clock_timestamp()
     WHERE sequence_id = ANY (CAST(:sequence_ids AS uuid[])) AND state = 'DONE' AND announced_at IS NULL
""")


class PostgresSequenceFinisher(PostgresCommitLogReader):
    """``SequenceFinisher`` over one engine."""

    def claim(self, sequence_id: SequenceId, *, fence: int) -> Sequence[AttemptRecord]:
        def body(connection: Connection) -> list[AttemptRecord]:
            lock_for(connection, sequence_id, fence, SequenceEvent.FINISH)
            connection.execute(_MARK_FOR_CAPTURE, {"sequence_id": sequence_id, "fence": fence})
            return attempts_of(connection, sequence_id)

        return transact(self._engine, "claim sequence", body)

    def finish(self, sequence_id: SequenceId, *, fence: int) -> int:
        return self.finish_all({sequence_id: fence})[sequence_id]

    def finish_all(self, fences: Mapping[SequenceId, int]) -> Mapping[SequenceId, int]:
        try:
            return transact(
                self._engine,
                "finish sequence",
                lambda c: _finish(c, fences),
                committed=Failpoint.FINISH_COMMITTED,
            )
        except IntegrityError as error:
            # The exclusion constraint or the one-generation index of the ledger.
            raise ConflictError(
                "the ledger already holds a part of what this sequence would publish",
                hint="Compare `gobblin-assets ledger` with `gobblin-assets commit show`.",
                sequence_id=", ".join(map(str, fences)),
            ) from error

    def record_failure(
        self, sequence_id: SequenceId, *, fence: int, error: str, tries_max: int, retry_in_s: float, block: bool
    ) -> SequenceRecord:
        arguments = {
            "sequence_id": sequence_id,
            "error": error,
            "tries_max": tries_max,
            "retry_in_s": retry_in_s,
            "block": block,
        }

        def body(connection: Connection) -> None:
            _row, state = lock_for(connection, sequence_id, fence, SequenceEvent.BLOCK)
            if state is not SequenceState.BLOCKED:
                changed = connection.execute(_RECORD_FAILURE, arguments).rowcount
                require_one(changed, "recording a failure", sequence_id)

        transact(self._engine, "record failure", body)
        return self.get(sequence_id)

    def defer(self, sequence_id: SequenceId, *, fence: int, error: str, retry_in_s: float) -> None:
        def body(connection: Connection) -> None:
            hold_fences_of(connection, {sequence_id: fence})
            connection.execute(_DEFER, {"sequence_id": sequence_id, "error": error, "retry_in_s": retry_in_s})

        transact(self._engine, "defer sequence", body)

    def resume(self, sequence_id: SequenceId, *, fence: int) -> None:
        def body(connection: Connection) -> None:
            _row, state = lock_for(connection, sequence_id, fence, SequenceEvent.RESUME)
            if state is not SequenceState.PREPARED:
                changed = connection.execute(_RESUME, {"sequence_id": sequence_id}).rowcount
                require_one(changed, "the resume", sequence_id)

        transact(self._engine, "resume sequence", body)

    def begin_abandon(self, sequence_id: SequenceId, *, fence: int, reason: str) -> None:
        def body(connection: Connection) -> None:
            _row, state = lock_for(connection, sequence_id, fence, SequenceEvent.ABANDON)
            if state is not SequenceState.ABANDONING:
                changed = connection.execute(_ABANDON, {"sequence_id": sequence_id, "reason": reason}).rowcount
                require_one(changed, "the abandonment", sequence_id)
            connection.execute(_MARK_FOR_CAPTURE, {"sequence_id": sequence_id, "fence": fence})

        transact(self._engine, "abandon sequence", body, committed=Failpoint.ABANDON_RECORDED)

    def end_abandon(self, sequence_id: SequenceId, *, fence: int, unlogged: Sequence[str] = ()) -> None:
        transact(
            self._engine,
            "give up sequence",
            lambda c: _end_abandon(c, sequence_id, fence, unlogged),
            committed=Failpoint.ABANDON_COMMITTED,
        )

    def abort(self, sequence_id: SequenceId, *, fence: int, error: str | None) -> None:
        def body(connection: Connection) -> None:
            _row, state = lock_for(connection, sequence_id, fence, SequenceEvent.ABORT)
            if state is not SequenceState.ABORTED:
                changed = connection.execute(_ABORT, {"sequence_id": sequence_id, "error": error}).rowcount
                require_one(changed, "the abort", sequence_id)
                connection.execute(_END_ATTEMPTS, {"sequence_id": sequence_id, "error": error})

        transact(self._engine, "abort sequence", body)

    def mark_announced(self, *sequence_ids: SequenceId) -> None:
        arguments = {"sequence_ids": list(sequence_ids)}
        transact(self._engine, "mark announced", lambda c: c.execute(_MARK_ANNOUNCED, arguments).rowcount)


def _finish(connection: Connection, fences: Mapping[SequenceId, int]) -> dict[SequenceId, int]:
    """T3 for sequences of different lanes, all of them or none. Returns the versions of their datasets."""
    locked = lock_for_all(connection, fences, SequenceEvent.FINISH)
    versions = {
        sequence_id: int(row.result_version)
        for sequence_id, (row, state) in locked.items()
        if state is SequenceState.DONE
    }
    left = {sequence_id: row for sequence_id, (row, _state) in locked.items() if sequence_id not in versions}
    return versions | _finish_prepared(connection, left) if left else versions


def _finish_prepared(connection: Connection, rows: Mapping[SequenceId, Row[Any]]) -> dict[SequenceId, int]:
    ids = {"sequence_ids": list(rows)}
    connection.execute(_LOCK_DATASETS, ids)
    versions = {SequenceId(row.sequence_id): int(row.version) for row in connection.execute(_MOVE_VERSIONS, ids)}
    for sequence_id, row in rows.items():
        if sequence_id not in versions:
            raise ConflictError(f"the lane is not at version {row.base_version} any more", **_shown(sequence_id))
    connection.execute(_MOVE_SCHEMAS, ids)
    connection.execute(_JOIN_SCHEMAS, ids)
    replacing = [sequence_id for sequence_id, row in rows.items() if row.replaces]
    if replacing:
        connection.execute(_RETIRE_SEGMENTS, {"sequence_ids": replacing})
        connection.execute(_RETIRE_LEDGER, {"sequence_ids": replacing})
    planned = {row.sequence_id: row.planned for row in connection.execute(_COUNT_MOVES, ids)}
    moved = Counter(connection.execute(_MOVE_WATERMARKS, ids).scalars())
    for sequence_id, count in planned.items():
        if moved[sequence_id] != count:
            raise ConflictError(
                f"{count - moved[sequence_id]} of {count} watermarks are not where this sequence started from",
                **_shown(sequence_id),
            )
    connection.execute(_WRITE_LEDGER, ids)
    connection.execute(_COMMIT_WORK_UNITS, ids)
    done = {"sequence_id": list(versions), "version": list(versions.values())}
    require_each(connection.execute(_DONE, done).scalars(), "the finish", rows)
    return versions


def _end_abandon(connection: Connection, sequence_id: SequenceId, fence: int, unlogged: Sequence[str]) -> None:
    if unlogged:
        connection.execute(_LOCK_DATASETS, {"sequence_ids": [sequence_id]})
    _row, state = lock_for(connection, sequence_id, fence, SequenceEvent.GIVE_UP)
    if state is SequenceState.ABORTED:
        return
    connection.execute(_UNSEAL_SEGMENTS, {"sequence_id": sequence_id})
    changed = connection.execute(_GIVE_UP, {"sequence_id": sequence_id}).rowcount
    require_one(changed, "giving up", sequence_id)
    if unlogged:
        arguments = {"sequence_id": sequence_id, "fact": UNLOGGED_FACT, "names": json.dumps(sorted(unlogged))}
        connection.execute(_REMEMBER_UNLOGGED, arguments)


def _shown(sequence_id: SequenceId) -> dict[str, str]:
    return {"sequence_id": str(sequence_id)}
