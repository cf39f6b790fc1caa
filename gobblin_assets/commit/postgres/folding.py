"""Folding: old publications of a dataset partition become one, in one transaction.

The segments of a fold at given names are read and written some at a time, in the transaction of the fold.
"""

import uuid
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final, TypeVar

from sqlalchemy import Connection, Row, text

from gobblin_assets.commit.folding import (
    FILES_JOINED_MAX,
    TIDY_S,
    Fold,
    FoldBounds,
    FoldSegment,
    bound_fold,
    join_intervals,
    join_segments,
    plan_folds,
    shorten_details,
)
from gobblin_assets.commit.named_folding import NamedPart, NamedRun, bound_named_fold, choose_runs, fold_names
from gobblin_assets.commit.postgres.arguments import in_columns, segment_columns, watermark_to_jsonb
from gobblin_assets.commit.postgres.cleaning import PostgresCommitLogCleaner
from gobblin_assets.commit.postgres.fold_members import find_earlier_folds, find_members, find_named_members
from gobblin_assets.commit.postgres.forgetting import forget
from gobblin_assets.commit.postgres.guards import hold_fences, lock_sequences, require_each
from gobblin_assets.commit.postgres.reading import published_interval_of, segment_of
from gobblin_assets.commit.segment import combine_digests
from gobblin_assets.commit.sequence import PublishedInterval
from gobblin_assets.db.statement_texts import IS_OPEN, to_jsonb
from gobblin_assets.db.transactions import transact
from gobblin_assets.errors import CorruptionError
from gobblin_assets.failpoints import Failpoint, reach
from gobblin_assets.model.state import DatasetId, LaneId, SequenceId

_T = TypeVar("_T")

_SEGMENTS_AT_ONCE: Final = 8

# Arrays of the same length: each member, and the sequence that it becomes a part of.
GIVEN: Final = "unnest(CAST(:members AS uuid[]), CAST(:survivors AS uuid[])) AS given (member, survivor)"

DROP_SEGMENTS: Final = text("DELETE FROM gobblin.segment WHERE segment_id = ANY (CAST(:segment_ids AS uuid[]))")

ADD_SEGMENTS: Final = text("""
    INSERT INTO gobblin.segment
           (segment_id, sequence_id, dataset_id, number, role, partition, payload, digest, step_count, file_count,
            row_count, file_bytes, file_schema, version, sealed)
    SELECT segment_id, sequence_id, :dataset_id, number, role, partition, payload, digest, step_count, file_count,
           row_count, file_bytes, CAST(file_schema AS jsonb), version, true
      FROM unnest(CAST(:segment_id AS uuid[]), CAST(:sequence_id AS uuid[]), CAST(:number AS integer[]),
                  CAST(:role AS text[]), CAST(:partition AS text[]), CAST(:payload AS bytea[]),
                  CAST(:digest AS bytea[]), CAST(:step_count AS bigint[]), CAST(:file_count AS bigint[]),
                  CAST(:row_count AS bigint[]), CAST(:file_bytes AS bigint[]), CAST(:file_schema AS text[]),
                  CAST(:version AS bigint[]))
           AS given (segment_id, sequence_id, number, role, partition, payload, digest, step_count, file_count,
                     row_count, file_bytes, file_schema, version)
""")

_RUNS = text("""
    SELECT g.version, sum(g.step_count)::bigint AS step_count
      FROM gobblin.segment g JOIN gobblin.commit_sequence s USING (sequence_id)
     WHERE g.dataset_id = :dataset_id AND g.sealed AND s.state = 'DONE' AND s.folded_at IS NOT NULL
       AND s.details ? 'slots_keep_s'
     GROUP BY g.version
""")

_PARTS = text(f"""
    SELECT g.segment_id, g.sequence_id, coalesce(given.survivor, g.sequence_id) AS owner, g.partition
      FROM gobblin.segment g JOIN gobblin.commit_sequence s USING (sequence_id)
      LEFT JOIN {GIVEN} ON given.member = g.sequence_id
     WHERE g.dataset_id = :dataset_id AND g.sealed AND s.state = 'DONE' AND s.details ? 'slots_keep_s'
       AND CASE WHEN s.folded_at IS NULL THEN given.member IS NOT NULL
                ELSE g.version = ANY (CAST(:versions AS bigint[])) END
     ORDER BY coalesce(g.version, s.result_version) DESC, g.segment_id
""")

_PAYLOADS = text("""
    SELECT segment_id, payload, digest FROM gobblin.segment WHERE segment_id = ANY (CAST(:segment_ids AS uuid[]))
""")

# After the joined segments are removed: those of runs that stay as they are.
_TAKE_RUNS = text(f"""
    UPDATE gobblin.segment g SET sequence_id = given.survivor FROM {GIVEN}
     WHERE g.sequence_id = given.member AND g.sealed AND g.version < :version AND given.member <> given.survivor
""")


def join_names(
    connection: Connection, dataset_id: DatasetId, given: Mapping[str, object], *, version: int, step_count: int
) -> set[SequenceId]:
    """Make the run of ``version`` from the members, which have ``step_count`` steps, and from the newest runs.

    Returns all sequences whose segments changed.
    """
    asked = {**given, "dataset_id": dataset_id}
    runs = [NamedRun(row.version, row.step_count) for row in connection.execute(_RUNS, asked)]
    chosen = choose_runs(step_count, runs)
    parts = connection.execute(_PARTS, {**asked, "versions": [run.version for run in chosen]}).all()
    joined = fold_names(_read(connection, parts), version=version, keeps_removed=len(chosen) < len(runs))
    owners = {SequenceId(row.owner) for row in parts}
    for numbered in _in_batches(enumerate(joined)):
        rows = [
            {"segment_id": segment_id, "sequence_id": owner, "number": number, **segment_columns(segment)}
            for number, (segment_id, owner, segment) in numbered
        ]
        connection.execute(ADD_SEGMENTS, {**in_columns(rows), "dataset_id": dataset_id})
    connection.execute(DROP_SEGMENTS, {"segment_ids": [row.segment_id for row in parts]})
    connection.execute(_TAKE_RUNS, {**given, "version": version})
    return owners


def _read(connection: Connection, parts: Sequence[Row[Any]]) -> Iterator[NamedPart]:
    for some in _in_batches(parts):
        payloads = _load(connection, [row.segment_id for row in some])
        for row in some:
            payload, digest = payloads[row.segment_id]
            yield NamedPart(SequenceId(row.sequence_id), SequenceId(row.owner), row.partition, payload, digest)


def _load(connection: Connection, segment_ids: Iterable[uuid.UUID]) -> dict[uuid.UUID, tuple[bytes, bytes]]:
    rows = connection.execute(_PAYLOADS, {"segment_ids": list(segment_ids)})
    return {row.segment_id: (bytes(row.payload), bytes(row.digest)) for row in rows}


def _in_batches(items: Iterable[_T]) -> Iterator[list[_T]]:
    left = iter(items)
    while some := list(islice(left, _SEGMENTS_AT_ONCE)):
        yield some


_JoinNames = Callable[[Connection, DatasetId, Mapping[str, object]], Collection[SequenceId]]

_FIND_DUE = text("""
    SELECT n.lane_id FROM gobblin.lane n JOIN gobblin.dataset d USING (dataset_id)
     WHERE n.lane_id = ANY (CAST(:lane_ids AS bigint[]))
       AND (d.version - n.folded_version >= :keep + :count_min
            OR n.tidied_at <= clock_timestamp() - make_interval(secs => :tidy_s))
     ORDER BY n.lane_id
""")

_DATASET_OF = text("SELECT dataset_id FROM gobblin.lane WHERE lane_id = :lane_id")

_IS_OPEN = text(f"""
    SELECT count(*) > 0 FROM gobblin.commit_sequence
     WHERE lane_id = :lane_id AND state {IS_OPEN}
""")

_SMALL_SEGMENTS = text(f"""
    SELECT g.segment_id, g.role, g.partition, g.payload, g.digest, g.step_count, g.file_count, g.row_count,
           g.file_bytes, g.file_schema, coalesce(g.version, s.result_version) AS version, given.survivor
      FROM {GIVEN}
      JOIN gobblin.commit_sequence s ON s.sequence_id = given.member
      JOIN gobblin.segment g ON g.sequence_id = given.member
     WHERE g.sealed AND g.file_count < :files_max
""")

# After the small segments are removed, and before the joined ones are added: only the members' large ones are left.
_TAKE_SEGMENTS = text(f"""
    UPDATE gobblin.segment g
       SET sequence_id = given.survivor, attempt_id = NULL, version = coalesce(g.version, s.result_version)
      FROM {GIVEN} JOIN gobblin.commit_sequence s ON s.sequence_id = given.member
     WHERE g.sequence_id = given.member AND g.sealed
       AND (g.sequence_id <> given.survivor OR g.attempt_id IS NOT NULL OR g.version IS NULL)
""")

_DROP_UNSEALED = text("""
    DELETE FROM gobblin.segment WHERE sequence_id = ANY (CAST(:members AS uuid[])) AND NOT sealed
""")

_TAKE_ENTRIES = text(f"""
    UPDATE gobblin.ledger l SET sequence_id = given.survivor FROM {GIVEN}
     WHERE l.sequence_id = given.member AND given.member <> given.survivor
""")

_ENTRIES = text("""
    SELECT ledger_id, sequence_id, key_id, low, high, reread_from FROM gobblin.ledger
     WHERE sequence_id = ANY (CAST(:survivors AS uuid[])) AND NOT is_generation
""")

_DROP_ENTRIES = text("DELETE FROM gobblin.ledger WHERE ledger_id = ANY (CAST(:ledger_ids AS bigint[]))")

_ADD_ENTRIES = text("""
    INSERT INTO gobblin.ledger (key_id, sequence_id, is_generation, low, high, low_bytes, high_bytes, reread_from)
    SELECT key_id, sequence_id, false, CAST(low AS jsonb), CAST(high AS jsonb), low_bytes, high_bytes,
           CAST(reread_from AS jsonb)
      FROM unnest(CAST(:key_id AS bigint[]), CAST(:sequence_id AS uuid[]), CAST(:low AS text[]),
                  CAST(:high AS text[]), CAST(:low_bytes AS bytea[]), CAST(:high_bytes AS bytea[]),
                  CAST(:reread_from AS text[]))
           AS given (key_id, sequence_id, low, high, low_bytes, high_bytes, reread_from)
""")

# Before the sequences are dropped that these rows refer to. A key is found by its dataset: no index has the sequence
# that moved it.
_POINT_TO_SURVIVORS = tuple(
    text(f"""
        UPDATE gobblin.{table} t SET {column} = given.survivor FROM {GIVEN}
         WHERE t.{column} = given.member AND given.member <> given.survivor AND {more}
    """)
    for table, column, more in (
        ("run_dataset", "sequence_id", "true"),
        ("segment", "retired_by", "true"),
        ("ledger", "retired_by", "true"),
        ("watermark_key", "sequence_id", "t.dataset_id = :dataset_id"),
    )
)

_DROP_PLANS = tuple(
    text(f"DELETE FROM gobblin.{table} WHERE sequence_id = ANY (CAST(:members AS uuid[]))")
    for table in ("planned_interval", "planned_move", "work_unit", "attempt")
)

# Storage names sequences as long as their directories and markers exist.
_REMEMBER = text("""
    INSERT INTO gobblin.past_sequence (sequence_id, dataset_id, lane_id, state)
    SELECT sequence_id, :dataset_id, :lane_id, 'DONE' FROM unnest(CAST(:others AS uuid[])) AS given (sequence_id)
""")

_SUM_UP = text(f"""
    UPDATE gobblin.commit_sequence s
       SET publication_count = found.publication_count, complete = found.complete, step_count = found.step_count,
           file_count = found.file_count, row_count = found.row_count, file_bytes = found.file_bytes,
           folded_at = clock_timestamp()
      FROM (SELECT given.survivor, sum(m.publication_count)::bigint AS publication_count,
                   bool_and(m.complete) AS complete, sum(m.step_count)::bigint AS step_count,
                   sum(m.file_count)::bigint AS file_count, sum(m.row_count)::bigint AS row_count,
                   sum(m.file_bytes)::bigint AS file_bytes
              FROM {GIVEN} JOIN gobblin.commit_sequence m ON m.sequence_id = given.member
             GROUP BY given.survivor) AS found
     WHERE s.sequence_id = found.survivor AND s.state = 'DONE'
 RETURNING s.sequence_id, s.details
""")

# At given names, the files of older publications may be gone: the counts are those of the newest.
_COUNT_PUBLICATIONS = text(f"""
    UPDATE gobblin.commit_sequence s
       SET publication_count = found.publication_count, folded_at = clock_timestamp()
      FROM (SELECT given.survivor, sum(m.publication_count)::bigint AS publication_count
              FROM {GIVEN} JOIN gobblin.commit_sequence m ON m.sequence_id = given.member
             GROUP BY given.survivor) AS found
     WHERE s.sequence_id = found.survivor AND s.state = 'DONE'
 RETURNING s.sequence_id, s.details
""")

_DETAILS = text("""
    SELECT sequence_id, details FROM gobblin.commit_sequence WHERE sequence_id = ANY (CAST(:sequence_ids AS uuid[]))
""")

_DIGESTS = text("""
    SELECT sequence_id, digest FROM gobblin.segment
     WHERE sequence_id = ANY (CAST(:survivors AS uuid[])) AND sealed
""")

_SEAL_AGAIN = text("""
    UPDATE gobblin.commit_sequence s
       SET digest = given.digest, segment_count = given.segment_count, details = CAST(given.details AS jsonb)
      FROM unnest(CAST(:sequence_id AS uuid[]), CAST(:digest AS bytea[]), CAST(:segment_count AS integer[]),
                  CAST(:details AS text[])) AS given (sequence_id, digest, segment_count, details)
     WHERE s.sequence_id = given.sequence_id
""")

# Last: nothing refers to them any more. If one is no longer DONE, it stays, and the whole fold is refused.
_DROP_SEQUENCES = text("""
    DELETE FROM gobblin.commit_sequence
     WHERE sequence_id = ANY (CAST(:others AS uuid[])) AND state = 'DONE' RETURNING sequence_id
""")

_TOTALS = text("""
    SELECT sum(file_count)::bigint AS file_count, sum(row_count)::bigint AS row_count,
           sum(file_bytes)::bigint AS file_bytes
      FROM gobblin.segment WHERE sequence_id = ANY (CAST(:members AS uuid[])) AND sealed
""")

_MARK_FOLDED = text("""
    UPDATE gobblin.lane n
       SET folded_version = greatest(n.folded_version, d.version - :keep), tidied_at = clock_timestamp()
      FROM gobblin.dataset d
     WHERE n.lane_id = :lane_id AND d.dataset_id = n.dataset_id
""")


class PostgresSequenceFolder(PostgresCommitLogCleaner):
    """``SequenceFolder`` over one engine."""

    def find_foldable(self, *lane_ids: LaneId, bounds: FoldBounds) -> Sequence[LaneId]:
        asked = {
            "lane_ids": list(lane_ids),
            "keep": bounds.keep,
            "count_min": bounds.count_min,
            "tidy_s": TIDY_S,
        }
        return transact(
            self._engine,
            "find foldable",
            lambda c: [LaneId(lane_id) for lane_id in c.execute(_FIND_DUE, asked).scalars()],
        )

    def fold(self, lane_id: LaneId, *, fence: int, bounds: FoldBounds, limit: int) -> int:
        return transact(
            self._engine,
            "fold sequences",
            lambda c: _fold(c, lane_id, fence, bounds, limit),
            committed=Failpoint.FOLD_COMMITTED,
        )

    def forget(self, lane_id: LaneId, *, fence: int, bounds: FoldBounds, limit: int) -> int:
        return transact(self._engine, "forget sequences", lambda c: forget(c, lane_id, fence, bounds, limit))

    def mark_folded(self, lane_id: LaneId, *, fence: int, bounds: FoldBounds) -> None:
        def body(connection: Connection) -> None:
            hold_fences(connection, [(lane_id, fence)])
            connection.execute(_MARK_FOLDED, {"lane_id": lane_id, "keep": bounds.keep})

        transact(self._engine, "mark folded", body)


def _fold(connection: Connection, lane_id: LaneId, fence: int, bounds: FoldBounds, limit: int) -> int:
    """Fold publications of one lane, and return their number; 0 if nothing is left to fold."""
    hold_fences(connection, [(lane_id, fence)])
    if connection.execute(_IS_OPEN, {"lane_id": lane_id}).scalar_one():
        return 0
    dataset_id = DatasetId(connection.execute(_DATASET_OF, {"lane_id": lane_id}).scalar_one())
    if members := bound_fold(find_members(connection, lane_id, bounds, limit)):
        earlier = find_earlier_folds(connection, lane_id, members, is_named=False)
        _carry_out(connection, (dataset_id, lane_id), plan_folds(members, earlier))
        return len(members)
    if named := bound_named_fold(find_named_members(connection, lane_id, bounds, limit)):
        new = [each.member for each in named]
        earlier = find_earlier_folds(connection, lane_id, new, is_named=True)
        version, step_count = new[-1].version, sum(each.step_count for each in named)
        join = partial(join_names, version=version, step_count=step_count)
        _carry_out(connection, (dataset_id, lane_id), plan_folds(new, earlier), join)
    return len(named)


def _carry_out(
    connection: Connection,
    place: tuple[DatasetId, LaneId],
    folds: Sequence[Fold],
    join_names: _JoinNames | None = None,
) -> None:
    """``join_names``: of publications at given names, whose files are not all current."""
    dataset_id, lane_id = place
    pairs = [(member, each.survivor) for each in folds for member in each.all]
    members, survivors = [member for member, _survivor in pairs], [survivor for _member, survivor in pairs]
    given = {"members": members, "survivors": survivors}
    others = [other for each in folds for other in each.others]
    lock_sequences(connection, members)
    before = connection.execute(_TOTALS, {"members": members}).one()
    connection.execute(_DROP_UNSEALED, {"members": members})
    owners: Collection[SequenceId] = ()
    if join_names is None:
        _join_segments(connection, dataset_id, given)
    else:
        owners = join_names(connection, dataset_id, given)
    reach(Failpoint.FOLD_SEGMENTS_JOINED)
    _join_entries(connection, given)
    for statement in _POINT_TO_SURVIVORS:
        connection.execute(statement, {**given, "dataset_id": dataset_id})
    for statement in _DROP_PLANS:
        connection.execute(statement, {"members": members})
    connection.execute(_REMEMBER, {"others": others, "dataset_id": dataset_id, "lane_id": lane_id})
    sum_up = _SUM_UP if join_names is None else _COUNT_PUBLICATIONS
    summed = {row.sequence_id: row.details for row in connection.execute(sum_up, given)}
    require_each(map(SequenceId, summed), "the fold", [each.survivor for each in folds])
    others_changed = [owner for owner in owners if owner not in summed]
    found = connection.execute(_DETAILS, {"sequence_ids": others_changed}) if others_changed else ()
    _seal_again(connection, {**summed, **{row.sequence_id: row.details for row in found}})
    require_each(connection.execute(_DROP_SEQUENCES, {"others": others}).scalars(), "the fold", others)
    if join_names is None and connection.execute(_TOTALS, {"members": list(summed)}).one() != before:
        raise CorruptionError(
            f"a fold of dataset {dataset_id} would have other files than its publications",
            hint="Report this: nothing was changed.",
        )


def _join_segments(connection: Connection, dataset_id: DatasetId, given: Mapping[str, object]) -> None:
    """Join the lists of files of small segments; large segments only change their sequence."""
    parts: dict[SequenceId, list[FoldSegment]] = defaultdict(list)
    for row in connection.execute(_SMALL_SEGMENTS, {**given, "files_max": FILES_JOINED_MAX}):
        parts[SequenceId(row.survivor)].append(FoldSegment(row.segment_id, row.version, segment_of(row)))
    small = [part.segment_id for found in parts.values() for part in found]
    connection.execute(DROP_SEGMENTS, {"segment_ids": small})
    connection.execute(_TAKE_SEGMENTS, given)
    rows = [
        {
            "segment_id": segment_id,
            "sequence_id": survivor,
            "number": number,
            **segment_columns(segment),
        }
        for survivor, found in parts.items()
        for number, (segment_id, segment) in enumerate(join_segments(survivor, found))
    ]
    if rows:
        connection.execute(ADD_SEGMENTS, {**in_columns(rows), "dataset_id": dataset_id})


def _join_entries(connection: Connection, given: Mapping[str, Sequence[SequenceId]]) -> None:
    """Move the ledger's entries to the survivors; join intervals that touch."""
    connection.execute(_TAKE_ENTRIES, given)
    found: dict[tuple[SequenceId, int], list[PublishedInterval]] = defaultdict(list)
    ids: dict[tuple[SequenceId, int], list[int]] = defaultdict(list)
    for row in connection.execute(_ENTRIES, {"survivors": list(set(given["survivors"]))}):
        place = SequenceId(row.sequence_id), row.key_id
        found[place].append(published_interval_of(row))
        ids[place].append(row.ledger_id)
    joined = {place: join_intervals(entries) for place, entries in found.items()}
    changed = {place: entries for place, entries in joined.items() if len(entries) < len(found[place])}
    if not changed:
        return
    # Before the joined intervals are added: the ledger refuses two that overlap.
    connection.execute(_DROP_ENTRIES, {"ledger_ids": [number for place in changed for number in ids[place]]})
    rows = [
        {
            "key_id": key_id,
            "sequence_id": survivor,
            "low": watermark_to_jsonb(each.interval.low),
            "high": watermark_to_jsonb(each.interval.high),
            "low_bytes": each.interval.low_bytes(),
            "high_bytes": each.interval.high_bytes(),
            "reread_from": watermark_to_jsonb(each.reread_from),
        }
        for (survivor, key_id), entries in changed.items()
        for each in entries
    ]
    connection.execute(_ADD_ENTRIES, in_columns(rows))


def _seal_again(connection: Connection, survivors: Mapping[SequenceId, Mapping[str, object]]) -> None:
    """Set count and digest to those of the segments that a survivor has now."""
    digests: dict[SequenceId, list[bytes]] = {survivor: [] for survivor in survivors}
    for row in connection.execute(_DIGESTS, {"survivors": list(survivors)}):
        digests[SequenceId(row.sequence_id)].append(bytes(row.digest))
    rows = [
        {
            "sequence_id": survivor,
            "digest": combine_digests(digests[survivor]),
            "segment_count": len(digests[survivor]),
            "details": to_jsonb(shorten_details(details)),
        }
        for survivor, details in survivors.items()
    ]
    connection.execute(_SEAL_AGAIN, in_columns(rows))
