"""Workers of sinks say their clocks and lags; the log remembers what an orchestrator was told of a sink's windows.

Revision ID: 0010
"""

from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

_STATEMENTS = (
    """
    ALTER TABLE gobblin.sink_worker
        ADD COLUMN looked_at TIMESTAMP WITH TIME ZONE,
        ADD COLUMN lags JSONB NOT NULL DEFAULT '{}'
    """,
    """
    CREATE TABLE gobblin.sink_window (
        dataset_id BIGINT NOT NULL,
        partition TEXT NOT NULL,
        version BIGINT NOT NULL,
        row_count BIGINT NOT NULL,
        told_at TIMESTAMP WITH TIME ZONE,
        CONSTRAINT sink_window_pkey PRIMARY KEY (dataset_id, partition),
        CONSTRAINT sink_window_dataset_id_fkey FOREIGN KEY (dataset_id) REFERENCES gobblin.dataset (dataset_id)
    )
    """,
    """
    CREATE TABLE gobblin.sink_observation (
        dataset_id BIGINT NOT NULL,
        observed_at TIMESTAMP WITH TIME ZONE NOT NULL DEFAULT clock_timestamp(),
        CONSTRAINT sink_observation_pkey PRIMARY KEY (dataset_id),
        CONSTRAINT sink_observation_dataset_id_fkey FOREIGN KEY (dataset_id) REFERENCES gobblin.dataset (dataset_id)
    )
    """,
)


def upgrade() -> None:
    for statement in _STATEMENTS:
        op.execute(statement)
