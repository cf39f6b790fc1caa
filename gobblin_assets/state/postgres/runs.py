"""``RunStore`` in Postgres: the history of runs."""

from collections.abc import Collection, Mapping, Sequence

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import IntegrityError

from gobblin_assets.db.statement_texts import to_jsonb
from gobblin_assets.db.transactions import transact
from gobblin_assets.errors import ConflictError
from gobblin_assets.model.state import RunId, WorkingState
from gobblin_assets.model.urn import JobName
from gobblin_assets.state.datasets import LapsedRun, NewRun, RunDatasetRecord, asked_to_json

_BEGIN_RUN = text("""
    INSERT INTO gobblin.run (run_id, job, state, owner, dagster_run_id, asked)
    VALUES (:run_id, :job, :state, :owner, :dagster_run_id, CAST(:asked AS jsonb))
        ON CONFLICT (run_id) DO NOTHING
""")

# History, under no fence: an owner that lost its dataset still records how its datasets left its run.
_RECORD_DATASETS = text("""
    INSERT INTO gobblin.run_dataset (run_id, dataset_id, partition, outcome, sequence_id, error, figures, checks)
    SELECT :run_id, dataset_id, partition, outcome, sequence_id, error, CAST(figures AS jsonb), CAST(checks AS jsonb)
      FROM unnest(CAST(:dataset_id AS bigint[]), CAST(:partition AS text[]), CAST(:outcome AS text[]),
                  CAST(:sequence_id AS uuid[]), CAST(:error AS text[]), CAST(:figures AS text[]),
                  CAST(:checks AS text[]))
           AS given (dataset_id, partition, outcome, sequence_id, error, figures, checks)
        ON CONFLICT (run_id, dataset_id, partition) DO UPDATE
       SET outcome = excluded.outcome, sequence_id = excluded.sequence_id, error = excluded.error,
           figures = excluded.figures, checks = excluded.checks, ended_at = clock_timestamp()
""")

_END_RUN = text("""
    UPDATE gobblin.run
       SET state = :state, error = :error, figures = CAST(:figures AS jsonb), ended_at = clock_timestamp()
     WHERE run_id = :run_id
""")


# With a limit on age, since history only grows. A process that ends its run gives figures; a run without figures was
# ended by the taker of its lease.
_LIST_LAPSED = text("""
    SELECT r.run_id, coalesce(r.dagster_run_id, CAST(r.run_id AS text)) AS dagster_run_id, r.owner,
           r.job, r.asked IS NOT NULL AS is_command,
           r.state = 'FAILED'
               OR EXISTS (SELECT FROM gobblin.lease l WHERE l.run_id = r.run_id AND l.owner IS NOT NULL) AS ran_out
      FROM gobblin.run r
     WHERE (CAST(:job AS text) IS NULL OR r.job = :job)
       AND (r.dagster_run_id IS NOT NULL OR r.asked IS NOT NULL AND r.reported_at IS NULL AND r.state = 'RUNNING')
       AND (r.state = 'RUNNING' OR r.state = 'FAILED' AND r.figures IS NULL)
       AND r.started_at > clock_timestamp() - make_interval(days => 30)
       AND NOT EXISTS (
               SELECT FROM gobblin.lease l
                WHERE l.run_id = r.run_id AND l.owner IS NOT NULL AND l.expires_at > clock_timestamp()
           )
       AND NOT EXISTS (
               SELECT FROM gobblin.sink_worker w WHERE w.run_id = r.run_id AND w.expires_at > clock_timestamp()
           )
     ORDER BY r.started_at, r.run_id
     LIMIT :limit
""")


# A stream that began long ago is not over while it holds a lease. Runs are locked, so that no sequence of a run begins
# while the run is dropped: the reference to the run waits for the lock. Two cleanups take different runs.
_FORGET_RUNS = text("""
    WITH old AS (
        SELECT r.run_id FROM gobblin.run r
         WHERE r.job = :job AND r.started_at < clock_timestamp() - make_interval(secs => :older_than_s)
           AND (r.ended_at IS NULL OR r.ended_at < clock_timestamp() - make_interval(secs => :older_than_s))
           AND NOT EXISTS (SELECT FROM gobblin.commit_sequence s WHERE s.run_id = r.run_id)
           AND NOT EXISTS (
                   SELECT FROM gobblin.lease l WHERE l.run_id = r.run_id AND l.expires_at > clock_timestamp()
               )
         ORDER BY r.started_at
         LIMIT :limit
           FOR UPDATE SKIP LOCKED
    ), gone AS (
        DELETE FROM gobblin.run_dataset d USING old WHERE d.run_id = old.run_id
    )
    SELECT run_id FROM old
""")

_DROP_RUNS = text("DELETE FROM gobblin.run WHERE run_id = ANY (CAST(:run_ids AS uuid[]))")

_LIST_WORKING = text("""
    SELECT dagster_run_id FROM gobblin.run
     WHERE (CAST(:job AS text) IS NULL OR job = :job) AND state = 'RUNNING'
       AND dagster_run_id = ANY (CAST(:ids AS text[]))
""")


class PostgresRunStore:
    """``RunStore`` over ``run`` and ``run_dataset``."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def begin(self, run: NewRun) -> None:
        arguments = {
            "run_id": run.run_id,
            "job": run.job,
            "state": WorkingState.RUNNING.value,
            "owner": run.owner,
            "dagster_run_id": run.dagster_run_id,
            "asked": None if run.asked is None else to_jsonb(asked_to_json(run.asked)),
        }
        transact(self._engine, "begin run", lambda c: c.execute(_BEGIN_RUN, arguments).rowcount)

    def record_dataset(self, run_id: RunId, *records: RunDatasetRecord) -> None:
        arguments = {
            "run_id": run_id,
            "dataset_id": [record.dataset_id for record in records],
            "partition": [record.partition for record in records],
            "outcome": [record.outcome.value for record in records],
            "sequence_id": [record.sequence_id for record in records],
            "error": [record.error for record in records],
            "figures": [to_jsonb(record.figures) for record in records],
            "checks": [to_jsonb(list(record.checks)) if record.checks else None for record in records],
        }
        try:
            transact(self._engine, "record datasets", lambda c: c.execute(_RECORD_DATASETS, arguments).rowcount)
        except IntegrityError as error:
            raise ConflictError(
                f"the log does not know run {run_id}, or the sequence that it publishes by: it is older than the run",
                hint="Postgres failed over to a standby that lagged, or was restored. The next run finds out what is "
                "missing before it reads anything.",
                run_id=str(run_id),
            ) from error

    def end(self, run_id: RunId, state: WorkingState, *, error: str | None, figures: Mapping[str, object]) -> None:
        arguments = {"run_id": run_id, "state": state.value, "error": error, "figures": to_jsonb(figures)}
        transact(self._engine, "end run", lambda c: c.execute(_END_RUN, arguments).rowcount)

    def forget(self, job: JobName, *, older_than_s: float, limit: int) -> int:
        def body(connection: Connection) -> int:
            asked = {"job": job, "older_than_s": older_than_s, "limit": limit}
            ids = list(connection.execute(_FORGET_RUNS, asked).scalars())
            connection.execute(_DROP_RUNS, {"run_ids": ids})
            return len(ids)

        return transact(self._engine, "forget runs", body)

    def list_working(self, job: JobName | None, dagster_run_ids: Collection[str]) -> Collection[str]:
        arguments = {"job": job, "ids": list(dagster_run_ids)}
        return set(
            transact(self._engine, "list working runs", lambda c: c.execute(_LIST_WORKING, arguments).scalars().all())
        )

    def list_lapsed(self, job: JobName | None, *, limit: int) -> Sequence[LapsedRun]:
        arguments = {"job": job, "limit": limit}
        rows = transact(self._engine, "list lapsed runs", lambda c: c.execute(_LIST_LAPSED, arguments).all())
        return [
            LapsedRun(RunId(row.run_id), row.dagster_run_id, row.owner, row.ran_out, JobName(row.job), row.is_command)
            for row in rows
        ]
