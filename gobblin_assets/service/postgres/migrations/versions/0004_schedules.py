"""Flows have schedules: when they are due, what became of each slot, and executions that are compiled later.

An execution that may overlap others is no longer kept out by the index that keeps a second one out.

Revision ID: 0004
"""

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
        ALTER TABLE gobblin_service.flow
            ADD COLUMN next_fire_at TIMESTAMP WITH TIME ZONE,
            ADD COLUMN due_at TIMESTAMP WITH TIME ZONE,
            ADD COLUMN paused_at TIMESTAMP WITH TIME ZONE,
            ADD COLUMN resumed_at TIMESTAMP WITH TIME ZONE,
            ADD COLUMN is_continuous BOOLEAN DEFAULT false NOT NULL,
            ADD CONSTRAINT flow_due_at_check CHECK ((next_fire_at IS NULL) = (due_at IS NULL))
    """)
    op.execute("""
        CREATE INDEX flow_due ON gobblin_service.flow (due_at)
         WHERE due_at IS NOT NULL AND deleted_at IS NULL AND state <> 'PAUSED'
    """)
    op.execute("""
        CREATE INDEX flow_continuous ON gobblin_service.flow (flow_id) WHERE is_continuous AND deleted_at IS NULL
    """)
    op.execute("""
        ALTER TABLE gobblin_service.flow_execution
            ADD COLUMN fire_at TIMESTAMP WITH TIME ZONE,
            ADD COLUMN launch_at TIMESTAMP WITH TIME ZONE,
            ADD COLUMN waits_for TEXT DEFAULT '' NOT NULL,
            ADD COLUMN may_overlap BOOLEAN DEFAULT false NOT NULL,
            ADD CONSTRAINT flow_execution_launch_at_check CHECK (launch_at IS NULL OR status = 'PENDING')
    """)
    op.execute("""
        CREATE UNIQUE INDEX flow_execution_fire ON gobblin_service.flow_execution (flow_id, fire_at)
         WHERE fire_at IS NOT NULL
    """)
    op.execute("""
        CREATE INDEX flow_execution_to_launch ON gobblin_service.flow_execution (execution_id)
         WHERE launch_at IS NOT NULL
    """)
    op.execute("""
        CREATE UNIQUE INDEX flow_execution_alone ON gobblin_service.flow_execution (flow_id)
         WHERE ended_at IS NULL AND NOT may_overlap
    """)
    op.execute("DROP INDEX gobblin_service.flow_execution_open")
    op.execute("""
        CREATE INDEX flow_execution_open ON gobblin_service.flow_execution (flow_id) WHERE ended_at IS NULL
    """)
    op.execute("""
        CREATE TABLE gobblin_service.flow_slot (
            flow_id UUID NOT NULL,
            slot_at TIMESTAMP WITH TIME ZONE NOT NULL,
            until_at TIMESTAMP WITH TIME ZONE NOT NULL,
            count INTEGER NOT NULL,
            state TEXT NOT NULL,
            reason TEXT DEFAULT '' NOT NULL,
            execution_id BIGINT,
            accounted_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
            CONSTRAINT flow_slot_pkey PRIMARY KEY (flow_id, slot_at),
            CONSTRAINT flow_slot_state_check CHECK (state IN ('WAITING', 'RUN', 'COALESCED', 'SKIPPED')),
            CONSTRAINT flow_slot_count_check CHECK (count >= 1 AND (count = 1) = (slot_at = until_at)),
            CONSTRAINT flow_slot_execution_id_check CHECK (state <> 'RUN' OR execution_id IS NOT NULL)
        )
    """)
    op.execute("""
        CREATE INDEX flow_slot_waiting ON gobblin_service.flow_slot (flow_id, slot_at) WHERE state = 'WAITING'
    """)
    op.execute("""
        CREATE INDEX flow_slot_old ON gobblin_service.flow_slot (accounted_at) WHERE state <> 'WAITING'
    """)
