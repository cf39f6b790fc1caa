"""History: how each dataset partition left each run."""

from sqlalchemy import CheckConstraint, Column, ForeignKey, Index, Table, Text
from sqlalchemy.dialects.postgresql import JSONB

from gobblin_assets.db.table_metadata import metadata, moment, states
from gobblin_assets.db.tables.log import commit_sequence
from gobblin_assets.db.tables.state import dataset, run

run_dataset = Table(
    "run_dataset",
    metadata,
    Column("run_id", ForeignKey(run.c.run_id), primary_key=True),
    Column("dataset_id", ForeignKey(dataset.c.dataset_id), primary_key=True, autoincrement=False),
    Column("partition", Text, primary_key=True),
    Column("outcome", Text, nullable=False),
    Column("sequence_id", ForeignKey(commit_sequence.c.sequence_id)),
    Column("error", Text),
    Column("figures", JSONB),
    # Of a partition without a publication: those of a publication are among its details.
    Column("checks", JSONB),
    moment("ended_at", nullable=False, default_now=True),
    CheckConstraint(
        f"outcome IN ({states('COMMITTED', 'PARTIAL', 'FAILED', 'SKIPPED', 'BLOCKED', 'FENCED')})",
        name="outcome",
    ),
    Index(None, "sequence_id"),
    Index(None, "dataset_id", "ended_at"),
    Index(None, "dataset_id", "partition", "ended_at"),
)
