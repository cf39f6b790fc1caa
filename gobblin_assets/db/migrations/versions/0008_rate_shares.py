"""Drivers that keep a rate together lease shares of it.

Revision ID: 0008
"""

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

_STATEMENT = """
    CREATE TABLE gobblin.rate_share (
        name TEXT NOT NULL,
        share INTEGER NOT NULL,
        holder UUID NOT NULL,
        definition TEXT NOT NULL,
        expires_at TIMESTAMP WITH TIME ZONE NOT NULL,
        CONSTRAINT rate_share_pkey PRIMARY KEY (name, share),
        CONSTRAINT rate_share_share_check CHECK (share > 0)
    )
"""


def upgrade() -> None:
    op.execute(_STATEMENT)
