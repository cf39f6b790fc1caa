"""Commands leave what Dagster is to be told of their runs in the log, and whoever tells it says how far it came.

Revision ID: 0012
"""

from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Null: a run of before, one of Dagster's, or one that nobody is to be told of.
    op.execute("ALTER TABLE gobblin.run ADD COLUMN asked JSONB")
    op.execute("ALTER TABLE gobblin.run ADD COLUMN reported_at TIMESTAMP WITH TIME ZONE")
    op.execute("""
        CREATE INDEX run_unreported ON gobblin.run (job, started_at)
         WHERE asked IS NOT NULL AND reported_at IS NULL
    """)
    op.execute("ALTER TABLE gobblin.run_dataset ADD COLUMN checks JSONB")
    op.execute("""
        CREATE INDEX run_dataset_dataset_id_partition_ended_at_idx
            ON gobblin.run_dataset (dataset_id, partition, ended_at)
    """)
    op.execute("""
        CREATE TABLE gobblin.reporter (
            job TEXT NOT NULL,
            claimed_by TEXT,
            claimed_until TIMESTAMP WITH TIME ZONE,
            looked_at TIMESTAMP WITH TIME ZONE NOT NULL DEFAULT clock_timestamp(),
            failed_at TIMESTAMP WITH TIME ZONE,
            error TEXT,
            checks_told_at TIMESTAMP WITH TIME ZONE,
            CONSTRAINT reporter_pkey PRIMARY KEY (job)
        )
    """)
