"""Datasets between runs: versions, leases, positions; and the runs."""

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    ForeignKey,
    Identity,
    Index,
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
    # The version up to which its publications were folded at the last look, and the time of that look.
    Column("folded_version", BigInteger, nullable=False, server_default=text("0")),
    moment("tidied_at", nullable=False, default_now=True),
    UniqueConstraint("job", "urn"),
)

lease = Table(
    "lease",
    metadata,
    Column("dataset_id", ForeignKey(dataset.c.dataset_id), primary_key=True, autoincrement=False),
    Column("fence", BigInteger, nullable=False, server_default=text("0")),
    Column("owner", Text),
    Column("run_id", Uuid),
    Column("dagster_run_id", Text),
    moment("taken_at"),
    moment("expires_at"),
)

watermark_key = Table(
    "watermark_key",
    metadata,
    Column("key_id", BigInteger, Identity(always=True), primary_key=True),
    Column("dataset_id", ForeignKey(dataset.c.dataset_id), nullable=False),
    Column("name", Text, nullable=False),
    Column("partition", Text, nullable=False),
    Column("watermark", JSONB),
    Column("watermark_bytes", LargeBinary),
    Column("sequence_id", Uuid),
    moment("moved_at"),
    UniqueConstraint("dataset_id", "name", "partition"),
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
    moment("started_at", nullable=False, default_now=True),
    moment("ended_at"),
    CheckConstraint(
        f"state IN ({states('PENDING', 'RUNNING', 'COMMITTED', 'FAILED', 'CANCELLED')})",
        name="state",
    ),
    Index(None, "job", "started_at"),
)
