"""``ReportStore`` in Postgres."""

import datetime as dt
from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Connection, Engine, Row, TextClause, text

from gobblin_assets.db.transactions import transact
from gobblin_assets.model.state import DatasetOutcome, RunId, SequenceId, WorkingState
from gobblin_assets.model.urn import DatasetUrn, JobName
from gobblin_assets.state.datasets import asked_from_json
from gobblin_assets.state.reports import (
    UNREPORTED_S_MAX,
    ReportBacklog,
    UnpublishedPartition,
    UnreportedPublication,
    UnreportedRun,
)

_LOOKED_EVERY_S: Final = 60.0
"""A job without news costs one write in this time."""

_EARLIEST: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_STREAM_LATE_S: Final = 86_400.0

_GOOD: Final = "({0}.outcome IN ('COMMITTED', 'PARTIAL') OR {0}.outcome = 'SKIPPED' AND {0}.error IS NULL)"

_WAITS: Final = "s.state = 'DONE' AND s.announced_at IS NULL AND s.folded_at IS NULL"

_LOOK = text(f"""
    WITH seen AS (
        INSERT INTO gobblin.reporter AS r (job)
        SELECT job FROM unnest(CAST(:jobs AS text[])) AS job ORDER BY job
            ON CONFLICT (job) DO UPDATE SET looked_at = clock_timestamp()
         WHERE r.looked_at < clock_timestamp() - make_interval(secs => :every_s)
    )
    SELECT job FROM unnest(CAST(:jobs AS text[])) AS job
     WHERE EXISTS (SELECT FROM gobblin.run u WHERE u.job = job.job AND u.asked IS NOT NULL AND u.reported_at IS NULL)
        OR EXISTS (SELECT FROM gobblin.commit_sequence s JOIN gobblin.dataset d USING (dataset_id)
                    WHERE d.job = job.job AND {_WAITS})
     ORDER BY job
""")

_CLAIM = text("""
    INSERT INTO gobblin.reporter AS r (job, claimed_by, claimed_until)
    VALUES (:job, :reporter, clock_timestamp() + make_interval(secs => :ttl_s))
        ON CONFLICT (job) DO UPDATE
       SET claimed_by = excluded.claimed_by, claimed_until = excluded.claimed_until, looked_at = clock_timestamp()
     WHERE r.claimed_by IS NULL OR r.claimed_by = excluded.claimed_by OR r.claimed_until < clock_timestamp()
""")

_RELEASE = text("""
    UPDATE gobblin.reporter
       SET claimed_by = NULL, claimed_until = NULL, error = :error,
           failed_at = CASE WHEN CAST(:error AS text) IS NULL THEN NULL ELSE coalesce(failed_at, clock_timestamp()) END
     WHERE job = :job AND claimed_by = :reporter
""")

_RUN_COLUMNS: Final = "run_id, asked, dagster_run_id, state, error, started_at, ended_at"

_RUNS = text(f"""
    SELECT {_RUN_COLUMNS} FROM gobblin.run
     WHERE job = :job AND asked IS NOT NULL AND reported_at IS NULL
     ORDER BY ended_at IS NULL, started_at, run_id
     LIMIT :limit
""")

_RUNS_BY_ID = text(f"""
    SELECT {_RUN_COLUMNS} FROM gobblin.run
     WHERE run_id = ANY (CAST(:run_ids AS uuid[])) AND asked IS NOT NULL AND reported_at IS NULL
""")

# A publication without a step that took nothing away and has the same verdicts as the one before is no news. A run
# that is not a command's, and that holds the lane, is about to report the publication by itself.
# How the partition left the last run before ``{0}`` that was reported to Dagster.
_BEFORE: Final = """
               SELECT q.outcome, q.error
                 FROM gobblin.run_dataset q JOIN gobblin.run w USING (run_id)
                WHERE q.dataset_id = {0}.dataset_id AND q.partition = {0}.partition AND q.ended_at < {1}
                  AND q.run_id <> {0}.run_id AND (w.asked IS NOT NULL OR w.dagster_run_id IS NOT NULL)
                ORDER BY q.ended_at DESC LIMIT 1
"""

_PUBLICATIONS = text(f"""
    SELECT s.sequence_id, s.run_id, s.done_at,
           NOT s.details ? 'compaction'
           AND (s.step_count > 0 OR p.sequence_id IS NULL OR p.complete IS DISTINCT FROM s.complete
                OR EXISTS (SELECT FROM gobblin.segment g WHERE g.retired_by = s.sequence_id)
                OR EXISTS (SELECT FROM ({_BEFORE.format("s", "s.done_at")}) b WHERE NOT {_GOOD.format("b")})
                OR jsonb_path_query_array(p.details, '$.checks[*].passed')
                   <> jsonb_path_query_array(s.details, '$.checks[*].passed'))
           AND NOT (s.done_at < clock_timestamp() - make_interval(secs => :old_s) AND later.is_there) AS is_news,
           later.is_reported AS is_superseded,
           r.ended_at IS NOT NULL AND r.ended_at < s.done_at AS outlived,
           s.done_at < clock_timestamp() - make_interval(secs => :old_s) AS is_old
      FROM gobblin.commit_sequence s
      JOIN gobblin.dataset d USING (dataset_id)
      JOIN gobblin.run r USING (run_id)
      LEFT JOIN LATERAL (
               SELECT o.sequence_id, o.complete, o.details FROM gobblin.commit_sequence o
                WHERE o.dataset_id = s.dataset_id AND o.partition = s.partition AND o.state = 'DONE'
                  AND o.result_version < s.result_version AND NOT o.details ? 'compaction'
                ORDER BY o.result_version DESC LIMIT 1
           ) p ON true
      CROSS JOIN LATERAL (
               SELECT count(*) > 0 AS is_there, coalesce(bool_or(o.announced_at IS NOT NULL), false) AS is_reported
                 FROM gobblin.commit_sequence o
                WHERE o.dataset_id = s.dataset_id AND o.partition = s.partition AND o.state = 'DONE'
                  AND o.result_version > s.result_version AND NOT o.details ? 'compaction' AND o.step_count > 0
           ) later
     WHERE d.job = :job AND {_WAITS} AND (s.done_at, s.sequence_id) > (:after_at, CAST(:after_id AS uuid))
       AND NOT (r.asked IS NULL
                AND EXISTS (SELECT FROM gobblin.lease l
                             WHERE l.lane_id = s.lane_id AND l.owner IS NOT NULL AND l.expires_at > clock_timestamp()))
     ORDER BY s.done_at, s.sequence_id
     LIMIT :limit
""")

_UNPUBLISHED = text(f"""
    SELECT d.urn, r.partition, r.outcome, r.error, r.checks
      FROM gobblin.run_dataset r
      JOIN gobblin.dataset d USING (dataset_id)
      LEFT JOIN LATERAL ({_BEFORE.format("r", "r.ended_at")}) p ON true
     WHERE r.run_id = :run_id AND r.sequence_id IS NULL
       AND (NOT {_GOOD.format("r")} OR p.outcome IS NOT NULL AND NOT {_GOOD.format("p")})
     ORDER BY d.urn, r.partition
""")

_UNCHECKED = text("""
    SELECT DISTINCT ON (s.dataset_id, s.partition) s.sequence_id
      FROM gobblin.run u
      JOIN gobblin.commit_sequence s USING (run_id)
      LEFT JOIN gobblin.reporter g ON g.job = u.job
     WHERE u.job = :job AND CAST(u.asked ->> 'is_stream' AS boolean) AND s.state = 'DONE' AND s.folded_at IS NULL
       AND NOT s.details ? 'compaction' AND s.announced_at > coalesce(g.checks_told_at, '-infinity')
       AND (u.reported_at IS NULL OR u.reported_at > clock_timestamp() - make_interval(secs => :late_s))
     ORDER BY s.dataset_id, s.partition, s.result_version DESC
""")

_CHECKED_AGE = text("""
    SELECT EXTRACT(EPOCH FROM clock_timestamp() - checks_told_at)::double precision
      FROM gobblin.reporter WHERE job = :job
""")

_MARK_CHECKED = text("UPDATE gobblin.reporter SET checks_told_at = clock_timestamp() WHERE job = :job")

_REPORTED_LATER = text("""
    SELECT DISTINCT ON (s.dataset_id, s.partition) o.sequence_id
      FROM gobblin.commit_sequence s
      JOIN gobblin.commit_sequence o
        ON o.dataset_id = s.dataset_id AND o.partition = s.partition AND o.state = 'DONE'
           AND o.announced_at IS NOT NULL AND o.result_version > s.result_version AND NOT o.details ? 'compaction'
           AND NOT o.sequence_id = ANY (CAST(:ids AS uuid[])) AND o.step_count > 0
     WHERE s.sequence_id = ANY (CAST(:ids AS uuid[]))
     ORDER BY s.dataset_id, s.partition, o.result_version DESC
""")

_MARK_BEGUN = text("UPDATE gobblin.run SET dagster_run_id = :dagster_run_id WHERE run_id = :run_id")

_MARK_REPORTED = text("""
    UPDATE gobblin.run SET reported_at = clock_timestamp() WHERE run_id = :run_id AND reported_at IS NULL
""")

_BACKLOGS = text(f"""
    WITH waiting AS (
        SELECT d.job, s.done_at AS at, 1 AS publication
          FROM gobblin.commit_sequence s JOIN gobblin.dataset d USING (dataset_id)
         WHERE {_WAITS} AND s.step_count > 0 AND NOT s.details ? 'compaction'
         UNION ALL
        SELECT job, ended_at, 0 FROM gobblin.run
         WHERE asked IS NOT NULL AND reported_at IS NULL AND state = 'FAILED'
    )
    SELECT w.job, sum(w.publication)::bigint AS publications, count(*) - sum(w.publication)::bigint AS failed_runs,
           min(w.at) AS since, clock_timestamp() AS now, g.looked_at, g.error
      FROM waiting w LEFT JOIN gobblin.reporter g USING (job)
     WHERE w.at > clock_timestamp() - make_interval(secs => :old_s)
       AND (CAST(:job AS text) IS NULL OR w.job = :job)
     GROUP BY w.job, g.looked_at, g.error
     ORDER BY w.job
""")


class PostgresReportStore:
    """``ReportStore`` over ``run``, ``run_dataset``, ``commit_sequence`` and ``reporter``."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def look(self, jobs: Sequence[JobName]) -> Sequence[JobName]:
        arguments = {"jobs": list(jobs), "every_s": _LOOKED_EVERY_S}
        return [JobName(row.job) for row in self._read("look for what waits", _LOOK, arguments)]

    def claim(self, job: JobName, reporter: str, *, ttl_s: float) -> bool:
        arguments = {"job": job, "reporter": reporter, "ttl_s": ttl_s}
        return transact(self._engine, "claim a report", lambda c: c.execute(_CLAIM, arguments).rowcount) == 1

    def release(self, job: JobName, reporter: str, *, error: str | None) -> None:
        arguments = {"job": job, "reporter": reporter, "error": error}
        transact(self._engine, "release a report", lambda c: c.execute(_RELEASE, arguments).rowcount)

    def list_runs(self, job: JobName, *, limit: int) -> Sequence[UnreportedRun]:
        return [_run_of(row) for row in self._read("list unreported runs", _RUNS, {"job": job, "limit": limit})]

    def load_runs(self, run_ids: Sequence[RunId]) -> Sequence[UnreportedRun]:
        return [_run_of(row) for row in self._read("load runs", _RUNS_BY_ID, {"run_ids": list(run_ids)})]

    def list_publications(
        self, job: JobName, *, after: tuple[dt.datetime, SequenceId] | None, limit: int
    ) -> Sequence[UnreportedPublication]:
        after_at, after_id = (_EARLIEST, "00000000-0000-0000-0000-000000000000") if after is None else after
        arguments = {"job": job, "after_at": after_at, "after_id": after_id, "limit": limit, "old_s": UNREPORTED_S_MAX}
        return [
            UnreportedPublication(
                sequence_id=SequenceId(row.sequence_id),
                run_id=RunId(row.run_id),
                done_at=row.done_at,
                is_news=row.is_news,
                is_superseded=row.is_superseded,
                outlived=row.outlived,
                is_old=row.is_old,
            )
            for row in self._read("list unreported publications", _PUBLICATIONS, arguments)
        ]

    def list_unpublished(self, run_id: RunId) -> Sequence[UnpublishedPartition]:
        rows = self._read("list unpublished partitions", _UNPUBLISHED, {"run_id": run_id})
        return [
            UnpublishedPartition(
                DatasetUrn(row.urn), row.partition, DatasetOutcome(row.outcome), row.error, row.checks or ()
            )
            for row in rows
        ]

    def list_unchecked(self, job: JobName) -> Sequence[SequenceId]:
        rows = self._read("list unchecked", _UNCHECKED, {"job": job, "late_s": _STREAM_LATE_S})
        return [SequenceId(row.sequence_id) for row in rows]

    def find_checked_age_s(self, job: JobName) -> float | None:
        def body(connection: Connection) -> float | None:
            found: float | None = connection.execute(_CHECKED_AGE, {"job": job}).scalar()
            return found

        return transact(self._engine, "find when checks were reported", body)

    def mark_checked(self, job: JobName) -> None:
        transact(self._engine, "mark checked", lambda c: c.execute(_MARK_CHECKED, {"job": job}).rowcount)

    def list_reported_later(self, sequence_ids: Sequence[SequenceId]) -> Sequence[SequenceId]:
        rows = self._read("list reported later", _REPORTED_LATER, {"ids": list(sequence_ids)})
        return [SequenceId(row.sequence_id) for row in rows]

    def mark_begun(self, run_id: RunId, dagster_run_id: str) -> None:
        arguments = {"run_id": run_id, "dagster_run_id": dagster_run_id}
        transact(self._engine, "mark begun", lambda c: c.execute(_MARK_BEGUN, arguments).rowcount)

    def mark_reported(self, run_id: RunId) -> None:
        transact(self._engine, "mark reported", lambda c: c.execute(_MARK_REPORTED, {"run_id": run_id}).rowcount)

    def list_backlogs(self, job: JobName | None) -> Sequence[ReportBacklog]:
        rows = self._read("list backlogs", _BACKLOGS, {"job": job, "old_s": UNREPORTED_S_MAX})
        return [
            ReportBacklog(
                JobName(row.job), row.publications, row.failed_runs, row.since, row.now, row.looked_at, row.error
            )
            for row in rows
        ]

    def _read(self, what: str, statement: TextClause, arguments: dict[str, object]) -> Sequence[Row[Any]]:
        return transact(self._engine, what, lambda c: c.execute(statement, arguments).all())


def _run_of(row: Row[Any]) -> UnreportedRun:
    return UnreportedRun(
        run_id=RunId(row.run_id),
        asked=asked_from_json(row.asked),
        dagster_run_id=row.dagster_run_id,
        state=WorkingState(row.state),
        error=row.error,
        started_at=row.started_at,
        ended_at=row.ended_at,
    )
