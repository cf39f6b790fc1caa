"""``SinkWorkerStore`` in Postgres, by the database's clock."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import Connection, Engine, Row, text

from gobblin_assets.db.json_column import to_jsonb
from gobblin_assets.db.transactions import transact
from gobblin_assets.model.state import DatasetId, LaneId, RunId
from gobblin_assets.model.urn import JobName
from gobblin_assets.state.sink_workers import SinkBackOff, SinkWorkerRow

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
