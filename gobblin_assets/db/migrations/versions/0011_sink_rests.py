"""Workers of sinks say what they leave alone after a failure, and why.

Revision ID: 0011
"""

from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Null: workers of before say nothing of it.
    op.execute("ALTER TABLE gobblin.sink_worker ADD COLUMN rests JSONB")
