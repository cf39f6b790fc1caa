"""T2, the decision: BUILDING becomes PREPARED, for all given sequences or for none.

The leases are locked first, then the sequences. From then on nothing that is read below can change: no attempt is
staged while its sequence is locked, and a lane's version moves only under its lease. The keys are locked as well: only
their lane publishes them, each from its position. ``_SEAL`` checks state, fence and version once more, in the
statement that writes. A repetition behind a lost acknowledgement finds its own digest, and does nothing.
"""

import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Row, text
from sqlalchemy.exc import IntegrityError

from gobblin_assets.commit.postgres.arguments import in_columns, watermark_to_bytes, watermark_to_jsonb
from gobblin_assets.commit.postgres.building import PostgresSequenceBuilder
from gobblin_assets.commit.postgres.guards import hold_fences, lock_sequences, require_each, require_edge
from gobblin_assets.commit.segment import combine_digests
from gobblin_assets.commit.sequence import KeyMove, SealOrder
from gobblin_assets.db.statement_texts import IS_OPEN, result, starts, to_jsonb
from gobblin_assets.db.transactions import transact
from gobblin_assets.errors import ConflictError, CorruptionError
from gobblin_assets.failpoints import Failpoint
from gobblin_assets.model.sequence_state import SequenceEvent, SequenceState, target_of
from gobblin_assets.model.state import SequenceId

_VERSIONS = text("""
    SELECT lane_id, version FROM gobblin.lane WHERE lane_id = ANY (CAST(:lane_ids AS bigint[]))
""")

# Not locked: a STAGED attempt stays STAGED.
_STAGED_WINNERS = text("""
    SELECT sequence_id, attempt_id FROM gobblin.attempt
     WHERE sequence_id = ANY (CAST(:sequence_ids AS uuid[])) AND state = 'STAGED'
       AND attempt_id = ANY (CAST(:winners AS uuid[]))
""")

# Only of the winners. The returned counts are added up, and compared with the counts that the run wrote.
_SEAL_SEGMENTS = text("""
    UPDATE gobblin.segment s
       SET sealed = true
      FROM gobblin.attempt a
     WHERE s.attempt_id = a.attempt_id AND s.sequence_id = ANY (CAST(:sequence_ids AS uuid[]))
       AND a.sequence_id = s.sequence_id AND a.state = 'STAGED' AND a.attempt_id = ANY (CAST(:winners AS uuid[]))
 RETURNING s.sequence_id, s.digest, s.step_count, s.file_count, s.row_count, s.file_bytes
""")

# Before the moves, which refer to keys; in the order of datasets, as everywhere. A new key is its first lane's.
_MAKE_KEYS = text("""
    INSERT INTO gobblin.watermark_key (dataset_id, name, partition, lane_id)
    SELECT dataset_id, name, partition, lane_id
      FROM unnest(CAST(:dataset_id AS bigint[]), CAST(:name AS text[]), CAST(:partition AS text[]),
                  CAST(:lane_id AS bigint[])) AS given (dataset_id, name, partition, lane_id)
     ORDER BY dataset_id, name, partition
        ON CONFLICT (dataset_id, name, partition) DO NOTHING
""")

# A move that leaves the watermark where it is does not care where that is. Who holds the dataset as a whole publishes
# the keys of all lanes: it has raised their fences, and none of them can be taken.
_LOCK_KEYS = text("""
    SELECT k.key_id
      FROM unnest(CAST(:dataset_id AS bigint[]), CAST(:name AS text[]), CAST(:partition AS text[]),
                  CAST(:lane_id AS bigint[]), CAST(:old_bytes AS bytea[]), CAST(:touches AS boolean[]))
           AS given (dataset_id, name, partition, lane_id, old_bytes, touches)
      JOIN gobblin.watermark_key k
           ON k.dataset_id = given.dataset_id AND k.name = given.name AND k.partition = given.partition
     WHERE (k.lane_id = given.lane_id
            OR given.lane_id = given.dataset_id
               AND (SELECT w.is_whole FROM gobblin.lease w WHERE w.lane_id = given.lane_id))
       AND (NOT given.touches OR k.watermark_bytes IS NOT DISTINCT FROM given.old_bytes)
     ORDER BY k.key_id
       FOR NO KEY UPDATE OF k
""")

_PLAN_MOVES = text("""
    INSERT INTO gobblin.planned_move (sequence_id, key_id, old_watermark, old_bytes, new_watermark, new_bytes)
    SELECT m.sequence_id, k.key_id, CAST(m.old AS jsonb), m.old_bytes, CAST(m.new AS jsonb), m.new_bytes
      FROM unnest(CAST(:sequence_id AS uuid[]), CAST(:dataset_id AS bigint[]), CAST(:name AS text[]),
                  CAST(:partition AS text[]), CAST(:old AS text[]), CAST(:old_bytes AS bytea[]),
                  CAST(:new AS text[]), CAST(:new_bytes AS bytea[]))
           AS m (sequence_id, dataset_id, name, partition, old, old_bytes, new, new_bytes)
      JOIN gobblin.watermark_key k ON k.dataset_id = m.dataset_id AND k.name = m.name AND k.partition = m.partition
""")

_PLAN_INTERVALS = text("""
    INSERT INTO gobblin.planned_interval (sequence_id, key_id, low, low_bytes, high, high_bytes, reread_from)
    SELECT i.sequence_id, k.key_id, CAST(i.low AS jsonb), i.low_bytes, CAST(i.high AS jsonb), i.high_bytes,
           CAST(i.reread_from AS jsonb)
      FROM unnest(CAST(:sequence_id AS uuid[]), CAST(:dataset_id AS bigint[]), CAST(:name AS text[]),
                  CAST(:partition AS text[]), CAST(:low AS text[]), CAST(:low_bytes AS bytea[]),
                  CAST(:high AS text[]), CAST(:high_bytes AS bytea[]), CAST(:reread_from AS text[]))
           AS i (sequence_id, dataset_id, name, partition, low, low_bytes, high, high_bytes, reread_from)
      JOIN gobblin.watermark_key k ON k.dataset_id = i.dataset_id AND k.name = i.name AND k.partition = i.partition
""")

# Who held the dataset as a whole may have left an open sequence in lane 0. Until it ends, no other lane publishes the
# same keys: its records would be published twice. And nothing else is published where it replaces all that is there:
# the replacement would retire what it has not read. It is seen: its seal kept takers of lanes out until it committed.
_FIND_OPEN_ELSEWHERE = text(f"""
    SELECT s.sequence_id, o.sequence_id AS other
      FROM gobblin.commit_sequence s
      JOIN gobblin.lane n ON n.dataset_id = s.dataset_id AND n.lane_id <> s.lane_id
      JOIN gobblin.commit_sequence o ON o.lane_id = n.lane_id AND o.state {IS_OPEN}
     WHERE s.sequence_id = ANY (CAST(:sequence_ids AS uuid[]))
       AND ((s.replaces OR o.replaces) AND s.partition = o.partition
            OR EXISTS (SELECT FROM gobblin.planned_move m JOIN gobblin.planned_move t USING (key_id)
                        WHERE m.sequence_id = s.sequence_id AND t.sequence_id = o.sequence_id))
     LIMIT 1
""")

# Subqueries, since the planner expects few rows of a join with so many conditions, and then compares all with all.
_SEAL = text(f"""
    UPDATE gobblin.commit_sequence s
       SET state = {result(SequenceEvent.SEAL)}, base_version = given.base_version, digest = given.digest,
           complete = given.complete, segment_count = given.segment_count, step_count = given.step_count,
           file_count = given.file_count,
           row_count = given.row_count, file_bytes = given.file_bytes, prepared_at = clock_timestamp(),
           details = s.details || CAST(given.details AS jsonb)
      FROM unnest(CAST(:sequence_id AS uuid[]), CAST(:fence AS bigint[]), CAST(:base_version AS bigint[]),
                  CAST(:digest AS bytea[]), CAST(:complete AS boolean[]), CAST(:segment_count AS integer[]),
                  CAST(:step_count AS bigint[]), CAST(:file_count AS bigint[]), CAST(:row_count AS bigint[]),
                  CAST(:file_bytes AS bigint[]), CAST(:details AS text[]))
           AS given (sequence_id, fence, base_version, digest, complete, segment_count, step_count, file_count,
                     row_count, file_bytes, details)
     WHERE s.sequence_id = given.sequence_id AND s.state {starts(SequenceEvent.SEAL)} AND s.fence = given.fence
       AND (SELECT n.version FROM gobblin.lane n WHERE n.lane_id = s.lane_id) = given.base_version
       AND (SELECT l.fence FROM gobblin.lease l WHERE l.lane_id = s.lane_id) = given.fence
 RETURNING s.sequence_id
""")


class PostgresSequenceSealer(PostgresSequenceBuilder):
    """``SequenceSealer`` over one engine."""

    def seal(self, *orders: SealOrder) -> None:
        try:
            transact(self._engine, "seal sequence", lambda c: _seal(c, orders), committed=Failpoint.SEAL_COMMITTED)
        except IntegrityError as error:
            # The partial unique index: one open sequence for a dataset.
            raise ConflictError(
                "another sequence of this dataset is still open",
                hint="It is completed first; see `gobblin-assets commit list`.",
                sequence_id=", ".join(str(order.sequence_id) for order in orders),
            ) from error


def _seal(connection: Connection, orders: Sequence[SealOrder]) -> None:
    hold_fences(connection, [(order.lane_id, order.fence) for order in orders])
    rows = lock_sequences(connection, [order.sequence_id for order in orders])
    left = [order for order in orders if _is_to_seal(order, rows[order.sequence_id])]
    if not left:
        return
    _require_versions(connection, left)
    totals = _seal_segments(connection, left)
    _plan_moves(connection, left)
    _require_closed_elsewhere(connection, left)
    sealed = [
        {
            "sequence_id": order.sequence_id,
            "fence": order.fence,
            "base_version": order.base_version,
            "digest": order.digest,
            "complete": order.complete,
            "details": to_jsonb(order.details),
            **totals[order.sequence_id],
        }
        for order in left
    ]
    changed = connection.execute(_SEAL, in_columns(sealed)).scalars()
    require_each(changed, "the seal", [order.sequence_id for order in left])


def _is_to_seal(order: SealOrder, row: Row[Any]) -> bool:
    state = SequenceState(row.state)
    if state is target_of(SequenceEvent.SEAL) and row.digest == order.digest:
        return False
    require_edge(order.sequence_id, state, SequenceEvent.SEAL)
    return True


def _require_versions(connection: Connection, orders: Sequence[SealOrder]) -> None:
    rows = connection.execute(_VERSIONS, {"lane_ids": [order.lane_id for order in orders]})
    versions = {row.lane_id: row.version for row in rows}
    for order in orders:
        version = versions[order.lane_id]
        if version != order.base_version:
            raise ConflictError(
                f"the dataset is at version {version}, but this run was planned on {order.base_version}",
                hint="Another run published meanwhile; the next run plans again from there.",
                dataset_id=order.dataset_id,
            )


def _seal_segments(connection: Connection, orders: Sequence[SealOrder]) -> Mapping[SequenceId, dict[str, int]]:
    arguments = {
        "sequence_ids": [order.sequence_id for order in orders],
        "winners": [winner for order in orders for winner in order.winners],
    }
    staged: dict[uuid.UUID, set[uuid.UUID]] = defaultdict(set)
    for row in connection.execute(_STAGED_WINNERS, arguments):
        staged[row.sequence_id].add(row.attempt_id)
    for order in orders:
        count = len(staged[order.sequence_id].intersection(order.winners))
        if count != len(order.winners):
            raise ConflictError(f"{count} of {len(order.winners)} winning attempts are staged")
    segments: dict[uuid.UUID, list[Row[Any]]] = defaultdict(list)
    for row in connection.execute(_SEAL_SEGMENTS, arguments):
        segments[row.sequence_id].append(row)
    return {order.sequence_id: _add_up(order, segments[order.sequence_id]) for order in orders}


def _add_up(order: SealOrder, segments: Sequence[Row[Any]]) -> dict[str, int]:
    row_count = sum(segment.row_count for segment in segments)
    found = (len(segments), row_count, combine_digests(segment.digest for segment in segments))
    if found != (order.segment_count, order.row_count, order.digest):
        raise CorruptionError("the staged segments are not those that this run wrote")
    return {
        "segment_count": len(segments),
        "step_count": sum(segment.step_count for segment in segments),
        "file_count": sum(segment.file_count for segment in segments),
        "row_count": row_count,
        "file_bytes": sum(segment.file_bytes for segment in segments),
    }


def _plan_moves(connection: Connection, orders: Sequence[SealOrder]) -> None:
    planned = [(order, move) for order in orders for move in order.moves]
    if not planned:
        return
    keys = [{"dataset_id": order.dataset_id, "name": move.key, "partition": move.partition} for order, move in planned]
    owned = [{**key, "lane_id": order.lane_id} for key, (order, _move) in zip(keys, planned, strict=True)]
    connection.execute(_MAKE_KEYS, in_columns(owned))
    _require_keys(connection, planned, owned)
    moves = [
        {
            "sequence_id": order.sequence_id,
            **key,
            "old": watermark_to_jsonb(move.old),
            "old_bytes": watermark_to_bytes(move.old),
            "new": watermark_to_jsonb(move.new),
            "new_bytes": watermark_to_bytes(move.new),
        }
        for key, (order, move) in zip(keys, planned, strict=True)
    ]
    _require_all(connection.execute(_PLAN_MOVES, in_columns(moves)).rowcount, moves, "watermark moves")
    intervals = [
        {
            "sequence_id": order.sequence_id,
            **key,
            "low": watermark_to_jsonb(each.interval.low),
            "low_bytes": each.interval.low_bytes(),
            "high": watermark_to_jsonb(each.interval.high),
            "high_bytes": each.interval.high_bytes(),
            "reread_from": watermark_to_jsonb(each.reread_from),
        }
        for key, (order, move) in zip(keys, planned, strict=True)
        for each in move.intervals
    ]
    if intervals:
        _require_all(connection.execute(_PLAN_INTERVALS, in_columns(intervals)).rowcount, intervals, "intervals")


def _require_keys(
    connection: Connection, planned: Sequence[tuple[SealOrder, KeyMove]], owned: Sequence[dict[str, Any]]
) -> None:
    """Each key is the lane's, and its position is the start of its move."""
    wanted = [
        {**key, "old_bytes": watermark_to_bytes(move.old), "touches": move.new is not None or not move.intervals}
        for key, (_order, move) in zip(owned, planned, strict=True)
    ]
    ready = len(connection.execute(_LOCK_KEYS, in_columns(wanted)).all())
    if ready != len(wanted):
        raise ConflictError(
            f"{len(wanted) - ready} of {len(wanted)} watermarks are not where this sequence started from, or belong to "
            "another lane",
            hint="Another process published or moved them meanwhile; the next read starts from where they are.",
            sequence_id=", ".join(sorted({str(order.sequence_id) for order, _move in planned})),
        )


def _require_closed_elsewhere(connection: Connection, orders: Sequence[SealOrder]) -> None:
    asked = {"sequence_ids": [order.sequence_id for order in orders]}
    for row in connection.execute(_FIND_OPEN_ELSEWHERE, asked):
        raise ConflictError(
            f"sequence {row.other} of another lane is open, and publishes the same keys or replaces the partition",
            hint="Complete it first: `gobblin-assets commit recover`, or run its sink.",
            sequence_id=str(row.sequence_id),
        )


def _require_all(done: int, wanted: Sequence[object], what: str) -> None:
    if done != len(wanted):
        raise CorruptionError(f"{done} of {len(wanted)} {what} could be planned")
