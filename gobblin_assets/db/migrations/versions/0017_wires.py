"""Tickets come by topics of Kafka: up to where they are here, and up to where their reports are told.

Revision ID: 0017
"""

from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
        CREATE TABLE gobblin.wire_holder (
            executor TEXT NOT NULL,
            owner TEXT NOT NULL,
            expires_at TIMESTAMP WITH TIME ZONE NOT NULL,
            CONSTRAINT wire_holder_pkey PRIMARY KEY (executor)
        )
    """)
    op.execute("""
        CREATE TABLE gobblin.wire_place (
            executor TEXT NOT NULL,
            topic TEXT NOT NULL,
            topic_id TEXT NOT NULL,
            partition INTEGER NOT NULL,
            next_offset BIGINT NOT NULL,
            CONSTRAINT wire_place_pkey PRIMARY KEY (executor, topic, topic_id, partition)
        )
    """)
    op.execute("""
        CREATE TABLE gobblin.wired_ticket (
            ticket_id UUID NOT NULL,
            executor TEXT NOT NULL,
            is_received_told BOOLEAN NOT NULL DEFAULT false,
            attempt INTEGER NOT NULL DEFAULT -1,
            number INTEGER NOT NULL DEFAULT 0,
            refusal JSONB,
            CONSTRAINT wired_ticket_pkey PRIMARY KEY (ticket_id)
        )
    """)
    op.execute("CREATE INDEX wired_ticket_executor ON gobblin.wired_ticket (executor)")
