"""The log remembers where each job publishes, and which destination that was.

What was published before binds its job to the place of its newest publication; the next run finds out its identity.

Revision ID: 0004
"""

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_STATEMENTS = (
    """
    CREATE TABLE gobblin.destination (
        job TEXT NOT NULL,
        root_uri TEXT NOT NULL,
        identity TEXT,
        bound_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
        CONSTRAINT destination_pkey PRIMARY KEY (job)
    )
    """,
    """
    INSERT INTO gobblin.destination (job, root_uri)
    SELECT DISTINCT ON (d.job) d.job, s.details ->> 'root_uri'
      FROM gobblin.commit_sequence s JOIN gobblin.dataset d USING (dataset_id)
     WHERE s.state IN ('PREPARED', 'BLOCKED', 'ABANDONING', 'DONE') AND s.details ->> 'root_uri' IS NOT NULL
     ORDER BY d.job, s.prepared_at DESC
    """,
)


def upgrade() -> None:
    for statement in _STATEMENTS:
        op.execute(statement)
