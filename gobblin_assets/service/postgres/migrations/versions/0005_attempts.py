"""A job of an execution has several tickets after each other: retries, moves to other executors, resumed executions.

Revision ID: 0005
"""

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_STATUSES = (
    "'COMPILED', 'PENDING', 'ORCHESTRATED', 'RUNNING', 'PENDING_RETRY', 'PENDING_RESUME', 'COMPLETE', 'FAILED',"
    " 'CANCELLED'"
)


def upgrade() -> None:
    for table in ("flow_execution", "job_execution"):
        op.execute(f"""
            ALTER TABLE gobblin_service.{table}
                DROP CONSTRAINT {table}_status_check,
                ADD CONSTRAINT {table}_status_check CHECK (status IN ({_STATUSES}))
        """)
    op.execute("""
        ALTER TABLE gobblin_service.flow_execution
            ADD COLUMN start_by TIMESTAMP WITH TIME ZONE,
            ADD COLUMN finish_by TIMESTAMP WITH TIME ZONE,
            ADD COLUMN resume_id UUID
    """)
    op.execute("""
        CREATE INDEX flow_execution_late ON gobblin_service.flow_execution (least(start_by, finish_by))
         WHERE ended_at IS NULL AND cancel_asked_at IS NULL
    """)
    op.execute("""
        ALTER TABLE gobblin_service.job_execution
            ADD COLUMN attempt INTEGER DEFAULT 1 NOT NULL,
            ADD COLUMN failures INTEGER DEFAULT 0 NOT NULL,
            ADD COLUMN send_at TIMESTAMP WITH TIME ZONE,
            ADD COLUMN send_tries INTEGER DEFAULT 0 NOT NULL,
            ADD COLUMN sent_at TIMESTAMP WITH TIME ZONE,
            ADD COLUMN moving_at TIMESTAMP WITH TIME ZONE,
            ADD COLUMN places JSONB DEFAULT '{}' NOT NULL
    """)
    op.execute("""
        CREATE TABLE gobblin_service.job_attempt (
            execution_id BIGINT NOT NULL,
            number INTEGER NOT NULL,
            attempt INTEGER NOT NULL,
            executor TEXT NOT NULL,
            log TEXT NOT NULL,
            ticket_id UUID NOT NULL,
            cancel_ticket_id UUID,
            status TEXT NOT NULL,
            message TEXT NOT NULL,
            ended_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
            CONSTRAINT job_attempt_pkey PRIMARY KEY (execution_id, number, attempt),
            CONSTRAINT job_attempt_execution_id_fkey FOREIGN KEY(execution_id, number)
                REFERENCES gobblin_service.job_execution (execution_id, number),
            CONSTRAINT job_attempt_ticket_id_key UNIQUE (ticket_id)
        )
    """)
    op.execute("DROP INDEX gobblin_service.job_execution_to_send")
    op.execute("""
        CREATE INDEX job_execution_to_send ON gobblin_service.job_execution (execution_id, number)
         WHERE status IN ('COMPILED', 'PENDING', 'PENDING_RETRY', 'PENDING_RESUME')
    """)
    op.execute("DROP INDEX gobblin_service.job_execution_to_forget")
    op.execute("""
        CREATE INDEX job_execution_to_forget ON gobblin_service.job_execution (ended_at, execution_id, number)
         WHERE ended_at IS NOT NULL AND forgotten_at IS NULL AND (send_begun_at IS NOT NULL OR attempt > 1)
    """)
    op.execute("""
        CREATE INDEX job_execution_of_executor ON gobblin_service.job_execution (executor, status)
         WHERE ended_at IS NULL AND send_begun_at IS NOT NULL
    """)
