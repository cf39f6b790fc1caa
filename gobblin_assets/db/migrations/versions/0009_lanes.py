"""A dataset has lanes, so that several writers publish it at once. What a dataset had is lane 0's now.

Revision ID: 0009
"""

from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

_STATEMENTS = (
    """
    ALTER TABLE gobblin.dataset
        ADD COLUMN lane_count INTEGER NOT NULL DEFAULT 1,
        ADD CONSTRAINT dataset_lane_count_check CHECK (lane_count > 0)
    """,
    """
    CREATE TABLE gobblin.lane (
        lane_id BIGINT NOT NULL,
        dataset_id BIGINT NOT NULL,
        number INTEGER NOT NULL,
        version BIGINT NOT NULL DEFAULT 0,
        folded_version BIGINT NOT NULL DEFAULT 0,
        tidied_at TIMESTAMP WITH TIME ZONE NOT NULL DEFAULT clock_timestamp(),
        CONSTRAINT lane_pkey PRIMARY KEY (lane_id),
        CONSTRAINT lane_dataset_id_number_key UNIQUE (dataset_id, number),
        CONSTRAINT lane_number_check CHECK (number >= 0 AND (number = 0) = (lane_id = dataset_id)),
        CONSTRAINT lane_dataset_id_fkey FOREIGN KEY (dataset_id) REFERENCES gobblin.dataset (dataset_id)
    )
    """,
    """
    INSERT INTO gobblin.lane (lane_id, dataset_id, number, version, folded_version, tidied_at)
    SELECT dataset_id, dataset_id, 0, version, folded_version, tidied_at FROM gobblin.dataset
    """,
    "ALTER TABLE gobblin.dataset DROP COLUMN folded_version, DROP COLUMN tidied_at",
    "ALTER TABLE gobblin.lease DROP CONSTRAINT lease_dataset_id_fkey",
    "ALTER TABLE gobblin.lease RENAME COLUMN dataset_id TO lane_id",
    # Postgres 18 gives such constraints names; earlier ones have none.
    """
    DO $$ BEGIN
        IF EXISTS (SELECT FROM pg_constraint
                    WHERE conrelid = 'gobblin.lease'::regclass AND conname = 'lease_dataset_id_not_null') THEN
            ALTER TABLE gobblin.lease RENAME CONSTRAINT lease_dataset_id_not_null TO lease_lane_id_not_null;
        END IF;
    END $$
    """,
    """
    ALTER TABLE gobblin.lease
        ADD CONSTRAINT lease_lane_id_fkey FOREIGN KEY (lane_id) REFERENCES gobblin.lane (lane_id),
        ADD COLUMN is_whole BOOLEAN NOT NULL DEFAULT false
    """,
    *(
        statement
        for table in ("watermark_key", "commit_sequence", "past_sequence", "attempt")
        for statement in (
            f"ALTER TABLE gobblin.{table} ADD COLUMN lane_id BIGINT",
            f"UPDATE gobblin.{table} SET lane_id = dataset_id",
            f"""
            ALTER TABLE gobblin.{table}
                ALTER COLUMN lane_id SET NOT NULL,
                ADD CONSTRAINT {table}_lane_id_fkey FOREIGN KEY (lane_id) REFERENCES gobblin.lane (lane_id)
            """,
        )
    ),
    """
    CREATE TABLE gobblin.sink_worker (
        run_id UUID NOT NULL,
        job TEXT NOT NULL,
        owner TEXT NOT NULL,
        configuration TEXT NOT NULL,
        expires_at TIMESTAMP WITH TIME ZONE NOT NULL,
        is_drained BOOLEAN NOT NULL DEFAULT false,
        CONSTRAINT sink_worker_pkey PRIMARY KEY (run_id)
    )
    """,
    "CREATE INDEX sink_worker_job_idx ON gobblin.sink_worker (job)",
    "CREATE INDEX watermark_key_lane_id_idx ON gobblin.watermark_key (lane_id)",
    "CREATE INDEX commit_sequence_lane_id_result_version_idx ON gobblin.commit_sequence (lane_id, result_version)",
    "DROP INDEX gobblin.commit_sequence_one_open",
    """
    CREATE UNIQUE INDEX commit_sequence_one_open ON gobblin.commit_sequence (lane_id)
        WHERE state IN ('PREPARED', 'BLOCKED', 'ABANDONING')
    """,
    "DROP INDEX gobblin.attempt_to_clean",
    "CREATE INDEX attempt_to_clean ON gobblin.attempt (lane_id) WHERE cleaned_at IS NULL",
)


def upgrade() -> None:
    for statement in _STATEMENTS:
        op.execute(statement)
