"""Sources may have something remembered with a dataset: a topic's id, averages that estimates are made from.

Revision ID: 0002
"""

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE gobblin.dataset ADD COLUMN source_facts JSONB")
