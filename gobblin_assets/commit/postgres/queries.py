"""Reading the log: sequences, segments, publications."""

import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import Connection, Engine, Row, text

from gobblin_assets.commit.postgres.destinations import find_binding
from gobblin_assets.commit.postgres.finishing import TOUCHES_KEY
from gobblin_assets.commit.postgres.guards import past_sequence, unexpected_state, unknown_sequence
from gobblin_assets.commit.postgres.sealed import find_known
from gobblin_assets.commit.sequence import COMPACTION, Publication, SequenceRecord
from gobblin_assets.commit.store import LaneView, LogView, StoredSegment
from gobblin_assets.db.sequence_states import IS_OPEN, IS_RECOVERABLE, IS_UNFINISHED
from gobblin_assets.db.transactions import transact
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.sequence_state import SequenceState
from gobblin_assets.model.state import DatasetId, LaneId, RunId, SequenceId
from gobblin_assets.model.urn import DatasetUrn, JobName
from gobblin_assets.model.watermark import parse_watermark

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


def get(connection: Connection, sequence_id: SequenceId) -> SequenceRecord:
    row = connection.execute(_GET, {"sequence_id": sequence_id}).one_or_none()
    if row is None:
        raise past_sequence(connection, sequence_id) or unknown_sequence(sequence_id)
    return record_of(row)


def find_unfinished(connection: Connection, dataset_ids: Sequence[DatasetId]) -> list[SequenceRecord]:
    return [record_of(row) for row in connection.execute(_FIND_UNFINISHED, {"dataset_ids": list(dataset_ids)})]


def list_recoverable(connection: Connection, jobs: Sequence[JobName] | None, limit: int) -> list[SequenceRecord]:
    arguments = {"jobs": None if jobs is None else list(jobs), "limit": limit}
    return [record_of(row) for row in connection.execute(_LIST_RECOVERABLE, arguments)]


def count_recoverable(connection: Connection, jobs: Sequence[JobName] | None) -> dict[JobName, int]:
    rows = connection.execute(_COUNT_RECOVERABLE, {"jobs": None if jobs is None else list(jobs)})
    return {JobName(job): count for job, count in rows}


def list_open(connection: Connection, job: JobName | None, limit: int) -> list[SequenceRecord]:
    return [record_of(row) for row in connection.execute(_LIST_OPEN, {"job": job, "limit": limit})]


def read_segments(engine: Engine, sequence_id: SequenceId) -> Iterator[StoredSegment]:
    ids = transact(
        engine,
        "list segments",
        lambda c: c.execute(_SEGMENT_IDS, {"sequence_id": sequence_id}).scalars().all(),
    )
    for start in range(0, len(ids), _SEGMENTS_PER_READ):
        yield from load_segments(engine, ids[start : start + _SEGMENTS_PER_READ])


def load_segments(engine: Engine, segment_ids: Sequence[uuid.UUID]) -> list[StoredSegment]:
    arguments = {"segment_ids": list(segment_ids)}
    rows = transact(engine, "read segments", lambda c: c.execute(_SEGMENTS, arguments).all())
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


def find_newest_segment(engine: Engine, dataset_id: DatasetId) -> StoredSegment | None:
    ids = transact(
        engine,
        "find newest segment",
        lambda c: c.execute(_NEWEST_SEGMENT, {"dataset_id": dataset_id}).scalars().all(),
    )
    return next(iter(load_segments(engine, ids)), None) if ids else None


def look_at(
    connection: Connection, job: JobName, dataset_ids: Sequence[DatasetId], sequence_ids: Sequence[SequenceId]
) -> LogView:
    lanes = connection.execute(_LANES, {"dataset_ids": list(dataset_ids)})
    return LogView(
        known=find_known(connection, sequence_ids) if sequence_ids else {},
        lanes=[LaneView(DatasetId(row.dataset_id), row.number, row.version, row.fence) for row in lanes],
        binding=find_binding(connection, job),
    )


def list_lane_ids(connection: Connection, dataset_id: DatasetId) -> list[LaneId]:
    return [LaneId(each) for each in connection.execute(_LANE_IDS, {"dataset_id": dataset_id}).scalars()]


def is_open_and_held(connection: Connection, sequence_id: SequenceId, fence: int) -> bool:
    arguments = {"sequence_id": sequence_id, "fence": fence}
    return bool(connection.execute(_IS_OPEN_AND_HELD, arguments).scalar_one() == 1)


def load_publications(connection: Connection, sequence_ids: Sequence[SequenceId]) -> list[Publication]:
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


def list_unannounced(connection: Connection, job: JobName, limit: int) -> list[Publication]:
    ids = connection.execute(_LIST_UNANNOUNCED, {"job": job, "limit": limit}).scalars().all()
    return load_publications(connection, [SequenceId(sequence_id) for sequence_id in ids])


def list_latest(connection: Connection, job: JobName) -> list[SequenceId]:
    return [
        SequenceId(each) for each in connection.execute(_LIST_LATEST, {"job": job, "compaction": COMPACTION}).scalars()
    ]


def record_of(row: Row[Any]) -> SequenceRecord:
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
