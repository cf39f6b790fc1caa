"""``PublishingJobs`` in Postgres."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sqlalchemy import Connection, Engine, Row, TextClause, text

from gobblin_assets.db.table_metadata import states
from gobblin_assets.db.transactions import transact
from gobblin_assets.service.access import FlowScope
from gobblin_assets.service.postgres.executions import LATEST, PROGRESS_COLUMNS, job_status_of
from gobblin_assets.service.postgres.flows import IN_SCOPE, scope_arguments
from gobblin_assets.service.published_jobs import PastExecution, PublishingJob
from gobblin_assets.service.specs import FlowKey
from gobblin_assets.service.statuses import ExecutionStatus

_READ_TRIES: Final = 2

_PUBLISHING: Final = """
    SELECT f.flow_group, f.flow_name, j.job_name, j.node, j.source_node, j.template_uri, l.executor, l.log,
           j.generation = f.generation AND j.retired_at IS NULL AS is_current
      FROM gobblin_service.flow_job j
      JOIN gobblin_service.flow f USING (flow_id)
      JOIN LATERAL (SELECT executor, log FROM gobblin_service.job_execution e
                     WHERE e.job_name = j.job_name ORDER BY e.execution_id DESC LIMIT 1) l ON true
     WHERE f.deleted_at IS NULL
"""

_LIST = text(f"""
    {_PUBLISHING} AND j.job_name COLLATE "C" >= :begin AND {IN_SCOPE}
       AND (CAST(:node AS text) IS NULL OR j.node = :node)
       AND (CAST(:flow_group AS text) IS NULL OR (f.flow_group, f.flow_name) = (:flow_group, :flow_name))
     ORDER BY j.job_name COLLATE "C" LIMIT :limit
""")

_FIND = text(f"{_PUBLISHING} AND j.job_name = :job_name")

_LOGS_OF = text("SELECT number, log FROM gobblin_service.job_execution WHERE execution_id = :execution_id")

_PAST = text(f"""
    SELECT f.flow_group, f.flow_name, x.flow_version, j.execution_id, j.number, j.job_name, j.executor, j.ticket_id,
           {PROGRESS_COLUMNS}
      FROM unnest(CAST(:job_names AS text[])) AS asked (job_name)
      JOIN LATERAL (SELECT * FROM gobblin_service.job_execution o
                     WHERE o.job_name = asked.job_name AND o.execution_id < :before
                     ORDER BY o.execution_id DESC LIMIT :limit) j ON true
      JOIN gobblin_service.flow_execution x USING (execution_id)
      JOIN gobblin_service.flow f USING (flow_id)
     ORDER BY j.execution_id DESC
""")

# Those that somebody watches.
_SENT = text(f"""
    SELECT f.flow_group, f.flow_name, x.flow_version, j.execution_id, j.number, j.job_name, j.executor, j.ticket_id,
           {PROGRESS_COLUMNS}
      FROM gobblin_service.job_execution j
      JOIN gobblin_service.flow_execution x USING (execution_id)
      JOIN gobblin_service.flow f USING (flow_id)
     WHERE j.status IN ({states(ExecutionStatus.ORCHESTRATED, ExecutionStatus.RUNNING)}) AND j.executor = :executor
     ORDER BY j.execution_id, j.number LIMIT :limit
""")


class PostgresPublishingJobs:
    """``PublishingJobs`` over ``flow_job`` and ``job_execution``."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def list_publishing(
        self, scope: FlowScope, *, flow: FlowKey | None, node: str | None, begin: str, limit: int
    ) -> Sequence[PublishingJob]:
        group, name = (None, None) if flow is None else flow
        where = {"flow_group": group, "flow_name": name, "node": node, "begin": begin, "limit": limit}
        return [_job_of(row) for row in self._read("list jobs", _LIST, {**where, **scope_arguments(scope)})]

    def find_publishing(self, job_name: str) -> PublishingJob | None:
        rows = self._read("find a job", _FIND, {"job_name": job_name})
        return _job_of(rows[0]) if rows else None

    def find_logs_of(self, execution_id: int) -> Mapping[int, str]:
        rows = self._read("find the logs of jobs", _LOGS_OF, {"execution_id": execution_id})
        return {row.number: row.log for row in rows}

    def list_past(self, job_names: Sequence[str], *, limit: int) -> Mapping[str, Sequence[PastExecution]]:
        arguments = {"job_names": list(job_names), "before": LATEST, "limit": limit}
        found: dict[str, list[PastExecution]] = {name: [] for name in job_names}
        for row in self._read("list past executions", _PAST, arguments):
            found[row.job_name].append(_past_of(row))
        return found

    def page_past(self, job_name: str, *, after: int | None, limit: int) -> Sequence[PastExecution]:
        arguments = {"job_names": [job_name], "before": LATEST if after is None else after, "limit": limit}
        return [_past_of(row) for row in self._read("list past executions", _PAST, arguments)]

    def list_sent(self, executor: str, *, limit: int) -> Sequence[PastExecution]:
        rows = self._read("list the jobs of an executor", _SENT, {"executor": executor, "limit": limit})
        return [_past_of(row) for row in rows]

    def _read(self, name: str, statement: TextClause, arguments: Mapping[str, object]) -> Sequence[Row[Any]]:
        def body(connection: Connection) -> Sequence[Row[Any]]:
            return connection.execute(statement, arguments).all()

        return transact(self._engine, name, body, tries=_READ_TRIES)


def _job_of(row: Row[Any]) -> PublishingJob:
    return PublishingJob(
        flow=FlowKey(row.flow_group, row.flow_name),
        job_name=row.job_name,
        node=row.node,
        source_node=row.source_node,
        template_uri=row.template_uri,
        executor=row.executor,
        log=row.log,
        is_current=row.is_current,
    )


def _past_of(row: Row[Any]) -> PastExecution:
    flow = FlowKey(row.flow_group, row.flow_name)
    return PastExecution(row.execution_id, str(row.flow_version), job_status_of(row, flow))
