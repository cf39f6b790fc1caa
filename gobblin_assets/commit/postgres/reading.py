"""Looking at the log: sequences, segments, publications, and the ledger of a partition."""

import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import Connection, Engine, Executable, Row, text

from gobblin_assets.commit.folding import make_no_op_move
from gobblin_assets.commit.postgres.destinations import find_binding
from gobblin_assets.commit.postgres.guards import past_sequence, unexpected_state, unknown_sequence
from gobblin_assets.commit.segment import Segment
from gobblin_assets.commit.sequence import (
    COMPACTION,
    AttemptRecord,
    KeyMove,
    KnownSequence,
    Publication,
    PublishedInterval,
    SealedAttempt,
    SealedSequence,
    SealOrder,
    SequenceRecord,
)
from gobblin_assets.commit.store import LaneView, LogView, StoredSegment
from gobblin_assets.db.statement_texts import IS_OPEN, IS_RECOVERABLE, IS_UNFINISHED
from gobblin_assets.db.transactions import transact
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.interval import Interval
from gobblin_assets.model.sequence_state import SequenceState
from gobblin_assets.model.state import AttemptId, DatasetId, LaneId, RunId, SequenceId
from gobblin_assets.model.urn import DatasetUrn, JobName, Role
from gobblin_assets.model.watermark import parse_watermark, watermark_from

# Segments read in one transaction: each holds up to 10,000 steps.
_SEGMENTS_PER_READ: Final = 8

_SEQUENCE_COLUMNS: Final = """
    s.sequence_id, s.dataset_id, d.job, d.urn, s.run_id, s.partition, s.mode, s.replaces, s.fence, s.state,
    s.base_version, s.digest, s.failed_tries, s.last_error, s.details, s.lane_id,
    (SELECT n.number FROM gobblin.lane n WHERE n.lane_id = s.lane_id) AS lane_number
"""

_GET = text(f"""
    SELECT {_SEQUENCE_COLUMNS}
      FROM gobblin.commit_sequence s JOIN gobblin.dataset d USING (dataset_id)
     WHERE s.sequence_id = :sequence_id
""")

_FIND_UNFINISHED = text(f"""
    SELECT {_SEQUENCE_COLUMNS}
      FROM gobblin.commit_sequence s JOIN gobblin.dataset d USING (dataset_id)
     WHERE s.dataset_id = ANY (CAST(:dataset_ids AS bigint[]))
       AND s.state {IS_UNFINISHED}
     ORDER BY s.created_at, s.sequence_id
""")

_RECOVERABLE: Final = f"""
      FROM gobblin.commit_sequence s JOIN gobblin.dataset d USING (dataset_id)
      JOIN gobblin.lease l USING (lane_id)
     WHERE s.state {IS_RECOVERABLE}
       AND (s.next_try_at IS NULL OR s.next_try_at <= clock_timestamp())
       AND (l.expires_at IS NULL OR l.expires_at <= clock_timestamp())
       AND NOT EXISTS (SELECT FROM gobblin.lease w
                        WHERE w.lane_id = s.dataset_id AND w.is_whole AND w.expires_at > clock_timestamp())
       AND (CAST(:jobs AS text[]) IS NULL OR d.job = ANY (CAST(:jobs AS text[])))
"""

# A recovery that died left a newer lease: its sequence must not be the first again.
_LIST_RECOVERABLE = text(f"""
    SELECT {_SEQUENCE_COLUMNS}
    {_RECOVERABLE}
     ORDER BY greatest(s.next_try_at, l.expires_at) NULLS FIRST, s.created_at, s.sequence_id
     LIMIT :limit
""")

_COUNT_RECOVERABLE = text(f"SELECT d.job, count(*) AS count {_RECOVERABLE} GROUP BY d.job")

_LIST_OPEN = text(f"""
    SELECT {_SEQUENCE_COLUMNS}
      FROM gobblin.commit_sequence s JOIN gobblin.dataset d USING (dataset_id)
     WHERE s.state {IS_OPEN} AND (CAST(:job AS text) IS NULL OR d.job = :job)
     ORDER BY s.created_at, s.sequence_id
     LIMIT :limit
""")

_SEGMENT_IDS = text("""
    SELECT segment_id FROM gobblin.segment
     WHERE sequence_id = :sequence_id AND sealed
     ORDER BY attempt_id, number, segment_id
""")

_SEGMENTS = text("""
    SELECT g.segment_id, g.dataset_id, g.payload, g.digest, s.details ->> 'root_uri' AS root_uri,
           s.details -> 'moved' AS moved
      FROM gobblin.segment g JOIN gobblin.commit_sequence s USING (sequence_id)
     WHERE g.segment_id = ANY (CAST(:segment_ids AS uuid[]))
     ORDER BY g.attempt_id, g.number, g.segment_id
""")

_NEWEST_SEGMENT = text("""
    SELECT g.segment_id
      FROM gobblin.commit_sequence s JOIN gobblin.segment g USING (sequence_id)
     WHERE s.dataset_id = :dataset_id AND s.state = 'DONE' AND g.sealed AND g.retired_by IS NULL AND g.file_count > 0
     ORDER BY coalesce(g.version, s.result_version) DESC, g.segment_id
     LIMIT 1
""")

_LANES = text("""
    SELECT n.dataset_id, n.number, n.version, l.fence FROM gobblin.lane n JOIN gobblin.lease l USING (lane_id)
     WHERE n.dataset_id = ANY (CAST(:dataset_ids AS bigint[]))
""")

_LANE_IDS = text("SELECT lane_id FROM gobblin.lane WHERE dataset_id = :dataset_id ORDER BY number")

_IS_OPEN_AND_HELD = text(f"""
    SELECT count(*) FROM gobblin.commit_sequence s JOIN gobblin.lease l USING (lane_id)
     WHERE s.sequence_id = :sequence_id AND s.state {IS_RECOVERABLE} AND l.fence = :fence
""")

ATTEMPT_COLUMNS = """
    a.attempt_id, a.sequence_id, a.lane_id, a.staging_path, a.cleanup_fences, a.interruption,
    s.state AS sequence_state, s.details ? 'slots_keep_s' AS is_at_given_names
"""

_LIST_ATTEMPTS = text(f"""
    SELECT {ATTEMPT_COLUMNS}
      FROM gobblin.attempt a JOIN gobblin.commit_sequence s USING (sequence_id)
     WHERE a.sequence_id = :sequence_id
     ORDER BY a.started_at, a.attempt_id
""")

# A limit for each dataset: files of one dataset that can't be removed must not hold up the others. Only who holds a
# dataset as a whole replaces files, so the holder of its lane 0 removes those that were replaced.
_LIST_REMOVABLE = text("""
    SELECT mine.segment_id
      FROM unnest(CAST(:lane_ids AS bigint[])) AS each (dataset_id)
     CROSS JOIN LATERAL (
           SELECT g.segment_id, g.retired_at
             FROM gobblin.segment g
             JOIN gobblin.commit_sequence r ON r.sequence_id = g.retired_by
            WHERE g.dataset_id = each.dataset_id AND g.removed_at IS NULL AND r.state = 'DONE'
              AND g.retired_at <= clock_timestamp() - make_interval(secs => :grace_s)
            ORDER BY g.retired_at, g.segment_id
            LIMIT :limit
           ) AS mine
     ORDER BY mine.retired_at, mine.segment_id
""")

# Intervals that leave the watermark where it is concern only the ledger.
TOUCHES_KEY: Final = """
    (m.new_bytes IS NOT NULL OR NOT EXISTS (
        SELECT FROM gobblin.planned_interval i WHERE i.sequence_id = m.sequence_id AND i.key_id = m.key_id))
"""

_PUBLICATION = text(f"""
    SELECT {_SEQUENCE_COLUMNS}, s.complete, s.result_version, s.row_count, s.file_count, s.file_bytes,
           (SELECT coalesce(sum(g.row_count), 0)::bigint
              FROM gobblin.segment g JOIN gobblin.commit_sequence o USING (sequence_id)
             WHERE g.dataset_id = s.dataset_id AND g.partition = s.partition AND g.role = 'data'
               AND g.sealed AND g.retired_by IS NULL AND o.state = 'DONE') AS rows_total
      FROM gobblin.commit_sequence s JOIN gobblin.dataset d USING (dataset_id)
     WHERE s.sequence_id = ANY (CAST(:sequence_ids AS uuid[]))
""")

_ROWS_BY_ROLE = text("""
    SELECT sequence_id, role, sum(row_count)::bigint AS row_count FROM gobblin.segment
     WHERE sequence_id = ANY (CAST(:sequence_ids AS uuid[])) AND sealed
     GROUP BY sequence_id, role
""")

# If intervals were published and the watermark stayed, there is no move to report.
_MOVES = text(f"""
    SELECT m.sequence_id, k.name, m.old_watermark, m.new_watermark
      FROM gobblin.planned_move m JOIN gobblin.watermark_key k USING (key_id)
     WHERE m.sequence_id = ANY (CAST(:sequence_ids AS uuid[])) AND {TOUCHES_KEY}
     ORDER BY k.name
""")

_LIST_UNANNOUNCED = text("""
    SELECT s.sequence_id
      FROM gobblin.commit_sequence s JOIN gobblin.dataset d USING (dataset_id) JOIN gobblin.run r USING (run_id)
     WHERE s.state = 'DONE' AND s.announced_at IS NULL AND s.folded_at IS NULL AND d.job = :job AND r.asked IS NULL
     ORDER BY s.done_at, s.sequence_id
     LIMIT :limit
""")

_LIST_LATEST = text("""
    SELECT DISTINCT ON (d.urn, s.partition) s.sequence_id
      FROM gobblin.commit_sequence s JOIN gobblin.dataset d USING (dataset_id)
     WHERE d.job = :job AND s.state = 'DONE' AND s.details -> :compaction IS NULL
     ORDER BY d.urn, s.partition, s.result_version DESC
""")

_SEALED = text("""
    SELECT s.sequence_id, s.dataset_id, d.job, d.urn, s.partition, s.mode, s.replaces, s.fence, s.state,
           s.base_version, s.digest, s.segment_count, s.row_count, s.complete, s.details, b.identity, s.lane_id,
           n.number AS lane_number
      FROM gobblin.commit_sequence s JOIN gobblin.dataset d USING (dataset_id)
      JOIN gobblin.lane n USING (lane_id)
      LEFT JOIN gobblin.destination b ON b.job = d.job
     WHERE s.sequence_id = ANY (CAST(:sequence_ids AS uuid[]))
""")

_SEALED_MOVES = text("""
    SELECT m.sequence_id, m.key_id, k.name, k.partition, m.old_watermark, m.new_watermark
      FROM gobblin.planned_move m JOIN gobblin.watermark_key k USING (key_id)
     WHERE m.sequence_id = ANY (CAST(:sequence_ids AS uuid[]))
     ORDER BY k.name, k.partition
""")

_SEALED_INTERVALS = text("""
    SELECT sequence_id, key_id, low, high, reread_from FROM gobblin.planned_interval
     WHERE sequence_id = ANY (CAST(:sequence_ids AS uuid[]))
     ORDER BY key_id, low_bytes
""")

_SEALED_SEGMENTS = text("""
    SELECT g.sequence_id, a.attempt_id, a.multi_work_unit, a.try_number, a.staging_path, g.segment_id, g.role,
           g.partition, g.payload, g.digest, g.step_count, g.file_count, g.row_count, g.file_bytes, g.file_schema,
           g.version
      FROM gobblin.segment g JOIN gobblin.attempt a USING (attempt_id)
     WHERE g.sequence_id = ANY (CAST(:sequence_ids AS uuid[])) AND g.sealed
     ORDER BY a.multi_work_unit, a.attempt_id, g.number
""")

# Of sequences whose rows are gone, only sealed ones are kept.
_KNOWN = text("""
    SELECT sequence_id, state, digest IS NOT NULL AS is_sealed FROM gobblin.commit_sequence
     WHERE sequence_id = ANY (CAST(:sequence_ids AS uuid[]))
     UNION ALL
    SELECT sequence_id, state, true FROM gobblin.past_sequence
     WHERE sequence_id = ANY (CAST(:sequence_ids AS uuid[]))
""")

_NO_OP_MOVES: Final = text("""
    SELECT k.name, k.partition, k.watermark, l.is_generation, l.low, l.high, l.reread_from
      FROM gobblin.commit_sequence s
      JOIN gobblin.ledger l USING (sequence_id)
      JOIN gobblin.watermark_key k USING (key_id)
     WHERE s.dataset_id = :dataset_id AND s.partition = :partition AND s.state = 'DONE' AND l.active
     ORDER BY k.name, k.partition, l.low_bytes NULLS FIRST
""")


class PostgresCommitLogReader:
    """``CommitLogReader`` over one engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def get(self, sequence_id: SequenceId) -> SequenceRecord:
        return transact(self._engine, "read sequence", lambda c: _get(c, sequence_id))

    def read_segments(self, sequence_id: SequenceId) -> Iterator[StoredSegment]:
        ids = transact(
            self._engine,
            "list segments",
            lambda c: c.execute(_SEGMENT_IDS, {"sequence_id": sequence_id}).scalars().all(),
        )
        for start in range(0, len(ids), _SEGMENTS_PER_READ):
            yield from self._load_segments(ids[start : start + _SEGMENTS_PER_READ])

    def load_sealed(self, *sequence_ids: SequenceId) -> Sequence[SealedSequence]:
        return transact(self._engine, "read sealed sequences", lambda c: _load_sealed(c, sequence_ids))

    def is_open_and_held(self, sequence_id: SequenceId, *, fence: int) -> bool:
        arguments = {"sequence_id": sequence_id, "fence": fence}
        return transact(
            self._engine,
            "confirm sequence",
            lambda c: bool(c.execute(_IS_OPEN_AND_HELD, arguments).scalar_one() == 1),
        )

    def list_attempts(self, sequence_id: SequenceId) -> Sequence[AttemptRecord]:
        return transact(self._engine, "list attempts", lambda c: attempts_of(c, sequence_id))

    def find_unfinished(self, *dataset_ids: DatasetId) -> Sequence[SequenceRecord]:
        return self._list_records("find unfinished", _FIND_UNFINISHED, dataset_ids=list(dataset_ids))

    def find_known(self, sequence_ids: Sequence[SequenceId]) -> Mapping[SequenceId, KnownSequence]:
        return transact(self._engine, "find known sequences", lambda c: _find_known(c, sequence_ids))

    def look_at(self, job: JobName, dataset_ids: Sequence[DatasetId], sequence_ids: Sequence[SequenceId]) -> LogView:
        def body(connection: Connection) -> LogView:
            lanes = connection.execute(_LANES, {"dataset_ids": list(dataset_ids)})
            return LogView(
                known=_find_known(connection, sequence_ids) if sequence_ids else {},
                lanes=[LaneView(DatasetId(row.dataset_id), row.number, row.version, row.fence) for row in lanes],
                binding=find_binding(connection, job),
            )

        return transact(self._engine, "look at log", body)

    def list_lane_ids(self, dataset_id: DatasetId) -> Sequence[LaneId]:
        asked = {"dataset_id": dataset_id}
        return transact(
            self._engine, "list lanes", lambda c: [LaneId(each) for each in c.execute(_LANE_IDS, asked).scalars()]
        )

    def find_newest_segment(self, dataset_id: DatasetId) -> StoredSegment | None:
        ids = transact(
            self._engine,
            "find newest segment",
            lambda c: c.execute(_NEWEST_SEGMENT, {"dataset_id": dataset_id}).scalars().all(),
        )
        return next(iter(self._load_segments(ids)), None) if ids else None

    def list_recoverable(self, *, jobs: Sequence[JobName] | None, limit: int) -> Sequence[SequenceRecord]:
        asked = None if jobs is None else list(jobs)
        return self._list_records("list recoverable", _LIST_RECOVERABLE, jobs=asked, limit=limit)

    def count_recoverable(self, *, jobs: Sequence[JobName] | None) -> Mapping[JobName, int]:
        asked = {"jobs": None if jobs is None else list(jobs)}
        return transact(
            self._engine,
            "count recoverable",
            lambda c: {JobName(job): count for job, count in c.execute(_COUNT_RECOVERABLE, asked)},
        )

    def list_open(self, job: JobName | None, *, limit: int) -> Sequence[SequenceRecord]:
        return self._list_records("list open", _LIST_OPEN, job=job, limit=limit)

    def list_no_op_moves(self, dataset_id: DatasetId, partition: str) -> Sequence[KeyMove]:
        return transact(self._engine, "list no-op moves", lambda c: _list_no_op_moves(c, dataset_id, partition))

    def load_publications(self, *sequence_ids: SequenceId) -> Sequence[Publication]:
        return transact(self._engine, "read publications", lambda c: _load_publications(c, sequence_ids))

    def list_unannounced(self, *, job: JobName, limit: int) -> Sequence[Publication]:
        def body(connection: Connection) -> list[Publication]:
            ids = connection.execute(_LIST_UNANNOUNCED, {"job": job, "limit": limit}).scalars().all()
            return _load_publications(connection, [SequenceId(sequence_id) for sequence_id in ids])

        return transact(self._engine, "list unannounced", body)

    def list_latest(self, job: JobName) -> Sequence[SequenceId]:
        asked = {"job": job, "compaction": COMPACTION}
        return transact(
            self._engine,
            "list latest",
            lambda c: [SequenceId(each) for each in c.execute(_LIST_LATEST, asked).scalars()],
        )

    def list_removable(self, *lane_ids: LaneId, grace_s: float, limit: int) -> Sequence[StoredSegment]:
        asked = {"lane_ids": list(lane_ids), "grace_s": grace_s, "limit": limit}
        ids = transact(self._engine, "list removable", lambda c: c.execute(_LIST_REMOVABLE, asked).scalars().all())
        return self._load_segments(ids) if ids else []

    def _list_records(self, name: str, statement: Executable, **asked: object) -> list[SequenceRecord]:
        return transact(self._engine, name, lambda c: [_record_of(row) for row in c.execute(statement, asked)])

    def _load_segments(self, segment_ids: Sequence[uuid.UUID]) -> list[StoredSegment]:
        asked = {"segment_ids": list(segment_ids)}
        rows = transact(self._engine, "read segments", lambda c: c.execute(_SEGMENTS, asked).all())
        return [
            StoredSegment(
                row.segment_id,
                DatasetId(row.dataset_id),
                row.payload,
                row.digest,
                row.root_uri,
                None if row.moved is None else (row.moved[0], row.moved[1]),
            )
            for row in rows
        ]


def attempts_of(connection: Connection, sequence_id: SequenceId) -> list[AttemptRecord]:
    """All attempts of a sequence, whatever their state."""
    return [attempt_of(row) for row in connection.execute(_LIST_ATTEMPTS, {"sequence_id": sequence_id})]


def _get(connection: Connection, sequence_id: SequenceId) -> SequenceRecord:
    row = connection.execute(_GET, {"sequence_id": sequence_id}).one_or_none()
    if row is None:
        raise past_sequence(connection, sequence_id) or unknown_sequence(sequence_id)
    return _record_of(row)


def _load_publications(connection: Connection, sequence_ids: Sequence[SequenceId]) -> list[Publication]:
    ids = {"sequence_ids": list(sequence_ids)}
    rows = {row.sequence_id: row for row in connection.execute(_PUBLICATION, ids)}
    roles: dict[uuid.UUID, dict[str, int]] = defaultdict(dict)
    for found in connection.execute(_ROWS_BY_ROLE, ids):
        roles[found.sequence_id][found.role] = found.row_count
    watermarks: dict[uuid.UUID, dict[str, tuple[str | None, str | None]]] = defaultdict(dict)
    for move in connection.execute(_MOVES, ids):
        watermarks[move.sequence_id][move.name] = _shown(move.old_watermark), _shown(move.new_watermark)
    return [_publication_of(each, rows.get(each), roles[each], watermarks[each]) for each in sequence_ids]


def _publication_of(
    sequence_id: SequenceId,
    row: Row[Any] | None,
    roles: Mapping[str, int],
    watermarks: Mapping[str, tuple[str | None, str | None]],
) -> Publication:
    if row is None:
        raise unknown_sequence(sequence_id)
    if SequenceState(row.state) is not SequenceState.DONE:
        raise unexpected_state(sequence_id, row.state, "be shown as published")
    return Publication(
        sequence_id=sequence_id,
        dataset_id=DatasetId(row.dataset_id),
        job=JobName(row.job),
        urn=DatasetUrn(row.urn),
        partition=row.partition,
        run_id=RunId(row.run_id),
        mode=Mode(row.mode),
        replaces=row.replaces,
        complete=row.complete,
        version=row.result_version,
        row_count=row.row_count,
        file_count=row.file_count,
        file_bytes=row.file_bytes,
        rows_by_role=roles,
        watermarks=watermarks,
        details=row.details,
        rows_total=row.rows_total,
        lane_version=row.base_version + 1,
        lane_number=row.lane_number,
    )


def _record_of(row: Row[Any]) -> SequenceRecord:
    return SequenceRecord(
        sequence_id=SequenceId(row.sequence_id),
        dataset_id=DatasetId(row.dataset_id),
        job=JobName(row.job),
        urn=DatasetUrn(row.urn),
        run_id=RunId(row.run_id),
        partition=row.partition,
        mode=Mode(row.mode),
        replaces=row.replaces,
        fence=row.fence,
        state=SequenceState(row.state),
        root_uri=row.details["root_uri"],
        base_version=row.base_version,
        digest=row.digest,
        failed_tries=row.failed_tries,
        last_error=row.last_error,
        details=row.details,
        lane_id=LaneId(row.lane_id),
        lane_number=row.lane_number,
    )


def _shown(watermark: Mapping[str, object] | None) -> str | None:
    return None if watermark is None else str(parse_watermark(watermark))


def attempt_of(row: Row[Any]) -> AttemptRecord:
    return AttemptRecord(
        attempt_id=AttemptId(row.attempt_id),
        sequence_id=SequenceId(row.sequence_id),
        lane_id=LaneId(row.lane_id),
        staging_path=row.staging_path,
        sequence_state=SequenceState(row.sequence_state),
        cleanup_fences=tuple(row.cleanup_fences),
        interruption=row.interruption,
        is_at_given_names=row.is_at_given_names,
    )


def _load_sealed(connection: Connection, sequence_ids: Sequence[SequenceId]) -> list[SealedSequence]:
    ids = {"sequence_ids": list(sequence_ids)}
    rows = {row.sequence_id: row for row in connection.execute(_SEALED, ids)}
    for sequence_id in sequence_ids:
        if sequence_id not in rows:
            raise unknown_sequence(sequence_id)
        if rows[sequence_id].digest is None:
            raise unexpected_state(sequence_id, rows[sequence_id].state, "be read as sealed")
    segments: dict[uuid.UUID, list[Row[Any]]] = defaultdict(list)
    for row in connection.execute(_SEALED_SEGMENTS, ids):
        segments[row.sequence_id].append(row)
    moves = _load_moves(connection, ids)
    return [_sealed_of(each, rows[each], _attempts_of(segments[each]), tuple(moves[each])) for each in sequence_ids]


def _sealed_of(
    sequence_id: SequenceId, row: Row[Any], attempts: tuple[SealedAttempt, ...], moves: tuple[KeyMove, ...]
) -> SealedSequence:
    return SealedSequence(
        job=JobName(row.job),
        urn=DatasetUrn(row.urn),
        mode=Mode(row.mode),
        replaces=row.replaces,
        attempts=attempts,
        destination=row.identity,
        lane_number=row.lane_number,
        order=SealOrder(
            sequence_id=sequence_id,
            dataset_id=DatasetId(row.dataset_id),
            partition=row.partition,
            fence=row.fence,
            base_version=row.base_version,
            winners=tuple(attempt.attempt_id for attempt in attempts),
            digest=bytes(row.digest),
            segment_count=row.segment_count,
            row_count=row.row_count,
            moves=moves,
            complete=row.complete,
            details=row.details,
            lane=LaneId(row.lane_id) if row.lane_number else None,
        ),
    )


def _load_moves(connection: Connection, ids: Mapping[str, object]) -> dict[uuid.UUID, list[KeyMove]]:
    intervals: dict[tuple[uuid.UUID, int], list[PublishedInterval]] = defaultdict(list)
    for row in connection.execute(_SEALED_INTERVALS, ids):
        intervals[row.sequence_id, row.key_id].append(published_interval_of(row))
    moves: dict[uuid.UUID, list[KeyMove]] = defaultdict(list)
    for row in connection.execute(_SEALED_MOVES, ids):
        moves[row.sequence_id].append(
            KeyMove(
                key=row.name,
                partition=row.partition,
                old=watermark_from(row.old_watermark),
                new=watermark_from(row.new_watermark),
                intervals=tuple(intervals[row.sequence_id, row.key_id]),
            )
        )
    return moves


def _find_known(connection: Connection, sequence_ids: Sequence[SequenceId]) -> dict[SequenceId, KnownSequence]:
    rows = connection.execute(_KNOWN, {"sequence_ids": list(sequence_ids)})
    return {SequenceId(row.sequence_id): KnownSequence(SequenceState(row.state), row.is_sealed) for row in rows}


def _attempts_of(rows: Sequence[Row[Any]]) -> tuple[SealedAttempt, ...]:
    grouped: dict[AttemptId, list[Row[Any]]] = defaultdict(list)
    for row in rows:
        grouped[AttemptId(row.attempt_id)].append(row)
    return tuple(
        SealedAttempt(
            attempt_id=attempt_id,
            multi_work_unit=found[0].multi_work_unit,
            try_number=found[0].try_number,
            staging_path=found[0].staging_path,
            segments=tuple(segment_of(row) for row in found),
            segment_ids=tuple(row.segment_id for row in found),
        )
        for attempt_id, found in grouped.items()
    )


def segment_of(row: Row[Any]) -> Segment:
    return Segment(
        role=Role(row.role),
        partition=row.partition,
        payload=bytes(row.payload),
        digest=bytes(row.digest),
        step_count=row.step_count,
        file_count=row.file_count,
        row_count=row.row_count,
        file_bytes=row.file_bytes,
        file_schema=row.file_schema,
        version=row.version,
    )


def _list_no_op_moves(connection: Connection, dataset_id: DatasetId, partition: str) -> list[KeyMove]:
    rows = connection.execute(_NO_OP_MOVES, {"dataset_id": dataset_id, "partition": partition}).all()
    found: dict[tuple[str, str], list[Row[Any]]] = defaultdict(list)
    for row in rows:
        found[row.name, row.partition].append(row)
    return [
        make_no_op_move(
            *place,
            watermark_from(entries[0].watermark),
            [published_interval_of(entry) for entry in entries if not entry.is_generation],
            is_generation=any(entry.is_generation for entry in entries),
        )
        for place, entries in found.items()
    ]


def published_interval_of(row: Row[Any]) -> PublishedInterval:
    """Of a row with ``low``, ``high`` and ``reread_from``."""
    return PublishedInterval(
        Interval(watermark_from(row.low), parse_watermark(row.high)), watermark_from(row.reread_from)
    )
