"""Executors keep the last lines that the process of each attempt said.

Revision ID: 0015
"""

from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
        CREATE TABLE gobblin.ticket_output (
            ticket_id UUID NOT NULL,
            attempt INTEGER NOT NULL,
            lines TEXT NOT NULL,
            updated_at TIMESTAMP WITH TIME ZONE NOT NULL DEFAULT clock_timestamp(),
            CONSTRAINT ticket_output_pkey PRIMARY KEY (ticket_id, attempt),
            CONSTRAINT ticket_output_ticket_id_fkey FOREIGN KEY (ticket_id)
                REFERENCES gobblin.job_ticket (ticket_id) ON DELETE CASCADE,
            CONSTRAINT ticket_output_attempt_check CHECK (attempt > 0)
        )
    """)
