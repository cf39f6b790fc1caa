"""A log is drained for an upgrade: while it drains, and from another release, nobody claims a ticket.

Releases before this one give no version with their claims, and so claim nothing any more.

Revision ID: 0019
"""

from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
        CREATE TABLE gobblin.log_drain (
            drain_id UUID NOT NULL,
            asked_by TEXT NOT NULL,
            begun_at TIMESTAMP WITH TIME ZONE NOT NULL DEFAULT clock_timestamp(),
            ended_at TIMESTAMP WITH TIME ZONE,
            CONSTRAINT log_drain_pkey PRIMARY KEY (drain_id)
        )
    """)
    op.execute("CREATE UNIQUE INDEX log_drain_open ON gobblin.log_drain ((ended_at IS NULL)) WHERE ended_at IS NULL")
    op.execute("ALTER TABLE gobblin.ticket_claim ADD COLUMN schema_version TEXT")
    # A drain takes the same lock alone: it waits for the claims that have passed.
    op.execute("""
        CREATE FUNCTION gobblin.fence_claim() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            PERFORM pg_advisory_xact_lock_shared(29099006644808046);
            IF EXISTS (SELECT FROM gobblin.log_drain WHERE ended_at IS NULL) THEN
                RAISE EXCEPTION 'the log drains: nothing is claimed' USING ERRCODE = 'GA001';
            END IF;
            IF NEW.schema_version IS DISTINCT FROM (SELECT version_num FROM gobblin.alembic_version) THEN
                RAISE EXCEPTION 'the log was upgraded: upgrade the package gobblin-assets' USING ERRCODE = 'GA002';
            END IF;
            RETURN NEW;
        END
        $$
    """)
    op.execute("""
        CREATE TRIGGER ticket_claim_fence BEFORE INSERT ON gobblin.ticket_claim
            FOR EACH ROW EXECUTE FUNCTION gobblin.fence_claim()
    """)
