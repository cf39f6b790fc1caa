"""Tickets that executors begin by themselves have numbers, by which a service finds the new ones.

Revision ID: 0020
"""

from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
        ALTER TABLE gobblin.job_ticket
            ADD COLUMN own_number BIGINT,
            ADD CONSTRAINT job_ticket_own_number_key UNIQUE (own_number)
    """)
