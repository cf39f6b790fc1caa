"""Old publications of a partition are folded into one, and history that is older than a job keeps it goes.

A fold takes the rows of many sequences away: what refers to a sequence gets an index, or each of these rows would cost
a look at a whole table.

Revision ID: 0005
"""

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_STATEMENTS = (
    """
    ALTER TABLE gobblin.dataset
        ADD COLUMN folded_version BIGINT NOT NULL DEFAULT 0,
        ADD COLUMN tidied_at TIMESTAMP WITH TIME ZONE NOT NULL DEFAULT clock_timestamp()
    """,
    """
    ALTER TABLE gobblin.commit_sequence
        ADD COLUMN publication_count BIGINT NOT NULL DEFAULT 1,
        ADD COLUMN folded_at TIMESTAMP WITH TIME ZONE
    """,
    """
    ALTER TABLE gobblin.segment
        ALTER COLUMN attempt_id DROP NOT NULL,
        ADD COLUMN version BIGINT
    """,
    """
    CREATE TABLE gobblin.past_sequence (
        sequence_id UUID NOT NULL,
        dataset_id BIGINT NOT NULL,
        state TEXT NOT NULL,
        CONSTRAINT past_sequence_pkey PRIMARY KEY (sequence_id),
        CONSTRAINT past_sequence_state_check CHECK (state IN ('DONE', 'ABORTED')),
        CONSTRAINT past_sequence_dataset_id_fkey FOREIGN KEY (dataset_id) REFERENCES gobblin.dataset (dataset_id)
    )
    """,
    "CREATE INDEX attempt_sequence_id_idx ON gobblin.attempt (sequence_id)",
    "CREATE INDEX run_dataset_sequence_id_idx ON gobblin.run_dataset (sequence_id)",
    "CREATE INDEX run_dataset_dataset_id_ended_at_idx ON gobblin.run_dataset (dataset_id, ended_at)",
    "CREATE INDEX segment_retired_by_idx ON gobblin.segment (retired_by) WHERE retired_by IS NOT NULL",
    "CREATE INDEX ledger_retired_by_idx ON gobblin.ledger (retired_by) WHERE retired_by IS NOT NULL",
)


def upgrade() -> None:
    for statement in _STATEMENTS:
        op.execute(statement)
