"""``Overview`` over the tables of the log."""

import uuid
from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Engine, Row, TextClause, text

from gobblin_assets.db.statement_texts import IS_OPEN, IS_UNFINISHED
from gobblin_assets.db.transactions import TRIES_MAX, transact
from gobblin_assets.errors import RejectedError
from gobblin_assets.model.interval import Interval
from gobblin_assets.model.job_ticket import sent_ticket_from_json
from gobblin_assets.model.urn import DatasetUrn, JobName
from gobblin_assets.model.watermark import watermark_from
from gobblin_assets.state.overview import (
    AttemptLine,
    DatasetLine,
    KeptLine,
    LedgerLine,
    OwnTicket,
    PartitionLine,
    RunDatasetLine,
    RunLine,
    SequenceLine,
    WatermarkLine,
)

_IS_PUBLICATION: Final = "s.state = 'DONE' AND NOT coalesce(s.details ? 'compaction', false)"

# Of ``d``, a dataset.
_ACTIVE: Final = """
    SELECT sum(g.row_count) FILTER (WHERE g.role = 'data')::bigint AS row_count,
           sum(g.file_count)::bigint AS file_count, sum(g.file_bytes)::bigint AS file_bytes,
           bool_or(s.details ? 'slots_keep_s') AS is_at_given_names
      FROM gobblin.segment g JOIN gobblin.commit_sequence s USING (sequence_id)
     WHERE g.dataset_id = d.dataset_id AND g.sealed AND g.retired_by IS NULL AND s.state = 'DONE'
"""

_OF_DATASET: Final = f"""
    SELECT d.job, d.urn, d.version,
           (SELECT count(DISTINCT k.partition)
              FROM gobblin.watermark_key k JOIN gobblin.ledger l USING (key_id)
             WHERE k.dataset_id = d.dataset_id AND l.active) AS partitions,
           CASE WHEN f.is_at_given_names THEN NULL ELSE coalesce(f.row_count, 0) END AS rows,
           CASE WHEN f.is_at_given_names THEN NULL ELSE coalesce(f.file_count, 0) END AS files,
           CASE WHEN f.is_at_given_names THEN NULL ELSE coalesce(f.file_bytes, 0) END AS file_bytes,
           o.state AS open_state, o.sequence_id AS open_sequence, l.owner AS held_by,
           r.outcome AS last_outcome, r.error AS last_error, r.ended_at AS last_ended_at, p.done_at AS published_at
      FROM {{}} d
      LEFT JOIN LATERAL ({_ACTIVE}) f ON true
      LEFT JOIN LATERAL (
               SELECT state, sequence_id FROM gobblin.commit_sequence
                WHERE dataset_id = d.dataset_id AND state {IS_OPEN} ORDER BY prepared_at LIMIT 1
           ) o ON true
      LEFT JOIN LATERAL (
               SELECT owner FROM gobblin.lane JOIN gobblin.lease USING (lane_id)
                WHERE dataset_id = d.dataset_id AND expires_at > clock_timestamp() ORDER BY number LIMIT 1
           ) l ON true
      LEFT JOIN LATERAL (
               SELECT outcome, error, ended_at FROM gobblin.run_dataset
                WHERE dataset_id = d.dataset_id ORDER BY ended_at DESC LIMIT 1
           ) r ON true
      LEFT JOIN LATERAL (
               SELECT done_at FROM gobblin.commit_sequence s
                WHERE s.dataset_id = d.dataset_id AND {_IS_PUBLICATION} ORDER BY s.result_version DESC LIMIT 1
           ) p ON true
"""

_DATASETS: Final = text(f"""
    {_OF_DATASET.format("gobblin.dataset")}
     WHERE CAST(:job AS text) IS NULL OR d.job = :job
     ORDER BY d.job, d.urn
""")

_PAGE: Final = """
    (SELECT * FROM gobblin.dataset
      WHERE job = ANY (CAST(:jobs AS text[])) AND starts_with(urn, :prefix)
        AND (job COLLATE "C", urn COLLATE "C") > (:after_job, :after_urn)
      ORDER BY job COLLATE "C", urn COLLATE "C" LIMIT :limit)
"""

_DATASET_PAGE: Final = text(f"""
    {_OF_DATASET.format(_PAGE)} ORDER BY d.job COLLATE "C", d.urn COLLATE "C"
""")

_PARTITIONS: Final = text(f"""
    SELECT p.partition, l.sequence_id, l.mode, l.done_at AS published_at, coalesce(l.complete, true) AS complete,
           coalesce(l.row_count, 0) AS published_rows, coalesce(l.file_count, 0) AS published_files,
           CASE WHEN f.is_at_given_names THEN NULL ELSE coalesce(f.row_count, 0) END AS rows,
           CASE WHEN f.is_at_given_names THEN NULL ELSE coalesce(f.file_count, 0) END AS files,
           CASE WHEN f.is_at_given_names THEN NULL ELSE coalesce(f.file_bytes, 0) END AS file_bytes
      FROM gobblin.dataset d
      JOIN LATERAL (
               SELECT DISTINCT s.partition COLLATE "C" AS partition FROM gobblin.commit_sequence s
                WHERE s.dataset_id = d.dataset_id AND {_IS_PUBLICATION}
                  AND (CAST(:before AS text) IS NULL OR s.partition COLLATE "C" < :before)
                ORDER BY 1 DESC LIMIT :limit
           ) p ON true
      JOIN LATERAL (
               SELECT * FROM gobblin.commit_sequence s
                WHERE s.dataset_id = d.dataset_id AND s.partition = p.partition AND {_IS_PUBLICATION}
                ORDER BY s.result_version DESC LIMIT 1
           ) l ON true
      LEFT JOIN LATERAL ({_ACTIVE} AND g.partition = p.partition) f ON true
     WHERE d.job = :job AND d.urn = :urn
     ORDER BY p.partition DESC
""")

_FOUND_WATERMARKS: Final = text("""
    SELECT d.job, d.urn, k.name AS key, k.partition, k.watermark, k.moved_at, k.sequence_id
      FROM gobblin.watermark_key k JOIN gobblin.dataset d USING (dataset_id)
     WHERE d.job = :job AND d.urn = :urn AND (k.partition = '' OR k.partition = ANY (CAST(:partitions AS text[])))
     ORDER BY k.partition COLLATE "C" DESC, k.name LIMIT :limit
""")

_WATERMARKS: Final = text("""
    SELECT d.job, d.urn, k.name AS key, k.partition, k.watermark, k.moved_at, k.sequence_id
      FROM gobblin.watermark_key k JOIN gobblin.dataset d USING (dataset_id)
     WHERE (CAST(:job AS text) IS NULL OR d.job = :job) AND (CAST(:urn AS text) IS NULL OR d.urn = :urn)
     ORDER BY d.job, d.urn, k.partition, k.name
""")

_LEDGER: Final = text("""
    SELECT d.job, d.urn, k.name AS key, k.partition, l.sequence_id, l.is_generation, l.low, l.high, l.reread_from,
           l.active, s.row_count AS rows, s.file_count AS files, s.done_at
      FROM gobblin.ledger l
      JOIN gobblin.watermark_key k USING (key_id)
      JOIN gobblin.dataset d USING (dataset_id)
      JOIN gobblin.commit_sequence s ON s.sequence_id = l.sequence_id
     WHERE (CAST(:job AS text) IS NULL OR d.job = :job) AND (CAST(:urn AS text) IS NULL OR d.urn = :urn)
       AND (l.active OR :with_retired)
     ORDER BY d.job, d.urn, k.partition, k.name, l.low_bytes NULLS FIRST, l.ledger_id
""")

_SEQUENCES: Final = text(f"""
    SELECT s.sequence_id, d.job, d.urn, s.partition, s.state, s.mode, s.publication_count AS publications,
           s.row_count AS rows, s.file_count AS files, s.failed_tries, s.last_error, s.created_at, s.prepared_at,
           coalesce(s.done_at, s.aborted_at) AS ended_at
      FROM gobblin.commit_sequence s JOIN gobblin.dataset d USING (dataset_id)
     WHERE (CAST(:job AS text) IS NULL OR d.job = :job) AND (CAST(:urn AS text) IS NULL OR d.urn = :urn)
       AND (:with_ended OR s.state {IS_UNFINISHED})
     ORDER BY s.created_at DESC, s.sequence_id
     LIMIT :limit
""")

_RUN_COLUMNS: Final = "run_id, job, state, owner, dagster_run_id, started_at, ended_at, error, figures"

_KEPT: Final = text("""
    SELECT s.sequence_id, s.done_at,
           s.done_at + make_interval(secs => CAST(s.details ->> 'slots_keep_s' AS double precision)) AS kept_until
      FROM gobblin.commit_sequence s JOIN gobblin.dataset d USING (dataset_id)
     WHERE d.job = :job AND d.urn = :urn AND s.state = 'DONE' AND s.details ? 'slots_keep_s'
""")

_RUNS: Final = text(f"""
    SELECT {_RUN_COLUMNS} FROM gobblin.run
     WHERE CAST(:job AS text) IS NULL OR job = :job
     ORDER BY started_at DESC, run_id
     LIMIT :limit
""")

_RUN: Final = text(f"SELECT {_RUN_COLUMNS} FROM gobblin.run WHERE run_id = :run_id")

_RUN_DATASETS: Final = text("""
    SELECT d.urn, r.partition, r.outcome, r.sequence_id, r.error, r.figures, r.ended_at
      FROM gobblin.run_dataset r JOIN gobblin.dataset d USING (dataset_id)
     WHERE r.run_id = :run_id
     ORDER BY d.urn, r.partition
""")

_RUN_ATTEMPTS: Final = text("""
    SELECT d.urn, s.partition, a.multi_work_unit, a.try_number, a.state, a.row_count AS rows, a.file_count AS files,
           a.file_bytes, a.started_at, a.ended_at, a.error
      FROM gobblin.attempt a
      JOIN gobblin.commit_sequence s USING (sequence_id)
      JOIN gobblin.dataset d ON d.dataset_id = a.dataset_id
     WHERE s.run_id = :run_id
     ORDER BY d.urn, s.partition, a.multi_work_unit, a.try_number
""")

_OWN_TICKETS: Final = text("""
    SELECT own_number, sent_at, body FROM gobblin.job_ticket
     WHERE own_number > :after ORDER BY own_number LIMIT :limit
""")


class PostgresOverview:
    """Reads only; takes no lock that work waits for."""

    def __init__(self, engine: Engine, *, tries: int = TRIES_MAX) -> None:
        self._engine = engine
        self._tries = tries

    def list_datasets(self, job: JobName | None) -> Sequence[DatasetLine]:
        return [DatasetLine(**row._mapping) for row in self._read(_DATASETS, job=job)]  # noqa: SLF001  SQLAlchemy's documented view of a row

    def page_datasets(
        self, jobs: Sequence[JobName], *, prefix: str, after: tuple[JobName, DatasetUrn] | None, limit: int
    ) -> Sequence[DatasetLine]:
        after_job, after_urn = ("", "") if after is None else after
        rows = self._read(
            _DATASET_PAGE, jobs=list(jobs), prefix=prefix, after_job=after_job, after_urn=after_urn, limit=limit
        )
        return [DatasetLine(**row._mapping) for row in rows]  # noqa: SLF001  the same

    def page_partitions(
        self, job: JobName, urn: DatasetUrn, *, before: str | None, limit: int
    ) -> Sequence[PartitionLine]:
        rows = self._read(_PARTITIONS, job=job, urn=urn, before=before, limit=limit)
        return [PartitionLine(**row._mapping) for row in rows]  # noqa: SLF001  the same

    def list_watermarks(self, job: JobName | None, urn: DatasetUrn | None) -> Sequence[WatermarkLine]:
        return [_watermark_line(row) for row in self._read(_WATERMARKS, job=job, urn=urn)]

    def find_watermarks(
        self, job: JobName, urn: DatasetUrn, partitions: Sequence[str], *, limit: int
    ) -> Sequence[WatermarkLine]:
        rows = self._read(_FOUND_WATERMARKS, job=job, urn=urn, partitions=list(partitions), limit=limit)
        return [_watermark_line(row) for row in rows]

    def list_ledger(self, job: JobName | None, urn: DatasetUrn | None, *, with_retired: bool) -> Sequence[LedgerLine]:
        return [_ledger_line(row) for row in self._read(_LEDGER, job=job, urn=urn, with_retired=with_retired)]

    def list_sequences(
        self, job: JobName | None, urn: DatasetUrn | None, *, with_ended: bool, limit: int
    ) -> Sequence[SequenceLine]:
        rows = self._read(_SEQUENCES, job=job, urn=urn, with_ended=with_ended, limit=limit)
        return [SequenceLine(**row._mapping) for row in rows]  # noqa: SLF001  the same

    def list_kept(self, job: JobName, urn: DatasetUrn) -> Sequence[KeptLine]:
        return [KeptLine(**row._mapping) for row in self._read(_KEPT, job=job, urn=urn)]  # noqa: SLF001  the same

    def list_runs(self, job: JobName | None, *, limit: int) -> Sequence[RunLine]:
        return [_run_line(row) for row in self._read(_RUNS, job=job, limit=limit)]

    def get_run(self, run_id: uuid.UUID) -> RunLine:
        rows = self._read(_RUN, run_id=run_id)
        if not rows:
            raise RejectedError(
                f"the log has no run {run_id}", field="run", hint="`gobblin-assets history` lists those that it has."
            )
        return _run_line(rows[0])

    def list_run_datasets(self, run_id: uuid.UUID) -> Sequence[RunDatasetLine]:
        rows = self._read(_RUN_DATASETS, run_id=run_id)
        return [RunDatasetLine(**{**row._mapping, "figures": row.figures or {}}) for row in rows]  # noqa: SLF001  the same

    def list_run_attempts(self, run_id: uuid.UUID) -> Sequence[AttemptLine]:
        return [AttemptLine(**row._mapping) for row in self._read(_RUN_ATTEMPTS, run_id=run_id)]  # noqa: SLF001  the same

    def list_own_tickets(self, after: int, *, limit: int) -> Sequence[OwnTicket]:
        found: list[OwnTicket] = []
        for row in self._read(_OWN_TICKETS, after=after, limit=limit):
            try:
                sent = None if row.body is None else sent_ticket_from_json(row.body)
            except RejectedError:
                if found:
                    break
                raise
            found.append(OwnTicket(row.own_number, row.sent_at, sent))
        return found

    def _read(self, statement: TextClause, **arguments: object) -> Sequence[Row[Any]]:
        return transact(self._engine, "look", lambda c: c.execute(statement, arguments).all(), tries=self._tries)


def _watermark_line(row: Row[Any]) -> WatermarkLine:
    return WatermarkLine(**{**row._mapping, "watermark": watermark_from(row.watermark)})  # noqa: SLF001  the same


def _ledger_line(row: Row[Any]) -> LedgerLine:
    high = watermark_from(row.high)
    return LedgerLine(
        job=JobName(row.job),
        urn=DatasetUrn(row.urn),
        key=row.key,
        partition=row.partition,
        sequence_id=row.sequence_id,
        interval=None if high is None else Interval(watermark_from(row.low), high),
        reread_from=watermark_from(row.reread_from),
        active=row.active,
        rows=row.rows or 0,
        files=row.files or 0,
        done_at=row.done_at,
    )


def _run_line(row: Row[Any]) -> RunLine:
    return RunLine(**{**row._mapping, "figures": row.figures or {}})  # noqa: SLF001  the same
