"""Executors say that they live, what they can do, and how much of it is free.

Revision ID: 0016
"""

from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
        CREATE TABLE gobblin.executor_heartbeat (
            executor TEXT NOT NULL,
            owner TEXT NOT NULL,
            beaten_at TIMESTAMP WITH TIME ZONE NOT NULL DEFAULT clock_timestamp(),
            body JSONB NOT NULL,
            CONSTRAINT executor_heartbeat_pkey PRIMARY KEY (executor, owner)
        )
    """)
