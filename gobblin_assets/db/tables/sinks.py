"""The live workers of sinks, and what an orchestrator was told of what they publish."""

from sqlalchemy import BigInteger, Boolean, Column, ForeignKey, Index, Table, Text, Uuid, text
from sqlalchemy.dialects.postgresql import JSONB

from gobblin_assets.db.table_metadata import metadata, moment
from gobblin_assets.db.tables.state import dataset

sink_worker = Table(
    "sink_worker",
    metadata,
    Column("run_id", Uuid, primary_key=True),
    Column("job", Text, nullable=False),
    Column("owner", Text, nullable=False),
    # A digest of what the worker does to records: workers of one sink agree.
    Column("configuration", Text, nullable=False),
    moment("expires_at", nullable=False),
    # A person asked it to end behind a cut.
    Column("is_drained", Boolean, nullable=False, server_default=text("false")),
    # By the worker's own clock: what it begins from now on belongs to a window that is open then, or to a later one.
    moment("looked_at"),
    # By the ids of datasets: records that are not published, of the vnodes that the worker reads.
    Column("lags", JSONB, nullable=False, server_default=text("'{}'")),
    # What it leaves alone after a failure: datasets or single lanes, each with the error.
    Column("rests", JSONB),
    Index(None, "job"),
)

sink_window = Table(
    "sink_window",
    metadata,
    Column("dataset_id", ForeignKey(dataset.c.dataset_id), primary_key=True, autoincrement=False),
    Column("partition", Text, primary_key=True),
    # The dataset's version up to which it was told of the partition, and how many rows of all roles there were then.
    Column("version", BigInteger, nullable=False),
    Column("row_count", BigInteger, nullable=False),
    # Null while there were no rows to tell of.
    moment("told_at"),
)

sink_observation = Table(
    "sink_observation",
    metadata,
    Column("dataset_id", ForeignKey(dataset.c.dataset_id), primary_key=True, autoincrement=False),
    moment("observed_at", nullable=False, default_now=True),
)
