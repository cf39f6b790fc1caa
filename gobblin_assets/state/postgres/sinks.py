"""``SinkWindowStore`` and ``SinkWorkerStore`` in Postgres, by the database's clock."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import Connection, Engine, Row, text

from gobblin_assets.db.statement_texts import IS_UNFINISHED, to_jsonb
from gobblin_assets.db.transactions import transact
from gobblin_assets.model.state import DatasetId, LaneId, RunId, SequenceId
from gobblin_assets.model.urn import JobName, Role
from gobblin_assets.state.sinks import (
    DatasetLook,
    LaneLook,
    SinkBackOff,
    SinkWorkerRow,
    UnfinishedSequence,
    WindowCounts,
    WindowNews,
)

_NOW = text("SELECT clock_timestamp()")

_LANES = text("""
    SELECT n.dataset_id, n.lane_id, n.number,
           CASE WHEN l.expires_at > clock_timestamp() THEN l.run_id END AS holder,
           (SELECT count(*) FROM gobblin.watermark_key k WHERE k.lane_id = n.lane_id AND k.partition = '') AS vnodes,
           (SELECT CAST(s.details ->> 'epoch' AS bigint) FROM gobblin.commit_sequence s
             WHERE s.lane_id = n.lane_id AND s.result_version IS NOT NULL
             ORDER BY s.result_version DESC LIMIT 1) AS epoch
      FROM gobblin.lane n JOIN gobblin.lease l USING (lane_id)
     WHERE n.dataset_id = ANY (CAST(:dataset_ids AS bigint[]))
     ORDER BY n.dataset_id, n.number
""")

_UNFINISHED = text(f"""
    SELECT sequence_id, dataset_id, lane_id, partition, state = 'BLOCKED' AS is_blocked, last_error
      FROM gobblin.commit_sequence
     WHERE state {IS_UNFINISHED} AND dataset_id = ANY (CAST(:dataset_ids AS bigint[]))
     ORDER BY state = 'BLOCKED', sequence_id
""")

# From one partition to the next, without a look at each publication. Only sinks have epochs.
_NEWS = text("""
    WITH RECURSIVE place (dataset_id, partition) AS (
        SELECT given.dataset_id, (SELECT min(s.partition) FROM gobblin.commit_sequence s
                                   WHERE s.dataset_id = given.dataset_id AND s.state = 'DONE')
          FROM unnest(CAST(:dataset_ids AS bigint[])) AS given (dataset_id)
         UNION ALL
        SELECT p.dataset_id, (SELECT min(s.partition) FROM gobblin.commit_sequence s
                               WHERE s.dataset_id = p.dataset_id AND s.state = 'DONE' AND s.partition > p.partition)
          FROM place p WHERE p.partition IS NOT NULL
    )
    SELECT p.dataset_id, p.partition, latest.version, t.version AS reported_version, t.row_count AS reported_row_count,
           CAST(extract(epoch FROM clock_timestamp() - t.told_at) AS double precision) AS reported_ago_s
      FROM place p
     CROSS JOIN LATERAL (SELECT s.result_version AS version FROM gobblin.commit_sequence s
                          WHERE s.dataset_id = p.dataset_id AND s.partition = p.partition AND s.state = 'DONE'
                            AND s.details ? 'epoch'
                          ORDER BY s.result_version DESC LIMIT 1) AS latest
      LEFT JOIN gobblin.sink_window t ON t.dataset_id = p.dataset_id AND t.partition = p.partition
     WHERE latest.version > coalesce(t.version, 0)
     ORDER BY p.dataset_id, p.partition
""")

_COUNT = text("""
    SELECT latest.version, latest.sequence_id, found.*, held.publication_count, held.epoch
      FROM (SELECT s.result_version AS version, s.sequence_id FROM gobblin.commit_sequence s
             WHERE s.dataset_id = :dataset_id AND s.partition = :partition AND s.state = 'DONE'
               AND NOT s.details ? 'compaction'
             ORDER BY s.result_version DESC LIMIT 1) AS latest
     CROSS JOIN (SELECT sum(s.publication_count)::bigint AS publication_count,
                        max(CAST(s.details ->> 'epoch' AS bigint)) AS epoch
                   FROM gobblin.commit_sequence s
                  WHERE s.dataset_id = :dataset_id AND s.partition = :partition AND s.state = 'DONE') AS held
     CROSS JOIN (SELECT coalesce(sum(g.file_count), 0)::bigint AS file_count,
                        coalesce(sum(g.file_bytes), 0)::bigint AS file_bytes,
                        coalesce(sum(g.row_count) FILTER (WHERE g.role = 'data'), 0)::bigint AS data,
                        coalesce(sum(g.row_count) FILTER (WHERE g.role = 'dead_letter'), 0)::bigint AS dead_letter,
                        coalesce(sum(g.row_count) FILTER (WHERE g.role = 'quarantine'), 0)::bigint AS quarantine
                   FROM gobblin.segment g JOIN gobblin.commit_sequence o USING (sequence_id)
                  WHERE g.dataset_id = :dataset_id AND g.partition = :partition AND g.sealed
                    AND g.retired_by IS NULL AND o.state = 'DONE') AS found
""")

# Without new rows there was nothing to report: what comes next has not to wait.
_MARK_REPORTED = text("""
    INSERT INTO gobblin.sink_window (dataset_id, partition, version, row_count, told_at)
    VALUES (:dataset_id, :partition, :version, :row_count, CASE WHEN :row_count > 0 THEN clock_timestamp() END)
        ON CONFLICT (dataset_id, partition) DO UPDATE
       SET version = excluded.version, row_count = excluded.row_count,
           told_at = CASE WHEN sink_window.row_count = excluded.row_count THEN sink_window.told_at
                          ELSE clock_timestamp() END
     WHERE sink_window.version <= excluded.version
""")

_CLAIM = text("""
    INSERT INTO gobblin.sink_observation (dataset_id)
    SELECT dataset_id FROM unnest(CAST(:dataset_ids AS bigint[])) AS given (dataset_id) ORDER BY dataset_id
        ON CONFLICT (dataset_id) DO UPDATE SET observed_at = excluded.observed_at
     WHERE sink_observation.observed_at <= clock_timestamp() - make_interval(secs => :every_s)
 RETURNING dataset_id
""")

_BEAT = text("""
    INSERT INTO gobblin.sink_worker (run_id, job, owner, configuration, expires_at, looked_at, lags, rests)
    VALUES (:run_id, :job, :owner, :configuration, clock_timestamp() + make_interval(secs => :ttl_s), :looked_at,
            CAST(:lags AS jsonb), CAST(:rests AS jsonb))
        ON CONFLICT (run_id) DO UPDATE
       SET expires_at = excluded.expires_at, looked_at = excluded.looked_at, lags = excluded.lags,
           rests = excluded.rests
""")

_FORGET_DEAD = text("""
    DELETE FROM gobblin.sink_worker WHERE run_id IN (
        SELECT run_id FROM gobblin.sink_worker
         WHERE job = :job AND expires_at <= clock_timestamp()
           FOR UPDATE SKIP LOCKED
    )
""")

_LIST_LIVE = text("""
    SELECT w.run_id, w.owner, w.configuration, w.is_drained, w.looked_at, w.lags, w.rests, r.dagster_run_id
      FROM gobblin.sink_worker w LEFT JOIN gobblin.run r USING (run_id)
     WHERE w.job = :job AND w.expires_at > clock_timestamp()
     ORDER BY w.run_id
""")

_DRAIN = text("""
    UPDATE gobblin.sink_worker SET is_drained = true WHERE job = :job AND expires_at > clock_timestamp()
""")

_LEAVE = text("DELETE FROM gobblin.sink_worker WHERE run_id = :run_id")


class PostgresSinkWindowStore:
    """``SinkWindowStore`` over ``sink_window``, ``sink_observation`` and the log."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def look(self, dataset_ids: Sequence[DatasetId]) -> Mapping[DatasetId, DatasetLook]:
        return transact(self._engine, "look at sinks", lambda c: _look(c, dataset_ids))

    def count(self, dataset_id: DatasetId, partition: str) -> WindowCounts | None:
        asked = {"dataset_id": dataset_id, "partition": partition}
        row = transact(self._engine, "count a window", lambda c: c.execute(_COUNT, asked).one_or_none())
        if row is None:
            return None
        rows = {role: getattr(row, role.value) for role in Role}
        return WindowCounts(
            version=row.version,
            sequence_id=SequenceId(row.sequence_id),
            row_counts={role: count for role, count in rows.items() if count},
            file_count=row.file_count,
            file_bytes=row.file_bytes,
            publication_count=row.publication_count,
            epoch=row.epoch,
        )

    def mark_reported(self, dataset_id: DatasetId, partition: str, *, version: int, row_count: int) -> None:
        reported = {"dataset_id": dataset_id, "partition": partition, "version": version, "row_count": row_count}
        transact(self._engine, "mark a window reported", lambda c: c.execute(_MARK_REPORTED, reported).rowcount)

    def claim_observations(self, dataset_ids: Sequence[DatasetId], *, every_s: float) -> frozenset[DatasetId]:
        asked = {"dataset_ids": list(dataset_ids), "every_s": every_s}
        found = transact(self._engine, "claim observations", lambda c: c.execute(_CLAIM, asked).scalars().all())
        return frozenset(DatasetId(LaneId(each)) for each in found)


def _look(connection: Connection, dataset_ids: Sequence[DatasetId]) -> dict[DatasetId, DatasetLook]:
    asked = {"dataset_ids": list(dataset_ids)}
    now = connection.execute(_NOW).scalar_one()
    lanes = connection.execute(_LANES, asked).all()
    partitions: dict[int, set[str]] = defaultdict(set)
    of_lane: dict[int, UnfinishedSequence] = {}
    for row in connection.execute(_UNFINISHED, asked):
        partitions[row.dataset_id].add(row.partition)
        # A lane may have one that is open, and one that is being built; the last one here is the one that is blocked.
        of_lane[row.lane_id] = UnfinishedSequence(
            SequenceId(row.sequence_id), row.partition, row.is_blocked, row.last_error
        )
    news: dict[int, list[WindowNews]] = defaultdict(list)
    for row in connection.execute(_NEWS, asked):
        news[row.dataset_id].append(
            WindowNews(row.partition, row.version, row.reported_version, row.reported_row_count, row.reported_ago_s)
        )
    looks: dict[int, list[LaneLook]] = defaultdict(list)
    for row in lanes:
        holder = None if row.holder is None else RunId(row.holder)
        looks[row.dataset_id].append(LaneLook(row.number, holder, row.vnodes, row.epoch, of_lane.get(row.lane_id)))
    return {
        dataset_id: DatasetLook(
            now, tuple(looks[dataset_id]), frozenset(partitions[dataset_id]), tuple(news[dataset_id])
        )
        for dataset_id in dataset_ids
        if dataset_id in looks
    }


class PostgresSinkWorkerStore:
    """``SinkWorkerStore`` over the table ``sink_worker``."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def beat(self, job: JobName, worker: SinkWorkerRow, *, ttl_s: float) -> Sequence[SinkWorkerRow]:
        def body(connection: Connection) -> list[SinkWorkerRow]:
            connection.execute(
                _BEAT,
                {
                    "run_id": worker.run_id,
                    "job": job,
                    "owner": worker.owner,
                    "configuration": worker.configuration,
                    "ttl_s": ttl_s,
                    "looked_at": worker.looked_at,
                    "lags": to_jsonb({str(dataset_id): lag for dataset_id, lag in worker.lags.items()}),
                    "rests": to_jsonb([asdict(each) for each in worker.back_offs]),
                },
            )
            connection.execute(_FORGET_DEAD, {"job": job})
            return _workers(connection.execute(_LIST_LIVE, {"job": job}))

        return transact(self._engine, "count sink workers", body)

    def list_live(self, job: JobName) -> Sequence[SinkWorkerRow]:
        return transact(self._engine, "list sink workers", lambda c: _workers(c.execute(_LIST_LIVE, {"job": job})))

    def drain(self, job: JobName) -> int:
        return transact(self._engine, "drain sink", lambda c: c.execute(_DRAIN, {"job": job}).rowcount)

    def leave(self, run_id: RunId) -> None:
        transact(self._engine, "leave sink", lambda c: c.execute(_LEAVE, {"run_id": run_id}).rowcount)


def _workers(rows: Iterable[Row[Any]]) -> list[SinkWorkerRow]:
    return [
        SinkWorkerRow(
            RunId(row.run_id),
            row.owner,
            row.configuration,
            row.is_drained,
            row.looked_at,
            {DatasetId(LaneId(int(dataset_id))): lag for dataset_id, lag in row.lags.items()},
            tuple(SinkBackOff(**each) for each in row.rests or ()),
            row.dagster_run_id,
        )
        for row in rows
    ]
