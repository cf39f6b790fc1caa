"""Datasets between runs: destinations, versions, leases, positions, runs; and who works and reports beside them."""

from sqlalchemy import (
    UUID,
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
    # What a command was asked, for whoever reports its run to Dagster. Null: it is not reported.
    Column("asked", JSONB),
    moment("started_at", nullable=False, default_now=True),
    moment("ended_at"),
    # When its end was reported to Dagster, or there was nothing to report.
    moment("reported_at"),
    CheckConstraint(
        f"state IN ({states('PENDING', 'RUNNING', 'COMMITTED', 'FAILED', 'CANCELLED')})",
        name="state",
    ),
    Index(None, "job", "started_at"),
    # Of all jobs: those that work, and those that were ended by who took their leases.
    Index(
        "run_unfinished",
        "started_at",
        postgresql_where=text("state = 'RUNNING' OR state = 'FAILED' AND figures IS NULL"),
    ),
    Index("run_unreported", "job", "started_at", postgresql_where=text("asked IS NOT NULL AND reported_at IS NULL")),
)

rate_share = Table(
    "rate_share",
    metadata,
    Column("name", Text, primary_key=True),
    Column("share", Integer, primary_key=True, autoincrement=False),
    # One copy of one file set, by an id of its own.
    Column("holder", UUID, nullable=False),
    # The whole rate as the holder gave it; live holders of one name agree.
    Column("definition", Text, nullable=False),
    # A share that ran out is free; its row gives way to the next holder's.
    moment("expires_at", nullable=False),
    CheckConstraint("share > 0", name="share"),
)

destination = Table(
    "destination",
    metadata,
    Column("job", Text, primary_key=True),
    Column("root_uri", Text, nullable=False),
    # The identity in the file at the root; null if an earlier release published, until the next run has looked.
    Column("identity", Text),
    moment("bound_at", nullable=False, default_now=True),
)

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
    # The dataset's version up to which the partition was reported, and how many rows of all roles there were then.
    Column("version", BigInteger, nullable=False),
    Column("row_count", BigInteger, nullable=False),
    # Null while there were no rows to report.
    moment("told_at"),
)

sink_observation = Table(
    "sink_observation",
    metadata,
    Column("dataset_id", ForeignKey(dataset.c.dataset_id), primary_key=True, autoincrement=False),
    moment("observed_at", nullable=False, default_now=True),
)

event_cursor = Table(
    "event_cursor",
    metadata,
    Column("dataset_id", ForeignKey(dataset.c.dataset_id), primary_key=True, autoincrement=False),
    # The name of the sink in the job.
    Column("sink", Text, primary_key=True),
    # All publications up to this version of the dataset were delivered to the sink.
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
    # Who reports the job to Dagster now: one at a time, so that two code locations do not report it twice.
    Column("claimed_by", Text),
    moment("claimed_until"),
    moment("looked_at", nullable=False, default_now=True),
    # Since when Dagster has not taken a report, and why.
    moment("failed_at"),
    Column("error", Text),
    # Up to then, the checks of what streams publish were reported.
    moment("checks_told_at"),
)
