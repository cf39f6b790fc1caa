"""A sequence may publish several intervals of one key, and leave the key's watermark where it is.

A log's windows need it: what one of them lacks may lie between intervals that others hold.

Revision ID: 0003
"""

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_STATEMENTS = (
    """
    CREATE TABLE gobblin.planned_interval (
        sequence_id UUID NOT NULL,
        key_id BIGINT NOT NULL,
        low JSONB,
        low_bytes BYTEA NOT NULL,
        high JSONB NOT NULL,
        high_bytes BYTEA NOT NULL,
        reread_from JSONB,
        CONSTRAINT planned_interval_pkey PRIMARY KEY (sequence_id, key_id, low_bytes),
        CONSTRAINT planned_interval_order_check CHECK (low_bytes <= high_bytes),
        CONSTRAINT planned_interval_sequence_id_fkey FOREIGN KEY (sequence_id, key_id)
            REFERENCES gobblin.planned_move (sequence_id, key_id)
    )
    """,
    """
    INSERT INTO gobblin.planned_interval (sequence_id, key_id, low, low_bytes, high, high_bytes, reread_from)
    SELECT sequence_id, key_id, low, low_bytes, new_watermark, new_bytes, reread_from
      FROM gobblin.planned_move
     WHERE new_bytes IS NOT NULL
    """,
    "ALTER TABLE gobblin.planned_move DROP CONSTRAINT planned_move_interval_check",
    "ALTER TABLE gobblin.planned_move DROP COLUMN low, DROP COLUMN low_bytes, DROP COLUMN reread_from",
    """
    CREATE INDEX commit_sequence_published ON gobblin.commit_sequence (dataset_id, partition, result_version)
        WHERE state = 'DONE'
    """,
)


def upgrade() -> None:
    for statement in _STATEMENTS:
        op.execute(statement)
