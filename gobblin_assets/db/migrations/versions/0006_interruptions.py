"""One value of the job kind's own says what ends an attempt's work after its process died; before, columns named Spark.

Revision ID: 0006
"""

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_STATEMENTS = (
    "ALTER TABLE gobblin.attempt RENAME COLUMN spark_tag TO tag",
    "ALTER TABLE gobblin.attempt ADD COLUMN interruption JSONB",
    """
    UPDATE gobblin.attempt
       SET interruption = jsonb_build_object('session_id', spark_session_id, 'user', spark_user, 'tag', tag)
     WHERE spark_session_id IS NOT NULL
    """,
    "ALTER TABLE gobblin.attempt DROP COLUMN spark_session_id, DROP COLUMN spark_user",
)


def upgrade() -> None:
    for statement in _STATEMENTS:
        op.execute(statement)
