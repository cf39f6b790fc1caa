"""The write-ahead log: sequences, attempts, segments, planned moves; and the ledger and the history that they leave."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    ForeignKeyConstraint,
    Identity,
    Index,
    Integer,
    LargeBinary,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    literal_column,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB, ExcludeConstraint
from sqlalchemy.sql.expression import ColumnClause

from gobblin_assets.db.statement_texts import IS_OPEN, IS_OVER, IS_UNFINISHED, MAY_BE_UNSEALED
from gobblin_assets.db.table_metadata import SCHEMA, metadata, moment, states
from gobblin_assets.db.tables.state import dataset, lane, run, watermark_key
from gobblin_assets.model.sequence_state import SequenceState

commit_sequence = Table(
    "commit_sequence",
    metadata,
    Column("sequence_id", Uuid, primary_key=True),
    Column("dataset_id", ForeignKey(dataset.c.dataset_id), nullable=False),
    Column("lane_id", ForeignKey(lane.c.lane_id), nullable=False),
    Column("run_id", ForeignKey(run.c.run_id), nullable=False),
    Column("partition", Text, nullable=False),
    Column("mode", Text, nullable=False),
    Column("replaces", Boolean, nullable=False),
    # The fence under which it was begun. Recovery finishes it under a later one.
    Column("fence", BigInteger, nullable=False),
    # BUILDING -> PREPARED -> DONE; BUILDING -> ABORTED; PREPARED <-> BLOCKED; PREPARED or BLOCKED ->
    # ABANDONING -> ABORTED: model.sequence_state.EDGES.
    Column("state", Text, nullable=False),
    # The lane's version before it, and the dataset's version after it.
    Column("base_version", BigInteger),
    Column("result_version", BigInteger),
    Column("digest", LargeBinary),
    Column("segment_count", Integer),
    Column("step_count", BigInteger),
    Column("file_count", BigInteger),
    Column("row_count", BigInteger),
    Column("file_bytes", BigInteger),
    Column("complete", Boolean),
    Column("failed_tries", Integer, nullable=False, server_default=text("0")),
    Column("last_error", Text),
    Column("details", JSONB),
    moment("next_try_at"),
    moment("created_at", nullable=False, default_now=True),
    moment("prepared_at"),
    moment("done_at"),
    moment("aborted_at"),
    # When its events reached Dagster at least once; they carry the sequence's id.
    moment("announced_at"),
    # For a fold: the number of its publications, and when the last of them was folded into it.
    Column("publication_count", BigInteger, nullable=False, server_default=text("1")),
    moment("folded_at"),
    CheckConstraint(f"state IN ({states(*SequenceState)})", name="state"),
    CheckConstraint(f"mode IN ({states('append', 'refresh')})", name="mode"),
    CheckConstraint(
        f"state {MAY_BE_UNSEALED} OR (base_version IS NOT NULL AND digest IS NOT NULL)",
        name="sealed",
    ),
    CheckConstraint("(state = 'DONE') = (result_version IS NOT NULL)", name="done"),
    Index(
        "commit_sequence_one_open",
        "lane_id",
        unique=True,
        postgresql_where=text(f"state {IS_OPEN}"),
    ),
    Index(
        "commit_sequence_unfinished",
        "next_try_at",
        "sequence_id",
        postgresql_where=text(f"state {IS_UNFINISHED}"),
    ),
    Index(
        "commit_sequence_unannounced",
        "sequence_id",
        postgresql_where=text("state = 'DONE' AND announced_at IS NULL"),
    ),
    # Finds a dataset's partitions without a look at each publication; a stream makes many publications.
    Index(
        "commit_sequence_published",
        "dataset_id",
        "partition",
        "result_version",
        postgresql_where=text("state = 'DONE'"),
    ),
    UniqueConstraint("dataset_id", "result_version"),
    # Finds a lane's sequences; a dataset may have very many of other lanes.
    Index(None, "lane_id", "result_version"),
    Index(None, "run_id"),
)

past_sequence = Table(
    "past_sequence",
    metadata,
    Column("sequence_id", Uuid, primary_key=True),
    Column("dataset_id", ForeignKey(dataset.c.dataset_id), nullable=False),
    Column("lane_id", ForeignKey(lane.c.lane_id), nullable=False),
    Column("state", Text, nullable=False),
    CheckConstraint(f"state {IS_OVER}", name="state"),
)

attempt = Table(
    "attempt",
    metadata,
    Column("attempt_id", Uuid, primary_key=True),
    Column("sequence_id", ForeignKey(commit_sequence.c.sequence_id), nullable=False),
    Column("dataset_id", ForeignKey(dataset.c.dataset_id), nullable=False),
    Column("lane_id", ForeignKey(lane.c.lane_id), nullable=False),
    Column("fence", BigInteger, nullable=False),
    Column("multi_work_unit", Integer, nullable=False),
    Column("try_number", Integer, nullable=False),
    Column("state", Text, nullable=False),
    # Absolute path on the destination's file system; unique to this attempt and never used again.
    Column("staging_path", Text, nullable=False, unique=True),
    # The name of its work; attempts that work together share it.
    Column("tag", Text),
    # JSON with which its job kind ends that work before the staging is touched.
    Column("interruption", JSONB),
    Column("row_count", BigInteger),
    Column("file_count", BigInteger),
    Column("file_bytes", BigInteger),
    Column("error", Text),
    moment("started_at", nullable=False, default_now=True),
    moment("ended_at"),
    # Every fence that captured, or was about to capture, its directory: their names follow from these.
    Column("cleanup_fences", ARRAY(BigInteger), nullable=False, server_default=text("'{}'")),
    moment("cleaned_at"),
    CheckConstraint(f"state IN ({states('RUNNING', 'STAGED', 'FAILED', 'CANCELLED')})", name="state"),
    # One winner for each MultiWorkUnit of a sequence.
    Index(
        "attempt_one_winner",
        "sequence_id",
        "multi_work_unit",
        unique=True,
        postgresql_where=text("state = 'STAGED'"),
    ),
    Index("attempt_to_clean", "lane_id", postgresql_where=text("cleaned_at IS NULL")),
    Index(None, "sequence_id"),
)

work_unit = Table(
    "work_unit",
    metadata,
    Column("work_unit_id", Uuid, primary_key=True),
    Column("sequence_id", ForeignKey(commit_sequence.c.sequence_id), nullable=False),
    Column("multi_work_unit", Integer),
    Column("key_name", Text, nullable=False),
    Column("number", Integer, nullable=False),
    Column("low", JSONB),
    Column("expected_high", JSONB),
    Column("actual_high", JSONB),
    Column("reread_from", JSONB),
    Column("estimated_row_count", BigInteger),
    Column("state", Text, nullable=False),
    CheckConstraint(
        "state IN (" + states("PENDING", "RUNNING", "SUCCESSFUL", "COMMITTED", "FAILED", "CANCELLED", "SKIPPED") + ")",
        name="state",
    ),
    Index(None, "sequence_id"),
)

segment = Table(
    "segment",
    metadata,
    Column("segment_id", Uuid, primary_key=True),
    Column("sequence_id", ForeignKey(commit_sequence.c.sequence_id), nullable=False),
    # Null once its sequence was folded.
    Column("attempt_id", ForeignKey(attempt.c.attempt_id)),
    Column("dataset_id", ForeignKey(dataset.c.dataset_id), nullable=False),
    Column("number", Integer, nullable=False),
    Column("role", Text, nullable=False),
    Column("partition", Text, nullable=False),
    # An Arrow IPC stream, compressed with Zstandard: commit.segment describes its columns.
    Column("payload", LargeBinary, nullable=False),
    Column("digest", LargeBinary, nullable=False),
    Column("step_count", BigInteger, nullable=False),
    Column("file_count", BigInteger, nullable=False),
    Column("row_count", BigInteger, nullable=False),
    Column("file_bytes", BigInteger, nullable=False),
    # The Spark schema of its files, as Spark's own JSON; null where the files are not tabular.
    Column("file_schema", JSONB),
    # The newest version with which rows of its files were published; null: the version that its sequence makes.
    Column("version", BigInteger),
    # Only segments in the sealed digest are ever executed or read.
    Column("sealed", Boolean, nullable=False, server_default=text("false")),
    Column("retired_by", ForeignKey(commit_sequence.c.sequence_id)),
    moment("retired_at"),
    moment("removed_at"),
    UniqueConstraint("attempt_id", "number"),
    CheckConstraint(f"role IN ({states('data', 'quarantine', 'dead_letter')})", name="role"),
    Index(None, "sequence_id"),
    Index(
        "segment_active",
        "dataset_id",
        "partition",
        postgresql_where=text("sealed AND retired_by IS NULL"),
    ),
    Index(None, "retired_by", postgresql_where=text("retired_by IS NOT NULL")),
    Index(
        "segment_to_remove",
        "retired_at",
        postgresql_where=text("retired_by IS NOT NULL AND removed_at IS NULL"),
    ),
)

planned_move = Table(
    "planned_move",
    metadata,
    Column("sequence_id", ForeignKey(commit_sequence.c.sequence_id), primary_key=True),
    Column("key_id", ForeignKey(watermark_key.c.key_id), primary_key=True, autoincrement=False),
    # The compare-and-set's old value; null when the key has never been published.
    Column("old_watermark", JSONB),
    Column("old_bytes", LargeBinary),
    # Null where the watermark stays.
    Column("new_watermark", JSONB),
    Column("new_bytes", LargeBinary),
)

# A planned move without intervals is a snapshot, which has a generation and no position.

planned_interval = Table(
    "planned_interval",
    metadata,
    Column("sequence_id", Uuid, primary_key=True),
    Column("key_id", BigInteger, primary_key=True, autoincrement=False),
    Column("low", JSONB),
    Column("low_bytes", LargeBinary, primary_key=True),
    Column("high", JSONB, nullable=False),
    Column("high_bytes", LargeBinary, nullable=False),
    Column("reread_from", JSONB),
    ForeignKeyConstraint(["sequence_id", "key_id"], [planned_move.c.sequence_id, planned_move.c.key_id]),
    CheckConstraint("low_bytes <= high_bytes", name="order"),
)

_WM_RANGE: ColumnClause[object] = literal_column(f"{SCHEMA}.wm_range(low_bytes, high_bytes)")
_KEY_RANGE: ColumnClause[object] = literal_column("int8range(key_id, key_id, '[]'::text)")

ledger = Table(
    "ledger",
    metadata,
    Column("ledger_id", BigInteger, Identity(always=True), primary_key=True),
    Column("key_id", ForeignKey(watermark_key.c.key_id), nullable=False),
    Column("sequence_id", ForeignKey(commit_sequence.c.sequence_id), nullable=False),
    Column("is_generation", Boolean, nullable=False),
    Column("low", JSONB),
    Column("high", JSONB),
    Column("low_bytes", LargeBinary),
    Column("high_bytes", LargeBinary),
    Column("reread_from", JSONB),
    Column("active", Boolean, nullable=False, server_default=text("true")),
    Column("retired_by", ForeignKey(commit_sequence.c.sequence_id)),
    CheckConstraint("is_generation = (high_bytes IS NULL)", name="generation"),
    CheckConstraint("active = (retired_by IS NULL)", name="retired"),
    ExcludeConstraint(
        (_KEY_RANGE, "="),
        (_WM_RANGE, "&&"),
        name="ledger_no_overlap",
        using="gist",
        where=text("active AND NOT is_generation"),
    ),
    Index(
        "ledger_one_generation",
        "key_id",
        unique=True,
        postgresql_where=text("active AND is_generation"),
    ),
    Index(None, "sequence_id"),
    Index(None, "key_id"),
    Index(None, "retired_by", postgresql_where=text("retired_by IS NOT NULL")),
)

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
