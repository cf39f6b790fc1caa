"""The segments of a fold at given names: read and written some at a time, in the transaction of the fold."""

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, TypeVar

from sqlalchemy import Connection, Row, text

from gobblin_assets.commit.named_folding import NamedPart, NamedRun, choose_runs, fold_names
from gobblin_assets.commit.postgres.arguments import in_columns, segment_columns
from gobblin_assets.model.state import DatasetId, SequenceId

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
