"""Removes rows older than a job's history: retired publications without files, and aborted sequences."""

from typing import Final

from sqlalchemy import Connection, text

from gobblin_assets.commit.folding import FoldBounds, list_named_sequences
from gobblin_assets.commit.postgres.fold_members import UNREPORTED_S
from gobblin_assets.commit.postgres.guards import hold_fences, lock_sequences
from gobblin_assets.model.state import LaneId, SequenceId

_IS_CLEAN: Final = """
    NOT EXISTS (SELECT FROM gobblin.attempt a WHERE a.sequence_id = s.sequence_id AND a.cleaned_at IS NULL)
"""

# By the lane's version: the newest of each lane have markers. If a dataset has no files any more, only the newest
# schema of a role has its columns. The newest publication of a partition tells that it was read, also if it was empty.
_RETIRED = text(f"""
    SELECT s.sequence_id
      FROM gobblin.lane n JOIN gobblin.commit_sequence s USING (lane_id)
     WHERE s.lane_id = :lane_id AND s.state = 'DONE'
       AND (s.announced_at IS NOT NULL OR s.done_at <= clock_timestamp() - make_interval(secs => :unreported_s))
       AND s.base_version < n.version - :keep
       AND s.done_at <= clock_timestamp() - make_interval(secs => :history_s) AND {_IS_CLEAN}
       AND NOT EXISTS (SELECT FROM gobblin.ledger l WHERE l.sequence_id = s.sequence_id AND l.active)
       AND NOT EXISTS (
               SELECT FROM gobblin.segment g
                WHERE g.sequence_id = s.sequence_id AND g.sealed
                  AND (g.removed_at IS NULL OR g.removed_at > clock_timestamp() - make_interval(secs => :history_s)
                       OR g.file_schema IS NOT NULL AND NOT EXISTS (
                              SELECT FROM gobblin.segment n JOIN gobblin.commit_sequence m USING (sequence_id)
                               WHERE n.dataset_id = s.dataset_id AND n.role = g.role AND n.sealed
                                 AND n.file_schema IS NOT NULL AND m.state = 'DONE'
                                 AND m.result_version > s.result_version))
           )
       AND (s.details ? 'compaction'
            OR EXISTS (SELECT FROM gobblin.commit_sequence m
                        WHERE m.dataset_id = s.dataset_id AND m.partition = s.partition AND m.state = 'DONE'
                          AND m.result_version > s.result_version AND NOT m.details ? 'compaction'))
       AND NOT EXISTS (SELECT FROM gobblin.segment g WHERE g.retired_by = s.sequence_id)
       AND NOT EXISTS (SELECT FROM gobblin.ledger l WHERE l.retired_by = s.sequence_id)
     ORDER BY s.result_version
     LIMIT :limit
""")

_ABORTED = text(f"""
    SELECT s.sequence_id FROM gobblin.commit_sequence s
     WHERE s.lane_id = :lane_id AND s.state = 'ABORTED'
       AND s.aborted_at <= clock_timestamp() - make_interval(secs => :history_s) AND {_IS_CLEAN}
     ORDER BY s.aborted_at, s.sequence_id
     LIMIT :limit
""")

_PAYLOADS = text("""
    SELECT payload, digest FROM gobblin.segment
     WHERE sequence_id = ANY (CAST(:sequence_ids AS uuid[])) AND sealed
""")

# Their directories are gone, so nobody asks for them any more.
_FORGET_PAST = text("""
    DELETE FROM gobblin.past_sequence WHERE sequence_id = ANY (CAST(:named AS uuid[])) AND lane_id = :lane_id
""")

_REMEMBER_ABORTED = text("""
    INSERT INTO gobblin.past_sequence (sequence_id, dataset_id, lane_id, state)
    SELECT sequence_id, dataset_id, lane_id, 'ABORTED' FROM gobblin.commit_sequence
     WHERE sequence_id = ANY (CAST(:sequence_ids AS uuid[])) AND state = 'ABORTED' AND digest IS NOT NULL
""")

# Referring rows are removed before the rows that they refer to.
_FORGET = (
    text("""
        UPDATE gobblin.run_dataset SET sequence_id = NULL WHERE sequence_id = ANY (CAST(:sequence_ids AS uuid[]))
    """),
    *(
        text(f"DELETE FROM gobblin.{table} WHERE sequence_id = ANY (CAST(:sequence_ids AS uuid[]))")
        for table in (
            "planned_interval",
            "planned_move",
            "work_unit",
            "ledger",
            "segment",
            "attempt",
            "commit_sequence",
        )
    ),
)


def forget(connection: Connection, lane_id: LaneId, fence: int, bounds: FoldBounds, limit: int) -> int:
    """Remove old sequences, and return their number; fewer than ``limit``: there are no more."""
    hold_fences(connection, [(lane_id, fence)])
    asked = {
        "lane_id": lane_id,
        "keep": bounds.keep_remembered,
        "history_s": bounds.history_s,
        "unreported_s": UNREPORTED_S,
        "limit": limit,
    }
    retired = list(connection.execute(_RETIRED, asked).scalars())
    aborted = list(connection.execute(_ABORTED, {**asked, "limit": limit - len(retired)}).scalars())
    ids = {"sequence_ids": [*retired, *aborted]}
    if not ids["sequence_ids"]:
        return 0
    lock_sequences(connection, [SequenceId(sequence_id) for sequence_id in ids["sequence_ids"]])
    payloads = connection.execute(_PAYLOADS, {"sequence_ids": retired}).all()
    named = list_named_sequences((bytes(row.payload), bytes(row.digest)) for row in payloads)
    connection.execute(_FORGET_PAST, {"named": list(named), "lane_id": lane_id})
    connection.execute(_REMEMBER_ABORTED, ids)
    for statement in _FORGET:
        connection.execute(statement, ids)
    return len(ids["sequence_ids"])
