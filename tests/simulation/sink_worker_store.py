"""``SimSinkWorkerStore(db)``: the port ``SinkWorkerStore`` over a ``SimDatabase``."""

from collections.abc import Sequence
from dataclasses import replace

from gobblin_assets.model.state import RunId
from gobblin_assets.model.urn import JobName
from gobblin_assets.state.sinks import SinkWorkerRow
from tests.simulation.database import SimDatabase
from tests.simulation.rows import CountedWorkerRow


class SimSinkWorkerStore:
    def __init__(self, db: SimDatabase) -> None:
        self._db = db

    def beat(self, job: JobName, worker: SinkWorkerRow, *, ttl_s: float) -> Sequence[SinkWorkerRow]:
        with self._db.transaction() as db:
            new = CountedWorkerRow(worker.run_id, job, worker.owner, worker.configuration, db.now_s)
            known = db.sink_workers.get(worker.run_id, new)
            new = replace(
                known,
                expires_at=db.now_s + ttl_s,
                looked_at=worker.looked_at,
                lags=tuple(sorted(worker.lags.items())),
                rests=tuple(worker.back_offs),
            )
            db.sink_workers.put(worker.run_id, new)
            dead = [row for row in db.sink_workers.values() if row.job == job and row.expires_at <= db.now_s]
            for row in dead:
                db.sink_workers.drop(row.run_id)
            return self.list_live(job)

    def list_live(self, job: JobName) -> Sequence[SinkWorkerRow]:
        return [
            SinkWorkerRow(
                row.run_id, row.owner, row.configuration, row.is_drained, row.looked_at, dict(row.lags), row.rests
            )
            for row in sorted(_live(self._db, job), key=lambda row: row.run_id)
        ]

    def drain(self, job: JobName) -> int:
        with self._db.transaction() as db:
            live = _live(db, job)
            for row in live:
                db.sink_workers.put(row.run_id, replace(row, is_drained=True))
        return len(live)

    def leave(self, run_id: RunId) -> None:
        with self._db.transaction() as db:
            if run_id in db.sink_workers:
                db.sink_workers.drop(run_id)


def _live(db: SimDatabase, job: JobName) -> list[CountedWorkerRow]:
    return [row for row in db.sink_workers.values() if row.job == job and row.expires_at > db.now_s]
