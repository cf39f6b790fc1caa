"""Packs of job templates, and the versions of them that flows have pinned.

Revision ID: 0002
"""

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
        CREATE TABLE gobblin_service.template_pack (
            pack TEXT COLLATE "C" NOT NULL,
            version TEXT COLLATE "C" NOT NULL,
            description TEXT NOT NULL,
            digest TEXT NOT NULL,
            content BYTEA NOT NULL,
            published_by TEXT NOT NULL,
            published_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
            CONSTRAINT template_pack_pkey PRIMARY KEY (pack, version),
            CONSTRAINT template_pack_digest_check CHECK (digest ~ '^[0-9a-f]{64}$')
        )
    """)
    op.execute("ALTER TABLE gobblin_service.flow_version ADD COLUMN pins JSONB DEFAULT '{}' NOT NULL")
