"""A service sends jobs to executors as tickets; executors claim them, and report how far they are.

Revision ID: 0013
"""

from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
        CREATE TABLE gobblin.log_identity (
            is_only BOOLEAN NOT NULL DEFAULT true,
            log_id UUID NOT NULL,
            CONSTRAINT log_identity_pkey PRIMARY KEY (is_only),
            CONSTRAINT log_identity_only_check CHECK (is_only)
        )
    """)
    op.execute("""
        CREATE TABLE gobblin.job_ticket (
            ticket_id UUID NOT NULL,
            executor TEXT NOT NULL,
            verb TEXT NOT NULL,
            job TEXT,
            shape TEXT,
            cancels UUID,
            digest BYTEA NOT NULL,
            body JSON NOT NULL,
            sent_at TIMESTAMP WITH TIME ZONE NOT NULL DEFAULT clock_timestamp(),
            ended_as TEXT,
            ended_at TIMESTAMP WITH TIME ZONE,
            CONSTRAINT job_ticket_pkey PRIMARY KEY (ticket_id),
            CONSTRAINT job_ticket_verb_check CHECK (verb IN ('ADD', 'UPDATE', 'DELETE', 'CANCEL')),
            CONSTRAINT job_ticket_ended_as_check CHECK (ended_as IN ('COMPLETE', 'FAILED', 'CANCELLED')),
            CONSTRAINT job_ticket_ended_at_check CHECK ((ended_as IS NULL) = (ended_at IS NULL))
        )
    """)
    op.execute("""
        CREATE INDEX job_ticket_open ON gobblin.job_ticket (executor, sent_at, ticket_id) WHERE ended_at IS NULL
    """)
    op.execute("""
        CREATE TABLE gobblin.ticket_claim (
            ticket_id UUID NOT NULL,
            attempt INTEGER NOT NULL,
            claim_id UUID NOT NULL,
            digest BYTEA NOT NULL,
            log_id UUID NOT NULL,
            owner TEXT NOT NULL,
            claimed_at TIMESTAMP WITH TIME ZONE NOT NULL DEFAULT clock_timestamp(),
            expires_at TIMESTAMP WITH TIME ZONE NOT NULL,
            ended_as TEXT,
            ended_at TIMESTAMP WITH TIME ZONE,
            CONSTRAINT ticket_claim_pkey PRIMARY KEY (ticket_id, attempt),
            CONSTRAINT ticket_claim_ticket_id_fkey FOREIGN KEY (ticket_id) REFERENCES gobblin.job_ticket (ticket_id),
            CONSTRAINT ticket_claim_attempt_check CHECK (attempt > 0),
            CONSTRAINT ticket_claim_ended_as_check
                CHECK (ended_as IN ('COMPLETE', 'FAILED', 'CANCELLED', 'DIED', 'DRAINED')),
            CONSTRAINT ticket_claim_ended_at_check CHECK ((ended_as IS NULL) = (ended_at IS NULL))
        )
    """)
    op.execute("""
        CREATE TABLE gobblin.ticket_report (
            ticket_id UUID NOT NULL,
            attempt INTEGER NOT NULL,
            number INTEGER NOT NULL,
            report_id UUID NOT NULL,
            kind TEXT NOT NULL,
            sequence_id UUID,
            details JSONB NOT NULL,
            at TIMESTAMP WITH TIME ZONE NOT NULL DEFAULT clock_timestamp(),
            CONSTRAINT ticket_report_pkey PRIMARY KEY (ticket_id, attempt, number),
            CONSTRAINT ticket_report_report_id_key UNIQUE (report_id),
            CONSTRAINT ticket_report_ticket_id_sequence_id_key UNIQUE (ticket_id, sequence_id),
            CONSTRAINT ticket_report_ticket_id_fkey FOREIGN KEY (ticket_id) REFERENCES gobblin.job_ticket (ticket_id),
            CONSTRAINT ticket_report_kind_check
                CHECK (kind IN ('claimed', 'running', 'published', 'progress', 'ended')),
            CONSTRAINT ticket_report_sequence_id_check CHECK ((kind = 'published') = (sequence_id IS NOT NULL))
        )
    """)
