"""Executions that an executor began by itself, and up to where they were looked for in each log; deletions that failed.

Revision ID: 0007
"""

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
        ALTER TABLE gobblin_service.flow_execution ADD COLUMN is_adopted BOOLEAN DEFAULT false NOT NULL
    """)
    op.execute("""
        CREATE TABLE gobblin_service.adopted_log (
            log_id UUID NOT NULL,
            number BIGINT NOT NULL,
            CONSTRAINT adopted_log_pkey PRIMARY KEY (log_id)
        )
    """)
    op.execute("""
        CREATE INDEX job_execution_undeleted ON gobblin_service.job_execution (execution_id, number)
         WHERE deletion NOT IN ('', 'waits') AND forgotten_at IS NULL
    """)
