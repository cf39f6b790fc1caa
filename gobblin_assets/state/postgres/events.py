"""``EventStore`` in Postgres."""

from collections.abc import Sequence
from typing import Final

from sqlalchemy import Connection, Engine, text

from gobblin_assets.db.statement_texts import IS_UNFINISHED
from gobblin_assets.db.transactions import transact
from gobblin_assets.model.state import DatasetId, SequenceId
from gobblin_assets.model.urn import DatasetUrn, JobName
from gobblin_assets.state.events import FAILURE_DELIVERED_S, UndeliveredFailure, UndeliveredPublication

_FORGET_DELIVERED_S: Final = 2 * FAILURE_DELIVERED_S
"""Twice the age at which failures are no longer listed, so that none is listed again."""

ERROR_LENGTH_MAX: Final = 4_000
"""The history of runs keeps no more letters of an error."""

_BEGIN = text("""
    INSERT INTO gobblin.event_cursor (dataset_id, sink, version)
    SELECT d.dataset_id, sink, d.version
      FROM gobblin.dataset d, unnest(CAST(:sinks AS text[])) AS sink
     WHERE d.dataset_id = ANY (CAST(:dataset_ids AS bigint[]))
     ORDER BY d.dataset_id, sink
        ON CONFLICT (dataset_id, sink) DO NOTHING
""")

_LIST_UNDELIVERED = text("""
    SELECT s.dataset_id, s.sequence_id, s.result_version, s.done_at
      FROM gobblin.event_cursor c JOIN gobblin.dataset d USING (dataset_id)
      JOIN gobblin.commit_sequence s
        ON s.dataset_id = c.dataset_id AND s.state = 'DONE' AND s.result_version > c.version
     WHERE d.job = :job AND c.sink = :sink AND s.step_count > 0 AND NOT s.details ? 'compaction'
       AND s.folded_at IS NULL
     ORDER BY s.dataset_id, s.result_version
     LIMIT :limit
""")

_MARK_DELIVERED = text("""
    UPDATE gobblin.event_cursor c SET version = greatest(c.version, given.version)
      FROM (SELECT dataset_id, max(version) AS version
              FROM unnest(CAST(:dataset_ids AS bigint[]), CAST(:versions AS bigint[])) AS each (dataset_id, version)
             GROUP BY dataset_id) AS given
     WHERE c.dataset_id = given.dataset_id AND c.sink = :sink
""")

# A run that failed and gave its sequence up is sent once, as the sequence. A sequence that was given up without an
# error is no failure, and its rows go into a later one. A failure repeats another one if the last
# runs of its partition, in the same hour and since the sink began, all failed, and one of them for the same reason.
_LIST_FAILURES = text(f"""
    WITH followed AS (
        SELECT c.dataset_id, d.urn,
               greatest(c.begun_at, clock_timestamp() - make_interval(secs => :delivered_s)) AS since
          FROM gobblin.event_cursor c JOIN gobblin.dataset d USING (dataset_id)
         WHERE d.job = :job AND c.sink = :sink
    ),
    failed AS (
        SELECT s.sequence_id AS subject, t.dataset_id, t.urn, s.partition, s.sequence_id, s.last_error AS error,
               s.aborted_at AS failed_at, t.since
          FROM followed t JOIN gobblin.commit_sequence s
            ON s.dataset_id = t.dataset_id AND s.result_version IS NULL AND s.state = 'ABORTED'
               AND s.aborted_at > t.since AND s.last_error IS NOT NULL
         UNION ALL
        SELECT CAST(md5(r.run_id || '/' || r.dataset_id || '/' || r.partition) AS uuid), t.dataset_id, t.urn,
               r.partition,
               (SELECT o.sequence_id FROM gobblin.commit_sequence o
                 WHERE o.dataset_id = t.dataset_id AND o.partition = r.partition AND o.state {IS_UNFINISHED} LIMIT 1),
               r.error, r.ended_at, t.since
          FROM followed t JOIN gobblin.run_dataset r
            ON r.dataset_id = t.dataset_id AND r.ended_at > t.since AND r.outcome IN ('FAILED', 'BLOCKED')
         WHERE NOT EXISTS (SELECT FROM gobblin.commit_sequence s
                            WHERE s.run_id = r.run_id AND s.dataset_id = r.dataset_id AND s.partition = r.partition
                              AND s.state = 'ABORTED')
    )
    SELECT f.*,
           EXISTS (SELECT FROM gobblin.run_dataset p
                    WHERE p.dataset_id = f.dataset_id AND p.partition = f.partition
                      AND p.ended_at > f.since AND p.ended_at >= date_trunc('hour', f.failed_at)
                      AND p.ended_at < f.failed_at
                      AND p.outcome IN ('FAILED', 'BLOCKED') AND p.error = left(f.error, {ERROR_LENGTH_MAX})
                      AND NOT EXISTS (SELECT FROM gobblin.run_dataset g
                                       WHERE g.dataset_id = f.dataset_id AND g.partition = f.partition
                                         AND g.ended_at > p.ended_at AND g.ended_at < f.failed_at
                                         AND g.outcome NOT IN ('FAILED', 'BLOCKED'))) AS repeats
      FROM failed f
     WHERE NOT EXISTS (SELECT FROM gobblin.event_failure e
                        WHERE e.dataset_id = f.dataset_id AND e.sink = :sink AND e.subject = f.subject)
     ORDER BY f.failed_at, f.subject
     LIMIT :limit
""")

_MARK_FAILURES = text("""
    INSERT INTO gobblin.event_failure (dataset_id, sink, subject)
    SELECT dataset_id, :sink, subject
      FROM unnest(CAST(:dataset_ids AS bigint[]), CAST(:subjects AS uuid[])) AS given (dataset_id, subject)
     ORDER BY dataset_id, subject
        ON CONFLICT (dataset_id, sink, subject) DO NOTHING
""")

_FORGET_FAILURES = text("""
    DELETE FROM gobblin.event_failure
     WHERE dataset_id = ANY (CAST(:dataset_ids AS bigint[])) AND sink = :sink
       AND told_at < clock_timestamp() - make_interval(secs => :age_s)
""")


class PostgresEventStore:
    """``EventStore`` over ``event_cursor`` and ``event_failure``."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def begin(self, dataset_ids: Sequence[DatasetId], sinks: Sequence[str]) -> None:
        arguments = {"dataset_ids": list(dataset_ids), "sinks": list(sinks)}
        transact(self._engine, "begin events", lambda c: c.execute(_BEGIN, arguments).rowcount)

    def list_undelivered(self, job: JobName, sink: str, *, limit: int) -> Sequence[UndeliveredPublication]:
        arguments = {"job": job, "sink": sink, "limit": limit}
        rows = transact(self._engine, "list undelivered", lambda c: c.execute(_LIST_UNDELIVERED, arguments).all())
        return [
            UndeliveredPublication(
                DatasetId(row.dataset_id), SequenceId(row.sequence_id), row.result_version, row.done_at
            )
            for row in rows
        ]

    def mark_delivered(self, sink: str, versions: Sequence[tuple[DatasetId, int]]) -> None:
        arguments = {
            "sink": sink,
            "dataset_ids": [dataset_id for dataset_id, _version in versions],
            "versions": [version for _dataset_id, version in versions],
        }
        transact(self._engine, "mark delivered", lambda c: c.execute(_MARK_DELIVERED, arguments).rowcount)

    def list_undelivered_failures(self, job: JobName, sink: str, *, limit: int) -> Sequence[UndeliveredFailure]:
        arguments = {"job": job, "sink": sink, "limit": limit, "delivered_s": FAILURE_DELIVERED_S}
        rows = transact(self._engine, "list undelivered failures", lambda c: c.execute(_LIST_FAILURES, arguments).all())
        return [
            UndeliveredFailure(
                subject=row.subject,
                dataset_id=DatasetId(row.dataset_id),
                urn=DatasetUrn(row.urn),
                partition=row.partition,
                sequence_id=None if row.sequence_id is None else SequenceId(row.sequence_id),
                error=row.error,
                failed_at=row.failed_at,
                repeats=row.repeats,
            )
            for row in rows
        ]

    def mark_failures(self, sink: str, failures: Sequence[UndeliveredFailure]) -> None:
        arguments = {
            "sink": sink,
            "dataset_ids": [each.dataset_id for each in failures],
            "subjects": [each.subject for each in failures],
            "age_s": _FORGET_DELIVERED_S,
        }

        def body(connection: Connection) -> None:
            connection.execute(_MARK_FAILURES, arguments)
            connection.execute(_FORGET_FAILURES, arguments)

        transact(self._engine, "mark failures delivered", body)
