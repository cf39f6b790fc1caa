"""``DatasetStore`` in Postgres: the states of datasets between runs."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from sqlalchemy import Connection, Engine, Row, text

from gobblin_assets.db.transactions import transact
from gobblin_assets.model.interval import Interval
from gobblin_assets.model.state import DatasetId, DatasetState, KeyId, KeyState
from gobblin_assets.model.urn import DatasetUrn, JobName
from gobblin_assets.model.watermark import Watermark, parse_watermark

# In one order: two processes may register the same datasets, and inserts of one name wait for each other.
_REGISTER = text("""
    WITH named AS (SELECT DISTINCT unnest(CAST(:urns AS text[])) AS urn),
    made AS (
        INSERT INTO gobblin.dataset (job, urn)
        SELECT :job, urn FROM named ORDER BY urn
            ON CONFLICT (job, urn) DO NOTHING
     RETURNING dataset_id, urn
    )
    SELECT dataset_id, urn FROM made
     UNION
    SELECT d.dataset_id, d.urn FROM gobblin.dataset d JOIN named USING (urn) WHERE d.job = :job
""")

# Lane 0 of each, with its lease.
_REGISTER_LANES = text("""
    INSERT INTO gobblin.lane (lane_id, dataset_id, number)
    SELECT each, each, 0 FROM unnest(CAST(:dataset_ids AS bigint[])) AS each ORDER BY each
        ON CONFLICT (lane_id) DO NOTHING
""")

_REGISTER_LEASES = text("""
    INSERT INTO gobblin.lease (lane_id)
    SELECT unnest(CAST(:dataset_ids AS bigint[]))
        ON CONFLICT (lane_id) DO NOTHING
""")

_LOAD_DATASETS = text("""
    SELECT d.dataset_id, d.urn, n.version, d.source_columns, d.published_columns, d.source_facts
      FROM gobblin.dataset d JOIN gobblin.lane n ON n.lane_id = d.dataset_id
     WHERE d.job = :job AND d.urn = ANY (CAST(:urns AS text[]))
""")

_LOAD_KEYS = text("""
    SELECT key_id, dataset_id, name, partition, watermark
      FROM gobblin.watermark_key
     WHERE dataset_id = ANY (CAST(:dataset_ids AS bigint[]))
""")

# From one partition to the next by the index, since a stream makes many publications of each. Postgres does not turn a
# scalar subquery with LIMIT into a join, which would read all of them. If a window was read again, its newest
# publications are active.
_LOAD_PUBLISHED = text("""
    WITH RECURSIVE asked AS (SELECT unnest(CAST(:dataset_ids AS bigint[])) AS dataset_id),
    found (dataset_id, partition) AS (
        SELECT a.dataset_id, (SELECT min(s.partition) FROM gobblin.commit_sequence s
                               WHERE s.dataset_id = a.dataset_id AND s.state = 'DONE')
          FROM asked a
         UNION ALL
        SELECT f.dataset_id, (SELECT min(s.partition) FROM gobblin.commit_sequence s
                               WHERE s.dataset_id = f.dataset_id AND s.state = 'DONE' AND s.partition > f.partition)
          FROM found f
         WHERE f.partition IS NOT NULL
    )
    SELECT f.dataset_id, f.partition FROM found f
     WHERE f.partition IS NOT NULL
       AND (SELECT l.active FROM gobblin.commit_sequence s JOIN gobblin.ledger l USING (sequence_id)
             WHERE s.dataset_id = f.dataset_id AND s.partition = f.partition AND s.state = 'DONE' AND l.active
             ORDER BY s.result_version DESC
             LIMIT 1)
""")

# By the index of ledger_no_overlap, which has these expressions: intervals below a watermark are not looked at.
_LOAD_AHEAD = text("""
    SELECT k.dataset_id, k.name, k.partition, l.low, l.high
      FROM gobblin.watermark_key k JOIN gobblin.ledger l USING (key_id)
     WHERE k.dataset_id = ANY (CAST(:dataset_ids AS bigint[])) AND l.active AND NOT l.is_generation
       AND int8range(l.key_id, l.key_id, '[]') = int8range(k.key_id, k.key_id, '[]')
       AND gobblin.wm_range(l.low_bytes, l.high_bytes) && gobblin.wm_range(coalesce(k.watermark_bytes, ''), NULL)
     ORDER BY l.key_id, l.low_bytes
""")

# Compare-and-set by the bytes, as every other change of a position.
_NOTE_LOST = text("""
    UPDATE gobblin.watermark_key
       SET watermark = watermark || jsonb_build_object(
               'history', coalesce(watermark -> 'history', '{}') || CAST(:lost AS jsonb))
     WHERE dataset_id = :dataset_id AND name = :name AND watermark_bytes = :bytes
       AND NOT coalesce(watermark -> 'history', '{}') ? 'lost'
""")

# Neighbours become one interval, since a stream's windows consist of many.
_IN_ISLANDS: Final = """
    SELECT name, (array_agg(low ORDER BY low_bytes))[1] AS low, (array_agg(high ORDER BY high_bytes DESC))[1] AS high
      FROM (SELECT *, count(*) FILTER (WHERE begins) OVER (PARTITION BY key_id ORDER BY low_bytes) AS island
              FROM (SELECT k.name, l.key_id, l.low, l.high, l.low_bytes, l.high_bytes,
                           (lag(l.high_bytes) OVER (PARTITION BY l.key_id ORDER BY l.low_bytes) = l.low_bytes)
                               IS NOT TRUE AS begins
                      FROM {entries} AND l.active AND NOT l.is_generation) AS entries) AS numbered
     GROUP BY key_id, name, island
     ORDER BY name, (array_agg(low_bytes ORDER BY low_bytes))[1]
"""

_LOAD_ALL_INTERVALS = text(
    _IN_ISLANDS.format(
        entries="gobblin.watermark_key k JOIN gobblin.ledger l USING (key_id) WHERE k.dataset_id = :dataset_id"
    )
)

_LOAD_INTERVALS = text(
    _IN_ISLANDS.format(
        entries="""gobblin.commit_sequence s JOIN gobblin.ledger l USING (sequence_id)
                      JOIN gobblin.watermark_key k USING (key_id)
                     WHERE s.dataset_id = :dataset_id AND s.partition = :partition AND s.state = 'DONE'"""
    )
)

_SETTLE_COLUMNS = text("""
    UPDATE gobblin.dataset SET source_columns = coalesce(source_columns, CAST(:columns AS jsonb))
     WHERE dataset_id = :dataset_id
 RETURNING source_columns
""")

_LIST_URNS = text("""
    SELECT job, urn FROM gobblin.dataset
     WHERE CAST(:job AS text) IS NULL OR job = :job
     ORDER BY job, urn
""")


class PostgresDatasetStore:
    """``DatasetStore`` over ``dataset`` and ``watermark_key``."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def register(self, job: JobName, urns: Sequence[DatasetUrn]) -> Mapping[DatasetUrn, DatasetId]:
        def body(connection: Connection) -> dict[DatasetUrn, DatasetId]:
            arguments = {"job": job, "urns": list(urns)}
            rows = connection.execute(_REGISTER, arguments).all()
            if len(rows) < len(set(urns)):
                # Another process made some of them between the two halves of the statement; they are visible now.
                rows = connection.execute(_REGISTER, arguments).all()
            ids = {"dataset_ids": [row.dataset_id for row in rows]}
            connection.execute(_REGISTER_LANES, ids)
            connection.execute(_REGISTER_LEASES, ids)
            return {DatasetUrn(row.urn): DatasetId(row.dataset_id) for row in rows}

        return transact(self._engine, "register datasets", body)

    def load(self, job: JobName, urns: Sequence[DatasetUrn]) -> Mapping[DatasetUrn, DatasetState]:
        def body(connection: Connection) -> dict[DatasetUrn, DatasetState]:
            rows = connection.execute(_LOAD_DATASETS, {"job": job, "urns": list(urns)}).all()
            keys: dict[int, dict[tuple[str, str], KeyState]] = {row.dataset_id: {} for row in rows}
            ids = {"dataset_ids": list(keys)}
            published: dict[int, set[str]] = {row.dataset_id: set() for row in rows}
            for found in connection.execute(_LOAD_PUBLISHED, ids):
                published[found.dataset_id].add(found.partition)
            ahead: dict[int, dict[tuple[str, str], list[Interval]]] = {row.dataset_id: {} for row in rows}
            for entry in connection.execute(_LOAD_AHEAD, ids):
                ahead[entry.dataset_id].setdefault((entry.name, entry.partition), []).append(_interval(entry))
            for key in connection.execute(_LOAD_KEYS, ids):
                watermark = None if key.watermark is None else parse_watermark(key.watermark)
                keys[key.dataset_id][key.name, key.partition] = KeyState(
                    KeyId(key.key_id), key.name, key.partition, watermark
                )
            return {
                DatasetUrn(row.urn): DatasetState(
                    dataset_id=DatasetId(row.dataset_id),
                    job=job,
                    urn=DatasetUrn(row.urn),
                    version=row.version,
                    keys=keys[row.dataset_id],
                    published=frozenset(published[row.dataset_id]),
                    ahead={key: tuple(found) for key, found in ahead[row.dataset_id].items()},
                    source_columns=_columns(row.source_columns),
                    published_columns=_columns(row.published_columns),
                    source_facts=row.source_facts or {},
                )
                for row in rows
            }

        return transact(self._engine, "load dataset states", body)

    def settle_columns(self, dataset_id: DatasetId, columns: Mapping[str, str]) -> Mapping[str, str]:
        asked = {"dataset_id": dataset_id, "columns": json.dumps(list(columns.items()))}
        settled = transact(self._engine, "settle columns", lambda c: c.execute(_SETTLE_COLUMNS, asked).scalar_one())
        return dict(settled)

    def load_intervals(self, dataset_id: DatasetId, partition: str | None) -> Mapping[str, Sequence[Interval]]:
        arguments: dict[str, object] = {"dataset_id": dataset_id}
        statement = _LOAD_ALL_INTERVALS
        if partition is not None:
            arguments["partition"] = partition
            statement = _LOAD_INTERVALS
        rows = transact(self._engine, "load intervals", lambda c: c.execute(statement, arguments).all())
        intervals: dict[str, list[Interval]] = {}
        for row in rows:
            intervals.setdefault(row.name, []).append(_interval(row))
        return intervals

    def note_lost(self, dataset_id: DatasetId, key: str, at: Watermark, reason: str) -> None:
        asked = {"dataset_id": dataset_id, "name": key, "bytes": at.encode(), "lost": json.dumps({"lost": reason})}
        transact(self._engine, "note a lost history", lambda c: c.execute(_NOTE_LOST, asked))

    def list_urns(self, job: JobName | None = None) -> Sequence[tuple[JobName, DatasetUrn]]:
        rows = transact(self._engine, "list datasets", lambda c: c.execute(_LIST_URNS, {"job": job}).all())
        return [(JobName(row.job), DatasetUrn(row.urn)) for row in rows]


def _interval(row: Row[Any]) -> Interval:
    return Interval(None if row.low is None else parse_watermark(row.low), parse_watermark(row.high))


def _columns(pairs: Sequence[tuple[str, str]] | None) -> Mapping[str, str] | None:
    return None if pairs is None else dict(pairs)
