"""Datasets between runs: versions, leases, positions; and the runs."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    Identity,
    Index,
    Integer,
    LargeBinary,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from gobblin_assets.db.table_metadata import metadata, moment, states

dataset = Table(
    "dataset",
    metadata,
    Column("dataset_id", BigInteger, Identity(always=True), primary_key=True),
    Column("job", Text, nullable=False),
    Column("urn", Text, nullable=False),
    Column("version", BigInteger, nullable=False, server_default=text("0")),
    Column("source_columns", JSONB),
    Column("published_columns", JSONB),
    moment("created_at", nullable=False, default_now=True),
    # Facts that the source keeps with the dataset: plain values of its own.
    Column("source_facts", JSONB),
    # How many lanes its sink spreads its vnodes over: those with lower numbers.
    Column("lane_count", Integer, nullable=False, server_default=text("1")),
    UniqueConstraint("job", "urn"),
    CheckConstraint("lane_count > 0", name="lane_count"),
)

lane = Table(
    "lane",
    metadata,
    # Lane 0 has the id of its dataset; the ids of others come from the same numbers.
    Column("lane_id", BigInteger, primary_key=True, autoincrement=False),
    Column("dataset_id", ForeignKey(dataset.c.dataset_id), nullable=False),
    Column("number", Integer, nullable=False),
    # Its finished sequences; the dataset's version counts those of all lanes.
    Column("version", BigInteger, nullable=False, server_default=text("0")),
    # The dataset's version up to which its publications were folded at the last look, and the time of that look.
    Column("folded_version", BigInteger, nullable=False, server_default=text("0")),
    moment("tidied_at", nullable=False, default_now=True),
    UniqueConstraint("dataset_id", "number"),
    CheckConstraint("number >= 0 AND (number = 0) = (lane_id = dataset_id)", name="number"),
)

lease = Table(
    "lease",
    metadata,
    Column("lane_id", ForeignKey(lane.c.lane_id), primary_key=True, autoincrement=False),
    Column("fence", BigInteger, nullable=False, server_default=text("0")),
    Column("owner", Text),
    Column("run_id", Uuid),
    Column("dagster_run_id", Text),
    moment("taken_at"),
    moment("expires_at"),
    # Of lane 0: its holder has the whole dataset, and no lane can be taken.
    Column("is_whole", Boolean, nullable=False, server_default=text("false")),
)

watermark_key = Table(
    "watermark_key",
    metadata,
    Column("key_id", BigInteger, Identity(always=True), primary_key=True),
    Column("dataset_id", ForeignKey(dataset.c.dataset_id), nullable=False),
    Column("name", Text, nullable=False),
    Column("partition", Text, nullable=False),
    # Only this lane publishes the key. It changes by the lane's holder, while no open sequence moves the key.
    Column("lane_id", ForeignKey(lane.c.lane_id), nullable=False),
    Column("watermark", JSONB),
    Column("watermark_bytes", LargeBinary),
    Column("sequence_id", Uuid),
    moment("moved_at"),
    UniqueConstraint("dataset_id", "name", "partition"),
    Index(None, "lane_id"),
)

run = Table(
    "run",
    metadata,
    Column("run_id", Uuid, primary_key=True),
    Column("job", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("owner", Text, nullable=False),
    Column("dagster_run_id", Text),
    Column("error", Text),
    Column("figures", JSONB),
    # What a command was asked, for whoever tells Dagster of its run. Null: nobody is to be told.
    Column("asked", JSONB),
    moment("started_at", nullable=False, default_now=True),
    moment("ended_at"),
    # When Dagster was told of its end, or there was nothing to tell.
    moment("reported_at"),
    CheckConstraint(
        f"state IN ({states('PENDING', 'RUNNING', 'COMMITTED', 'FAILED', 'CANCELLED')})",
        name="state",
    ),
    Index(None, "job", "started_at"),
    Index("run_unreported", "job", "started_at", postgresql_where=text("asked IS NOT NULL AND reported_at IS NULL")),
)
