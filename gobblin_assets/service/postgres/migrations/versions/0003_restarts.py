"""Flows whose workers were ended for a new version start anew; workers' jobs are retired; old tickets are forgotten.

Revision ID: 0003
"""

from alembic import op

revision = "0003"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE gobblin_service.flow ADD COLUMN restarts BOOLEAN DEFAULT false NOT NULL")
    op.execute("CREATE INDEX flow_restarting ON gobblin_service.flow (flow_id) WHERE restarts")
    op.execute("ALTER TABLE gobblin_service.flow_job ADD COLUMN retired_at TIMESTAMP WITH TIME ZONE")
    op.execute("ALTER TABLE gobblin_service.flow_job DROP CONSTRAINT flow_job_flow_id_node_generation_key")
    op.execute("""
        CREATE UNIQUE INDEX flow_job_in_use ON gobblin_service.flow_job (flow_id, node, generation)
         WHERE retired_at IS NULL
    """)
    op.execute("ALTER TABLE gobblin_service.job_execution ADD COLUMN forgotten_at TIMESTAMP WITH TIME ZONE")
    op.execute("""
        CREATE INDEX job_execution_to_forget ON gobblin_service.job_execution (ended_at, execution_id, number)
         WHERE ended_at IS NOT NULL AND forgotten_at IS NULL AND send_begun_at IS NOT NULL
    """)
