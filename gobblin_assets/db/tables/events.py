"""Events that sinks were sent, and who reports to Dagster."""

from sqlalchemy import BigInteger, Column, ForeignKey, Table, Text, Uuid

from gobblin_assets.db.table_metadata import metadata, moment
from gobblin_assets.db.tables.state import dataset

event_cursor = Table(
    "event_cursor",
    metadata,
    Column("dataset_id", ForeignKey(dataset.c.dataset_id), primary_key=True, autoincrement=False),
    # The name of the sink in the job.
    Column("sink", Text, primary_key=True),
    # The sink was told of all publications up to this version of the dataset.
    Column("version", BigInteger, nullable=False),
    moment("begun_at", nullable=False, default_now=True),
)

event_failure = Table(
    "event_failure",
    metadata,
    Column("dataset_id", ForeignKey(dataset.c.dataset_id), primary_key=True, autoincrement=False),
    Column("sink", Text, primary_key=True),
    # The id of a sequence that was given up; else a digest of run, dataset and partition.
    Column("subject", Uuid, primary_key=True),
    moment("told_at", nullable=False, default_now=True),
)

reporter = Table(
    "reporter",
    metadata,
    Column("job", Text, primary_key=True),
    # Who tells Dagster of the job now: one at a time, so that two code locations do not tell it twice.
    Column("claimed_by", Text),
    moment("claimed_until"),
    moment("looked_at", nullable=False, default_now=True),
    # Since when Dagster has not taken what it was told, and why.
    moment("failed_at"),
    Column("error", Text),
    # Up to then, the checks of what streams publish were told.
    moment("checks_told_at"),
)
