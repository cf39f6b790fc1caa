"""Executors are reached by topics: what was sent, and what came back.

Revision ID: 0007
"""

from alembic import op

revision = "0007"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
        CREATE TABLE gobblin_service.way_ticket (
            ticket_id UUID NOT NULL,
            way TEXT NOT NULL,
            verb TEXT NOT NULL,
            key TEXT NOT NULL,
            log_id UUID,
            digest BYTEA NOT NULL,
            body JSON NOT NULL,
            entered_at TIMESTAMP WITH TIME ZONE NOT NULL DEFAULT clock_timestamp(),
            produced_at TIMESTAMP WITH TIME ZONE,
            resends INTEGER NOT NULL DEFAULT 0,
            received_at TIMESTAMP WITH TIME ZONE,
            withdrawn_at TIMESTAMP WITH TIME ZONE,
            ended_at TIMESTAMP WITH TIME ZONE,
            CONSTRAINT way_ticket_pkey PRIMARY KEY (ticket_id)
        )
    """)
    op.execute("""
        CREATE INDEX way_ticket_open ON gobblin_service.way_ticket (way, entered_at) WHERE ended_at IS NULL
    """)
    op.execute("""
        CREATE TABLE gobblin_service.way_report (
            ticket_id UUID NOT NULL,
            attempt INTEGER NOT NULL,
            number INTEGER NOT NULL,
            kind TEXT NOT NULL,
            details JSONB NOT NULL,
            at TIMESTAMP WITH TIME ZONE NOT NULL,
            CONSTRAINT way_report_pkey PRIMARY KEY (ticket_id, attempt, number),
            CONSTRAINT way_report_ticket_id_fkey FOREIGN KEY (ticket_id)
                REFERENCES gobblin_service.way_ticket (ticket_id) ON DELETE CASCADE
        )
    """)
    op.execute("""
        CREATE TABLE gobblin_service.way_output (
            ticket_id UUID NOT NULL,
            attempt INTEGER NOT NULL,
            lines TEXT NOT NULL,
            updated_at TIMESTAMP WITH TIME ZONE NOT NULL,
            CONSTRAINT way_output_pkey PRIMARY KEY (ticket_id, attempt),
            CONSTRAINT way_output_ticket_id_fkey FOREIGN KEY (ticket_id)
                REFERENCES gobblin_service.way_ticket (ticket_id) ON DELETE CASCADE
        )
    """)
    op.execute("""
        CREATE TABLE gobblin_service.way_heartbeat (
            way TEXT NOT NULL,
            owner TEXT NOT NULL,
            body JSONB NOT NULL,
            waiting INTEGER NOT NULL,
            working INTEGER NOT NULL,
            beaten_at TIMESTAMP WITH TIME ZONE NOT NULL,
            CONSTRAINT way_heartbeat_pkey PRIMARY KEY (way, owner)
        )
    """)
    op.execute("""
        CREATE TABLE gobblin_service.way_place (
            way TEXT NOT NULL,
            topic_id TEXT NOT NULL,
            partition INTEGER NOT NULL,
            next_offset BIGINT NOT NULL,
            CONSTRAINT way_place_pkey PRIMARY KEY (way, topic_id, partition)
        )
    """)
