"""Published files as the commit log in Postgres knows them: those of sealed segments that nothing has retired."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Any, Final, TypeAlias

from sqlalchemy import Connection, Engine, Row, text

from gobblin_assets.commit.published.published_port import (
    ActiveSchema,
    PublishedFiles,
    PublishedPartition,
    PublishedSegment,
    PublishedSet,
    PublishedSource,
    RowsElsewhere,
    T,
)
from gobblin_assets.db.transactions import transact
from gobblin_assets.model.state import SequenceId
from gobblin_assets.model.urn import DatasetUrn, JobName, Role

SCHEMAS_MAX: Final = 1_000

SEGMENTS_AT_ONCE: Final = 8
"""Read from the server at once by a scan: each holds up to 10,000 steps, some 300 kB."""

Database: TypeAlias = Engine | PublishedFiles
"""What callers pass: an engine on the commit log, or the port."""

# Both statements see the same moment: segments of one generation with the schemas of the next would lose columns.
_ONE_MOMENT = text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")

_FIND = text("""
    WITH found AS (
        SELECT dataset_id, version FROM gobblin.dataset WHERE job = :job AND urn = :urn
    ), active AS (
        SELECT g.segment_id, g.sequence_id, coalesce(g.version, s.result_version) AS version, g.partition,
               s.details ->> 'root_uri' AS root_uri, s.details -> 'moved' AS moved, g.file_count,
               g.row_count, g.file_bytes, CAST(g.file_schema AS text) AS schema_text, g.payload,
               g.digest
          FROM found d
          JOIN gobblin.segment g USING (dataset_id)
          JOIN gobblin.commit_sequence s USING (sequence_id)
         WHERE g.role = :role AND g.sealed AND g.retired_by IS NULL AND s.state = 'DONE'
           AND (g.file_count > 0 OR s.details ? 'slots_keep_s')
           AND (CAST(:partitions AS text[]) IS NULL OR g.partition = ANY (CAST(:partitions AS text[])))
    )
    SELECT d.version AS dataset_version, a.*
      FROM found d LEFT JOIN active a ON true
     ORDER BY a.version DESC NULLS LAST, a.partition, a.segment_id
""")

_SCHEMAS = text("""
    SELECT g.file_schema, bool_or(g.retired_by IS NULL AND g.file_count > 0) AS active,
           coalesce(
               max(coalesce(g.version, s.result_version)) FILTER (WHERE g.retired_by IS NULL AND g.file_count > 0),
               max(coalesce(g.version, s.result_version))
           ) AS version
      FROM gobblin.dataset d
      JOIN gobblin.segment g USING (dataset_id)
      JOIN gobblin.commit_sequence s USING (sequence_id)
     WHERE d.job = :job AND d.urn = :urn AND g.role = :role AND g.sealed AND s.state = 'DONE'
       AND g.file_schema IS NOT NULL
     GROUP BY g.file_schema
     ORDER BY active DESC, version DESC
     LIMIT :schemas_max
""")

_SOURCE = text("SELECT source_columns, source_facts FROM gobblin.dataset WHERE job = :job AND urn = :urn")

_ACTIVE_SCHEMAS = text("""
    SELECT d.urn, g.file_schema, min(g.partition) AS first_partition, max(g.partition) AS last_partition
      FROM gobblin.dataset d
      JOIN gobblin.segment g USING (dataset_id)
      JOIN gobblin.commit_sequence s USING (sequence_id)
     WHERE d.job = :job AND d.urn = ANY (CAST(:urns AS text[])) AND g.sealed AND g.retired_by IS NULL
       AND s.state = 'DONE' AND g.file_schema IS NOT NULL AND g.file_count > 0
     GROUP BY d.urn, g.file_schema
""")

_LIST_PARTITIONS = text("""
    SELECT g.partition, sum(g.file_count)::bigint AS file_count, sum(g.file_bytes)::bigint AS file_bytes,
           extract(epoch FROM clock_timestamp() - max(s.done_at))::double precision AS quiet_s
      FROM gobblin.dataset d
      JOIN gobblin.segment g USING (dataset_id)
      JOIN gobblin.commit_sequence s USING (sequence_id)
     WHERE d.job = :job AND d.urn = :urn AND g.sealed AND g.retired_by IS NULL AND s.state = 'DONE'
       AND g.file_count > 0
     GROUP BY g.partition
     ORDER BY g.partition
""")

_ROWS_ELSEWHERE = text("""
    SELECT max(s.details ->> 'uri') AS uri, sum(g.row_count)::bigint AS row_count
      FROM gobblin.dataset d
      JOIN gobblin.segment g USING (dataset_id)
      JOIN gobblin.commit_sequence s USING (sequence_id)
     WHERE d.job = :job AND d.urn = :urn AND g.role = 'data' AND g.sealed AND g.retired_by IS NULL
       AND s.state = 'DONE' AND g.file_count = 0 AND g.row_count > 0
    HAVING count(*) > 0
""")

_IS_PUBLISHED = text("""
    SELECT EXISTS (SELECT FROM gobblin.commit_sequence WHERE sequence_id = :sequence_id AND state = 'DONE')
        OR EXISTS (SELECT FROM gobblin.past_sequence WHERE sequence_id = :sequence_id AND state = 'DONE')
""")

_LIST_URNS = text("SELECT urn FROM gobblin.dataset WHERE job = :job ORDER BY urn")


@dataclass(frozen=True, slots=True)
class PostgresPublishedFiles:
    """The PublishedFiles port over the commit log's tables."""

    engine: Engine

    def find(
        self, job: JobName, urn: DatasetUrn, *, role: Role, partitions: Sequence[str] | None = None
    ) -> PublishedSet | None:
        wanted = None if partitions is None else list(partitions)

        def body(connection: Connection) -> PublishedSet | None:
            connection.execute(_ONE_MOMENT)
            return _find(connection, job, urn, role, wanted)

        return transact(self.engine, "find published files", body)

    def find_source(self, job: JobName, urn: DatasetUrn, *, role: Role) -> PublishedSource | None:
        def body(connection: Connection) -> PublishedSource | None:
            connection.execute(_ONE_MOMENT)
            files = _find(connection, job, urn, role, None)
            if files is None:
                return None
            said = connection.execute(_SOURCE, {"job": job, "urn": urn}).one()
            columns = None if said.source_columns is None else dict(said.source_columns)
            return PublishedSource(files, columns, said.source_facts or {})

        return transact(self.engine, "find published files and their source", body)

    def is_published(self, sequence_id: SequenceId) -> bool:
        asked = {"sequence_id": sequence_id}
        found = transact(self.engine, "look for a publication", lambda c: c.execute(_IS_PUBLISHED, asked).scalar_one())
        return bool(found)

    def scan(
        self, job: JobName, urn: DatasetUrn, *, role: Role, read: Callable[[int, Iterator[PublishedSegment]], T]
    ) -> T | None:
        asked = {"job": job, "urn": urn, "role": role, "partitions": None}

        def body(connection: Connection) -> T | None:
            connection.execute(_ONE_MOMENT)
            with connection.execute(_FIND, asked, execution_options={"yield_per": SEGMENTS_AT_ONCE}) as rows:
                first = next(iter(rows), None)
                if first is None:
                    return None
                found = (row for row in chain([first], rows) if row.segment_id is not None)
                return read(first.dataset_version, (_segment_of(row, role, json.loads) for row in found))

        return transact(self.engine, "scan published files", body)

    def find_active_schemas(
        self, job: JobName, urns: Sequence[DatasetUrn]
    ) -> Mapping[DatasetUrn, Sequence[ActiveSchema]]:
        arguments = {"job": job, "urns": list(urns)}
        rows = transact(self.engine, "find active schemas", lambda c: c.execute(_ACTIVE_SCHEMAS, arguments).all())
        found: dict[DatasetUrn, list[ActiveSchema]] = {}
        for row in rows:
            only = row.first_partition if row.first_partition == row.last_partition else None
            found.setdefault(DatasetUrn(row.urn), []).append(ActiveSchema(row.file_schema, only))
        return found

    def list_partitions(self, job: JobName, urn: DatasetUrn) -> Sequence[PublishedPartition]:
        asked = {"job": job, "urn": urn}
        rows = transact(self.engine, "list partitions", lambda c: c.execute(_LIST_PARTITIONS, asked).all())
        return [PublishedPartition(row.partition, row.file_count, row.file_bytes, row.quiet_s) for row in rows]

    def find_rows_elsewhere(self, job: JobName, urn: DatasetUrn) -> RowsElsewhere | None:
        row = transact(
            self.engine,
            "find rows that are in no file",
            lambda c: c.execute(_ROWS_ELSEWHERE, {"job": job, "urn": urn}).one_or_none(),
        )
        return None if row is None else RowsElsewhere(row.uri or "another place", row.row_count)

    def list_urns(self, job: JobName) -> Sequence[DatasetUrn]:
        urns = transact(self.engine, "list datasets", lambda c: c.execute(_LIST_URNS, {"job": job}).scalars().all())
        return [DatasetUrn(urn) for urn in urns]


def published_files_of(database: Database) -> PublishedFiles:
    """The port itself, or the one over an engine."""
    return PostgresPublishedFiles(database) if isinstance(database, Engine) else database


def _find(
    connection: Connection, job: JobName, urn: DatasetUrn, role: Role, partitions: list[str] | None
) -> PublishedSet | None:
    rows = connection.execute(_FIND, {"job": job, "urn": urn, "role": role, "partitions": partitions}).all()
    if not rows:
        return None
    read_schema = cache(json.loads)
    segments = tuple(_segment_of(row, role, read_schema) for row in rows if row.segment_id is not None)
    schemas = connection.execute(_SCHEMAS, {"job": job, "urn": urn, "role": role, "schemas_max": SCHEMAS_MAX}).all()
    active = tuple(row.file_schema for row in schemas if row.active)
    known = active or tuple(row.file_schema for row in schemas[:1])
    return PublishedSet(rows[0].dataset_version, segments, known)


def _segment_of(row: Row[Any], role: Role, read_schema: Callable[[str], object]) -> PublishedSegment:
    """``read_schema`` gives the same value for the same text: thousands of segments have one schema."""
    return PublishedSegment(
        sequence_id=SequenceId(row.sequence_id),
        version=row.version,
        partition=row.partition,
        role=role,
        root_uri=row.root_uri,
        file_count=row.file_count,
        row_count=row.row_count,
        file_bytes=row.file_bytes,
        file_schema=None if row.schema_text is None else read_schema(row.schema_text),
        payload=bytes(row.payload),
        digest=bytes(row.digest),
        moved=None if row.moved is None else (row.moved[0], row.moved[1]),
    )
