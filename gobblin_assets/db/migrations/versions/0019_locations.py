"""The last ticket of each job, and the unfinished runs of all jobs, are found without reading the others.

Revision ID: 0019
"""

from alembic import op

revision = "0019"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
        CREATE INDEX job_ticket_job
            ON gobblin.job_ticket (job, coalesce(json_typeof(body) = 'null', false), sent_at, ticket_id)
         WHERE job IS NOT NULL
    """)
    op.execute("""
        CREATE INDEX run_unfinished ON gobblin.run (started_at)
         WHERE state = 'RUNNING' OR state = 'FAILED' AND figures IS NULL
    """)
