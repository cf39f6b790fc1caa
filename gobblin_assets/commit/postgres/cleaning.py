"""Marks of files that may be removed, and of those that were: staging of attempts whose sequence is over, and files of
retired generations.
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Final

from sqlalchemy import Connection, text

from gobblin_assets.commit.postgres.guards import hold_fences
from gobblin_assets.commit.postgres.reading import ATTEMPT_COLUMNS, PostgresCommitLogReader, attempt_of
from gobblin_assets.commit.sequence import AttemptRecord, LeftoverRequest
from gobblin_assets.db.statement_texts import IS_OVER
from gobblin_assets.db.transactions import transact
from gobblin_assets.failpoints import Failpoint
from gobblin_assets.model.state import AttemptId, LaneId

# How long an attempt's name is looked at again after nothing was found there.
FAILED_GRACE_S: Final = 600.0
SILENT_GRACE_S: Final = 86_400.0
# Captures under older fences than these are long removed, where each capture has a place of its own. At given names
# there is one place, and its fence may be old.
FENCES_KEPT_MAX: Final = 8
LEFT_OPEN: Final = "its writer never reported its end; the sequence is over"

# What was sealed and then given up is never used again: a person may have found it wrong.
_IS_REUSABLE: Final = """{0}.state = 'ABORTED' AND {0}.prepared_at IS NULL AND {0}.details ? 'reuse_keep_s'
         AND {0}.aborted_at > clock_timestamp() - make_interval(secs => {1})"""

# Only a staged attempt has slots. A RUNNING attempt of such a sequence can't be staged any more. It gets no end,
# since none was reported: _MARK_CLEANED asks for that.
_MARK = text(f"""
    UPDATE gobblin.attempt a
       SET cleanup_fences = CASE WHEN a.cleanup_fences @> ARRAY[given.fence] THEN a.cleanup_fences
                                 WHEN s.details ? 'slots_keep_s' THEN a.cleanup_fences || given.fence
                                 ELSE (a.cleanup_fences || given.fence)
                                      [greatest(1, cardinality(a.cleanup_fences) + 2 - :fences_kept_max) :] END,
           state = CASE WHEN a.state = 'RUNNING' THEN 'CANCELLED' ELSE a.state END,
           error = CASE WHEN a.state = 'RUNNING' THEN coalesce(a.error, :left) ELSE a.error END
      FROM gobblin.commit_sequence s,
           unnest(CAST(:lane_id AS bigint[]), CAST(:fence AS bigint[])) AS given (lane_id, fence)
     WHERE s.sequence_id = a.sequence_id AND s.state {IS_OVER} AND a.lane_id = given.lane_id
       AND a.attempt_id IN (
           SELECT mine.attempt_id FROM unnest(CAST(:lane_id AS bigint[])) AS each (lane_id)
            CROSS JOIN LATERAL (
                  SELECT o.attempt_id FROM gobblin.attempt o JOIN gobblin.commit_sequence q USING (sequence_id)
                   WHERE o.lane_id = each.lane_id AND o.cleaned_at IS NULL AND q.state {IS_OVER}
                     AND (q.state <> 'DONE' OR o.state <> 'STAGED' OR NOT q.details ? 'slots_keep_s'
                          OR q.done_at <= clock_timestamp()
                             - make_interval(secs => CAST(q.details ->> 'slots_keep_s' AS double precision)))
                     AND NOT ({_IS_REUSABLE.format("q", "CAST(q.details ->> 'reuse_keep_s' AS double precision)")}
                              AND NOT EXISTS (
                                  SELECT FROM gobblin.commit_sequence later
                                   WHERE later.dataset_id = q.dataset_id AND later.partition = q.partition
                                     AND later.state = 'DONE' AND later.done_at >= q.aborted_at
                              ))
                   ORDER BY o.started_at, o.attempt_id
                   LIMIT :limit
                  ) AS mine
       )
 RETURNING {ATTEMPT_COLUMNS}
""")

# An attempt of the sequence itself that has ended is used by its next try.
_MARK_FOR_REUSE = text(f"""
    UPDATE gobblin.attempt a
       SET cleanup_fences = CASE WHEN a.cleanup_fences @> ARRAY[CAST(:fence AS bigint)] THEN a.cleanup_fences
                                 ELSE a.cleanup_fences || CAST(:fence AS bigint) END,
           state = CASE WHEN a.state = 'RUNNING' THEN 'CANCELLED' ELSE a.state END,
           error = CASE WHEN a.state = 'RUNNING' THEN coalesce(a.error, :left) ELSE a.error END
      FROM gobblin.commit_sequence s
     WHERE s.sequence_id = a.sequence_id
       AND a.attempt_id IN (
           SELECT o.attempt_id FROM gobblin.attempt o JOIN gobblin.commit_sequence q USING (sequence_id)
            WHERE o.dataset_id = :dataset_id AND o.cleaned_at IS NULL AND q.partition = :partition
              AND ({_IS_REUSABLE.format("q", "CAST(:keep_s AS double precision)")}
                   OR q.sequence_id = :sequence_id AND q.details ? 'reuse_keep_s'
                      AND o.state IN ('FAILED', 'CANCELLED'))
            ORDER BY o.started_at DESC, o.attempt_id DESC
            LIMIT :limit
       )
 RETURNING {ATTEMPT_COLUMNS}, a.started_at
""")

# Without a lock on the lease: removed files are removed for every owner. But a newer owner that has marked the attempt
# may have moved its directory to a name that this owner did not look at. A staged attempt had written its last byte. A
# failed attempt may have tasks left that are slow to end. An attempt that never reported may belong to a paused
# process, which makes its directory again when it wakes up.
_MARK_CLEANED = text("""
    UPDATE gobblin.attempt SET cleaned_at = clock_timestamp()
      FROM unnest(CAST(:attempt_ids AS uuid[]), CAST(:fences AS bigint[])) AS given (id, fence)
     WHERE attempt_id = given.id AND given.fence >= ALL (cleanup_fences)
       AND (state = 'STAGED'
            OR state <> 'RUNNING' AND ended_at < clock_timestamp() - make_interval(secs => :failed_grace_s)
            OR started_at < clock_timestamp() - make_interval(secs => :silent_grace_s))
""")

# Without a fence, as above: nobody brings the files of a retired segment back.
_MARK_REMOVED = text("""
    UPDATE gobblin.segment SET removed_at = clock_timestamp()
     WHERE segment_id = ANY (CAST(:segment_ids AS uuid[]))
""")


class PostgresCommitLogCleaner(PostgresCommitLogReader):
    """``CommitLogCleaner`` over one engine."""

    def mark_for_cleanup(self, fences: Mapping[LaneId, int], *, limit: int) -> Sequence[AttemptRecord]:
        owners = {"lane_id": list(fences), "fence": list(fences.values())}
        arguments = {**owners, "limit": limit, "fences_kept_max": FENCES_KEPT_MAX, "left": LEFT_OPEN}

        def body(connection: Connection) -> list[AttemptRecord]:
            hold_fences(connection, fences.items())
            return [attempt_of(row) for row in connection.execute(_MARK, arguments)]

        return transact(self._engine, "mark for cleanup", body, committed=Failpoint.CLEANUP_MARKED)

    def mark_for_reuse(self, request: LeftoverRequest) -> Sequence[AttemptRecord]:
        def body(connection: Connection) -> list[AttemptRecord]:
            hold_fences(connection, [(request.dataset_id, request.fence)])
            rows = connection.execute(_MARK_FOR_REUSE, {**asdict(request), "left": LEFT_OPEN}).all()
            newest_first = sorted(rows, key=lambda row: (row.started_at, row.attempt_id), reverse=True)
            return [attempt_of(row) for row in newest_first]

        return transact(self._engine, "mark for reuse", body, committed=Failpoint.REUSE_MARKED)

    def mark_cleaned(self, fences: Mapping[AttemptId, int]) -> None:
        arguments = {
            "attempt_ids": list(fences),
            "fences": list(fences.values()),
            "failed_grace_s": FAILED_GRACE_S,
            "silent_grace_s": SILENT_GRACE_S,
        }
        transact(self._engine, "mark cleaned", lambda c: c.execute(_MARK_CLEANED, arguments).rowcount)

    def mark_removed(self, segment_ids: Sequence[uuid.UUID]) -> None:
        arguments = {"segment_ids": list(segment_ids)}
        transact(self._engine, "mark removed", lambda c: c.execute(_MARK_REMOVED, arguments).rowcount)
