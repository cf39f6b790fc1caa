"""``AlertStore`` in Postgres."""

from collections.abc import Collection
from typing import Any, Final

from sqlalchemy import Connection, Engine, Row, text

from gobblin_assets.db.transactions import transact
from gobblin_assets.service.access import FlowScope
from gobblin_assets.service.alert_facts import AlertedJob, AlertFacts, OverdueFlow
from gobblin_assets.service.postgres.executions import NEEDS_COLUMNS, needs_of
from gobblin_assets.service.postgres.scopes import IN_SCOPE, scope_arguments
from gobblin_assets.service.specs import FlowKey

_READ_TRIES: Final = 2

_NOW = text("SELECT now()")

_WORK = text("""
    SELECT executor, count(*) AS jobs FROM gobblin_service.job_execution
     WHERE ended_at IS NULL AND send_begun_at IS NOT NULL AND executor <> ALL (CAST(:well AS text[]))
     GROUP BY executor
""")

_JOBS: Final = f"""
    SELECT f.flow_group, f.flow_name, j.execution_id, j.job_name, j.executor, b.log_id, {NEEDS_COLUMNS},
           {{since}} AS since, {{message}} AS message
      FROM gobblin_service.job_execution j
      JOIN gobblin_service.flow_execution e USING (execution_id)
      JOIN gobblin_service.flow f USING (flow_id)
      JOIN gobblin_service.flow_job b USING (job_name)
     WHERE {{where}} AND {IN_SCOPE}
     ORDER BY j.execution_id, j.number LIMIT :limit
"""

_HELD = text(
    _JOBS.format(
        since="coalesce(j.started_at, e.started_at)",
        message="j.message",
        where="j.ended_at IS NULL AND j.executor <> ALL (CAST(:well AS text[]))",
    )
)

_UNTAKEN = text(
    _JOBS.format(
        since="j.sent_at",
        message="j.message",
        where="""j.ended_at IS NULL AND j.status = 'ORCHESTRATED' AND j.read_attempt < 0
                 AND j.sent_at < now() - make_interval(secs => :sent_before_s)""",
    )
)

# Until its tickets are forgotten.
_UNDELETED = text(
    _JOBS.format(
        since="j.cancel_sent_at",
        message="j.deletion",
        where="j.deletion NOT IN ('', 'waits') AND j.forgotten_at IS NULL",
    )
)

# One that is looked at again later has a start that is past: in a maintenance window, and when it can't be read.
_OVERDUE = text(f"""
    SELECT f.flow_id, f.flow_group, f.flow_name, v.config::text AS config, f.next_fire_at
      FROM gobblin_service.flow f JOIN gobblin_service.flow_version v USING (flow_id, version)
     WHERE f.due_at > f.next_fire_at AND f.next_fire_at < now() AND f.deleted_at IS NULL AND f.state <> 'PAUSED'
       AND {IN_SCOPE}
     ORDER BY f.next_fire_at LIMIT :limit
""")


class PostgresAlertStore:
    """``AlertStore`` over flows and their executions."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def find_facts(self, scope: FlowScope, well: Collection[str], *, sent_before_s: float, limit: int) -> AlertFacts:
        arguments = {
            "well": list(well),
            "sent_before_s": sent_before_s,
            "limit": limit,
            **scope_arguments(scope),
        }

        def body(connection: Connection) -> AlertFacts:
            return AlertFacts(
                now=connection.execute(_NOW).scalar_one(),
                work={row.executor: row.jobs for row in connection.execute(_WORK, arguments)},
                held=[_job_of(row) for row in connection.execute(_HELD, arguments)],
                untaken=[_job_of(row) for row in connection.execute(_UNTAKEN, arguments)],
                undeleted=[_job_of(row) for row in connection.execute(_UNDELETED, arguments)],
                overdue=[
                    OverdueFlow(row.flow_id, FlowKey(row.flow_group, row.flow_name), row.config, row.next_fire_at)
                    for row in connection.execute(_OVERDUE, arguments)
                ],
            )

        return transact(self._engine, "look for alerts", body, tries=_READ_TRIES)


def _job_of(row: Row[Any]) -> AlertedJob:
    return AlertedJob(
        flow=FlowKey(row.flow_group, row.flow_name),
        execution_id=row.execution_id,
        job_name=row.job_name,
        executor=row.executor,
        since=row.since,
        message=row.message,
        needs=needs_of(row),
    )
