"""The ledger: what is published, by intervals."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    Identity,
    Index,
    LargeBinary,
    Table,
    literal_column,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB, ExcludeConstraint
from sqlalchemy.sql.expression import ColumnClause

from gobblin_assets.db.table_metadata import SCHEMA, metadata
from gobblin_assets.db.tables.log import commit_sequence
from gobblin_assets.db.tables.state import watermark_key

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
