"""The log remembers what each sink of events was told.

Revision ID: 0007
"""

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_STATEMENTS = (
    """
    CREATE TABLE gobblin.event_cursor (
        dataset_id BIGINT NOT NULL,
        sink TEXT NOT NULL,
        version BIGINT NOT NULL,
        begun_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
        CONSTRAINT event_cursor_pkey PRIMARY KEY (dataset_id, sink),
        CONSTRAINT event_cursor_dataset_id_fkey FOREIGN KEY(dataset_id) REFERENCES gobblin.dataset (dataset_id)
    )
    """,
    """
    CREATE TABLE gobblin.event_failure (
        dataset_id BIGINT NOT NULL,
        sink TEXT NOT NULL,
        subject UUID NOT NULL,
        told_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
        CONSTRAINT event_failure_pkey PRIMARY KEY (dataset_id, sink, subject),
        CONSTRAINT event_failure_dataset_id_fkey FOREIGN KEY(dataset_id) REFERENCES gobblin.dataset (dataset_id)
    )
    """,
)


def upgrade() -> None:
    for statement in _STATEMENTS:
        op.execute(statement)
