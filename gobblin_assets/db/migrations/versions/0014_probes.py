"""A service asks executors what a place has, and what a job would read: by tickets that only ask.

Revision ID: 0014
"""

from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE gobblin.job_ticket DROP CONSTRAINT job_ticket_verb_check")
    op.execute("""
        ALTER TABLE gobblin.job_ticket ADD CONSTRAINT job_ticket_verb_check
            CHECK (verb IN ('ADD', 'UPDATE', 'DELETE', 'CANCEL', 'PROBE'))
    """)
    op.execute("CREATE INDEX job_ticket_probe ON gobblin.job_ticket (ended_at) WHERE verb = 'PROBE'")
